"""The gateway's decisions: one chat request in, voted choices with their accounts out. No HTTP."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np

from aera.allocator import Budget, Spending, advance, aside
from aera.catalog import parse_policy
from aera.controller import Controller
from aera.embedding import Encoder
from aera.equivalence import question_reader
from aera.errors import RunError, UpstreamError, UsageError
from aera.gate import OUTSIDE, Gated, Guarded
from aera.gateway.asking import choices_wanted, last_words
from aera.gateway.reading import ChatReader, wants_json
from aera.gateway.replicas import Replicas
from aera.gateway.wishes import Wishes
from aera.policy import Bounded, Decision, Fixed, Policy
from aera.response import Prefix, Question, Response
from aera.run import Allocation, Run
from aera.schedule import Schedule
from aera.upstream import together

OWN_FIELDS = ("aera", "n", "stream", "stream_options")
UNREADABLE = "nothing readable in the first block"
FULL, MOST = "full budget", "maximum reached"
PLANS_KEPT = 1_024
QUESTION = Question("", "")
"""What is asked is in the request's messages, at which only a weigher looks."""


@dataclass(frozen=True)
class Served:
    """A policy as clients get it.

    A first block in which nothing can be read ends the matter. A stop that was forced says so,
    while one that the policy wanted keeps the policy's reason.
    """

    policy: Policy
    maximum: int | None = None

    def decide(self, prefix: Prefix) -> Decision:
        if prefix.previous is None and not len(prefix.tally):
            return Decision(True, UNREADABLE)
        decision = self.policy.decide(prefix)
        beyond = prefix.next_checkpoint
        above = beyond is not None and self.maximum is not None and beyond > self.maximum
        if decision.stop or (beyond is not None and not above):
            return decision
        reason = OUTSIDE if decision.reason == OUTSIDE else (MOST if above else FULL)
        return Decision(True, reason, decision.p_continue)

    def __str__(self) -> str:
        return f"{self.policy}{'' if self.maximum is None else f'+max{self.maximum}'}"


