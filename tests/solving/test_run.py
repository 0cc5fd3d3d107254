from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import NUMERIC, QUESTION, responses_of

from aera import ASC, ESC, Bounded, Entropy, FirstValid, Fixed, Lead, Majority, Policy
from aera.core import Response, Schedule, Vote, unfold
from aera.errors import RunError
from aera.reading.task import Task
from aera.solving.run import Allocation, Run, replay
from aera.voting.rules import re2_vote

SCHEDULE = Schedule((2, 4, 8, 16))
POLICIES: list[Policy] = [
    Fixed(8),
    FirstValid(),
    Majority(0.7),
    Entropy(0.5),
    Lead(3),
    ASC(0.9),
    ESC(3),
    Bounded(ASC(0.8), minimum=3, maximum=12),
]
policies = st.sampled_from(POLICIES)
streams = st.text("123.", min_size=16, max_size=16)


def start(policy: Policy, task: Task, schedule: Schedule = SCHEDULE) -> Run:
    return Run(QUESTION, policy, task=task, schedule=schedule)


def run_blocks(policy: Policy, task: Task, responses: list[Response], most: int = 99) -> Allocation:
    """Fed a block at a time, or fewer responses."""
    run = start(policy, task)
    while run.want:
        run.feed(responses[run.delivered : run.delivered + min(most, run.want)])
    return run.allocation


@given(policies, streams)
def test_blocks_responses_and_replay_give_the_same_allocation(policy: Policy, stream: str) -> None:
    responses = responses_of(stream)
    blocks = run_blocks(policy, NUMERIC, responses)
    assert blocks == run_blocks(policy, NUMERIC, responses, most=1)
    votes = [NUMERIC.read(response) for response in responses]
    prefixes = list(unfold(QUESTION, responses, votes=votes, schedule=SCHEDULE))
    assert blocks == replay(prefixes, policy, task=NUMERIC).allocation


@settings(max_examples=200)
@given(policies, streams, streams, st.randoms())
def test_later_responses_never_change_an_earlier_decision(
    policy: Policy, stream: str, other: str, rng: Random
) -> None:
    steps = run_blocks(policy, NUMERIC, responses_of(stream)).steps
    for count in SCHEDULE:
        known = [step for step in steps if step.checkpoint <= count]
        shuffled = stream[:count] + "".join(rng.sample(stream[count:], 16 - count))
        for changed in (stream[:count] + other[count:], shuffled):
            again = run_blocks(policy, NUMERIC, responses_of(changed)).steps
            assert [step for step in again if step.checkpoint <= count] == known


def test_ending_within_a_block_votes_with_what_is_there() -> None:
    run = start(Fixed(16), NUMERIC)
    run.feed(responses_of("12"))
    run.feed(responses_of("2"))
    run.end("deadline")
    made = run.allocation
    assert (made.answer, made.responses, made.checkpoint) == ("2", 3, 2)
    assert (made.reason, run.want) == ("deadline", 0)


def test_a_block_that_cannot_be_read_is_paid_for_and_abstains() -> None:
    class Broken:
        def read(self, response: Response) -> Vote:
            raise RunError("nobody can compare this")

    run = Run(QUESTION, Fixed(8), task=Broken(), schedule=Schedule((4, 8)))
    with pytest.raises(RunError):
        run.feed(responses_of("1111"))
    run.end("failed", abstain=True)
    assert (run.allocation.responses, run.allocation.answer) == (4, None)
    assert run.allocation.completion_tokens > 0


def test_the_rule_decides_the_answer_but_not_the_stop() -> None:
    run = Run(QUESTION, Fixed(2), task=NUMERIC, schedule=SCHEDULE, rule=re2_vote)
    run.feed([Response("\\boxed{1/2}"), Response("\\boxed{8}")])
    assert (run.allocation.answer, run.allocation.leaders.tied) == ("8", True)
