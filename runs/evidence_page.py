"""Write docs/evidence.md from the tables of features and traits."""

from collections.abc import Sequence

from pools import ROOT, table

from aera.lab import COUNTS, FEATURES, PROVENANCE, REDO_TAIL, TRACES, TRAITS, VOTE_FEATURES, Feature

PAGE = ROOT / "docs" / "evidence.md"
INTRODUCTION = f"""# Evidence

What does a decision look at? Only at the question, the responses seen so far and the schedule. Our tests
replace everything else to see that nothing moves; [what leaks elsewhere](evaluate.md#does-anything-leak) has a command.

- `aera train` makes a gate on the [vote features](#vote-features). Votes are weighted by the [traits](#traits) of
  single responses.
- `aera train --paper` makes the paper's gate, on plain votes and [{len(FEATURES)} features](#the-papers-features).

*First checkpoint* is the value used where there is no earlier checkpoint to compare with. An input may be missing, such
as the size of an answer that is no number. The training median then takes its place.

`runs/evidence_page.py` writes this page from the tables in the code.
"""
VOTES_TEXT = f"""## Vote features

{len(VOTE_FEATURES)} numbers from `aera/policies/gate.py`. No text is embedded
([what deciding costs](results.md#what-deciding-costs)). With plain votes every weight is 1.
"""
TRAITS_TEXT = f"""## Traits

{len(TRAITS)} numbers of one response and its question, from `aera/voting/traits.py`. The weigher turns them into the
weight of that response's vote. Other responses, other questions and the truth play no part. A value outside the range
seen in training counts as the edge of that range.

*Needs* says what a response must bring: its text, its log-probability, the trace of its tokens, or nothing beyond its
answer and its tokens. A weigher learns from what nearly all responses of its pool brought, but for their log-probability:
the text says as much ([results](results.md#end-to-end-on-vllm)), and controllers trained before still use it. One that comes with less is
weighed by a second weigher, taught on the same questions without what is missing, and where there is none all such
responses weigh the same. `aera solve` says how many there were, and the gateway warns. A trace is
{len(TRACES)} numbers that a server's `logprobs` with `top_logprobs` 20 are turned into; the confidence of a token is
minus the mean log-probability of the twenty likeliest tokens in its place.
"""
FEATURES_TEXT = f"""## The paper's features

{len(FEATURES)} numbers of the responses so far, from `aera/paper/features.py`. Two of them, `redo_rate` and
`redo_change`, are 0 unless the task has [the paper's redo rule](data.md#a-task-of-your-own), which no preset has. With
it they count responses without a box in their last {REDO_TAIL} characters. For a model that was not trained to re-solve,
that is mostly a response that was cut off: of 3,558 such responses recorded for gsm8k none says that it is better to redo
the question ([figures](paper.md#ablations)).
"""


def render() -> str:
    """The page as it should be."""
    parts = [INTRODUCTION, VOTES_TEXT, *_groups(VOTE_FEATURES)]
    rows = [
        [f"`{trait.name}`", "" if trait.group == COUNTS else trait.group, trait.meaning]
        for trait in TRAITS
    ]
    parts += [TRAITS_TEXT, _left(["trait", "needs", "meaning"], rows)]
    parts += [FEATURES_TEXT, *_groups(FEATURES)]
    return "\n".join(parts)


def _groups(features: Sequence[Feature]) -> list[str]:
    """A heading, a source and a table for every group."""
    made = []
    for group in dict.fromkeys(feature.group for feature in features):
        members = [feature for feature in features if feature.group == group]
        rows = [
            [f"`{f.name}`", "" if f.neutral is None else f"{f.neutral:g}", f.meaning]
            for f in members
        ]
        made.append(f"### {group.capitalize()} ({len(members)})\n\nFrom {PROVENANCE[group]}.\n")
        made.append(_left(["feature", "first checkpoint", "meaning"], rows))
    return made


def _left(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of words, which are read from the left."""
    return table(header, rows).markdown(words=True) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render(), "utf-8")
