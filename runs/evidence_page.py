"""Write docs/evidence.md from the tables of features and traits."""

from collections.abc import Sequence

from pools import ROOT, table

from aera.evidence import FEATURES, Feature
from aera.lab.audit import PROVENANCE
from aera.standing import STANDING
from aera.traits import TRAITS

PAGE = ROOT / "docs" / "evidence.md"
INTRODUCTION = f"""# Evidence

Everything a decision looks at, generated from the tables in the code by `runs/evidence_page.py`. Nothing
outside the prefix, the question and the schedule enters; `aera audit` lists where every input comes from.

- `aera train` makes a gate that looks at the [standing](#standing) of the vote, whose weights come from
  the [traits](#traits) of single responses.
- `aera train --paper` makes the paper's gate: plain votes, and the [{len(FEATURES)} features](#the-papers-features).

*First checkpoint* is the neutral value where there is no predecessor. What does not exist (a
log-probability that the server did not give, the cosine over pairs of one response) is missing, and
the training median stands in for it.
"""
STANDING_TEXT = f"""## Standing

{len(STANDING)} numbers, from `aera/standing.py`. Nothing is embedded, so a decision costs little. With plain
votes every weight is 1, and they say what the counts say.
"""
TRAITS_TEXT = f"""## Traits

{len(TRAITS)} numbers of one response beside its question, from `aera/traits.py`. The weigher turns them into
the weight of its vote; other responses, other questions and the truth have no part in it. Beyond the range
seen in training the edge of that range counts.
"""
FEATURES_TEXT = f"""## The paper's features

{len(FEATURES)} numbers of a prefix, from `aera/evidence.py`.
"""


def render() -> str:
    """The page as it should be."""
    parts = [INTRODUCTION, STANDING_TEXT, *_groups(STANDING, "measure")]
    rows = [[f"`{trait.name}`", trait.meaning] for trait in TRAITS]
    parts += [TRAITS_TEXT, _left(["trait", "meaning"], rows)]
    parts += [FEATURES_TEXT, *_groups(FEATURES, "feature")]
    return "\n".join(parts)


def _groups(features: Sequence[Feature], kind: str) -> list[str]:
    """A heading, a source and a table for every group."""
    made = []
    for group in dict.fromkeys(feature.group for feature in features):
        members = [feature for feature in features if feature.group == group]
        rows = [
            [f"`{f.name}`", "" if f.neutral is None else f"{f.neutral:g}", f.meaning]
            for f in members
        ]
        made.append(f"### {group.capitalize()} ({len(members)})\n\nFrom {PROVENANCE[group]}.\n")
        made.append(_left([kind, "first checkpoint", "meaning"], rows))
    return made


def _left(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of words, which are read from the left."""
    return table(header, rows).replace("---:", "---") + "\n"


if __name__ == "__main__":
    PAGE.write_text(render(), "utf-8")
