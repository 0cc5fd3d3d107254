"""The gateway's decisions: one chat request in, voted choices with their accounts out. No HTTP."""

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from aera.errors import AeraError, RunError, UpstreamError
from aera.evidence.encoder import Encoder
from aera.gateway.account import VotedChoice, is_undecided
from aera.gateway.auditing import Audit, Auditor, AuditRules
from aera.gateway.ceilings import Ceilings
from aera.gateway.options import RequestOptions
from aera.gateway.plan import Planner, Shape, VotePlan, on_full_budget
from aera.gateway.reading import DeadlineReader
from aera.gateway.request import count_choices, find_last_words
from aera.policies.gate import Gated
from aera.policies.policy import UNREADABLE, Fixed
from aera.pools.recorded import AuditFolder
from aera.reading.chat import ChatReader, is_structured, wants_json, words_of
from aera.reading.equivalence import question_reader
from aera.reading.schema import Schemas
from aera.response import Prefix, Question, Response
from aera.sampling.body import RequestBody
from aera.sampling.budget import Budget, Ledger
from aera.sampling.replicas import Replicas
from aera.sampling.sampler import RequestSampler
from aera.sampling.upstream import run_together
from aera.solving.controller import Controller
from aera.solving.home import Lookout
from aera.solving.run import Run
from aera.tally import Vote
from aera.voting.aggregation import plain_vote
from aera.voting.best_of_n import gives_weights
from aera.voting.structure import outcome_of, structure_vote

log = logging.getLogger("aera.gateway")
__all__ = ["UNREADABLE", "Ballot", "Escalation", "Gateway"]
OWN_FIELDS = ("aera", "n", "stream", "stream_options")
ABROAD = "plain votes, for the questions here are not those that the controller was taught on"
DOUBT = "plain votes, until it is clear that the controller was taught on questions like these"
LATE = 0.03
"""Seconds beyond a deadline in which a block under way may still be counted."""
COMPARED = 50_000
"""Characters of a reply by which it is compared with the other winners."""
QUESTION = Question("", "")
"""What is asked is in the request's messages, at which only a weigher looks."""


@dataclass(frozen=True)
class Escalation:
    """Where undecided questions go."""

    upstream: Replicas
    model: str


@dataclass(frozen=True, eq=False)
class VoteSampler(RequestSampler):
    """Samples one request and keeps every reply, also those that nobody had time to count."""

    heard: dict[int, Response] = field(default_factory=dict)
    """By their place in the order asked."""

    async def sample(
        self, question: Question, n: int, *, start: int = 0, deadline: float | None = None
    ) -> list[Response]:
        """Ask for `n` more responses."""
        got = await super().sample(question, n, start=start, deadline=deadline)
        self.heard.update(enumerate(got, start=start))
        return got


