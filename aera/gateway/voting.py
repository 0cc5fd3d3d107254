"""The gateway's decisions: one chat request in, voted choices with their accounts out. No HTTP."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np

from aera.errors import RunError, UpstreamError, UsageError
from aera.evidence.encoder import Encoder
from aera.gateway.options import RequestOptions
from aera.gateway.request import count_choices, find_last_words
from aera.policies.gate import OUTSIDE, Gated, Guarded
from aera.policies.labels import label_of, parse_policy
from aera.policies.policy import UNREADABLE, Bounded, Fixed, Policy, ServedPolicy
from aera.reading.chat import ChatReader, wants_json
from aera.reading.equivalence import question_reader
from aera.response import Prefix, Question, Response
from aera.sampling.budget import Budget
from aera.sampling.replicas import Replicas
from aera.sampling.sampler import RequestSampler
from aera.sampling.spending import Spending
from aera.sampling.upstream import run_together
from aera.schedule import Schedule
from aera.solving.controller import Controller
from aera.solving.run import Allocation, Run
from aera.solving.solve import advance, run_off_loop
from aera.voting.best_of_n import gives_weights

OWN_FIELDS = ("aera", "n", "stream", "stream_options")
PLANS_KEPT = 1_024
QUESTION = Question("", "")
"""What is asked is in the request's messages, at which only a weigher looks."""


@dataclass(frozen=True, eq=False)
class VotePlan:
    """How requests with the same options are voted on."""

    policy: Policy
    schedule: Schedule
    budget: Budget
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class VotedChoice:
    """One voted choice and how it came about."""

    allocation: Allocation
    chosen: Response
    """The reply that best represents the winning answer."""
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
        """Prompt and completion tokens, the second upstream's included."""
        found, more = self.allocation, self.second
        prompt, spent = (more.prompt_tokens, more.tokens) if more else (0, 0)
        return found.prompt_tokens + prompt, found.completion_tokens + spent

    @cached_property
    def account(self) -> dict[str, Any]:
        """The `aera` object of a reply; the metrics read it too."""
        allocation = self.allocation
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
            "tokens_saved": allocation.tokens_saved,
            "reply_tokens": self.response.tokens,
            "escalate": is_undecided(allocation),
            "escalated": self.escalated,
            "warnings": self._warnings(),
        }

    def _warnings(self) -> list[str]:
        warnings = list(self.notes)
        if self.allocation.reason == UNREADABLE:
            warnings.append("no reply could be read, so nothing was voted on")
        if self.allocation.aggregate.tied:
            warnings.append("the winning answer was tied and won by being first")
        if was_guarded(self.allocation):
            warnings.append(OUTSIDE)
        if self.failures:
            warnings.append(f"{self.failures} of {self.allocation.responses} samples failed")
        return warnings


def is_undecided(allocation: Allocation) -> bool:
    """Whether the last checkpoint was reached unsatisfied, or the guard had to step in."""
    return any(step.decision.forced or step.decision.outside for step in allocation.steps)


