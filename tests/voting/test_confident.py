"""Votes of the sure: softmax weights, and a filter that never leaves too few."""

from collections.abc import Sequence

import pytest

from aera import Controller, Question, Response, Schedule, get_task
from aera.core import Prefix, Vote
from aera.errors import UsageError
from aera.lab import Truths, evaluate
from aera.policies.labels import parse_policy
from aera.pools.pool import HeldRecords, Record
from aera.solving.controller import default_controller
from aera.trace import TRACE_NAMES, UNKNOWN
from aera.voting.rules import FEWEST, cisc_vote, deepconf_vote

TASK, SCHEDULE = get_task("gsm8k"), Schedule((4, 8))
QUESTION = Question("q", "How many?")
PLACE = TRACE_NAMES.index("trace_confidence")


def said(answer: str, confidence: float | None) -> Response:
    trace = None
    if confidence is not None:
        trace = (*UNKNOWN[:PLACE], confidence, *UNKNOWN[PLACE + 1 :])
    return Response(f"\\boxed{{{answer}}}", 9, trace=trace)


def prefix_of(told: Sequence[tuple[str | None, float | None]]) -> Prefix:
    responses = [said(answer or "?", sure) for answer, sure in told]
    return Prefix(QUESTION, SCHEDULE).extend(responses, [Vote(answer) for answer, _ in told])


# --- the rules ------------------------------------------------------------------------------------


def test_one_sure_vote_outweighs_two_unsure_ones() -> None:
    told = [("1", 8.0), ("1", 8.0), ("2", 14.0)]
    assert cisc_vote(prefix_of(told)).answer == "2"
    assert cisc_vote(prefix_of([("1", 8.0), ("1", 8.0), ("2", 8.5)])).answer == "1"


def test_the_surest_tenth_votes_and_the_rest_is_not_heard() -> None:
    told = [("1", 10.0)] * 180 + [("2", 12.0)] * 20
    assert deepconf_vote(prefix_of(told)).answer == "2"


def test_the_filter_leaves_enough_for_a_vote() -> None:
    """Nineteen of twenty agree, and the two surest of them do not."""
    told = [("1", 10.0)] * 18 + [("1", 12.0), ("2", 12.0)]
    found = deepconf_vote(prefix_of(told))
    assert (found.answer, found.tied) == ("1", False)
    assert found.total == pytest.approx(24 + 10 * (FEWEST - 2))


@pytest.mark.parametrize("rule", [cisc_vote, deepconf_vote])
def test_without_traces_it_is_the_vote(rule: object) -> None:
    assert callable(rule)
    told = [("1", None), ("2", None), ("2", None), (None, None)]
    assert rule(prefix_of(told)).answer == "2"
    assert rule(prefix_of([(None, 3.0)])).answer is None
    tied = rule(prefix_of([("2", None), ("1", None)]))
    assert (tied.answer, tied.tied) == ("2", True)


def test_a_vote_without_a_trace_is_as_sure_as_the_others() -> None:
    bare = cisc_vote(prefix_of([("1", 10.0), ("2", None), ("1", 14.0)]))
    told = cisc_vote(prefix_of([("1", 10.0), ("2", 12.0), ("1", 14.0)]))
    assert bare == told


# --- by their labels ------------------------------------------------------------------------------


def records(traced: bool = True) -> HeldRecords:
    rows = [("1", 8.0), ("1", 8.0), ("2", 30.0), ("1", 8.0)] * 2
    given = tuple(said(answer, sure if traced else None) for answer, sure in rows)
    return HeldRecords([Record(QUESTION, given).read(TASK)], TASK, SCHEDULE, "made")


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


def test_a_pool_without_traces_is_refused() -> None:
    with pytest.raises(UsageError, match=r'"cisc-8" needs .* "made" have no traces'):
        evaluate(records(traced=False), [parse_policy("cisc-8")])


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


def test_a_controller_keeps_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("kept")
    default_controller(TASK).run_by("cisc-8").save(path)
    assert Controller.load(path).label == "cisc-8"
