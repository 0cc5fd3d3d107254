"""Rules, limits around them, their labels, and what is added where people get the answer."""

import re

import numpy as np
import pytest
from commands import refusal
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import prefix_of, prefixes_of

from aera import ASC, ESC, Bounded, Entropy, FirstValid, Fixed, Lead, Majority, Policy
from aera.core import Prefix, Schedule, Vote, beta_confidence
from aera.errors import UsageError
from aera.policies.gate import Live
from aera.policies.rules import UNREADABLE, Decision, label_of, parse_policy, strip_weighted

LEARNING = [FirstValid(), Majority(0), Entropy(1), Lead(0.1), ASC(0), ESC(1)]


def stop_of(policy: Policy, prefixes: list[Prefix]) -> int | None:
    """The length of the first prefix on which a policy stops."""
    return next((len(p) for p in prefixes if policy.decide(p).stop), None)


# --- rules ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", LEARNING, ids=str)
def test_abstentions_alone_stop_no_policy(policy: Policy) -> None:
    assert stop_of(policy, prefixes_of("." * 128)) is None


@pytest.mark.parametrize(
    ("policy", "answers", "stops"),
    [
        (Majority(0.8), "aaaab", True),
        (Majority(0.81), "aaaab", False),
        (Majority(0.8), "aaaab...", True),
        (Majority(0.5), "ab", True),
        *((Entropy(1), "abcdefgh"[:n], True) for n in range(1, 9)),
        (Entropy(0.81), "aaab", False),  # 0.8113
        (Entropy(0.82), "aaab", True),
        (Lead(3), "aaa", True),
        (Lead(3), "aab", False),
        (Lead(3), "aa.a", True),
        (Lead(3), "babaaaa", True),
        (ESC(3), "baaa", True),
        (ESC(3), "aaaa.", False),
        (ESC(3), "a.aa", False),
        (ESC(3), "...", False),
        (ASC(0.96875), "aaaa", True),  # exactly as sure
        (ASC(0.96876), "aaaa", False),
        (ASC(0.95), [Vote("a", weight=0.5)] * 4, False),
        (ASC(0.95), [Vote("a", weight=0.5)] * 8, True),
    ],
)
def test_a_rule_looks_at_its_number_of_the_valid_votes(
    policy: Policy, answers: str | list[Vote], stops: bool
) -> None:
    assert policy.decide(prefix_of(answers)).stop == stops


@pytest.mark.parametrize(
    ("policy", "answers", "stop"),
    [
        (Fixed(8), "." * 128, 8),
        *((Fixed(n), "a" * 128, stop) for n, stop in ((1, 4), (4, 4), (5, 8), (100, 128))),
        (FirstValid(), "." * 9 + "a" * 7, 16),
        (Bounded(ESC(), maximum=3), "ab" * 64, 4),  # never passed unless the first block does
        (Bounded(ASC(), maximum=16), "." * 128, 16),
        (Bounded(Fixed(4), need_vote=True), "." * 8 + "a" * 8, 16),
        (Bounded(Fixed(4), need_vote=False), "." * 8 + "a" * 8, 4),
    ],
)
def test_a_policy_stops_at_its_checkpoint(policy: Policy, answers: str, stop: int) -> None:
    assert stop_of(policy, prefixes_of(answers)) == stop


def quadrature(first: float, second: float) -> float:
    x = (np.arange(200_000) + 0.5) / 200_000
    density = np.exp(first * np.log(x) + second * np.log1p(-x))
    return float(density[x > 0.5].sum() / density.sum())


@settings(max_examples=60)
@given(st.floats(0, 60), st.floats(0, 60), st.floats(1e-3, 4))
def test_the_confidence_is_the_beta_integral(first: float, second: float, more: float) -> None:
    confidence = beta_confidence(first, second)
    assert confidence == pytest.approx(quadrature(first, second), abs=1e-5)
    whole = beta_confidence(int(first), int(second))
    assert beta_confidence(int(first) + 1e-10, int(second)) == pytest.approx(whole)
    assert beta_confidence(first + more, second) >= confidence - 1e-12
    assert beta_confidence(first, second + more) <= confidence + 1e-12


# --- limits, and what live answers add ------------------------------------------------------------

limits = st.none() | st.integers(1, 64)


@settings(max_examples=200)
@given(
    answers=st.text("ab.", min_size=64, max_size=64), low=limits, high=limits, vote=st.booleans()
)
def test_limits_change_a_decision_only_where_they_say(
    answers: str, low: int | None, high: int | None, vote: bool
) -> None:
    minimum, maximum = sorted((low, high)) if low and high else (low, high)
    bounded = Bounded(Lead(2), minimum=minimum, maximum=maximum, need_vote=vote)
    for prefix in prefixes_of(answers, Schedule().upto(64)):
        if maximum and (prefix.next_checkpoint or 10**9) > maximum:
            assert bounded.decide(prefix).stop
        elif minimum and len(prefix) < minimum:
            assert not bounded.decide(prefix).stop
        else:
            assert bounded.decide(prefix) == Lead(2).decide(prefix)


