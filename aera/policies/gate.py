"""Gate: evidence in, chance that continuing pays out. Plain numpy."""

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, cast

import numpy as np

from aera.arrays import Floats
from aera.core import Prefix
from aera.errors import check_share
from aera.network import Network, check_features, sigmoid
from aera.policies import rules
from aera.policies.features import FEWER_NAMES, VOTE_FEATURE_NAMES, vote_features

LEAD_WEIGHT = VOTE_FEATURE_NAMES.index("lead_weight")
ON_A_TIE = "stopped on a tie"
"""Why a gate stopped where two answers lead: a winner by being first, and marked as such."""
OUTSIDE = "evidence outside the training range"
NO_AGREEMENT = "no two answers agree"
LITTLE_AGREEMENT = "fewer than a quarter agree"
TO_DISAGREE = 4
"""Readable tool calls or JSON values after which they are not expected to agree any more."""


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

    @cached_property
    def identity(self) -> str:
        """Changes whenever the output may change."""
        digest = hashlib.sha256((self.encoder_identity or " ".join(self.features)).encode())
        for array in self.tensors().values():
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]

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
        key = (Gate, self.identity)
        if key not in prefix.memo:  # however many thresholds ask
            prefix.memo[key] = float(self.chances(self.evidence(prefix)[None])[0])
        return cast(float, prefix.memo[key])


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
class Live:
    """A policy as people get its answers, wherever they ask: in a batch, a loop or the gateway.

    It stops on nothing readable after a second look, and names what cannot be decided. A
    gate that is asked outside of its training range is not trusted, and nobody gets an answer
    without a vote. The paper's protocols and policies by name apply none of this.
    """

    policy: rules.Policy
    structured: bool = False
    """Whether tool calls or JSON are voted on, of which no two need be alike."""

    @classmethod
    def of(cls, policy: rules.Policy) -> "Live":
        """A calibrated policy, or one that a label names, with all that live answers need."""
        bounded = policy if isinstance(policy, rules.Bounded) else rules.Bounded(policy)
        inner = bounded.policy
        guarded = replace(inner, guarded=True) if isinstance(inner, Gated) else inner
        return cls(replace(bounded, policy=guarded, need_vote=True))

    def decide(self, prefix: Prefix) -> rules.Decision:
        if not len(prefix.tally):
            return self._decide_unread(prefix)
        decision = self.policy.decide(prefix)
        if decision.stop:
            # A stop on a tie is no decision, except where there was nothing to decide.
            if decision.forced or rules.fixed_in(self.policy) or not _is_tied(prefix):
                return decision
            return replace(decision, reason=ON_A_TIE, forced=True)
        disagreement = self._find_disagreement(prefix) if self.structured else None
        return decision.force(disagreement) if disagreement else decision

    def _decide_unread(self, prefix: Prefix) -> rules.Decision:
        """One more block, or up to the minimum, before it is given up."""
        most = rules.range_of(self.policy, prefix.schedule.last)[1]
        ends = prefix.next_checkpoint is None or len(prefix) >= most
        chance = self.policy.decide(prefix).p_continue
        if ends or self._is_second(prefix):
            return rules.Decision(True, rules.UNREADABLE, chance, forced=True)
        return rules.Decision(False, "nothing could be read yet", chance)

    def _is_second(self, prefix: Prefix) -> bool:
        """One block says little about the next; a second, beyond the minimum, makes a pattern."""
        least = rules.range_of(self.policy, prefix.schedule.last)[0]
        return prefix.previous is not None and len(prefix) >= least

    def _find_disagreement(self, prefix: Prefix) -> str | None:
        """Why tool calls or JSON are not expected to agree, if so."""
        readable, most = prefix.tally.total, prefix.tally.leaders.weight
        if readable < TO_DISAGREE or not self._is_second(prefix):
            return None
        return NO_AGREEMENT if most == 1 else LITTLE_AGREEMENT if most < readable / 4 else None

    def __str__(self) -> str:
        return str(self.policy)
