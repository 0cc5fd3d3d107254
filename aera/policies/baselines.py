"""Published stopping rules on our checkpoints: ASC, ESC, empirical Bayes, semantic consensus."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from aera.errors import check_count, check_share
from aera.evidence.encoder import Encoder
from aera.evidence.semantics import semantics
from aera.policies.policy import Decision, when, write_number
from aera.response import Prefix
from aera.tally import beta_confidence


@dataclass(frozen=True)
class ASC:
    """Adaptive-Consistency: stop when the leader beats the runner-up with this confidence."""

    confidence: float = 0.95
    weighted: bool = field(default=False, compare=False)
    """Whether the confidence was chosen on weighted votes."""

    def __post_init__(self) -> None:
        check_share("asc", self.confidence)

    def decide(self, prefix: Prefix) -> Decision:
        leaders = prefix.tally.leaders
        sure = leaders.answer is not None and (
            beta_confidence(leaders.weight, leaders.runner_up) >= self.confidence
        )
        return when(sure, "confident leader")

    def __str__(self) -> str:
        return f"asc-{write_number(self.confidence)}"


@dataclass(frozen=True)
class ESC:
    """Early-Stopping Self-Consistency: stop when the last `window` responses all agree.

    A response that cannot be read breaks the agreement; the answer is the vote of the prefix.
    """

    window: int = 5

    def __post_init__(self) -> None:
        check_count("esc", self.window)

    def decide(self, prefix: Prefix) -> Decision:
        recent = prefix.votes[-self.window :]
        answers = {vote.answer for vote in recent}
        agree = len(recent) == self.window and len(answers) == 1 and None not in answers
        return when(agree, "unanimous window")

    def __str__(self) -> str:
        return f"esc-{self.window}"


@dataclass(frozen=True, eq=False)
class Prior:
    """Answer distributions of past questions: sorted shares, one row per question."""

    shares: tuple[tuple[float, ...], ...]

    def posterior(self, counts: Sequence[float]) -> float:
        """The chance that the leading answer is truly the most likely one, given the counts."""
        return _mode_posterior(self, *counts)

    @cached_property
    def matrix(self) -> NDArray[np.float64]:
        """The shares as an array (questions, ranks)."""
        return np.array(self.shares)


@lru_cache(maxsize=65_536)
def _mode_posterior(prior: Prior, first: float, second: float, rest: float) -> float:
    """Sum over past questions, and over the true ranks (i, j) of the two leading answers."""
    shares = prior.matrix
    lead, chase = shares[:, :, None], shares[:, None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        if second:
            log_chance = first * np.log(lead) + second * np.log(chase)
            log_chance = log_chance + _power(rest, 1.0 - lead - chase)
            ranks = np.arange(shares.shape[1])
            log_chance[:, ranks, ranks] = -np.inf
        else:
            log_chance = first * np.log(lead) + _power(rest, 1.0 - lead)
    log_chance = np.where(np.isnan(log_chance), -np.inf, log_chance)
    best = log_chance.max()
    if not np.isfinite(best):
        return 0.0
    chance = np.exp(log_chance - best)
    return float(chance[:, 0].sum() / chance.sum())


def _power(count: float, share: NDArray[np.float64]) -> NDArray[np.float64]:
    """log(share ** count), with 0 ** 0 = 1 and what is only rounding taken as zero."""
    if not count:
        return np.zeros_like(share)
    log_share: NDArray[np.float64] = count * np.log(np.where(share < 1e-12, 0.0, share))
    return log_share


@dataclass(frozen=True)
class EmpiricalBayes:
    """Stop when the leader is the most likely answer with this confidence, given past questions.

    Tracks the two leading counts and the rest (L = 3). It certifies the mode, not correctness.
    """

    prior: Prior
    confidence: float = 0.95

    def __post_init__(self) -> None:
        check_share("eb", self.confidence)

    def decide(self, prefix: Prefix) -> Decision:
        leaders = prefix.tally.leaders
        if leaders.answer is None:
            return when(False, "confident mode")
        rest = max(0.0, prefix.tally.total - leaders.weight - leaders.runner_up)
        counts = (leaders.weight, leaders.runner_up, rest)
        return when(self.prior.posterior(counts) >= self.confidence, "confident mode")

    def __str__(self) -> str:
        return f"eb-{write_number(self.confidence)}"


@dataclass(frozen=True)
class Consensus:
    """Stop when the mean cosine over all pairs of responses has risen this high."""

    encoder: Encoder
    share: float

    def __post_init__(self) -> None:
        check_share("consensus", self.share)

    def decide(self, prefix: Prefix) -> Decision:
        close = semantics(prefix, self.encoder).consensus >= self.share
        return when(len(prefix.tally) > 0 and close, "semantic consensus")

    def __str__(self) -> str:
        return f"consensus-{self.share:g}"
