import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aera import (
    ASC,
    ESC,
    Bounded,
    Decision,
    Entropy,
    FirstValid,
    Fixed,
    Lead,
    Majority,
    Policy,
    Prefix,
    Schedule,
)
from aera.errors import UsageError
from aera.policies.gate import Live
from aera.policies.rules import UNREADABLE, bounds_of, range_of

LEARNING = [FirstValid(), Majority(0), Entropy(1), Lead(0.1), ASC(0), ESC(1)]


def stop_of(policy: Policy, prefixes: list[Prefix]) -> int | None:
    """The length of the first prefix on which a policy stops."""
    return next((len(p) for p in prefixes if policy.decide(p).stop), None)


@pytest.mark.parametrize("policy", [*LEARNING, *(Bounded(p, minimum=2) for p in LEARNING)], ids=str)
def test_abstentions_alone_stop_no_policy(
    policy: Policy, prefixes_of: Callable[..., list[Prefix]]
) -> None:
    assert stop_of(policy, prefixes_of("." * 128)) is None


@pytest.mark.parametrize("policy", LEARNING, ids=str)
def test_an_empty_prefix_stops_no_policy(policy: Policy, prefix_of: Callable[..., Prefix]) -> None:
    assert not policy.decide(prefix_of([])).stop


def test_a_fixed_budget_stops_even_without_an_answer(
    prefixes_of: Callable[..., list[Prefix]],
) -> None:
    assert stop_of(Fixed(8), prefixes_of("." * 128)) == 8


@pytest.mark.parametrize(("budget", "stop"), [(1, 4), (4, 4), (5, 8), (100, 128)])
def test_a_fixed_budget_between_checkpoints_waits_for_the_next(
    prefixes_of: Callable[..., list[Prefix]], budget: int, stop: int
) -> None:
    assert stop_of(Fixed(budget), prefixes_of("a" * 128)) == stop


def test_first_valid_stops_at_the_first_block_with_a_vote(
    prefixes_of: Callable[..., list[Prefix]],
) -> None:
    assert stop_of(FirstValid(), prefixes_of("." * 9 + "a" * 7)) == 16


@pytest.mark.parametrize(
    ("answers", "share", "stops"),
    [("aaaab", 0.8, True), ("aaaab", 0.81, False), ("aaaab...", 0.8, True), ("ab", 0.5, True)],
)
def test_majority_is_a_share_of_the_valid_votes(
    prefix_of: Callable[..., Prefix], answers: str, share: float, stops: bool
) -> None:
    assert Majority(share).decide(prefix_of(answers)).stop == stops


@given(counts=st.lists(st.integers(1, 9), min_size=1, max_size=6), ceiling=st.floats(0, 1))
def test_entropy_stops_at_its_ceiling(
    prefix_of: Callable[..., Prefix], counts: list[int], ceiling: float
) -> None:
    answers = [str(rank) for rank, count in enumerate(counts) for _ in range(count)]
    shares = [count / sum(counts) for count in counts]
    entropy = -sum(p * math.log(p) for p in shares) / math.log(max(len(counts), 2))
    if abs(entropy - ceiling) > 1e-9:
        assert Entropy(ceiling).decide(prefix_of(answers)).stop == (entropy < ceiling)


def test_full_disagreement_is_within_an_entropy_ceiling_of_one(
    prefix_of: Callable[..., Prefix],
) -> None:
    assert all(Entropy(1).decide(prefix_of("abcdefgh"[:n])).stop for n in range(1, 9))


@pytest.mark.parametrize(
    ("answers", "stops"), [("aaa", True), ("aab", False), ("aa.a", True), ("babaaaa", True)]
)
def test_lead_counts_votes_ahead_of_the_runner_up(
    prefix_of: Callable[..., Prefix], answers: str, stops: bool
) -> None:
    assert Lead(3).decide(prefix_of(answers)).stop == stops


@pytest.mark.parametrize(
    "make",
    [
        lambda: Fixed(0),
        lambda: Majority(1.1),
        lambda: Entropy(-0.1),
        lambda: Lead(0),
        lambda: Lead(math.nan),
        lambda: Lead(math.inf),
        lambda: ASC(math.nan),
        lambda: ESC(0),
        lambda: Bounded(ESC(), minimum=0),
        lambda: Bounded(ESC(), minimum=9, maximum=8),
    ],
)
def test_impossible_settings_are_refused_in_one_sentence(make: Callable[[], Policy]) -> None:
    with pytest.raises(UsageError) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("minimum", "stop"), [(1, 4), (4, 4), (5, 8), (17, 32), (128, 128)])
def test_no_stop_before_the_minimum(
    prefixes_of: Callable[..., list[Prefix]], minimum: int, stop: int
) -> None:
    assert stop_of(Bounded(FirstValid(), minimum=minimum), prefixes_of("a" * 128)) == stop


