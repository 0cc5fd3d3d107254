"""VotedChoice: one voted choice with the account of it, and the OpenAI reply made of several."""

import hashlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from aera.gateway.stopping import UNREADABLE
from aera.policies.gate import OUTSIDE
from aera.response import Response
from aera.sampling.wishes import trim_logprobs
from aera.solving.run import Allocation
from aera.voting.structure import StructureOutcome

SHOWN = 20
"""Answers that a reply lists; the others are counted together."""
LONGEST = 200
"""Characters of an answer in that list."""
KEPT = ("system_fingerprint", "service_tier")
"""Fields of an upstream's reply that the client gets as they are."""
LARGEST = 2**53
"""Counts beyond it are no counts."""


@dataclass(frozen=True, eq=False)
class VotedChoice:
    """One voted choice and how it came about."""

    allocation: Allocation
    chosen: Response
    """The reply that best represents the winning answer."""
    responses: tuple[Response, ...]
    failures: int
    unread: int
    """Replies that came but could not be read."""
    waited: float = 0.0
    """Seconds spent waiting for model servers."""
    strays: tuple[str, ...] = ()
    """Inputs of the gate outside their training range at the last checkpoint."""
    second: Response | None = None
    """Another upstream's reply, asked for because the vote was undecided."""
    second_answer: str | None = None
    notes: tuple[str, ...] = ()
    structure: StructureOutcome | None = None
    """How the names and the fields were voted on, where tools or JSON were asked for."""
    abroad: bool = False
    """Whether plain votes stood in for the controller, which was not at home."""
    id: str = field(default_factory=lambda: f"chatcmpl-{os.urandom(16).hex()}")
    """Of the reply that it is, or is the first choice of."""

    @property
    def response(self) -> Response:
        """The reply that is returned."""
        return self.second or self.chosen

    @property
    def escalated(self) -> bool:
        """Whether the reply is another upstream's."""
        return self.second is not None

    @property
    def tokens(self) -> tuple[int, int]:
        """Prompt and completion tokens: all samples, and the second upstream's."""
        found, more = self.allocation, self.second
        prompt, spent = (more.prompt_tokens, more.tokens) if more else (0, 0)
        return found.prompt_tokens + prompt, found.completion_tokens + spent

    @property
    def tokens_saved(self) -> int:
        """What a stop has saved, estimated; nothing where nothing could be read."""
        return 0 if self.allocation.reason == UNREADABLE else self.allocation.tokens_saved

    @cached_property
    def account(self) -> dict[str, Any]:
        """The `aera` object of a reply; the metrics read it too."""
        allocation = self.allocation
        votes, others = shorten_votes(allocation.votes)
        return {
            "answer": self.second_answer if self.escalated else allocation.answer,
            "policy": allocation.policy,
            "samples": allocation.responses,
            "checkpoint": allocation.checkpoint,
            "reason": allocation.reason,
            "p_continue": [step.decision.p_continue for step in allocation.steps],
            "votes": votes,
            "other_votes": others,
            "tied": allocation.aggregate.tied,
            "failures": self.failures,
            "unread": self.unread,
            "tokens": self.tokens[1],
            "tokens_saved": self.tokens_saved,
            "reply_tokens": self.response.tokens,
            "escalate": is_undecided(allocation),
            "escalated": self.escalated,
            "warnings": self._warnings(),
            **({} if self.structure is None else {"structure": describe(self.structure)}),
        }

    def _warnings(self) -> list[str]:
        warnings = list(self.notes)
        unread = self.allocation.reason == UNREADABLE
        if unread:
            warnings.append("no reply could be read, so nothing was voted on")
        if self.allocation.aggregate.tied:
            warnings.append("the winning answer was tied and won by being first")
        found = self.structure
        if found is not None and found.matched < len(found.fields):
            of = f"{found.matched} of {len(found.fields)} fields"
            warnings.append(f"no reply has all that won; the one that is returned has {of}")
        if found is not None and found.answer is None and found.group and not unread:
            warnings.append("the replies call no tool, and nothing could be read in them")
        if was_guarded(self.allocation):
            warnings.append(OUTSIDE)
        if self.failures:
            warnings.append(f"{self.failures} of {self.allocation.responses} samples failed")
        lacking = self.allocation.lacking.items()
        return [*warnings, *(f"{count} samples {said}" for said, count in lacking)]


