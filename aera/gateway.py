"""The gateway's decisions: one chat request in, voted choices with their accounts out. No HTTP."""

import asyncio
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aera.allocator import Budget, Spending, advance
from aera.baselines import ASC
from aera.catalog import parse_policy
from aera.controller import Controller
from aera.embedding import Encoder
from aera.errors import UpstreamError, UsageError
from aera.gate import OUTSIDE, Gated, Guarded
from aera.policy import Bounded, Decision, Policy
from aera.reading import ChatReader, wants_json
from aera.replicas import Replicas
from aera.response import Prefix, Question, Response
from aera.run import Allocation, Run
from aera.schedule import Schedule
from aera.task import Task, get_task

PREFIX = "aera/"
OWN_FIELDS = ("aera", "n", "stream", "stream_options")
UNREADABLE = "nothing readable in the first block"


def default_controller(task: Task | None = None) -> Controller:
    """What serves without a trained controller: plain votes, ASC 0.95."""
    return Controller(task or get_task("expression"), Schedule(), ASC(0.95))


@dataclass(frozen=True)
class Wishes:
    """What one request may decide for itself."""

    policy: str | None = None
    threshold: float | None = None
    minimum: int | None = None
    maximum: int | None = None
    tokens: int | None = None
    seconds: float | None = None

    NAMES = {  # noqa: RUF012
        "policy": "policy",
        "threshold": "threshold",
        "min_samples": "minimum",
        "max_samples": "maximum",
        "max_tokens_total": "tokens",
        "deadline_s": "seconds",
    }

    @classmethod
    def parse(cls, fields: Any, headers: Mapping[str, str]) -> "Wishes":
        """From the request's `aera` object, and from x-aera-* headers where it is silent."""
        if fields is not None and not isinstance(fields, Mapping):
            raise UsageError('the field "aera" must be an object')
        given = dict(fields or {})
        for name in cls.NAMES:
            header = headers.get("x-aera-" + name.replace("_", "-"))
            if header is not None:
                given.setdefault(name, header)
        unknown = sorted(set(given) - set(cls.NAMES))
        if unknown:
            known = ", ".join(cls.NAMES)
            raise UsageError(f'"aera" has no field "{unknown[0]}"; it takes {known}')
        return cls(**{cls.NAMES[name]: _wish(name, value) for name, value in given.items()})


def _wish(name: str, value: Any) -> Any:
    """A wish as the type it must have."""
    kinds: dict[str, type] = {"policy": str, "threshold": float, "deadline_s": float}
    kind = kinds.get(name, int)
    try:
        if isinstance(value, bool) or (kind is str and not isinstance(value, str)):
            raise TypeError
        wish = kind(value)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(
            f'"aera.{name}" must be a {kind.__name__}, but got {value!r:.40}'
        ) from None
    if kind is not str and not 0 <= wish < float("inf"):
        raise UsageError(f'"aera.{name}" must be a number from 0 up, but got {value!r:.40}')
    return wish


@dataclass(frozen=True)
class UntilReadable:
    """Any policy, but a first block in which nothing can be read ends the matter."""

    policy: Policy

    def decide(self, prefix: Prefix) -> Decision:
        if prefix.previous is None and not len(prefix.tally):
            return Decision(True, UNREADABLE)
        return self.policy.decide(prefix)

    def __str__(self) -> str:
        return str(self.policy)


