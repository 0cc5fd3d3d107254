"""Live: a policy as people get its answers, wherever they ask: in a batch, a loop or the gateway.

The paper's protocols and policies by name apply none of this.
"""

from dataclasses import dataclass, replace

from aera.policies.gate import ON_A_TIE, Gated, Guarded
from aera.policies.policy import Bounded, Decision, Fixed, Policy, layers, range_of
from aera.response import Prefix

UNREADABLE = "nothing could be read"
NO_AGREEMENT = "no two answers agree"
LITTLE_AGREEMENT = "fewer than a quarter agree"
TO_DISAGREE = 4
"""Readable tool calls or JSON values after which they are not expected to agree any more."""


@dataclass(frozen=True)
class Live:
    """Stops on nothing readable after a second look, and names what cannot be decided.

    A gate that is asked outside of its training range is not trusted, and nobody gets an answer
    without a vote.
    """

    policy: Policy
    structured: bool = False
    """Whether tool calls or JSON are voted on, of which no two need be alike."""

    @classmethod
    def of(cls, policy: Policy, *, structured: bool = False) -> "Live":
        """A calibrated policy, or one that a label names, with all that live answers need."""
        bounded = policy if isinstance(policy, Bounded) else Bounded(policy)
        inner = bounded.policy
        guarded = Guarded(inner) if isinstance(inner, Gated) else inner
        return cls(replace(bounded, policy=guarded, need_vote=True), structured)

    def decide(self, prefix: Prefix) -> Decision:
        if not len(prefix.tally):
            return self._decide_unread(prefix)
        decision = self.policy.decide(prefix)
        if decision.stop:
            return self._mark_tie(decision, prefix)
        least, _ = range_of(self.policy, prefix.schedule.last)
        # One block says little about the next; two that do not agree are a pattern.
        if self.structured and prefix.previous is not None and len(prefix) >= least:
            disagreement = _find_disagreement(prefix)
            return decision.force(disagreement) if disagreement else decision
        return decision

    def _decide_unread(self, prefix: Prefix) -> Decision:
        """One more block, or up to the minimum, before it is given up."""
        least, most = range_of(self.policy, prefix.schedule.last)
        ends = prefix.next_checkpoint is None or len(prefix) >= most
        if ends or (prefix.previous is not None and len(prefix) >= least):
            return Decision(True, UNREADABLE, forced=True)
        return Decision(False, "nothing could be read yet")

    def _mark_tie(self, decision: Decision, prefix: Prefix) -> Decision:
        """A stop on a tie is no decision, except where there was nothing to decide."""
        fixed = any(isinstance(each, Fixed) for each in layers(self.policy))
        if decision.forced or fixed or not prefix.tally.leaders.tied:
            return decision
        if any(vote.scored for vote in prefix.votes):
            return decision
        return replace(decision, reason=ON_A_TIE, forced=True)

    def __str__(self) -> str:
        return str(self.policy)


def _find_disagreement(prefix: Prefix) -> str | None:
    """Why tool calls or JSON are not expected to agree, if so."""
    readable, most = prefix.tally.total, prefix.tally.leaders.weight
    if readable < TO_DISAGREE:
        return None
    if most == 1:
        return NO_AGREEMENT
    return LITTLE_AGREEMENT if most < readable / 4 else None
