"""Waiting: blocks one after the other, ahead and at once; slots, arrivals, what is cancelled."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aera import Question, Response, Schedule
from aera.arrays import Floats
from aera.errors import UsageError
from aera.evidence.votes import VOTE_FEATURE_NAMES
from aera.lab.replay.server import Server
from aera.lab.replay.waiting import Course, Waited, courses, simulate
from aera.network import Network
from aera.policies.ahead import Ahead
from aera.pools.record import VotedRecord
from aera.tally import Vote

SCHEDULE = Schedule((2, 4, 8))
IDLE = Server(1.0)
TOKENS = (3, 5, 10, 1, 2, 2, 2, 20)
"""Of the blocks, the longest take 5, 10 and 20 seconds."""


def record_of(tokens: tuple[int, ...] = TOKENS, *, prompt: int = 0) -> VotedRecord:
    responses = tuple(Response("", tokens=each, prompt_tokens=prompt) for each in tokens)
    return VotedRecord(Question("q", "?"), responses, (Vote("1"),) * len(tokens))


def ahead_of(start: tuple[float, float], later: tuple[float, float] | None = None) -> Ahead:
    """Chances at first, and once something has come; the same where nothing else is said."""
    width = len(VOTE_FEATURE_NAMES)
    chances = np.array(start if later is None else later)
    bias = np.log(chances / (1 - chances))
    network = Network(
        np.zeros(width), np.zeros(width), np.ones(width), (), np.zeros((2, width)), bias
    )
    return Ahead((2, 4), np.array(start), network)


EVEN = ahead_of((0.5, 0.5))


def ask(
    stop: int, hurry: float = 0.0, server: Server = IDLE, ahead: Ahead | None = EVEN
) -> tuple[float, float]:
    """Seconds and tokens of one question that stops at a column."""
    waited = simulate([Course(record_of(), SCHEDULE, stop, ahead)], server, hurry=hurry)
    return float(waited.seconds[0]), float(waited.tokens[0])


@pytest.mark.parametrize("singly", [False, True])
@pytest.mark.parametrize(("stop", "seconds", "tokens"), [(0, 5, 8), (1, 15, 19), (2, 35, 45)])
def test_without_hurry_it_waits_for_the_longest_of_every_block(
    stop: int, seconds: float, tokens: float, singly: bool
) -> None:
    assert ask(stop, server=replace(IDLE, singly=singly)) == (seconds, tokens)


@pytest.mark.parametrize(("stop", "seconds"), [(0, 5), (1, 10), (2, 20)])
def test_in_full_hurry_it_waits_for_the_longest_of_all_blocks_that_were_wanted(
    stop: int, seconds: float
) -> None:
    assert ask(stop, 1.0)[0] == seconds


def test_what_began_in_vain_costs_what_it_had_generated_when_the_run_stopped() -> None:
    # 3 + 5 wanted; 5 of 10, 1, and of the last block 2 + 2 + 2 and 5 of 20
    assert ask(0, 1.0) == (5, 8 + 5 + 1 + 6 + 5)


def test_a_block_begins_ahead_where_its_chance_is_high_enough() -> None:
    likely = ahead_of((0.7, 0.4), (0.7, 0.4))
    assert ask(2, 0.2, ahead=likely) == (35, 45)
    assert ask(2, 0.3, ahead=likely)[0] == 30  # the second with the first, the third after both
    assert ask(2, 0.6, ahead=likely)[0] == 20


def test_what_comes_back_changes_the_chance() -> None:
    warned = ahead_of((0.1, 0.1), (0.9, 0.1))
    assert ask(1, 0.5, ahead=warned)[0] == 15  # the block comes back as a whole
    assert ask(1, 0.5, replace(IDLE, singly=True), warned)[0] == 3 + 10  # after its first response


def test_what_arrived_beyond_the_block_is_looked_at_in_the_order_asked() -> None:
    course = Course(record_of(), SCHEDULE, 2, EVEN)
    seen: list[tuple[int, ...]] = []

    class Watching(Ahead):
        def chance(self, prefix: object, past: int) -> float:
            seen.append(tuple(each.tokens for each in prefix.responses))  # type: ignore[attr-defined]
            return 0.5 if past == 2 else 0.0

    watching = Watching(EVEN.past, EVEN.start, EVEN.network)
    simulate([replace(course, ahead=watching)], Server(1.0, singly=True), hurry=0.5)
    assert [*dict.fromkeys(seen)] == [(), (1,), (3, 1), (3, 5, 1)]


def test_without_anything_that_foresees_nothing_begins_ahead() -> None:
    assert ask(2, 1.0, ahead=None) == (35, 45)


def test_a_fixed_budget_is_one_block() -> None:
    [course] = courses([record_of()], np.array([0]), Schedule((8,)))
    assert simulate([course], IDLE).seconds.tolist() == [20]


# --- the server -----------------------------------------------------------------------------------


def test_sequences_take_slots_one_by_one_in_the_order_asked() -> None:
    fixed = Course(record_of((4, 3, 2, 1)), Schedule((4,)), 0)
    assert simulate([fixed], Server(1.0, slots=2)).seconds.tolist() == [5]  # 4 + 1, 3 + 2
    assert simulate([fixed], Server(2.0, slots=1)).seconds.tolist() == [5]


def test_a_cancelled_sequence_frees_its_slot_and_one_that_never_began_costs_nothing() -> None:
    first = Course(record_of((4, 100)), Schedule((1, 2)), 0, ahead_of((0.9, 0.9)))
    other = Course(record_of((3,)), Schedule((1,)), 0)
    asked = Server(1.0, slots=2, load=1e9)
    waited = simulate([first, other], asked, hurry=1.0)
    assert waited.tokens.round(3).tolist() == [8, 3]
    np.testing.assert_allclose(waited.seconds, [4, 7], atol=1e-6)
    queued = simulate([first], Server(1.0, slots=1), hurry=1.0)
    assert (queued.seconds.tolist(), queued.tokens.tolist()) == ([4], [4])


def test_a_busy_server_eases_the_hurry() -> None:
    long = Course(record_of((50,) * 9), Schedule((9,)), 0)
    eager = Course(record_of(), SCHEDULE, 2, EVEN)
    alone = simulate([eager], Server(1.0, slots=64), hurry=0.6).seconds[-1]
    beside = simulate([long, eager], Server(1.0, slots=13, load=1e9), hurry=0.6).seconds[-1]
    assert (alone, round(beside, 3)) == (20, 35)


def test_prompts_take_their_time_before_every_call() -> None:
    record = record_of(prompt=30)
    [waited] = simulate([Course(record, SCHEDULE, 1)], Server(1.0, prefill=10.0)).seconds
    assert waited == 3 + 5 + 3 + 10


def test_questions_arrive_at_the_load_that_was_asked_for() -> None:
    server = Server(1.0, load=4.0)
    times = server.arrivals(4_000, seed=1)
    assert times[-1] / 4_000 == pytest.approx(0.25, rel=0.05)
    assert np.array_equal(times, server.arrivals(4_000, seed=1))
    assert not np.array_equal(times, server.arrivals(4_000, seed=2))


def test_questions_wait_for_each_other_under_load_only() -> None:
    many = [Course(record_of((10,)), Schedule((1,)), 0)] * 200
    slack, tight = (
        simulate(many, Server(1.0, slots=1, load=load)).figures for load in (0.001, 0.09)
    )
    assert slack.mean == pytest.approx(10, rel=0.02)
    assert tight.mean > 2 * slack.mean
    assert slack.tokens == tight.tokens == 10


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("tokens_per_second=50", Server(50.0)),
        ("tokens_per_second=50, slots=64", Server(50.0, 64)),
        ("tokens_per_second=5,prefill=100,load=0.5,singly", Server(5.0, None, 100.0, 0.5, True)),
    ],
)
def test_a_server_is_read(text: str, server: Server) -> None:
    assert Server.parse(text) == server


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("slots=64", "tokens_per_second"),
        ("50", "tokens_per_second=50,slots=64"),
        ("tokens_per_second=fast", "tokens_per_second=fast"),
        ("tokens_per_second=50,slots=0", "slots of a server is more than 0"),
        ("tokens_per_second=50,slots=1.5", "slots=1.5"),
        ("tokens_per_second=50,gpus=2", '"gpus"'),
        ("tokens_per_second=-1", "more than 0"),
    ],
)
def test_what_is_no_server_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Server.parse(text)


def test_a_hurry_beyond_one_is_refused() -> None:
    with pytest.raises(UsageError, match="between 0 and 1"):
        ask(0, 1.5)


# --- whatever the responses -----------------------------------------------------------------------

lengths = st.lists(st.integers(1, 60), min_size=8, max_size=8).map(tuple)


def longest(tokens: tuple[int, ...]) -> Floats:
    return np.array([max(tokens[:2]), max(tokens[2:4]), max(tokens[4:])], np.float64)


def run(made: list[Course], hurry: float, singly: bool) -> Waited:
    return simulate(made, replace(IDLE, singly=singly), hurry=hurry)


@given(lengths, st.integers(0, 2), st.booleans(), st.tuples(st.floats(0.1, 0.9)))
def test_hurry_saves_time_and_costs_at_most_the_full_budget(
    tokens: tuple[int, ...], stop: int, singly: bool, chance: tuple[float]
) -> None:
    made = [Course(record_of(tokens), SCHEDULE, stop, ahead_of((chance[0], chance[0] / 2)))]
    calm, brisk, eager = (run(made, hurry, singly) for hurry in (0.0, 0.5, 1.0))
    needed = longest(tokens)[: stop + 1]
    assert calm.seconds[0] == needed.sum()
    assert eager.seconds[0] == needed.max()
    assert eager.seconds[0] <= brisk.seconds[0] <= calm.seconds[0]
    assert calm.tokens[0] == sum(tokens[: SCHEDULE.checkpoints[stop]])
    for waited in (brisk, eager):
        assert calm.tokens[0] <= waited.tokens[0] <= sum(tokens)