@dataclass(frozen=True, eq=False)
class Ballot:
    """One vote on one request: what is asked, how it is read and decided."""

    body: Mapping[str, Any]
    plan: VotePlan
    ledger: Ledger
    reader: DeadlineReader | ChatReader
    run: Run
    sampler: VoteSampler
    structured: bool = False
    """Whether tool calls or JSON are voted on, field by field."""

    @property
    def deadline(self) -> float | None:
        """When the answer is due."""
        return self.ledger.deadline

    @property
    def left(self) -> float | None:
        """Seconds until then, None where there is no deadline."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())


@dataclass(frozen=True, eq=False)
class Gateway:
    """Votes on chat requests."""

    upstream: Replicas
    controller: Controller
    encoder: Encoder
    minimum: int | None = None
    """Samples below which nobody is answered, whatever a request asks for."""
    escalation: Escalation | None = None
    ceilings: Ceilings = field(default_factory=Ceilings)
    auditor: Auditor = field(default_factory=lambda: Auditor(AuditRules(), "", ""))
    record: AuditFolder | None = None
    """Where audited questions are kept."""

    @cached_property
    def planner(self) -> Planner:
        """Makes the plans of requests."""
        return Planner(self.controller, self.ceilings, self.minimum)

    @cached_property
    def plain_planner(self) -> Planner:
        """Makes them where the controller is abroad."""
        return Planner(self.controller.plain, self.ceilings, self.minimum)

    @cached_property
    def lookout(self) -> Lookout:
        """Tells the controller that it is abroad."""
        return self.controller.make_lookout()

    async def vote(
        self,
        body: Mapping[str, Any],
        options: RequestOptions,
        *,
        size: int | None = None,
        upstream: Replicas | None = None,
        audit: Audit | None = None,
    ) -> list[VotedChoice]:
        """As many independently voted choices as the client asked for.

        `size` is what the request took in bytes; `upstream` carries the caller's own key where
        that is passed on; `audit` is to know what it needs to run on.
        """
        wanted = count_choices(body, self.ceilings.choices)
        shape = Shape(body.get("temperature") == 0, wanted, is_structured(body))
        plan = self._plan(body, options, shape)
        told = {name: value for name, value in body.items() if name not in OWN_FIELDS}
        own = plan.weigher is not None and plan.weigher is self.controller.weigher
        looks = own or confident_rule(plan.policy) is not None
        wishes, task = (self.controller.asks, self.controller.task) if looks else ({}, None)
        fields, cut = self.ceilings.limit_lengths(told)
        plan = replace(plan, notes=(*plan.notes, *cut)) if cut else plan
        request = RequestBody(fields, size=size, wishes=wishes, task=task)
        ledger = Ledger(plan.budget)
        samplers = [
            VoteSampler(upstream or self.upstream, request, place * plan.schedule.last)
            for place in range(wanted)
        ]
        ballots = [self._open(request, plan, ledger, sampler) for sampler in samplers]
        if wanted == 1:
            voted = await self._vote_once(ballots[0])
            if audit is not None:
                audit.vote = ballots[0], voted
            return [voted]
        return _gather_choices(await run_together(map(self._try_vote, ballots)))

    def _plan(self, body: Mapping[str, Any], options: RequestOptions, shape: Shape) -> VotePlan:
        """The controller's plan, or that of plain votes where it may be abroad.

        What a request asks for by name it gets; what is voted on as JSON is no question of a task.
        """
        if options.policy or options.threshold is not None:
            return self.planner.plan(options, shape)
        plan = self.planner.plan(options, shape) if shape.free else self._look(body, options, shape)
        return on_full_budget(plan) if self.auditor.spends_all else plan

    def _look(self, body: Mapping[str, Any], options: RequestOptions, shape: Shape) -> VotePlan:
        """The plan for a question, at which the lookout looks first."""
        words = self.controller.task.question_in(find_last_words(body))
        doubt = self.lookout.see(Question("", words))
        if (news := self.lookout.tell()) is not None:
            log.warning("%s", news)
        if not doubt:
            return self.planner.plan(options, shape)
        plan, abroad = self.plain_planner.plan(options, shape), self.lookout.abroad
        return replace(plan, notes=(*plan.notes, ABROAD if abroad else DOUBT), abroad=abroad)

    def _open(
        self, body: Mapping[str, Any], plan: VotePlan, ledger: Ledger, sampler: VoteSampler
    ) -> Ballot:
        task, structured = self.controller.task, is_structured(body)
        told = (wants_json(body), Schemas.of(body)) if structured else ()
        merging = ChatReader(question_reader(task), *told)
        reader: ChatReader | DeadlineReader = merging
        if task.equivalence and ledger.deadline is not None:
            reader = DeadlineReader(merging, ChatReader(task, *told), ledger.deadline)
        weigher = None if structured else plan.weigher
        question = (
            QUESTION if weigher is None else Question("", task.question_in(find_last_words(body)))
        )
        run = Run(
            question,
            plan.policy,
            task=reader,
            schedule=plan.schedule,
            rule=structure_vote if structured else plain_vote,
            weigher=weigher,
            label=label_of(plan.policy, weighted=gives_weights(weigher)),
        )
        run.heavy = structured
        return Ballot(body, plan, ledger, reader, run, sampler, structured)

    def reopen(self, ballot: Ballot) -> Ballot:
        """The same vote from its beginning, to the full budget and without the client's limits."""
        served, said = ballot.plan.policy, ballot.sampler
        most = served.most if isinstance(served, ServedVote) else ballot.plan.schedule.last
        plan = replace(
            ballot.plan,
            policy=Fixed(most),
            schedule=ballot.plan.schedule.upto(most),
            budget=Budget(seconds=self.ceilings.deadline),
        )
        sampler = VoteSampler(said.upstream, said.body, said.offset)
        return self._open(ballot.body, plan, Ledger(plan.budget), sampler)

    async def _try_vote(self, ballot: Ballot) -> VotedChoice | UpstreamError:
        """One of several votes, whose failure is not the others'."""
        try:
            return await self._vote_once(ballot)
        except UpstreamError as error:
            return error

    async def _vote_once(self, ballot: Ballot) -> VotedChoice:
        begun = time.monotonic()
        run, failure = await self._feed(ballot)
        allocation = conclude(run, failure, begun)
        responses = run.prefix.responses
        failures = sum(response.error is not None for response in responses)
        if failures == len(responses):
            raise self._reason_for_nothing(ballot, responses, failure)
        notes = ballot.plan.notes
        if failure is not None:
            if not (run.steps or isinstance(failure.error, UpstreamError)):
                raise RunError(str(failure.error))  # of what was paid for nothing could be judged
            notes = (*notes, f"no further samples could be had: {failure.error}")
        outcome = outcome_of(run.prefix) if ballot.structured else None
        if outcome is not None:
            allocation = replace(allocation, votes=dict(outcome.tally.weights))
        chosen, strays = await self._pick_reply(ballot, run.prefix, allocation.answer)
        voted = VotedChoice(
            allocation=allocation,
            chosen=chosen,
            responses=responses,
            failures=failures,
            unread=sum(vote.answer is None for vote in run.prefix.votes) - failures,
            waited=ballot.sampler.waiting.seconds,
            strays=strays,
            notes=notes,
            structure=outcome,
            abroad=ballot.plan.abroad,
        )
        late = ballot.left == 0
        if self.escalation is None or late or not is_undecided(allocation):
            return voted
        return await self._escalate(voted, ballot)

    async def _feed(self, ballot: Ballot) -> tuple[Run, BlockFailure | None]:
        """Feed the run until it ends; at the deadline, with what has been read by then."""
        run, left = ballot.run, ballot.left
        work = feed_run(run, self.controller, ballot.sampler, ballot.ledger)
        if left is None or not self.controller.threaded:
            return run, await work  # the sampler keeps to the deadline, and nothing else waits
        try:
            async with asyncio.timeout(left + LATE):
                return run, await work
        except TimeoutError:
            return self._end_late(ballot), None

    def _end_late(self, ballot: Ballot) -> Run:
        """A run of what there is: whoever is still reading in another thread is left alone."""
        run, reader = ballot.run, ballot.reader
        prefix, steps, heard = run.prefix, list(run.steps), ballot.sampler.heard
        block = range(len(prefix), prefix.next_checkpoint or len(prefix))
        late = [heard[place] for place in block if place in heard and heard[place].error is None]
        ended = Run(
            run.question,
            run.policy,
            task=reader,
            schedule=ballot.plan.schedule,
            rule=structure_vote if ballot.structured else plain_vote,
            label=run.label,
        )
        ended.prefix, ended.steps = prefix, steps
        if late:
            # What could not be weighed or scored in time has no weight to vote with.
            votes = [Vote(None)] * len(late)
            if isinstance(reader, DeadlineReader) and ballot.plan.weigher is None:
                votes = reader.recall(late)
            ended.prefix = prefix.extend(late, votes)
        ended.end("limit: seconds")
        return ended

    async def _escalate(self, voted: VotedChoice, ballot: Ballot) -> VotedChoice:
        """The same with the second upstream's reply, where it has one."""
        assert self.escalation is not None
        asked = {**ballot.body, "model": self.escalation.model}
        second = self.escalation.upstream.keeping(ballot.sampler.upstream.tracing)
        sampler = RequestSampler(second, asked)
        try:
            async with asyncio.timeout(None if ballot.left is None else ballot.left + LATE):
                [reply] = await sampler.sample(QUESTION, 1, deadline=ballot.deadline)
                if reply.error is not None:
                    return replace(voted, notes=(*voted.notes, f"escalation failed: {reply.error}"))
                read = await run_off_loop(
                    self.controller, partial(ballot.reader.read, reply), heavy=ballot.structured
                )
        except UpstreamError as error:
            return replace(voted, notes=(*voted.notes, f"escalation failed: {error}"))
        except TimeoutError:
            return replace(voted, notes=(*voted.notes, "escalation failed: the deadline is over"))
        waited = voted.waited + sampler.waiting.seconds
        return replace(voted, second=reply, second_answer=read.answer, waited=waited)

    def _reason_for_nothing(
        self, ballot: Ballot, responses: tuple[Response, ...], failure: BlockFailure | None
    ) -> AeraError:
        """Why there is not one reply: the upstream's own error, or the deadline."""
        if ballot.left == 0:
            limit = f"{ballot.plan.budget.seconds:g} s"
            return UpstreamError(f"no reply within {limit}", status=504, kind="timeout_error")
        if failure is not None:
            return failure.error
        causes = [r.source for r in responses if isinstance(r.source, UpstreamError)]
        return (causes or [UpstreamError("no reply could be had")])[-1]

    async def _pick_reply(
        self, ballot: Ballot, prefix: Prefix, answer: str | None
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
        if ballot.structured:
            winners = [prefix.responses[place] for place in outcome_of(prefix).best]
        among = winners or [response for _, response in good]
        if (len(among) < 3 and gate is None) or ballot.left == 0:
            return among[0], ()

        def look() -> tuple[Response, tuple[str, ...]]:
            said = [words_of(response)[:COMPARED] for response in among]
            vectors = self.encoder.encode(said)
            medoid = among[int(np.argmax(vectors @ vectors.sum(axis=0)))]
            return medoid, gate.strays(prefix) if gate else ()

        try:
            async with asyncio.timeout(ballot.left):
                return await asyncio.to_thread(look)
        except (TimeoutError, AeraError):
            return among[0], ()  # any of the winners is an answer; the best one is a courtesy


def _gather_choices(made: list[VotedChoice | UpstreamError]) -> list[VotedChoice]:
    """The choices that could be had, with a word of those that could not; none is an error."""
    voted = [each for each in made if isinstance(each, VotedChoice)]
    failed = [each for each in made if isinstance(each, UpstreamError)]
    if not voted:
        raise failed[0]
    if failed:
        note = f"{len(failed)} of {len(made)} choices could not be had: {failed[0]}"
        voted[0] = replace(voted[0], notes=(*voted[0].notes, note))
    return voted