def was_guarded(allocation: Allocation) -> bool:
    """Whether the gate wanted to stop on evidence it was never trained on."""
    return any(step.decision.outside for step in allocation.steps)


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
    """Samples below which nobody is answered, whatever a request asks for."""
    escalation: Escalation | None = None

    async def vote(self, body: Mapping[str, Any], options: RequestOptions) -> list[VotedChoice]:
        """As many independently voted choices as the client asked for."""
        wanted = count_choices(body)
        plan = self.plan(options, body.get("temperature") == 0)
        told = {name: value for name, value in body.items() if name not in OWN_FIELDS}
        request = {**self.controller.asks, **told}
        spending = Spending(plan.budget)
        if wanted == 1:
            return [await self._vote_once(request, plan, spending, offset=0)]
        stride = self.controller.schedule.last
        return await run_together(
            self._vote_once(request, plan, spending, offset=place * stride)
            for place in range(wanted)
        )

    @cached_property
    def plan(self) -> Callable[[RequestOptions, bool], VotePlan]:
        """The plan for some options, at a temperature of 0 or not; the same options come often."""
        return lru_cache(PLANS_KEPT)(self._make_plan)

    def _make_plan(self, options: RequestOptions, greedy: bool) -> VotePlan:
        chosen, schedule = self._choose_policy(options), self.controller.schedule
        policy = self._limit(chosen, options)
        budget = Budget(tokens=options.max_tokens_total, seconds=options.deadline_s)
        if greedy:
            note = "temperature 0 gives one sample, nothing to vote on"
            return VotePlan(Fixed(1), Schedule((1,)), budget, (note,))
        most = min(options.max_samples or schedule.last, schedule.last)
        if isinstance(chosen, Fixed):  # nothing to decide on the way: one block, one prompt
            schedule = Schedule((min(chosen.responses, most),))
        elif most < schedule.first:
            schedule = Schedule((most,))
        return VotePlan(policy, schedule, budget)

    def _choose_policy(self, options: RequestOptions) -> Policy:
        """The controller's policy, as far as the request does not ask for another."""
        gate = self.controller.gate
        policy: Policy = self.controller.policy
        if options.policy is not None:
            own = {"aera": lambda threshold: Guarded(Gated(gate, float(threshold)))} if gate else {}
            policy = parse_policy(options.policy, own)
        if isinstance(policy, Gated):
            policy = Guarded(policy)
        if options.threshold is None:
            return policy
        if gate is None or (options.policy and not isinstance(policy, Guarded)):
            raise UsageError('"aera.threshold" needs a controller with a gate, and its policy')
        return Guarded(Gated(gate, options.threshold))

    def _limit(self, policy: Policy, options: RequestOptions) -> Policy:
        """A policy that keeps to the minimum and the maximum."""
        last = self.controller.schedule.last
        minimum = max(self.minimum or 0, options.min_samples or 0)
        most = min(last, options.max_samples or last)
        if minimum > most:
            raise UsageError(f"the minimum of {minimum} samples is above the maximum of {most}")
        # A maximum that the schedule does not reach is none: its end is the full budget.
        maximum = most if most < last else None
        return ServedPolicy(Bounded(policy, minimum=minimum or None, maximum=maximum))

    async def _vote_once(
        self, body: Mapping[str, Any], plan: VotePlan, spending: Spending, *, offset: int
    ) -> VotedChoice:
        reader = ChatReader(question_reader(self.controller.task), wants_json(body))
        weigher = None if reader.wants_json or "tools" in body else self.controller.weigher
        question = (
            QUESTION
            if weigher is None
            else Question("", self.controller.task.question_in(find_last_words(body)))
        )
        run = Run(
            question,
            plan.policy,
            task=reader,
            schedule=plan.schedule,
            weigher=weigher,
            label=label_of(plan.policy, weighted=gives_weights(weigher)),
        )
        sampler = RequestSampler(self.upstream, body, offset)
        allocation = await advance(run, sampler, self.controller, spending=spending)
        responses = run.prefix.responses
        self._check_quorum(responses, sampler.refusal, spending)
        notes = plan.notes
        if sampler.refusal is not None:
            notes = (*notes, f"no further samples could be had: {sampler.refusal}")
        elif allocation.error is not None:
            raise RunError(allocation.error)
        chosen, strays = await self._pick_reply(run.prefix, allocation.answer)
        failures = sum(response.error is not None for response in responses)
        unread = sum(vote.answer is None for vote in run.prefix.votes) - failures
        voted = VotedChoice(
            allocation=allocation,
            chosen=chosen,
            failures=failures,
            unread=unread,
            waited=sampler.waited,
            strays=strays,
            notes=notes,
        )
        if self.escalation is None or not is_undecided(allocation):
            return voted
        return await self._escalate(voted, body, reader, deadline=spending.deadline)

    async def _escalate(
        self,
        voted: VotedChoice,
        body: Mapping[str, Any],
        reader: ChatReader,
        *,
        deadline: float | None,
    ) -> VotedChoice:
        """The same with the second upstream's reply, where it has one."""
        assert self.escalation is not None
        asked = {**body, "model": self.escalation.model}
        sampler = RequestSampler(self.escalation.upstream, asked)
        try:
            [reply] = await sampler.sample(QUESTION, 1, deadline=deadline)
        except UpstreamError as error:
            return replace(voted, notes=(*voted.notes, f"escalation failed: {error}"))
        if reply.error is not None:
            return replace(voted, notes=(*voted.notes, f"escalation failed: {reply.error}"))
        read = await run_off_loop(self.controller, partial(reader.read, reply))
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

    async def _pick_reply(
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


def completion(
    voted: Sequence[VotedChoice], model: str, *, logprobs: bool = True
) -> dict[str, Any]:
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
        "id": voted[0].id,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": choices,
        "usage": usage,
        "aera": accounts[0] if len(accounts) == 1 else {"choices": accounts},
    }
