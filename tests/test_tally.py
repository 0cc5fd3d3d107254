import math
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aera import Prefix, Tally, Vote
from aera.voting.rules import plain_vote

streams = st.lists(st.sampled_from(["a", "b", "c", None]), max_size=40)


def tally_of(answers: list[str | None]) -> Tally:
    return Tally().add(Vote(answer) for answer in answers)


def test_without_votes_nobody_leads() -> None:
    tally = tally_of([None, None])
    assert tally.leaders.answer is None
    assert (tally.total, tally.majority, tally.gap, tally.entropy) == (0, 0, 0, 0)
    assert not tally.leaders.tied


def test_an_answer_seen_first_wins_a_tie_and_the_tie_is_recorded() -> None:
    assert tally_of(["b", "a", "a", "b"]).leaders.answer == "b"
    assert tally_of(["b", "a", "a", "b"]).leaders.tied
    assert not tally_of(["b", "a", "a"]).leaders.tied


@given(streams)
def test_leaders_are_those_of_a_counter(answers: list[str | None]) -> None:
    counts = Counter(answer for answer in answers if answer).most_common()
    leaders = tally_of(answers).leaders
    top = [*counts, (None, 0), (None, 0)][:2]
    assert (leaders.answer, leaders.weight, leaders.runner_up) == (*top[0], top[1][1])
    assert leaders.tied == (len(counts) > 1 and counts[0][1] == counts[1][1])


@given(streams)
def test_shares_and_entropy_follow_their_formulas(answers: list[str | None]) -> None:
    tally, counts = tally_of(answers), sorted(Counter(a for a in answers if a).values())
    shares = [count / sum(counts) for count in counts]
    assert tally.majority == (max(shares) if shares else 0)
    second = shares[-2] if len(shares) > 1 else 0
    assert tally.gap == pytest.approx(tally.majority - second)
    bits = -sum(p * math.log(p) for p in shares)
    assert tally.entropy == pytest.approx(bits / math.log(len(shares)) if bits else 0)


@pytest.mark.parametrize("distinct", range(2, 60))
def test_entropy_never_exceeds_one(distinct: int) -> None:
    assert tally_of([str(i) for i in range(distinct)]).entropy <= 1


@given(streams, streams)
def test_counting_in_two_steps_equals_counting_at_once(
    first: list[str | None], second: list[str | None]
) -> None:
    steps = tally_of(first).add(Vote(answer) for answer in second)
    assert list(steps.weights.items()) == list(tally_of(first + second).weights.items())


@given(streams, st.randoms())
def test_order_changes_the_winner_only_in_a_tie(answers: list[str | None], rng: Random) -> None:
    shuffled = rng.sample(answers, len(answers))
    before, after = tally_of(answers).leaders, tally_of(shuffled).leaders
    assert before.tied == after.tied
    assert before.tied or before.answer == after.answer
    assert (before.weight, before.runner_up) == (after.weight, after.runner_up)


def test_weights_outvote_numbers() -> None:
    votes = [Vote("a", weight=0.4), Vote("a", weight=0.4), Vote("b", weight=0.9)]
    leaders = Tally().add(votes).leaders
    assert leaders.answer == "b"
    assert (leaders.weight, leaders.runner_up) == pytest.approx((0.9, 0.8))


def test_adding_leaves_the_old_tally_as_it_was() -> None:
    before = tally_of(["a"])
    before.add([Vote("b")])
    assert dict(before.weights) == {"a": 1.0}


def test_three_unreadable_replies_do_not_outvote_two_that_agree(
    prefix_of: Callable[..., Prefix],
) -> None:
    chosen = plain_vote(prefix_of([None, "7", None, "7", None]))
    assert (chosen.answer, chosen.support, chosen.total) == ("7", 2, 2)
