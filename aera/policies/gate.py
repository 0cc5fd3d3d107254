"""Gate: evidence in, chance that continuing pays out. Plain numpy.

The evidence is what the standing of a vote shows, from one table.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from math import log, log1p, sqrt
from typing import ClassVar, cast

import numpy as np

from aera.arrays import Floats
from aera.core import Prefix, beta_confidence
from aera.errors import check_share
from aera.network import Network, check_features, sigmoid
from aera.policies import rules
from aera.trace import Feature

ON_A_TIE = "stopped on a tie"
"""Why a gate stopped where two answers lead: a winner by being first, and marked as such."""
OUTSIDE = "evidence outside the training range"
NO_AGREEMENT = "no two answers agree"
LITTLE_AGREEMENT = "fewer than a quarter agree"
TO_DISAGREE = 4
"""Readable tool calls or JSON values after which they are not expected to agree any more."""

# --- the evidence ---------------------------------------------------------------------------------

TINY = 1e-6
"""Doubts below it are all the same: none."""

VOTE, COUNTS, SPEND = "weighted vote", "plain counts", "spend"


def _doubt(lead: float, rival: float) -> float:
    """log of the chance that the leader is not ahead in truth, under the Beta posterior."""
    return log(TINY + 1 - beta_confidence(lead, rival))


def horizon(prefix: Prefix) -> float:
    """How many standard deviations of what is still to come would turn the vote around."""
    lead, rival = prefix.tally.leaders.weight, prefix.tally.leaders.runner_up
    both, seen = lead + rival, len(prefix)
    left = (prefix.schedule.last - seen) * both / seen
    share = (lead + 1) / (both + 2)
    spread = left * share * (1 - share) * (both + 2 + left) / (both + 3)
    ahead = (lead - rival + left * (2 * share - 1)) / (2 * sqrt(spread + 0.05))
    return max(-4.0, min(6.0, ahead))


_TABLE: dict[str, tuple[str, str]] = {
    "log_responses": (SPEND, "log of the responses so far"),
    "tokens_each": (SPEND, "log of the mean completion tokens of a response"),
    "lead_share": (VOTE, "share of the leading answer in the valid weight"),
    "lead_gap": (VOTE, "gap of the two largest shares"),
    "lead_weight": (VOTE, "log(1 + weight of the leading answer)"),
    "rival_weight": (VOTE, "log(1 + weight of the answer behind it)"),
    "lead_mean": (VOTE, "mean weight of the responses behind the leader"),
    "mean_weight": (VOTE, "mean weight of all valid votes"),
    "doubt": (VOTE, "log of the Beta posterior against the leader, by weight"),
    "plain_doubt": (COUNTS, "log of that posterior by plain counts"),
    "persistence": (VOTE, "checkpoints in a row with this leading answer"),
    "horizon": (VOTE, "standard deviations between the lead and a turn by the full budget"),
    "horizon_later": (VOTE, "the same times the log of the responses so far"),
}
VOTE_FEATURES: tuple[Feature, ...] = tuple(
    Feature(name, meaning, group, 1.0 if name == "persistence" else None)
    for name, (group, meaning) in _TABLE.items()
)
VOTE_FEATURE_NAMES: tuple[str, ...] = tuple(feature.name for feature in VOTE_FEATURES)
FEWER_NAMES = VOTE_FEATURE_NAMES[:11]
"""The inputs of gates that were trained before the horizon was one."""


def _measure(prefix: Prefix) -> dict[str, float]:
    """All of them by name."""
    tally, leaders, size = prefix.tally, prefix.tally.leaders, len(prefix)
    counts = Counter(vote.answer for vote in prefix.votes if vote.answer is not None)
    behind = 0 if leaders.answer is None else counts[leaders.answer]
    # The largest count of any other answer, which need not be the rival by weight.
    other = max((n for answer, n in counts.items() if answer != leaders.answer), default=0)
    ahead = horizon(prefix)
    return {
        "log_responses": log(size),
        "tokens_each": log1p(prefix.completion_tokens / size),
        "lead_share": tally.majority,
        "lead_gap": tally.gap,
        "lead_weight": log1p(leaders.weight),
        "rival_weight": log1p(leaders.runner_up),
        "lead_mean": leaders.weight / max(1, behind),
        "mean_weight": tally.total / max(1, counts.total()),
        "doubt": _doubt(leaders.weight, leaders.runner_up),
        "plain_doubt": _doubt(float(behind), float(other)),
        "persistence": float(prefix.persistence),
        "horizon": ahead,
        "horizon_later": ahead * log(size),
    }


def vote_features(prefix: Prefix) -> Floats:
    """The numbers of a prefix, in the order of VOTE_FEATURES."""
    found = _measure(prefix)
    return np.array([found[feature.name] for feature in VOTE_FEATURES])


# --- the gate -------------------------------------------------------------------------------------

LEAD_WEIGHT = VOTE_FEATURE_NAMES.index("lead_weight")
SPARE = 0.1
"""How far beyond its training range an input may go, as a share of that range."""


@dataclass(frozen=True, eq=False)
class Gate:
    """A trained network and its inputs, the features of the weighted vote; nothing is embedded."""

    network: Network
    features: tuple[str, ...] = field(default=VOTE_FEATURE_NAMES, kw_only=True)
    """Its inputs in order."""

    def __post_init__(self) -> None:
        known = FEWER_NAMES if len(self.features) == len(FEWER_NAMES) else VOTE_FEATURE_NAMES
        check_features(self.features, known)

    @property
    def encoder_identity(self) -> str | None:
        """What embeds the responses it looks at; None where nothing does."""
        return None

    def evidence(self, prefix: Prefix) -> Floats:
        """Its inputs for one prefix."""
        return vote_features(prefix)[: len(self.features)]

    def chances(self, evidence: Floats) -> Floats:
        """p_continue of many prefixes by their evidence.

        Where nothing could be read, nothing is settled: the chance is 1, whatever the network says.
        """
        told: Floats = sigmoid(self.network.outputs(evidence))[..., 0]
        return np.where(evidence[..., LEAD_WEIGHT] == 0, 1.0, told)

    def tensors(self) -> dict[str, Floats]:
        """Every array by name, as the artefact stores them."""
        return self.network.tensors()

    def strays(self, prefix: Prefix) -> tuple[str, ...]:
        """The inputs that lie outside the range seen in training, with a tenth of it to spare.

        At the full budget, where nothing is decided or learned, those that may have led there.
        """
        lows, highs = self.network.lows, self.network.highs
        if lows is None or highs is None:
            return ()
        if prefix.next_checkpoint is None:
            return self.strays(prefix.previous) if prefix.previous else ()
        evidence = self.evidence(prefix)
        margin = SPARE * (highs - lows) + 1e-9
        outside = (evidence < lows - margin) | (evidence > highs + margin)
        return tuple(name for name, out in zip(self.features, outside, strict=True) if out)

    def p_continue(self, prefix: Prefix) -> float:
        """The estimated chance that continuing pays."""
        if self not in prefix.memo:  # however many thresholds ask
            prefix.memo[self] = float(self.chances(self.evidence(prefix)[None])[0])
        return cast(float, prefix.memo[self])


@dataclass(frozen=True)
class Gated:
    """Continue while the gate's chance is at least the threshold."""

    kind: ClassVar[str] = "aera"
    gate: Gate
    threshold: float
    weighted: bool = field(default=False, compare=False)
    """Whether the threshold was chosen on weighted votes."""
    guarded: bool = field(default=False, compare=False)
    """Whether the gate is not trusted where it has never been: it continues there."""

    def __post_init__(self) -> None:
        check_share("aera", self.threshold)

    @property
    def setting(self) -> float:
        """The threshold."""
        return self.threshold

    def decide(self, prefix: Prefix) -> rules.Decision:
        chance = self.gate.p_continue(prefix)
        if chance >= self.threshold:
            return rules.Decision(False, "continuing may pay", chance)
        if self._strays(prefix):
            return rules.Decision(False, OUTSIDE, chance, outside=True)
        return rules.Decision(True, ON_A_TIE if _is_tied(prefix) else "little left to gain", chance)

    def _strays(self, prefix: Prefix) -> bool:
        """Whether it may not stop here; the full budget is named after what led there."""
        if prefix.next_checkpoint is None and prefix.previous:
            return self.decide(prefix.previous).outside
        return self.guarded and bool(self.gate.strays(prefix))

    def __str__(self) -> str:
        return f"aera-{self.threshold:.2f}"