@dataclass(frozen=True, eq=False)
class Voted:
    """One voted choice and how it came about."""

    allocation: Allocation
    response: Response
    """The reply that best represents the winning answer."""
    failures: int
    full_budget: int
    strays: tuple[str, ...] = ()
    """Inputs of the gate outside their training range at the last checkpoint."""
    escalated: bool = False
    """Whether the reply is another upstream's, asked because the vote was undecided."""
    notes: tuple[str, ...] = ()

    def account(self) -> dict[str, Any]:
        """The `aera` object of a reply."""
        allocation = self.allocation
        spent, done = allocation.completion_tokens, max(1, allocation.responses)
        return {
            "answer": allocation.answer,
            "policy": allocation.policy,
            "samples": allocation.responses,
            "checkpoint": allocation.checkpoint,
            "reason": allocation.reason,
            "p_continue": [step.decision.p_continue for step in allocation.steps],
            "votes": allocation.votes,
            "tied": allocation.aggregate.tied,
            "failures": self.failures,
            "tokens": spent,
            "tokens_saved": round(spent / done * (self.full_budget - allocation.responses)),
            "escalate": undecided(allocation),
            "escalated": self.escalated,
            "warnings": self._warnings(),
        }

    def _warnings(self) -> list[str]:
        warnings = list(self.notes)
        if self.allocation.reason == UNREADABLE:
            warnings.append("no reply could be read, so nothing was voted on")
        if self.allocation.aggregate.tied:
            warnings.append("the winning answer was tied and won by being first")
        if guarded(self.allocation):
            warnings.append(OUTSIDE)
        if self.failures:
            warnings.append(f"{self.failures} samples failed")
        return warnings


def undecided(allocation: Allocation) -> bool:
    """Whether the last checkpoint was reached unsatisfied, or the guard had to step in."""
    return allocation.reason in ("full budget", "maximum reached") or guarded(allocation)


def guarded(allocation: Allocation) -> bool:
    """Whether the gate wanted to stop on evidence it was never trained on."""
    return any(step.decision.reason == OUTSIDE for step in allocation.steps)


@dataclass(frozen=True)
class Escalation:
    """Where undecided questions go."""

    upstream: Replicas
    model: str


class Gateway:
    """Votes on chat requests."""

    def __init__(
        self,
        upstream: Replicas,
        controller: Controller,
        *,
        encoder: Encoder,
        quorum: float = 0.5,
        escalation: Escalation | None = None,
    ) -> None:
        self.upstream, self.controller = upstream, controller
        self.encoder, self.quorum, self.escalation = encoder, quorum, escalation

    def policy(self, wishes: Wishes) -> Policy:
        """The controller's policy, as far as the request does not wish otherwise."""
        policy: Policy = self.controller.policy
        if wishes.policy is not None:
            policy = parse_policy(wishes.policy)
        if wishes.threshold is not None:
            if not isinstance(policy, Gated):
                raise UsageError('"aera.threshold" needs a controller with a gate')
            policy = Gated(policy.gate, wishes.threshold)
        if isinstance(policy, Gated):
            policy = Guarded(policy)
        bounded = Bounded(
            policy, minimum=wishes.minimum or None, maximum=wishes.maximum or None, need_vote=True
        )
        return UntilReadable(bounded)

    async def vote(self, body: Mapping[str, Any], wishes: Wishes) -> list[Voted]:
        """As many independently voted choices as the client asked for."""
        policy = self.policy(wishes)
        wanted = body.get("n") or 1
        if not isinstance(wanted, int) or isinstance(wanted, bool) or not 1 <= wanted <= 128:
            raise UsageError(f'"n" must be a whole number from 1 to 128, but got {wanted!r:.40}')
        request = {name: value for name, value in body.items() if name not in OWN_FIELDS}
        stride = self.controller.schedule.last
        works = [self._one(request, policy, wishes, offset=i * stride) for i in range(wanted)]
        tasks = [asyncio.create_task(work) for work in works]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(
        self, body: Mapping[str, Any], policy: Policy, wishes: Wishes, *, offset: int
    ) -> Voted:
        schedule = self.controller.schedule
        notes: tuple[str, ...] = ()
        if body.get("temperature") == 0:
            schedule, notes = (
                Schedule((1,)),
                ("temperature 0 gives one sample, nothing to vote on",),
            )
        reader = ChatReader(self.controller.task, wants_json(body))
        question = Question(uuid.uuid4().hex, last_text(body))
        run = Run(question, policy, task=reader, schedule=schedule)
        budget = Budget(tokens=wishes.tokens, seconds=wishes.seconds)
        sampler = _BodySampler(self.upstream, body, offset)
        allocation = await advance(run, sampler, spending=Spending(budget))
        responses = run.prefix.responses
        self._check_quorum(responses, allocation)
        chosen = await asyncio.to_thread(self._representative, run.prefix, allocation)
        failures = sum(response.error is not None for response in responses)
        gate = self.controller.gate
        strays = (
            gate.strays(run.prefix) if gate and isinstance(self.controller.policy, Gated) else ()
        )
        voted = Voted(allocation, chosen, failures, schedule.last, strays, notes=notes)
        return await self._escalated(voted, body) if not notes else voted

    async def _escalated(self, voted: Voted, body: Mapping[str, Any]) -> Voted:
        """An undecided question goes to the second upstream, where there is one that answers."""
        if self.escalation is None or not undecided(voted.allocation):
            return voted
        asked = {**body, "model": self.escalation.model}
        try:
            [reply] = await self.escalation.upstream.complete(asked, 1)
        except UpstreamError as error:
            return replace(voted, notes=(*voted.notes, f"escalation failed: {error}"))
        if reply.error is not None:
            return replace(voted, notes=(*voted.notes, f"escalation failed: {reply.error}"))
        allocation = replace(
            voted.allocation,
            prompt_tokens=voted.allocation.prompt_tokens + reply.prompt_tokens,
            completion_tokens=voted.allocation.completion_tokens + reply.tokens,
        )
        return replace(voted, allocation=allocation, response=reply, escalated=True)

    def _check_quorum(self, responses: Sequence[Response], allocation: Allocation) -> None:
        """Too few good replies are the upstream's failure, not an answer."""
        causes = [r.source for r in responses if isinstance(r.source, UpstreamError)]
        good = sum(response.error is None for response in responses)
        if not good or good < self.quorum * len(responses):
            if causes:
                raise causes[-1]
            raise UpstreamError(allocation.error or "no reply could be had", status=502)

    def _representative(self, prefix: Prefix, allocation: Allocation) -> Response:
        """The reply for the winning answer that is closest to all others for it."""
        good = [
            (vote.answer, response)
            for vote, response in zip(prefix.votes, prefix.responses, strict=True)
            if response.error is None
        ]
        winners = [r for answer, r in good if answer == allocation.answer and answer is not None]
        among = winners or [response for _, response in good]
        if len(among) < 3:
            return among[0]
        vectors = self.encoder.encode([response.text for response in among])
        return among[int(np.argmax(vectors @ vectors.sum(axis=0)))]


