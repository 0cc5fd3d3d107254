import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from aera.lab.calibrating.certificate import betting_p_values, fixed_sequence, questions_needed

Floats = NDArray[np.float64]
ALPHA = 0.1


def draw(questions: int, studies: int, *, wins: float, regrets: float, seed: int) -> Floats:
    """Independent studies in columns: D is +1, 0 or -1."""
    u = np.random.default_rng(seed).random((questions, studies))
    return np.where(u < regrets, 1.0, np.where(u < regrets + wins, -1.0, 0.0))


def betting_p_value(losses: Floats, max_loss: float, *, seed: int, alpha: float = ALPHA) -> float:
    return float(betting_p_values(losses[:, None], max_loss, seed=seed, alpha=alpha)[0])


def certified(losses: Floats, max_loss: float, *, alpha: float = ALPHA) -> float:
    return float((betting_p_values(losses, max_loss, seed=0, alpha=alpha) <= alpha).mean())


def set_once(losses: Floats, max_loss: float) -> float:
    """The textbook Waudby-Smith and Ramdas p-value, written out for one study."""
    x, m, n = (1 + losses) / 2, (1 + max_loss) / 2, len(losses)
    mean = (0.5 + np.cumsum(x)) / np.arange(2, n + 2)
    spread = (0.25 + np.cumsum((x - mean) ** 2)) / np.arange(2, n + 2)
    spread = np.concatenate([[0.25], spread[:-1]])
    bets = np.minimum(np.sqrt(2 * math.log(1 / ALPHA) / (n * spread)), 0.99 / (1 - m))
    wealth = np.cumprod(1 - bets * (x - m))
    return min(1.0, 1 / float(wealth.max()))


@pytest.mark.parametrize("alpha", [0.1, 0.05])
@pytest.mark.parametrize("wins", [0.0, 0.02, 0.2, 0.49])
def test_false_certificates_stay_below_alpha_at_the_boundary(wins: float, alpha: float) -> None:
    losses = draw(200, 2_000, wins=wins, regrets=wins + 0.02, seed=3)
    tolerance = 3 * math.sqrt(alpha * (1 - alpha) / 2_000)
    assert certified(losses, 0.02, alpha=alpha) <= alpha + tolerance


def test_false_certificates_stay_below_alpha_with_fractional_grades() -> None:
    rng = np.random.default_rng(5)
    losses = rng.choice(
        [-0.5, -0.25, 0.0, 0.25, 0.65], size=(200, 2_000), p=[0.1, 0.1, 0.5, 0.1, 0.2]
    )
    assert certified(losses, float(0.65 * 0.2 - 0.05)) <= ALPHA + 3 * math.sqrt(0.09 / 2_000)


@pytest.mark.parametrize("wins", [0.0, 0.1, 0.3])
def test_no_level_is_exceeded_when_all_samples_are_enumerated(wins: float) -> None:
    # Exact, without simulation: a stake that looked at its own question would fail here at once.
    rates = {-1.0: wins, 0.0: 0.7 - 2 * wins, 1.0: wins + 0.3}
    samples = np.array(list(itertools.product(rates, repeat=8))).T
    chances = np.vectorize(rates.__getitem__)(samples).prod(axis=0)
    p_values = betting_p_values(samples, 0.3, seed=0)
    order = np.argsort(p_values)
    reached = np.cumsum(chances[order])
    assert p_values.min() < ALPHA
    assert (reached[p_values[order] < 1] <= p_values[order][p_values[order] < 1] + 1e-6).all()


@pytest.mark.parametrize(
    ("max_loss", "wins", "regrets", "questions"),
    [
        (0.02, 0.02, 0.01, 200),
        (0.02, 0.02, 0.02, 500),
        (0.02, 0.1, 0.08, 500),
        (0.05, 0.01, 0.01, 100),
    ],
)
def test_certifies_more_often_than_stakes_set_once(
    max_loss: float, wins: float, regrets: float, questions: int
) -> None:
    losses = draw(questions, 1_000, wins=wins, regrets=regrets, seed=2)
    once = float(np.mean([set_once(column, max_loss) <= ALPHA for column in losses.T]))
    assert certified(losses, max_loss) > once + 0.05


def test_same_seed_gives_the_same_p_and_another_order_another() -> None:
    losses = draw(100, 1, wins=0.05, regrets=0.03, seed=4)[:, 0]
    by_seed = [betting_p_value(losses, 0.02, seed=seed) for seed in (0, 0, 1)]
    assert by_seed[0] == by_seed[1]
    assert by_seed[0] != by_seed[2]


def test_settings_are_tested_independently_of_their_neighbours() -> None:
    losses = draw(120, 7, wins=0.03, regrets=0.02, seed=6)
    alone = [betting_p_value(column, 0.02, seed=9) for column in losses.T]
    assert betting_p_values(losses, 0.02, seed=9).tolist() == alone


@settings(max_examples=60)
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=60), st.floats(-0.5, 0.9))
def test_p_is_always_a_probability_and_never_zero(losses: list[float], max_loss: float) -> None:
    assert 0 < betting_p_value(np.array(losses), max_loss, seed=0) <= 1
    assert betting_p_value(np.zeros(0), max_loss, seed=0) == 1.0
    assert betting_p_value(np.full(1_000, -1.0), max_loss, seed=0) > 0


@pytest.mark.parametrize(
    ("p_values", "passed"),
    [
        ([0.01, 0.05, 0.2, 0.001], 2),
        ([0.2, 0.01, 0.05], 0),
        ([0.1, 0.1], 2),
        ([0.01, math.nan, 0.01], 1),
        ([], 0),
    ],
)
def test_fixed_sequence_stops_at_the_first_failure(p_values: list[float], passed: int) -> None:
    assert fixed_sequence(np.array(p_values), 0.1) == passed


@pytest.mark.parametrize(
    ("max_loss", "alpha", "questions"),
    [(0.02, 0.1, 114), (0.05, 0.1, 45), (0.01, 0.05, 299), (0.02, 0.05, 149)],
)
def test_ties_alone_certify_at_the_floor(max_loss: float, alpha: float, questions: int) -> None:
    assert questions_needed(max_loss, alpha) == questions
    enough = betting_p_value(np.zeros(questions), max_loss, seed=0, alpha=alpha)
    short = betting_p_value(np.zeros(questions - 1), max_loss, seed=0, alpha=alpha)
    assert enough <= alpha < short


def test_no_number_is_needed_for_ties_to_gain_or_when_the_sample_is_too_bad() -> None:
    assert questions_needed(0.0, 0.1) is questions_needed(-0.01, 0.1) is None
    losses = np.zeros(100)
    losses[:2] = 1
    assert questions_needed(0.02, 0.1, losses=losses) is None
    losses[1] = 0
    assert questions_needed(0.02, 0.1, losses=losses, limit=150) is None


def test_questions_needed_gives_the_promised_power() -> None:
    losses = np.zeros(100)
    losses[:2], losses[2:4] = 1, -1
    needed = questions_needed(0.02, 0.1, losses=losses, seed=3)
    assert 0.7 < certified(draw(needed, 600, wins=0.02, regrets=0.02, seed=11), 0.02) < 0.9
