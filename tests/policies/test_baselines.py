from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from math import factorial
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aera import ASC, ESC, Prefix, Schedule, Vote
from aera.core import beta_confidence

ANSWERS = ("1", "2", "3", "4", None)
SCHEDULES = [Schedule(), Schedule.parse("1-20"), Schedule((1, 7, 20, 128))]


@cache
def exact_confidence(first: int, second: int) -> Fraction:
    """The beta integral from 1/2 to 1, term by term after expanding (1 - x) ** second."""
    total, half = Fraction(0), Fraction(1, 2)
    for k in range(second + 1):
        choose = factorial(second) // factorial(k) // factorial(second - k)
        power = first + k + 1
        total += (-1) ** k * choose * (1 - half**power) / power
    return total * factorial(first + second + 1) / factorial(first) / factorial(second)


def naive_asc(answers: list[str | None], confidence: float) -> bool:
    counts = sorted(Counter(a for a in answers if a is not None).values(), reverse=True)
    first, second = [*counts, 0, 0][:2]
    return first > 0 and exact_confidence(first, second) >= Fraction(confidence)


def naive_esc(answers: list[str | None], window: int) -> bool:
    if len(answers) < window:
        return False
    last = answers[len(answers) - 1]
    for place in range(len(answers) - window, len(answers)):
        if answers[place] is None or answers[place] != last:
            return False
    return True


def random_stream(rng: Random, length: int) -> list[str | None]:
    return rng.choices(ANSWERS, weights=[rng.random() ** 3 + 1e-9 for _ in ANSWERS], k=length)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=["default", "every", "odd"])
def test_asc_and_esc_decide_as_written_out_naively(
    prefixes_of: Callable[..., list[Prefix]], schedule: Schedule
) -> None:
    rng, stops = Random(5), Counter[str]()
    policies = [(ASC(c), naive_asc, c) for c in (0.5, 0.8, 0.9, 0.95, 0.96875, 0.99)]
    policies += [(ESC(w), naive_esc, w) for w in (1, 3, 5, 8)]
    for _ in range(1_000):
        stream = random_stream(rng, schedule.last)
        for prefix in prefixes_of(stream, schedule):
            for policy, naive, dial in policies:
                expected = naive(stream[: len(prefix)], dial)
                assert policy.decide(prefix).stop == expected, (policy, stream)
                stops[f"{policy} {expected}"] += 1
    assert min(stops.values()) > 20
    assert len(stops) == 2 * len(policies)


@pytest.mark.parametrize(
    ("confidence", "needed"),
    [
        (0.90, [3, 5, 6, 8, 9, 11, 12, 13, 15, 16, 17]),
        (0.95, [4, 6, 8, 9, 11, 12, 14, 15, 17, 18, 19]),
        (0.99, [6, 9, 11, 13, 14, 16, 18, 19, 21, 23, 24]),
    ],
)
def test_asc_needs_as_many_votes_as_the_published_table(
    prefix_of: Callable[..., Prefix], confidence: float, needed: list[int]
) -> None:
    for rivals, least in enumerate(needed):
        stops = [ASC(confidence).decide(prefix_of("a" * n + "b" * rivals)).stop for n in range(30)]
        leading = [n for n in range(rivals, 30) if stops[n]]
        assert leading[0] == least


def test_whole_counts_are_exact() -> None:
    for first in range(40):
        for second in range(40):
            assert beta_confidence(first, second) == float(exact_confidence(first, second))


@given(st.integers(0, 128), st.integers(0, 128))
def test_fractional_counts_meet_the_exact_form_at_whole_ones(first: int, second: int) -> None:
    exact = beta_confidence(first, second)
    assert beta_confidence(first + 1e-7, second) == pytest.approx(exact, abs=1e-6)
    assert beta_confidence(first, second + 1e-7) == pytest.approx(exact, abs=1e-6)
    assert beta_confidence(first + 1e-10, second + 1e-10) == pytest.approx(exact, abs=1e-9)


def quadrature(first: float, second: float) -> float:
    x = (np.arange(200_000) + 0.5) / 200_000
    density = np.exp(first * np.log(x) + second * np.log1p(-x))
    return float(density[x > 0.5].sum() / density.sum())


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 60), st.floats(0, 60))
def test_fractional_counts_agree_with_quadrature(first: float, second: float) -> None:
    assert beta_confidence(first, second) == pytest.approx(quadrature(first, second), abs=1e-5)


@given(st.floats(0, 128), st.floats(0, 128), st.floats(1e-3, 4))
def test_confidence_rises_with_the_leader_and_falls_with_the_rival(
    first: float, second: float, more: float
) -> None:
    confidence = beta_confidence(first, second)
    assert beta_confidence(first + more, second) >= confidence - 1e-12
    assert beta_confidence(first, second + more) <= confidence + 1e-12
    assert 0 <= confidence <= 1


def test_thousands_of_votes_neither_overflow_nor_fail() -> None:
    assert 0.5 < beta_confidence(1100, 1095) < 0.6
    assert beta_confidence(1100.5, 1095.5) == pytest.approx(beta_confidence(1100, 1095), abs=1e-3)
    assert beta_confidence(1500, 10) == 1


def test_asc_weighs_votes(prefix_of: Callable[..., Prefix]) -> None:
    light = [Vote("a", weight=0.5)] * 4
    assert not ASC(0.95).decide(prefix_of(light)).stop
    assert ASC(0.95).decide(prefix_of(light * 2)).stop


def test_an_unreadable_response_breaks_a_unanimous_window(prefix_of: Callable[..., Prefix]) -> None:
    assert ESC(3).decide(prefix_of("baaa")).stop
    assert not ESC(3).decide(prefix_of("aaaa.")).stop
    assert not ESC(3).decide(prefix_of("a.aa")).stop
    assert not ESC(3).decide(prefix_of("...")).stop