@dataclass(frozen=True, eq=False)
class Plan:
    """How requests with the same wishes are voted on."""

    policy: Policy
    schedule: Schedule
    budget: Budget
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Voted:
    """One voted choice and how it came about."""

    allocation: Allocation
    chosen: Response
    """The reply that best represents the winning answer."""
    failures: int
    unread: int
    """Replies that came but could not be read."""
    full_budget: int
    waited: float = 0.0
    """Seconds spent waiting for model servers."""
    strays: tuple[str, ...] = ()
    """Inputs of the gate outside their training range at the last checkpoint."""
    second: Response | None = None
    """Another upstream's reply, asked for because the vote was undecided."""
    second_answer: str | None = None
    notes: tuple[str, ...] = ()

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
        """Prompt and completion tokens, the second upstream's included."""
        found, more = self.allocation, self.second
        prompt, spent = (more.prompt_tokens, more.tokens) if more else (0, 0)
        return found.prompt_tokens + prompt, found.completion_tokens + spent

    @cached_property
    def account(self) -> dict[str, Any]:
        """The `aera` object of a reply; the metrics read it too."""
        allocation = self.allocation
        spent, done = allocation.completion_tokens, max(1, allocation.responses)
        return {
            "answer": self.second_answer if self.escalated else allocation.answer,
            "policy": allocation.policy,
            "samples": allocation.responses,
            "checkpoint": allocation.checkpoint,
            "reason": allocation.reason,
            "p_continue": [step.decision.p_continue for step in allocation.steps],
            "votes": allocation.votes,
            "tied": allocation.aggregate.tied,
            "failures": self.failures,
            "tokens": self.tokens[1],
            "tokens_saved": round(spent / done * (self.full_budget - allocation.responses)),
            "reply_tokens": self.response.tokens,
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
            warnings.append(f"{self.failures} of {self.allocation.responses} samples failed")
        return warnings


def undecided(allocation: Allocation) -> bool:
    """Whether the last checkpoint was reached unsatisfied, or the guard had to step in."""
    return allocation.reason in (FULL, MOST) or guarded(allocation)


def guarded(allocation: Allocation) -> bool:
    """Whether the gate wanted to stop on evidence it was never trained on."""
    return OUTSIDE in [step.decision.reason for step in allocation.steps]


@dataclass(frozen=True)
class Escalation:
    """Where undecided questions go."""

    upstream: Replicas
    model: str


@dataclass(frozen=True, eq=False)
class Gateway:
    """Votes on chat requests."""

    upstream: Replicas
    controller: Controller
    encoder: Encoder
    quorum: float = 0.5
    """The share of samples that must not fail."""
    minimum: int | None = None
    """Samples below which nobody is answered, whatever a request wishes."""
    escalation: Escalation | None = None

    async def vote(self, body: Mapping[str, Any], wishes: Wishes) -> list[Voted]:
        """As many independently voted choices as the client asked for."""
        wanted = choices_wanted(body)
        plan = self.plan(wishes, body.get("temperature") == 0)
        told = {name: value for name, value in body.items() if name not in OWN_FIELDS}
        request = {**self.controller.asks, **told}
        if wanted == 1:
            return [await self._one(request, plan, offset=0)]
        stride = self.controller.schedule.last
        return await together(self._one(request, plan, offset=i * stride) for i in range(wanted))

    @cached_property
    def plan(self) -> Callable[[Wishes, bool], Plan]:
        """The plan for some wishes, at a temperature of 0 or not; the same wishes come often."""
        return lru_cache(PLANS_KEPT)(self._plan)

    def _plan(self, wishes: Wishes, greedy: bool) -> Plan:
        chosen, schedule = self._chosen(wishes), self.controller.schedule
        policy = self._bounded(chosen, wishes)
        budget = Budget(tokens=wishes.max_tokens_total, seconds=wishes.deadline_s)
        if greedy:
            note = "temperature 0 gives one sample, nothing to vote on"
            return Plan(Fixed(1), Schedule((1,)), budget, (note,))
        most = min(wishes.max_samples or schedule.last, schedule.last)
        if isinstance(chosen, Fixed):  # nothing to decide on the way: one block, one prompt
            schedule = Schedule((min(chosen.responses, most),))
        elif most < schedule.first:
            schedule = Schedule((most,))
        return Plan(policy, schedule, budget)

    def _chosen(self, wishes: Wishes) -> Policy:
        """The controller's policy, as far as the request does not wish otherwise."""
        gate = self.controller.gate
        policy: Policy = self.controller.policy
        if wishes.policy is not None:
            own = {"aera": lambda dial: Guarded(Gated(gate, float(dial)))} if gate else {}
            policy = parse_policy(wishes.policy, own)
        if isinstance(policy, Gated):
            policy = Guarded(policy)
        if wishes.threshold is None:
            return policy
        if gate is None or (wishes.policy and not isinstance(policy, Guarded)):
            raise UsageError('"aera.threshold" needs a controller with a gate, and its policy')
        return Guarded(Gated(gate, wishes.threshold))

    def _bounded(self, policy: Policy, wishes: Wishes) -> Policy:
        """A policy that keeps to the minimum and the maximum."""
        last = self.controller.schedule.last
        minimum = max(self.minimum or 0, wishes.min_samples or 0)
        most = min(last, wishes.max_samples or last)
        if minimum > most:
            raise UsageError(f"the minimum of {minimum} samples is above the maximum of {most}")
        return Served(Bounded(policy, minimum=minimum or None), wishes.max_samples)

    async def _one(self, body: Mapping[str, Any], plan: Plan, *, offset: int) -> Voted:
        reader = ChatReader(question_reader(self.controller.task), wants_json(body))
        weigher = None if reader.wants_json or "tools" in body else self.controller.weigher
        question = (
            QUESTION
            if weigher is None
            else Question("", self.controller.task.question_in(last_words(body)))
        )
        run = Run(question, plan.policy, task=reader, schedule=plan.schedule, weigher=weigher)
        sampler, spending = _BodySampler(self.upstream, body, offset), Spending(plan.budget)
        allocation = await advance(run, sampler, self.controller, spending=spending)
        responses = run.prefix.responses
        self._check_quorum(responses, sampler.refusal, spending)
        notes = plan.notes
        if sampler.refusal is not None:
            notes = (*notes, f"no further samples could be had: {sampler.refusal}")
        elif allocation.error is not None:
            raise RunError(allocation.error)
        chosen, strays = await self._looked_at(run.prefix, allocation.answer)
        failures = sum(response.error is not None for response in responses)
        unread = sum(vote.answer is None for vote in run.prefix.votes) - failures
        voted = Voted(
            *(allocation, chosen, failures, unread, plan.schedule.last, sampler.waited, strays),
            notes=notes,
        )
        if self.escalation is None or not undecided(allocation):
            return voted
        return await self._escalated(voted, body, reader, deadline=spending.deadline)

    async def _escalated(
        self, voted: Voted, body: Mapping[str, Any], reader: ChatReader, *, deadline: float | None
    ) -> Voted:
        """The same with the second upstream's reply, where it has one."""
        assert self.escalation is not None
        asked = {**body, "model": self.escalation.model}
        sampler = _BodySampler(self.escalation.upstream, asked, 0)
        try:
            [reply] = await sampler.sample(QUESTION, 1, deadline=deadline)
        except UpstreamError as error:
            return replace(voted, notes=(*voted.notes, f"escalation failed: {error}"))
        if reply.error is not None:
            return replace(voted, notes=(*voted.notes, f"escalation failed: {reply.error}"))
        read = await aside(self.controller, partial(reader.read, reply))
        waited = voted.waited + sampler.waited
        return replace(voted, second=reply, second_answer=read.answer, waited=waited)

    def _check_quorum(
        self, responses: Sequence[Response], refusal: UpstreamError | None, spending: Spending
    ) -> None:
        """Too few good replies are the upstream's failure, not an answer."""
        good = sum(response.error is None for response in responses)
        late = spending.deadline is not None and time.monotonic() >= spending.deadline
        # What a deadline cut off is no failure, so one good reply is enough then.
        if good and (late or good >= self.quorum * len(responses)):
            return
        if late:
            limit = f"{spending.budget.seconds:g} s"
            raise UpstreamError(f"no reply within {limit}", status=504, kind="timeout_error")
        causes = [r.source for r in responses if isinstance(r.source, UpstreamError)]
        raise refusal or (causes or [UpstreamError("no reply could be had")])[-1]

    async def _looked_at(
        self, prefix: Prefix, answer: str | None
    ) -> tuple[Response, tuple[str, ...]]:
        """The reply that represents an answer, and the inputs that left the training range."""
        gate = self.controller.gate if isinstance(self.controller.policy, Gated) else None
        if len(prefix) == 1 and gate is None:
            return prefix.responses[0], ()
        good = [
            (vote.answer, response)
            for vote, response in zip(prefix.votes, prefix.responses, strict=True)
            if response.error is None
        ]
        winners = [response for said, response in good if said == answer and said is not None]
        among = winners or [response for _, response in good]
        if len(among) < 3 and gate is None:
            return among[0], ()

        def look() -> tuple[Response, tuple[str, ...]]:
            vectors = self.encoder.encode([response.text for response in among])
            medoid = among[int(np.argmax(vectors @ vectors.sum(axis=0)))]
            return medoid, gate.strays(prefix) if gate else ()

        return await asyncio.to_thread(look)


@dataclass(eq=False)
class _BodySampler:
    """Samples one fixed request; remembers a refusal as it came, and how long it waited."""

    upstream: Replicas
    body: Mapping[str, Any]
    offset: int
    refusal: UpstreamError | None = None
    waited: float = 0.0

    async def sample(
        self, question: Question, n: int, *, start: int = 0, deadline: float | None = None
    ) -> list[Response]:
        begun, index = time.monotonic(), self.offset + start
        try:
            return await self.upstream.complete(self.body, n, start=index, deadline=deadline)
        except UpstreamError as error:
            self.refusal = error
            raise
        finally:
            self.waited += time.monotonic() - begun


def completion(voted: Sequence[Voted], model: str, *, logprobs: bool = True) -> dict[str, Any]:
    """The OpenAI reply: representative choices, usage summed over all samples, the account.

    Logprobs that only the weigher wanted stay behind.
    """
    choices = []
    for place, each in enumerate(voted):
        source = each.response.source if isinstance(each.response.source, dict) else {}
        choice = {**source, "index": place}
        if not logprobs and "logprobs" in choice:
            choice["logprobs"] = None
        choices.append(choice)
    prompt, spent = (sum(counts) for counts in zip(*(v.tokens for v in voted), strict=True))
    accounts = [each.account for each in voted]
    usage = {"prompt_tokens": prompt, "completion_tokens": spent, "total_tokens": prompt + spent}
    return {
        "id": f"chatcmpl-{os.urandom(16).hex()}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": choices,
        "usage": usage,
        "aera": accounts[0] if len(accounts) == 1 else {"choices": accounts},
    }
