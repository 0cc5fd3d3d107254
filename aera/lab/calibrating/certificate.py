"""Certificates: with probability 1 - alpha the chosen setting loses at most max_loss on average.

For question i and a setting of the dial, the loss is D_i = grade_full_i - grade_setting_i, in
[-1, 1]. The hypothesis "E[D] > max_loss" is tested by betting against it: each question multiplies
a wealth by 1 - stake * (D_i - max_loss). While the hypothesis holds, the wealth is a nonnegative
supermartingale whatever the stakes, as long as each is fixed before its question is seen; so it
ever reaches 1/alpha with probability at most alpha (Ville), and 1 / (largest wealth) is a p-value.

With X = (1 + D)/2, m = (1 + max_loss)/2 and nu = 2 * stake this is the wealth of Waudby-Smith and
Ramdas. Only the stakes differ: theirs aim at 1/alpha over the whole sample, ours anew at every
question, from what is still missing and how many questions are left.
"""

import math

import numpy as np

from aera.arrays import Floats

# A stake of 1/(1 - max_loss) would lose everything on one full regret. Estimates are trusted up to
# 99 % of it; the bold stake, which is for ties only, may go to the brink, else the floor named in
# questions_needed would be out of reach.
CAUTIOUS_LIMIT = 0.99
BOLD_LIMIT = 1 - 1e-6
# The diffusion argument behind the stake ignores that the spread is estimated and that wealth moves
# in jumps; staking a tenth less certified more often at every alpha tried (0.01, 0.05, 0.1).
SHARE = 0.9
# Aim a hair above 1/alpha, so that rounding cannot leave an exact hit on the wrong side.
MARGIN = 1e-9


def betting_p_values(losses: Floats, max_loss: float, *, seed: int, alpha: float = 0.1) -> Floats:
    """p-value of "E[D] > max_loss" for every column of losses, shape (questions, settings).

    Needs losses in [-1, 1], max_loss < 1, and questions drawn independently of each other and of
    whatever shaped the settings. The order of the questions matters: `seed` shuffles it once, alike
    for all settings, and choosing the seed by its result voids the guarantee. Valid at any level,
    most powerful at the `alpha` the stakes aim at.
    """
    order = np.random.default_rng(seed).permutation(len(losses))
    # exp underflows below -745, and a p-value of 0 claims more than any sample can show.
    p_values: Floats = np.exp(-np.minimum(_log_wealth(losses[order], max_loss, alpha), 700))
    return p_values


def fixed_sequence(p_values: Floats, alpha: float) -> int:
    """How many leading hypotheses are rejected, testing in the given order up to the first failure.

    The order (safest setting first) must be fixed before the calibration losses are seen; then the
    chance of any false rejection is at most alpha, however many settings there are.
    """
    # Not "p > alpha": a NaN must count as a failure.
    failed = ~(np.asarray(p_values) <= alpha)
    return int(failed.argmax()) if failed.any() else len(failed)


def questions_needed(
    max_loss: float,
    alpha: float,
    *,
    losses: Floats | None = None,
    power: float = 0.8,
    limit: int = 20_000,
    seed: int = 0,
) -> int | None:
    """The smallest number of questions that could certify max_loss; None beyond `limit`.

    Without `losses`: when every question is a tie, at least ln(alpha) / ln(1 - max_loss), below
    which nothing certifies without wins. With `losses`: the number that certifies with probability
    `power` when drawing from these, optimistic if few are regrets; None if their mean is too large.
    """
    if losses is None:
        return _ties_needed(max_loss, alpha, limit)
    if not len(losses) or losses.mean() >= max_loss:
        return None
    return _smallest(losses, max_loss, alpha=alpha, power=power, limit=limit, seed=seed)


def _log_wealth(losses: Floats, max_loss: float, alpha: float) -> Floats:
    """Largest log wealth reached, per column; rows are bet on in the given order."""
    goal = -math.log(alpha) + MARGIN
    questions, settings = losses.shape
    wealth, best, total, spread = np.zeros((4, settings))
    for seen, loss in enumerate(losses):
        # Past the goal, play on for another 1/alpha: the p-value keeps the largest wealth anyway.
        missing = np.where(best >= goal, goal, goal - wealth)
        stake = _stake(missing, spread, seen=seen, left=questions - seen, max_loss=max_loss)
        wealth = wealth + np.log1p(-stake * (loss - max_loss))
        best = np.maximum(best, wealth)
        total = total + loss
        # Mean and variance carry one prior observation: X = 1/2 with variance 1/4, in units of D.
        spread = spread + (loss - total / (seen + 2)) ** 2
    return best


def _stake(missing: Floats, spread: Floats, *, seen: int, left: int, max_loss: float) -> Floats:
    """Stake on the next question, from the log wealth still missing and the squares seen so far.

    sqrt(2 missing / (left variance)) makes the growth that `left` questions allow equal to what is
    missing. The prior variance of 1 makes early stakes timid; the bold stake corrects that where
    the questions seen so far, taken without the prior, do not speak against it.
    """
    pace = 2 * missing / left
    cautious = SHARE * np.sqrt(pace * (seen + 1) / (1 + spread))
    trusting = SHARE * np.sqrt(pace * seen / np.maximum(spread, 1e-12)) if seen else np.inf
    bold = np.minimum(_bold(missing / left, max_loss), trusting)
    stake: Floats = np.maximum(np.minimum(cautious, CAUTIOUS_LIMIT / (1 - max_loss)), bold)
    return stake


def _bold(pace: Floats, max_loss: float) -> Floats:
    """The stake that reaches the goal if all remaining questions are ties, 0 where none can."""
    if max_loss <= 0:  # a tie then earns nothing
        return np.zeros_like(pace)
    fastest = math.log1p(BOLD_LIMIT * max_loss / (1 - max_loss))
    return np.where(pace <= fastest, np.expm1(np.minimum(pace, fastest)) / max_loss, 0.0)


def _ties_needed(max_loss: float, alpha: float, limit: int) -> int | None:
    """The number of ties, and nothing but ties, that our own p-value rejects on."""
    if max_loss <= 0:
        return None
    floor = math.ceil(math.log(alpha) / math.log1p(-max_loss))
    for questions in range(floor, limit + 1):
        if _certified(np.zeros((questions, 1)), max_loss, alpha):
            return questions
    return None


def _smallest(
    losses: Floats, max_loss: float, *, alpha: float, power: float, limit: int, seed: int
) -> int | None:
    """Doubling, then bisection to about 2 %, on the share of resampled studies that certify."""

    def enough(questions: int) -> bool:
        # The same seed each time: a longer study extends the shorter one, so the curve is smooth.
        rng = np.random.default_rng(seed)
        studies = rng.choice(losses, size=(questions, 200))
        return _certified(studies, max_loss, alpha) >= power

    low, high = 0, min(16, limit)
    while not enough(high):
        if high >= limit:
            return None
        low, high = high, min(2 * high, limit)
    while high - low > max(1, low // 64):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _certified(losses: Floats, max_loss: float, alpha: float) -> float:
    """Share of the columns whose p-value is at most alpha, rows in the given order."""
    return float((np.exp(-_log_wealth(losses, max_loss, alpha)) <= alpha).mean())
