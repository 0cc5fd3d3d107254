"""Weights from the confidence of the tokens: no learning, and nothing that comes later counts."""

import json
from dataclasses import replace
from math import exp, nan
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aera import ASC, Controller, Question, Response, Run, Schedule, get_task
from aera.cli.options import Deciding
from aera.core import Vote
from aera.errors import UsageError
from aera.pools.pool import Record
from aera.solving.controller import default_controller
from aera.trace import TRACE_NAMES, UNKNOWN
from aera.voting.rules import TraceWeights

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
    return [vote.weight for vote in TraceWeights().weigh(QUESTION, responses, votes)]


# --- the rule -------------------------------------------------------------------------------------


def test_a_vote_weighs_its_confidence_over_the_mean_so_far() -> None:
    one, two, three = exp(8 / 2), exp(10 / 2), exp(9 / 2)
    assert weights([8.0, 10.0, 9.0]) == pytest.approx(
        [1.0, two / ((one + two) / 2), three / ((one + two + three) / 3)]
    )


def test_equal_confidence_is_plain_votes() -> None:
    assert weights([12.5] * 6) == pytest.approx([1.0] * 6)


def test_whoever_abstains_or_has_no_trace_moves_nobody() -> None:
    assert weights([8.0, None, 10.0])[::2] == weights([8.0, 10.0])
    assert weights([8.0, None, nan, float("inf"), 10.0])[1:4] == [1.0] * 3
    silent = TraceWeights().weigh(QUESTION, [sure(60.0), sure(8.0)], [Vote(None), Vote("1")])
    assert [vote.weight for vote in silent] == [1.0, 1.0]


def test_a_confidence_beyond_all_measure_stays_a_number() -> None:
    assert weights([9999.0, 8.0, 9999.0]) == pytest.approx([1.0, 0.0, 1.5], abs=1e-9)


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
    run = Run(QUESTION, ASC(0.99), task=TASK, schedule=SCHEDULE, weigher=TraceWeights())
    while run.want:
        run.feed(responses[run.delivered : run.delivered + min(size, run.want)])
    whole = Record(QUESTION, tuple(responses)).read(TASK).weigh(TraceWeights())
    assert run.prefix.votes == whole.votes[: len(run.prefix)]


def test_votes_without_a_trace_are_counted() -> None:
    run = Run(QUESTION, ASC(0.5), task=TASK, schedule=SCHEDULE, weigher=TraceWeights())
    run.feed([sure(None), sure(3.0), Response("no idea"), sure(None)])
    assert run.allocation.lacking == {"came without traces and weigh as a usual one": 2}


# --- as a controller ------------------------------------------------------------------------------


def test_a_cold_start_on_traces_asks_for_them_and_is_named() -> None:
    made = Deciding(None, "gsm8k", weights="traces").load()
    assert made.asks == {"logprobs": True, "top_logprobs": 20}
    assert made.label == "asc-0.95+weighted"
    assert made.pace == "quick"
    assert default_controller().asks == {}


@pytest.mark.parametrize("policy", ["asc-0.9", "asc-0.9+weighted"])
def test_weights_that_were_asked_for_stay_under_every_policy(policy: str) -> None:
    made = Deciding(None, "gsm8k", policy=policy, weights="traces").load()
    assert (made.weigher, made.label) == (TraceWeights(), "asc-0.9+weighted")


def test_weights_are_refused_where_they_cannot_be_had(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--weights is one of traces"):
        Deciding(None, "gsm8k", weights="moon").load()
    default_controller(TASK).save(tmp_path / "c")
    with pytest.raises(UsageError, match="--weights goes without --controller"):
        Deciding(tmp_path / "c", "gsm8k", weights="traces").load()


def test_it_is_saved_by_its_name(tmp_path: Path) -> None:
    made = replace(default_controller(TASK), weigher=TraceWeights())
    made.save(tmp_path / "c")
    assert json.loads((tmp_path / "c" / "config.json").read_text("utf-8"))["weights"] == "traces"
    assert Controller.load(tmp_path / "c").weigher == TraceWeights()