@dataclass(frozen=True)
class _BodySampler:
    """Samples one fixed request."""

    upstream: Replicas
    body: Mapping[str, Any]
    offset: int

    async def sample(
        self, question: Question, n: int, *, start: int = 0, deadline: float | None = None
    ) -> list[Response]:
        index = self.offset + start
        return await self.upstream.complete(self.body, n, start=index, deadline=deadline)


def last_text(body: Mapping[str, Any]) -> str:
    """The text of the last message, for evidence; images and tools play no part in it."""
    messages = body.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else {}
    content = last.get("content") if isinstance(last, Mapping) else None
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return " ".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def completion(voted: Sequence[Voted], model: str) -> dict[str, Any]:
    """The OpenAI reply: representative choices, usage summed over all samples, the account."""
    choices = []
    for place, each in enumerate(voted):
        source = each.response.source if isinstance(each.response.source, Mapping) else {}
        choices.append({**source, "index": place})
    prompt = sum(each.allocation.prompt_tokens for each in voted)
    spent = sum(each.allocation.completion_tokens for each in voted)
    accounts = [each.account() for each in voted]
    usage = {"prompt_tokens": prompt, "completion_tokens": spent, "total_tokens": prompt + spent}
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": choices,
        "usage": usage,
        "aera": accounts[0] if len(accounts) == 1 else {"choices": accounts},
    }


def named(model: Any) -> tuple[str, bool]:
    """The upstream's name of a model, and whether it was asked to vote."""
    if not isinstance(model, str) or not model.removeprefix(PREFIX):
        raise UsageError('"model" must be a name')
    return model.removeprefix(PREFIX), model.startswith(PREFIX)


def with_instruction(body: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """The request with the task's answer instruction behind its last user message."""
    messages = [dict(message) for message in body["messages"]]
    asked = task.template.replace("{question}", "").strip()
    for message in reversed(messages):
        if message.get("role") == "user" and isinstance(message.get("content"), str):
            message["content"] = f"{message['content']}\n\n{asked}"
            break
    return {**body, "messages": messages}
