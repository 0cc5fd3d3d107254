"""ServedVote: a policy as the gateway's clients get its answers, and when more cannot help."""

from dataclasses import dataclass, replace

from aera.policies.gate import ON_A_TIE
from aera.policies.policy import Decision, Policy
from aera.response import Prefix, Response
from aera.tally import Vote
from aera.voting.structure import QUARTER, views

UNREADABLE = "nothing could be read"
NO_AGREEMENT = "no two answers agree"
LITTLE_AGREEMENT = "fewer than a quarter agree"
OUT_OF_REACH = "the answers can no longer agree"
TO_DISAGREE = 4
"""Readable answers, all different, after which free text is not expected to agree."""
FILLER = Response("")


@dataclass(frozen=True)
class ServedVote:
    """Never stops on nothing readable without a second look, and names what cannot be decided."""

    policy: Policy
    most: int
    """Samples after which the vote ends."""
    least: int = 0
    free: bool = False
    """Whether the answers are tool calls or JSON, of which no two need be alike."""
    by_counting: bool = True
    """Whether votes count one each and the policy looks at nothing else."""
    fixed: bool = False
    """Whether nothing is decided: the number of samples is given."""

    def decide(self, prefix: Prefix) -> Decision:
        if not len(prefix.tally):
            return self._decide_unread(prefix)
        if not self.free:
            return self._decide_on(prefix)
        first, *others = views(prefix)
        decision = self._decide_on(first)
        for view in others:
            if not decision.stop or decision.forced:
                break
            decision = self._decide_on(view)
        return decision

    def _decide_on(self, prefix: Prefix) -> Decision:
        """The policy's decision, unless nothing can come of going on."""
        decision = self.policy.decide(prefix)
        if decision.stop:
            return self._mark_tie(decision, prefix)
        # One block says little about the next; two that do not agree are a pattern.
        if prefix.previous is None or len(prefix) < self.least:
            return decision
        if self.free and (disagreement := _find_disagreement(prefix)):
            return decision.force(disagreement)
        if self.by_counting and not self._can_stop(prefix):
            return decision.force(OUT_OF_REACH)
        return decision

    def _decide_unread(self, prefix: Prefix) -> Decision:
        """One more block, or up to the minimum, before it is given up."""
        ends = prefix.next_checkpoint is None or len(prefix) >= self.most
        if ends or (prefix.previous is not None and len(prefix) >= self.least):
            return Decision(True, UNREADABLE, forced=True)
        return Decision(False, "nothing could be read yet")

    def _mark_tie(self, decision: Decision, prefix: Prefix) -> Decision:
        """A stop on a tie is no decision, except where there was nothing to decide."""
        if decision.forced or self.fixed or not prefix.tally.leaders.tied:
            return decision
        return replace(decision, reason=ON_A_TIE, forced=True)

    def _can_stop(self, prefix: Prefix) -> bool:
        """Whether the policy would stop by itself if every further sample backed the leader."""
        left = self.most - len(prefix)
        if left <= 0:
            return True
        backing = Vote(prefix.tally.leaders.answer)
        best = self.policy.decide(prefix.extend([FILLER] * left, [backing] * left))
        return best.stop and not best.forced

    def __str__(self) -> str:
        return str(self.policy)


def _find_disagreement(prefix: Prefix) -> str | None:
    """Why tool calls or JSON are not expected to agree, if so."""
    readable, most = prefix.tally.total, prefix.tally.leaders.weight
    if readable < TO_DISAGREE:
        return None
    if most == 1:
        return NO_AGREEMENT
    return LITTLE_AGREEMENT if most < QUARTER * readable else None