@pytest.mark.parametrize(
    ("maximum", "stop"), [(3, 4), (4, 4), (7, 4), (8, 8), (100, 64), (128, 128), (999, 128)]
)
def test_the_maximum_is_never_passed_unless_the_first_block_does(
    prefixes_of: Callable[..., list[Prefix]], maximum: int, stop: int
) -> None:
    assert stop_of(Bounded(ESC(), maximum=maximum), prefixes_of("ab" * 64)) == stop


def test_the_maximum_holds_without_a_vote(prefixes_of: Callable[..., list[Prefix]]) -> None:
    assert stop_of(Bounded(ASC(), maximum=16), prefixes_of("." * 128)) == 16


@pytest.mark.parametrize(("need_vote", "stop"), [(True, 16), (False, 4)])
def test_a_vote_may_be_demanded(
    prefixes_of: Callable[..., list[Prefix]], need_vote: bool, stop: int
) -> None:
    policy = Bounded(Fixed(4), need_vote=need_vote)
    assert stop_of(policy, prefixes_of("." * 8 + "a" * 8)) == stop


limits = st.none() | st.integers(1, 64)


@settings(max_examples=200)
@given(
    answers=st.text("ab.", min_size=64, max_size=64), low=limits, high=limits, vote=st.booleans()
)
def test_limits_change_a_decision_only_where_they_say(
    prefixes_of: Callable[..., list[Prefix]],
    answers: str,
    low: int | None,
    high: int | None,
    vote: bool,
) -> None:
    minimum, maximum = sorted((low, high)) if low and high else (low, high)
    bounded = Bounded(Lead(2), minimum=minimum, maximum=maximum, need_vote=vote)
    for prefix in prefixes_of(answers, Schedule((4, 8, 16, 32, 64, 128)).upto(64)):
        if maximum and (prefix.next_checkpoint or 10**9) > maximum:
            assert bounded.decide(prefix).stop
        elif minimum and len(prefix) < minimum:
            assert not bounded.decide(prefix).stop
        else:
            assert bounded.decide(prefix) == Lead(2).decide(prefix)


def test_a_stop_at_the_maximum_is_forced_only_where_the_policy_would_go_on(
    prefixes_of: Callable[..., list[Prefix]],
) -> None:
    undecided, decided = prefixes_of("abab")[0], prefixes_of("aaaa")[0]
    limited = Bounded(Lead(3), maximum=4)
    assert limited.decide(undecided) == Decision(True, "maximum reached", forced=True)
    assert limited.decide(decided) == Decision(True, "lead")
    silent = Bounded(Fixed(4), maximum=4).decide(prefixes_of("....")[0])
    assert (silent.reason, silent.forced) == ("maximum reached", True)


def test_a_forced_stop_keeps_the_reason_of_a_gate_that_was_not_trusted() -> None:
    plain = Decision(False, "continuing may pay", 0.7).force("maximum reached")
    assert plain == Decision(True, "maximum reached", 0.7, forced=True)
    outside = Decision(False, "never seen", 0.1, outside=True).force("maximum reached")
    assert outside == Decision(True, "never seen", 0.1, forced=True, outside=True)


def test_live_a_second_block_that_cannot_be_read_ends_it(
    prefixes_of: Callable[..., list[Prefix]],
) -> None:
    live = Live.of(Lead(3))
    first, second = prefixes_of("....", Schedule((2, 4, 8)))[:2]
    assert live.decide(first) == Decision(False, "nothing could be read yet")
    assert live.decide(second) == Decision(True, UNREADABLE, forced=True)
    later = prefixes_of("a..." + "." * 12)
    assert not any(live.decide(prefix).stop for prefix in later)
    assert str(live) == "lead-3+vote"


def test_a_decision_says_why(prefix_of: Callable[..., Prefix]) -> None:
    assert Lead(3).decide(prefix_of("aaa")).reason == "lead"
    assert Lead(3).decide(prefix_of("a")).reason == "not yet: lead"
    assert Bounded(Lead(3), minimum=9).decide(prefix_of("aaa")).reason == "below the minimum"


@pytest.mark.parametrize(
    ("policy", "bounds", "taken"),
    [
        (Lead(3), (0, 128), (0, 128)),
        (Fixed(16), (0, 128), (16, 16)),
        (Fixed(256), (0, 128), (128, 128)),
        (Bounded(Lead(3), minimum=8, maximum=64), (8, 64), (8, 64)),
        (Bounded(Fixed(4), minimum=8), (8, 128), (8, 8)),
        (Live.of(Bounded(Bounded(Lead(3), maximum=32), 4, 64)), (4, 32), (4, 32)),
    ],
    ids=str,
)
def test_limits_are_found_through_every_layer(
    policy: Policy, bounds: tuple[int, int], taken: tuple[int, int]
) -> None:
    assert (bounds_of(policy, 128), range_of(policy, 128)) == (bounds, taken)