def _is_tied(prefix: Prefix) -> bool:
    """Whether two answers lead; equal scores are no tie of votes."""
    return prefix.tally.leaders.tied and not any(vote.scored for vote in prefix.votes)


@dataclass(frozen=True)
class Live(rules.Bounded):
    """A policy as people get its answers, wherever they ask: in a batch, a loop or the gateway.

    It stops on nothing readable after a second look, and names what cannot be decided. A
    gate that is asked outside of its training range is not trusted, and nobody gets an answer
    without a vote. The paper's protocols and policies by name apply none of this.
    """

    structured: bool = False
    """Whether tool calls or JSON are voted on, of which no two need be alike."""

    @classmethod
    def of(cls, policy: rules.Policy) -> "Live":
        """A calibrated policy, or one that a label names, with all that live answers need."""
        limits = policy if isinstance(policy, rules.Bounded) else rules.Bounded(policy)
        inner = limits.policy
        guarded = replace(inner, guarded=True) if isinstance(inner, Gated) else inner
        return cls(guarded, limits.minimum, limits.maximum)

    def decide(self, prefix: Prefix) -> rules.Decision:
        decision = super().decide(prefix)
        if not len(prefix.tally):
            return self._decide_unread(prefix, decision.p_continue)
        if decision.stop:
            # A stop on a tie is no decision, except where there was nothing to decide.
            if decision.forced or rules.fixed_in(self) or not _is_tied(prefix):
                return decision
            return replace(decision, reason=ON_A_TIE, forced=True)
        disagreement = self._find_disagreement(prefix) if self.structured else None
        return decision.force(disagreement) if disagreement else decision

    def _decide_unread(self, prefix: Prefix, chance: float | None) -> rules.Decision:
        """One more block, or up to the minimum, before it is given up."""
        most = rules.range_of(self, prefix.schedule.last)[1]
        ends = prefix.next_checkpoint is None or len(prefix) >= most
        if ends or self._is_second(prefix):
            return rules.Decision(True, rules.UNREADABLE, chance, forced=True)
        return rules.Decision(False, "nothing could be read yet", chance)

    def _is_second(self, prefix: Prefix) -> bool:
        """One block says little about the next; a second, beyond the minimum, makes a pattern."""
        least = rules.range_of(self, prefix.schedule.last)[0]
        return prefix.previous is not None and len(prefix) >= least

    def _find_disagreement(self, prefix: Prefix) -> str | None:
        """Why tool calls or JSON are not expected to agree, if so."""
        readable, most = prefix.tally.total, prefix.tally.leaders.weight
        if readable < TO_DISAGREE or not self._is_second(prefix):
            return None
        return NO_AGREEMENT if most == 1 else LITTLE_AGREEMENT if most < readable / 4 else None
