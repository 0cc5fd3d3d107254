"""How votes become an answer: Re2's vote, weights by confidence, and the surest alone.

Published rules stand against scorio too, which shares no code with ours.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import ceil, exp, nan
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scorio import aggregate
from streams import prefix_of

from aera import ASC, Controller, Prefix, Question, Response, Run, Schedule, Vote, get_task
from aera.cli.options import Deciding
from aera.errors import UsageError
from aera.lab import Truths, evaluate
from aera.policies.rules import parse_policy
from aera.pools.pool import HeldRecords, Record
from aera.solving.controller import default_controller
from aera.trace import TRACE_NAMES, UNKNOWN
from aera.voting import rules

TASK, SCHEDULE = get_task("gsm8k"), Schedule((4, 8, 16))
QUESTION = Question("q", "How many?")
PLACE = TRACE_NAMES.index("trace_confidence")


def sure(confidence: float | None, answer: str = "1") -> Response:
    trace = None
    if confidence is not None:
        trace = (*UNKNOWN[:PLACE], confidence, *UNKNOWN[PLACE + 1 :])
    return Response(f"\\boxed{{{answer}}}", 9, trace=trace)


def weights(confidences: list[float | None]) -> list[float]:
    responses = [sure(each) for each in confidences]
    votes = [TASK.read(each) for each in responses]
    return [vote.weight for vote in rules.TraceWeights().weigh(QUESTION, responses, votes)]


# --- the rule -------------------------------------------------------------------------------------


def test_a_vote_weighs_its_confidence_over_the_mean_so_far() -> None:
    one, two, three = exp(8 / 2), exp(10 / 2), exp(9 / 2)
    assert weights([12.5] * 6) == pytest.approx([1.0] * 6)
    assert weights([8.0, 10.0, 9.0]) == pytest.approx(
        [1.0, two / ((one + two) / 2), three / ((one + two + three) / 3)]
    )


def test_whoever_abstains_or_has_no_trace_moves_nobody() -> None:
    assert weights([8.0, None, 10.0])[::2] == weights([8.0, 10.0])
    assert weights([8.0, None, nan, float("inf"), 10.0])[1:4] == [1.0] * 3
    silent = rules.TraceWeights().weigh(QUESTION, [sure(60.0), sure(8.0)], [Vote(None), Vote("1")])
    assert [vote.weight for vote in silent] == [1.0, 1.0]


@given(st.lists(st.none() | st.floats(0, 60), min_size=2, max_size=20), st.integers(1, 19))
def test_no_weight_depends_on_what_comes_after(told: list[float | None], cut: int) -> None:
    assert weights(told)[:cut] == weights(told[:cut])


# --- in a run -------------------------------------------------------------------------------------


def some(seed: int) -> list[Response]:
    rng = Random(seed)
    return [sure(rng.choice([None, 20 * rng.random()]), rng.choice("123")) for _ in range(16)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("size", [1, 4])
def test_a_run_weighs_block_by_block_what_replay_weighs_at_once(seed: int, size: int) -> None:
    responses = some(seed)
    run = Run(QUESTION, ASC(0.99), task=TASK, schedule=SCHEDULE, weigher=rules.TraceWeights())
    while run.want:
        run.feed(responses[run.delivered : run.delivered + min(size, run.want)])
    whole = Record(QUESTION, tuple(responses)).read(TASK).weigh(rules.TraceWeights())
    assert run.prefix.votes == whole.votes[: len(run.prefix)]


# --- as a controller ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "label"), [(None, "lead-4"), ("asc-0.9", "asc-0.9"), ("asc-0.9+weighted", "asc-0.9")]
)
def test_weights_that_are_asked_for_stay_under_every_policy(policy: str | None, label: str) -> None:
    made = Deciding(None, "gsm8k", policy=policy, weights="traces").load()
    assert (made.weigher, made.label, made.pace) == (
        rules.TraceWeights(),
        f"{label}+weighted",
        "quick",
    )
    assert made.asks == {"logprobs": True, "top_logprobs": 20}


def test_weights_are_refused_where_they_cannot_be_had(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--weights is one of traces"):
        Deciding(None, "gsm8k", weights="moon").load()
    default_controller(TASK).save(tmp_path / "c")
    with pytest.raises(UsageError, match="--weights goes without --controller"):
        Deciding(tmp_path / "c", "gsm8k", weights="traces").load()


@pytest.mark.parametrize(
    ("made", "kept"),
    [
        (replace(default_controller(TASK), weigher=rules.TraceWeights()), {"weights": "traces"}),
        (default_controller(TASK).run_by("cisc-8"), {"policy": "cisc-8"}),
    ],
    ids=["weights", "a rule"],
)
def test_it_is_saved_by_its_name(made: Controller, kept: dict[str, str], tmp_path: Path) -> None:
    made.save(tmp_path / "c")
    config = json.loads((tmp_path / "c" / "config.json").read_text("utf-8"))
    assert kept.items() <= config.items()
    loaded = Controller.load(tmp_path / "c")
    assert (loaded.weigher, loaded.label) == (made.weigher, made.label)


# --- rules that look at confidence ----------------------------------------------------------------


def told_prefix(told: Sequence[tuple[str | None, float | None]]) -> Prefix:
    responses = [sure(known, answer or "?") for answer, known in told]
    return Prefix(QUESTION, Schedule((4, 8))).extend(
        responses, [Vote(answer) for answer, _ in told]
    )


@pytest.mark.parametrize("rule", [rules.cisc_vote, rules.deepconf_vote])
def test_without_traces_it_is_the_vote(rule: object) -> None:
    assert callable(rule)
    told = [("1", None), ("2", None), ("2", None), (None, None)]
    assert rule(told_prefix(told)).answer == "2"
    assert rule(told_prefix([(None, 3.0)])).answer is None
    tied = rule(told_prefix([("2", None), ("1", None)]))
    assert (tied.answer, tied.tied) == ("2", True)


def test_a_vote_without_a_trace_is_as_sure_as_the_others() -> None:
    bare = rules.cisc_vote(told_prefix([("1", 10.0), ("2", None), ("1", 14.0)]))
    told = rules.cisc_vote(told_prefix([("1", 10.0), ("2", 12.0), ("1", 14.0)]))
    assert bare == told


# --- by their labels ------------------------------------------------------------------------------


def records() -> HeldRecords:
    rows = [("1", 8.0), ("1", 8.0), ("2", 30.0), ("1", 8.0)] * 2
    given = tuple(sure(known, answer) for answer, known in rows)
    return HeldRecords([Record(QUESTION, given).read(TASK)], TASK, Schedule((4, 8)), "made")


def test_evaluate_judges_each_label_by_its_own_rule() -> None:
    labels = ["fixed-8", "cisc-8", "cisc-4", "deepconf-8", "asc-0.99"]
    frontier = evaluate(
        records(), [parse_policy(label) for label in labels], truths=Truths({"q": "2"})
    )
    points = {point.policy: point for point in frontier.points}
    assert [*points][:5] == labels
    assert [points[label].accuracy for label in labels] == [0, 100, 100, 100, 0]
    assert points["cisc-8"].family == "cisc"
    assert frontier.full_budget().accuracy == 0


@pytest.mark.parametrize("label", ["cisc-8", "deepconf-4+vote"])
def test_a_label_runs_live_and_asks_for_traces(label: str) -> None:
    made = default_controller(TASK).run_by(label)
    assert (made.label, made.asks["top_logprobs"]) == (label, 20)
    run = made.start(QUESTION)
    assert run.want in (4, 8)
    [record] = records()
    run.feed(record.responses[: run.want])
    found = run.allocation
    assert (found.answer, found.lacking) == ("2", {})
    assert found.policy.startswith(label.partition("+")[0])


# --- the paper's ----------------------------------------------------------------------------------

raws = st.sampled_from(["10", "9", "x", None, " 9", "1/2"])
re2_votes = st.lists(st.builds(lambda redo, raw: Vote(None, redo, raw), st.booleans(), raws))


def naive_re2(votes: list[Vote]) -> tuple[str | None, bool]:
    """Vote first: mode of the boxed contents, shortest then alphabetical in ties."""
    boxed = [v.raw for v in votes if not v.redo and v.raw is not None]
    boxed = boxed or [v.raw for v in votes if v.raw is not None]
    if not boxed:
        return None, False
    ranked = sorted(Counter(boxed).items(), key=lambda item: (-item[1], len(item[0]), item[0]))
    return ranked[0][0], len(ranked) > 1 and ranked[0][1] == ranked[1][1]


@given(re2_votes)
def test_re2_vote_is_the_written_rule(votes: list[Vote]) -> None:
    chosen = rules.re2_vote(prefix_of(votes))
    assert (chosen.answer, chosen.tied) == naive_re2(votes)


# --- against scorio -------------------------------------------------------------------------------


def sampled(seed: int) -> tuple[Prefix, list[str | None], list[float]]:
    """A prefix with its answers and how sure each response was."""
    rng = Random(seed)
    count, likely = rng.randrange(1, 128), rng.choice(["AB", "AAB", "ABCDE", "AAAAAAB"])
    answers = [None if rng.random() < 0.1 else rng.choice(likely) for _ in range(count)]
    known = [round(rng.gauss(12, 3), 2) for _ in answers]
    responses = [sure(each) for each in known]
    empty = Prefix(QUESTION, Schedule((128,)))
    return empty.extend(responses, [Vote(answer) for answer in answers]), answers, known


@pytest.mark.parametrize("seed", range(40))
def test_votes_select_what_scorio_selects(seed: int) -> None:
    prefix, answers, known = sampled(seed)
    valid = sum(answer is not None for answer in answers)
    keep = min(valid, max(rules.FEWEST, ceil(rules.CONFIDENT_SUREST * valid)))
    assert rules.plain_vote(prefix).answer == aggregate.majority_vote(answers)
    softmax = aggregate.softmax_weighted_vote(answers, known, temperature=rules.SCALE)
    assert rules.cisc_vote(prefix).answer == softmax
    if valid:
        assert rules.deepconf_vote(prefix).answer == aggregate.filtered_vote(
            answers, known, keep=int(keep)
        )