@pytest.mark.parametrize(
    ("policy", "answers", "decision"),
    [
        (Lead(3), "aaaa", Decision(True, "lead")),
        (Lead(3), "abab", Decision(False, "not yet: lead")),
        (Bounded(Lead(3), minimum=9), "aaaa", Decision(False, "below the minimum")),
        (Bounded(Lead(3), maximum=4), "abab", Decision(True, "maximum reached", forced=True)),
        (Bounded(Lead(3), maximum=4), "aaaa", Decision(True, "lead")),
        (Bounded(Fixed(4), maximum=4), "....", Decision(True, "maximum reached", forced=True)),
    ],
)
def test_a_decision_says_why(policy: Policy, answers: str, decision: Decision) -> None:
    assert policy.decide(prefixes_of(answers)[0]) == decision


def test_a_forced_stop_keeps_the_reason_of_a_gate_that_was_not_trusted() -> None:
    plain = Decision(False, "continuing may pay", 0.7).force("maximum reached")
    assert plain == Decision(True, "maximum reached", 0.7, forced=True)
    outside = Decision(False, "never seen", 0.1, outside=True).force("maximum reached")
    assert outside == Decision(True, "never seen", 0.1, forced=True, outside=True)


def test_live_a_second_block_that_cannot_be_read_ends_it() -> None:
    live = Live.of(Lead(3))
    first, second = prefixes_of("....", Schedule((2, 4, 8)))[:2]
    assert live.decide(first) == Decision(False, "nothing could be read yet")
    assert live.decide(second) == Decision(True, UNREADABLE, forced=True)
    later = prefixes_of("a..." + "." * 12)
    assert not any(live.decide(prefix).stop for prefix in later)
    assert str(live) == "lead-3+vote"


# --- labels ---------------------------------------------------------------------------------------

counts = st.integers(1, 10**7)
shares = st.floats(0, 1)
plain = st.one_of(
    st.builds(Fixed, counts),
    st.builds(ESC, counts),
    st.builds(ASC, shares),
    st.builds(Majority, shares),
    st.builds(Entropy, shares),
    st.builds(Lead, st.floats(0, 1e30, exclude_min=True)),
    st.just(FirstValid()),
)
bounded = st.builds(
    lambda policy, low, more: Bounded(policy, low, low + more), plain, counts, counts
)


@pytest.mark.parametrize(
    ("policy", "label", "weighted"),
    [
        (Fixed(128), "fixed-128", "weighted-128"),
        (ASC(0.95), "asc-0.95", "asc-0.95+weighted"),
        (FirstValid(), "first-valid", "first-valid+weighted"),
        (Bounded(Fixed(8)), "fixed-8+vote", "weighted-8+vote"),
        (Bounded(ESC(5), 8), "esc-5+min8+vote", "esc-5+min8+vote+weighted"),
        (Bounded(Lead(3), 8, 64, False), "lead-3+min8+max64", "lead-3+min8+max64+weighted"),
    ],
)
def test_a_label_names_its_policy_and_its_votes(policy: Policy, label: str, weighted: str) -> None:
    assert parse_policy(label) == policy
    assert label_of(policy, weighted=False) == str(policy) == label
    assert label_of(policy, weighted=True) == weighted


@given(plain | bounded)
def test_every_label_reads_back_as_the_same_policy(policy: Policy) -> None:
    assert parse_policy(str(policy)) == policy
    assert strip_weighted(label_of(policy, weighted=True)) == str(policy)
    assert strip_weighted(str(policy)) == str(policy)


MEANINGLESS = (
    "|asc|asc-|asc-much|asc-1.5|asc-nan|esc-2.5|esc-0|fixed--4|lead-nan|lead-0|first-valid-3|"
    "fixed-0|majority-1.1|entropy--0.1|lead-inf|esc-5+min|esc-5+min0|esc-5+max0|"
    "esc-5+min8+max4|esc-5+sometimes|esc-5+|+min4"
)


@pytest.mark.parametrize(
    ("label", "said"),
    [
        *((label, ".") for label in MEANINGLESS.split("|")),
        ("best", r'"best".*asc-N.*first-valid'),
        ("asc-0.9+weighted", "weights belong to a controller"),
        ("weighted-128", "weights belong to a controller"),
        ("esc-5+vote+weighted", "weights belong to a controller"),
    ],
)
def test_a_label_that_makes_no_sense_is_refused_in_one_sentence(label: str, said: str) -> None:
    assert re.search(said, refusal(UsageError, parse_policy, label))