def describe(found: StructureOutcome) -> dict[str, Any]:
    """What was voted on of tool calls or JSON, and what was not; long lists are cut and counted."""
    names, other_names = shorten_votes(found.names.weights)
    show = found.structure.show
    fields = {
        _shorten(show(path)): {
            "value": _shorten(tally.leaders.answer or ""),
            "share": round(tally.majority, 3),
        }
        for path, tally in list(found.fields.items())[:SHOWN]
    }
    return {
        "names": names,
        "other_names": other_names,
        "fields": fields,
        "other_fields": len(found.fields) - len(fields),
        "left_out": [_shorten(show(path)) for path in found.left_out[:SHOWN]],
        "other_left_out": max(0, len(found.left_out) - SHOWN),
    }


def shorten_votes(votes: Mapping[str, float]) -> tuple[dict[str, float], float]:
    """The leading answers, long ones cut and marked by a hash, and the weight of all others."""
    if len(votes) <= SHOWN:
        return {_shorten(answer): weight for answer, weight in votes.items()}, 0.0
    leading = sorted(votes, key=lambda answer: -votes[answer])[:SHOWN]
    shown = {_shorten(answer): votes[answer] for answer in leading}
    return shown, sum(votes.values()) - sum(votes[answer] for answer in leading)


def _shorten(answer: str) -> str:
    if len(answer) <= LONGEST:
        return answer
    mark = hashlib.sha256(answer.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{answer[: LONGEST - 14]}… {mark}"


def is_undecided(allocation: Allocation) -> bool:
    """Whether no policy wanted this end, the guard had to step in, or there is no winner."""
    forced = any(step.decision.forced or step.decision.outside for step in allocation.steps)
    return forced or allocation.aggregate.tied or allocation.error is not None


def was_guarded(allocation: Allocation) -> bool:
    """Whether the gate wanted to stop on evidence it was never trained on."""
    return any(step.decision.outside for step in allocation.steps)


def completion(
    voted: Sequence[VotedChoice], model: str, asked: Mapping[str, Any]
) -> dict[str, Any]:
    """The OpenAI reply: representative choices, usage summed over all samples, the account.

    Of logprobs it holds what was asked for, and not what only the weigher wanted.
    """
    choices = []
    for place, each in enumerate(voted):
        source = each.response.source if isinstance(each.response.source, dict) else {}
        choices.append(trim_logprobs({**source, "index": place}, asked))
    prompt, spent = (sum(counts) for counts in zip(*(v.tokens for v in voted), strict=True))
    accounts = [each.account for each in voted]
    usage = {"prompt_tokens": prompt, "completion_tokens": spent, "total_tokens": prompt + spent}
    replies = list(_replies(voted))
    said = _reply_of(voted[0].response)
    return {
        "id": voted[0].id,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": choices,
        "usage": {**usage, **_sum_details(replies)},
        **{name: said[name] for name in KEPT if name in said},
        "aera": accounts[0] if len(accounts) == 1 else {"choices": accounts},
    }


def _reply_of(response: Response) -> Mapping[str, Any]:
    """The fields of the reply that a choice came in, where they were kept."""
    found = getattr(response.source, "reply", None)
    return found if isinstance(found, Mapping) else {}


def _replies(voted: Iterable[VotedChoice]) -> Iterable[Mapping[str, Any]]:
    """The reply of every call; siblings share one, and only the first of them counts a call."""
    for each in voted:
        for response in (*each.responses, *([each.second] if each.second else [])):
            if response.calls:
                yield _reply_of(response)


def _sum_details(replies: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """The details of usage, as cached or reasoning tokens, summed over all calls."""
    totals: dict[str, dict[str, int]] = {}
    for reply in replies:
        usage = reply.get("usage")
        for name, details in usage.items() if isinstance(usage, Mapping) else ():
            if not isinstance(details, Mapping) or not str(name).endswith("_details"):
                continue
            total = totals.setdefault(str(name), {})
            for kind, count in details.items():
                if isinstance(count, int) and 0 <= count < LARGEST:
                    total[str(kind)] = total.get(str(kind), 0) + count
    return totals
