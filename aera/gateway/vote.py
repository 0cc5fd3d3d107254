"""The gateway's decisions: one chat request in, voted choices with their accounts out. No HTTP."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any

from aera.core import Question, Response, Vote
from aera.errors import AeraError, RunError, UpstreamError, UsageError
from aera.gateway.config import ModelConfig
from aera.gateway.openai import Json, RequestOptions, count_choices, describe, find_last_words
from aera.policies.domain import Lookout
from aera.policies.rules import Fixed, range_of
from aera.reading.equivalence import question_reader
from aera.reading.task import Reader
from aera.sampling.budget import Budget, Ledger
from aera.sampling.client import RequestBody, run_together
from aera.sampling.replicas import Replicas
from aera.sampling.sampler import RequestSampler
from aera.solving.controller import Controller
from aera.solving.run import Allocation, Run
from aera.solving.solve import drive, off_loop
from aera.voting.rules import find_winner
from aera.voting.structure import StructureReader, is_structured

log = logging.getLogger("aera.gateway")
OWN_FIELDS = ("aera", "n", "stream", "stream_options")
# Seconds beyond a deadline in which a block under way may still be counted.
LATE = 0.03
# Controllers that are kept for requests with the same options.
KEPT = 1_024
DRIFTED = "plain votes, for the questions here are not those that the controller was taught on"
DOUBT = "plain votes, until it is clear that the controller was taught on questions like these"
ALARMED = "the full budget, for audits say that early answers change too often"
GREEDY = "temperature 0 gives one sample, nothing to vote on"


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
class VoteRequest:
    """One vote on one request: who decides it, and what it may take."""

    body: RequestBody
    controller: Controller
    sampler: VoteSampler
    ledger: Ledger
    reader: Reader
    notes: tuple[str, ...] = ()
    drifted: bool = False
    """Whether plain votes stand in for a controller that was taught on other questions."""

    @cached_property
    def run(self) -> Run:
        """The run that decides it."""
        structured = is_structured(self.body)
        asked = Question("", self.controller.task.question_in(find_last_words(self.body)))
        return self.controller.start(asked, reader=self.reader, structured=structured)

    @property
    def left(self) -> float | None:
        """Seconds until the answer is due, None where there is no deadline."""
        due = self.ledger.deadline
        return None if due is None else max(0.0, due - time.monotonic())


@dataclass(frozen=True, eq=False)
class VotedChoice:
    """One voted choice and how it came about."""

    allocation: Allocation
    chosen: Response
    """The reply with the largest weight behind the winning answer."""
    responses: tuple[Response, ...]
    waited: float = 0.0
    """Seconds spent waiting for model servers."""
    second: Response | None = None
    """Another upstream's reply, asked for because the vote was undecided."""
    second_answer: str | None = None
    notes: tuple[str, ...] = ()
    drifted: bool = False
    strays: tuple[str, ...] = ()
    """Inputs of the gate outside their training range, where that kept it from stopping."""
    id: str = field(default_factory=lambda: f"chatcmpl-{os.urandom(16).hex()}")
    """Of the reply that it is, or is the first choice of."""

    @property
    def response(self) -> Response:
        """The reply that is returned."""
        return self.second or self.chosen

    @property
    def failures(self) -> int:
        """Samples that failed."""
        return sum(response.error is not None for response in self.responses)

    @property
    def unread(self) -> int:
        """Replies that came but could not be read."""
        return self.allocation.readability.responses - self.allocation.readability.read

    @property
    def tokens(self) -> tuple[int, int]:
        """Prompt and completion tokens: all samples, and the second upstream's."""
        found, more = self.allocation, self.second
        prompt, spent = (more.prompt_tokens, more.tokens) if more else (0, 0)
        return found.prompt_tokens + prompt, found.completion_tokens + spent

    @property
    def guarded(self) -> bool:
        """Whether the gate wanted to stop on evidence it was never trained on."""
        return any(step.decision.outside for step in self.allocation.steps)

    @property
    def undecided(self) -> bool:
        """Whether no policy wanted this end, the guard had to step in, or there is no winner."""
        found = self.allocation
        forced = self.guarded or any(step.decision.forced for step in found.steps)
        return forced or found.aggregate.tied or found.error is not None

    @cached_property
    def account(self) -> dict[str, Any]:
        """The `aera` object of a reply; the metrics read it too."""
        return describe(self)


@dataclass(frozen=True, eq=False)
class Voter:
    """Votes on the chat requests for one model."""

    upstream: Replicas
    controller: Controller
    config: ModelConfig = field(default_factory=ModelConfig)
    """What votes may take at most, whatever a request asks for."""
    escalation: tuple[Replicas, str] | None = None
    """Where undecided questions go, and the model to ask for there."""

    @cached_property
    def lookout(self) -> Lookout:
        """Tells whether the questions here are those that the controller was taught on."""
        return self.controller.make_lookout()

    @cached_property
    def choose(self) -> "Callable[[RequestOptions, int, bool], tuple[Controller, tuple[str, ...]]]":
        """The controller for some options and so many choices; the same ones come often."""
        return lru_cache(KEPT)(self._choose)

    def open(
        self,
        body: Json,
        options: RequestOptions,
        *,
        size: int | None = None,
        upstream: Replicas | None = None,
        above: Sequence[Ledger] = (),
        full: bool = False,
    ) -> list[VoteRequest]:
        """As many independent votes as the client asked for choices.

        `size` is what the request took in bytes; `upstream` carries the caller's own key where that
        is passed on; `above` are the ledgers of the caller's key. With `full` nobody stops early.
        """
        wanted = count_choices(body, self.config.max_n)
        allowed, notes = limit_options(options, self.config)
        fields, cut = limit_lengths(
            {name: value for name, value in body.items() if name not in OWN_FIELDS},
            self.config.max_tokens,
        )
        named = options.policy is not None or options.threshold is not None
        aside, told = (False, None) if named or is_structured(body) else self._look(body)
        chosen, more = self.choose(allowed, wanted, aside)
        if full and not named:
            _, most = range_of(chosen.policy, chosen.schedule.last)
            chosen, more = replace(chosen, policy=Fixed(most)), (*more, ALARMED)
        if body.get("temperature") == 0:
            chosen, more = replace(chosen, policy=Fixed(1)), (GREEDY,)
        if told is not None:
            more = (*more, told)
        wishes = {} if is_structured(body) else chosen.asks
        task = chosen.task if wishes else None
        request = RequestBody(fields, size=size, wishes=wishes, task=task)
        ledger = Ledger(
            Budget(tokens=allowed.max_tokens_total, seconds=allowed.deadline_s), above=above
        )
        reader: Reader = question_reader(self.controller.task)
        return [
            VoteRequest(
                request,
                chosen,
                VoteSampler(upstream or self.upstream, request, place * chosen.schedule.last),
                ledger,
                StructureReader.of(body, reader) if is_structured(body) else reader,
                (*notes, *cut, *more),
                aside and self.lookout.abroad,
            )
            for place in range(wanted)
        ]

    def _look(self, body: Json) -> tuple[bool, str | None]:
        """Whether plain votes decide this question, and the note that says so."""
        words = self.controller.task.question_in(find_last_words(body))
        aside = self.lookout.see(Question("", words))
        if (news := self.lookout.tell()) is not None:
            log.warning("%s", news)
        return aside, (DRIFTED if self.lookout.abroad else DOUBT) if aside else None

    def _choose(
        self, options: RequestOptions, choices: int, plain: bool
    ) -> tuple[Controller, tuple[str, ...]]:
        """The controller within the request's and the operator's bounds, and what was cut."""
        chosen = self.controller.plain if plain else self.controller
        if options.policy is not None:
            chosen = chosen.run_by(options.policy.strip())
        if options.threshold is not None:
            chosen = chosen.at(options.threshold)
        allowed = min(chosen.schedule.last, self.config.max_samples // choices)
        if allowed < 1:
            raise UsageError(
                f'"n" of {choices} needs more than the {self.config.max_samples} samples that a '
                "request may take here"
            )
        fixed = chosen.policy if isinstance(chosen.policy, Fixed) else None
        if fixed is not None and fixed.responses > allowed:
            raise UsageError(f"{fixed} is above the {allowed} samples that a vote may take here")
        least = max(self.config.min_samples or 0, options.min_samples or 0)
        most = min(allowed, options.max_samples or allowed)
        notes = []
        if options.max_samples is not None and options.max_samples > allowed:
            notes.append(f"max_samples was cut from {options.max_samples} to {allowed}")
        if fixed is not None and not least <= fixed.responses <= most:
            notes.append(f"{fixed} was held between {least} and {most} samples")
        if choices > 1 and allowed < self.controller.schedule.last:
            notes.append(f"each of {choices} choices may take {most} samples here")
        return chosen.bounded(least or None, most), tuple(notes)

    # --- voting -----------------------------------------------------------------------------------

    async def vote(self, requests: Sequence[VoteRequest]) -> list[VotedChoice]:
        """The voted choices that could be had, with a word of those that could not."""
        if len(requests) == 1:
            return [await self.decide(requests[0])]
        made = await run_together(map(self._try, requests))
        voted = [each for each in made if isinstance(each, VotedChoice)]
        failed = [each for each in made if isinstance(each, UpstreamError)]
        if not voted:
            raise failed[0]
        if failed:
            note = f"{len(failed)} of {len(made)} choices could not be had: {failed[0]}"
            voted[0] = replace(voted[0], notes=(*voted[0].notes, note))
        return voted

    async def _try(self, request: VoteRequest) -> VotedChoice | UpstreamError:
        """One of several votes, whose failure is not the others'."""
        try:
            return await self.decide(request)
        except UpstreamError as error:
            return error

    async def decide(self, request: VoteRequest) -> VotedChoice:
        """One voted choice; an upstream that gave nothing at all is raised."""
        allocation, run = await self._drive(request)
        responses, error = run.prefix.responses, run.error
        good = [response for response in responses if response.error is None]
        if not good:
            raise self._reason_for_nothing(request, run)
        notes = request.notes
        if error is not None:
            if not (run.steps or isinstance(error, UpstreamError)):
                raise RunError(str(error))  # of what was paid for nothing could be judged
            notes = (*notes, f"no further samples could be had: {error}")
        voted = VotedChoice(
            allocation,
            find_winner(run.prefix, allocation.answer) or good[0],
            responses,
            waited=request.sampler.waiting.seconds,
            notes=notes,
            drifted=request.drifted,
        )
        gate = request.controller.gate
        if voted.guarded and gate is not None:
            voted = replace(voted, strays=gate.strays(run.prefix))
        if self.escalation is None or request.left == 0 or not voted.undecided:
            return voted
        return await self._escalate(voted, request, *self.escalation)

    async def _drive(self, request: VoteRequest) -> tuple[Allocation, Run]:
        """Feed the run until it ends; at the deadline, with what has been read by then."""
        run, left, begun = request.run, request.left, time.monotonic()
        try:
            # Who reads in another thread does not know of the deadline.
            slow = left is not None and run.pace != "quick"
            async with asyncio.timeout(left + LATE if left is not None and slow else None):
                return await drive(run, request.sampler, request.ledger), run
        except TimeoutError:
            ended = self._cut_off(request)
            return ended.make_allocation(seconds=time.monotonic() - begun), ended

    def _cut_off(self, request: VoteRequest) -> Run:
        """A run of what there is; what came and was not compared in time is read as it stands."""
        run, heard = request.run, request.sampler.heard
        block = range(len(run.prefix), run.prefix.next_checkpoint or len(run.prefix))
        late = [heard[place] for place in block if place in heard and heard[place].error is None]
        # What could not be weighed or scored in time has no weight to vote with.
        plain = None if request.controller.weigher else self.controller.task
        votes = [plain.read(each) if plain else Vote(None) for each in late]
        return run.cut_off("limit: seconds", late, votes)

    def _reason_for_nothing(self, request: VoteRequest, run: Run) -> AeraError:
        """Why there is not one reply: the upstream's own error, or the deadline."""
        if request.left == 0:
            limit = f"{request.ledger.budget.seconds:g} s"
            return UpstreamError(f"no reply within {limit}", status=504, kind="timeout_error")
        if run.error is not None:
            return run.error
        if run.reason == "limit: key":
            text, wait = "this key has used up what it may spend", request.ledger.wait_above()
            kind, code = "rate_limit_error", "too_many_requests"
            return UpstreamError(text, status=429, kind=kind, code=code, retry_after=wait)
        causes = [r.source for r in run.prefix.responses if isinstance(r.source, UpstreamError)]
        return (causes or [UpstreamError("no reply could be had")])[-1]

    async def _escalate(
        self, voted: VotedChoice, request: VoteRequest, second: Replicas, model: str
    ) -> VotedChoice:
        """The same with the second upstream's reply, where it has one."""
        sampler = RequestSampler(
            second.keeping(request.sampler.upstream.tracing), {**request.body, "model": model}
        )
        left = request.left
        try:
            async with asyncio.timeout(None if left is None else left + LATE):
                [reply] = await sampler.sample(
                    request.run.question, 1, deadline=request.ledger.deadline
                )
                if reply.error is not None:
                    return replace(voted, notes=(*voted.notes, f"escalation failed: {reply.error}"))
                read = await off_loop(
                    request.run, partial(request.reader.read, reply), size=len(reply.text)
                )
        except UpstreamError as error:
            return replace(voted, notes=(*voted.notes, f"escalation failed: {error}"))
        except TimeoutError:
            return replace(voted, notes=(*voted.notes, "escalation failed: the deadline is over"))
        waited = voted.waited + sampler.waiting.seconds
        return replace(voted, second=reply, second_answer=read.answer, waited=waited)

    def reopen(self, request: VoteRequest, above: Sequence[Ledger] = ()) -> VoteRequest:
        """The same vote from its beginning, to the full budget and without the client's limits."""
        _, most = range_of(request.controller.policy, request.controller.schedule.last)
        said = request.sampler
        return replace(
            request,
            controller=replace(request.controller, policy=Fixed(most)),
            sampler=VoteSampler(said.upstream, said.body, said.offset),
            ledger=Ledger(Budget(seconds=self.config.max_deadline), above=above),
        )


# --- ceilings -------------------------------------------------------------------------------------


def limit_options(
    options: RequestOptions, config: ModelConfig
) -> tuple[RequestOptions, tuple[str, ...]]:
    """The options as far as the operator allows them, and a sentence for each that was cut."""
    notes: list[str] = []

    def lower(name: str, asked: float | None, most: float | None) -> float | None:
        if asked is not None and most is not None and asked > most:
            notes.append(f"{name} was cut from {asked:g} to {most:g}, the most allowed here")
            return most
        return most if asked is None else asked

    tokens = lower("max_tokens_total", options.max_tokens_total, config.max_tokens_total)
    seconds = lower("deadline_s", options.deadline_s, config.max_deadline)
    if options.deadline_s is None and config.deadline is not None:
        seconds = min(config.deadline, config.max_deadline)
    whole = None if tokens is None else int(tokens)
    return replace(options, max_tokens_total=whole, deadline_s=seconds), tuple(notes)


def limit_lengths(body: Json, most: int | None) -> tuple[Json, tuple[str, ...]]:
    """A request whose responses are no longer than allowed, and what was cut."""
    if most is None:
        return body, ()
    names = ("max_completion_tokens", "max_tokens")
    asked = {name: body[name] for name in names if isinstance(body.get(name), int)}
    cut = {name: most for name, length in asked.items() if length > most}
    notes = [f"{name} was cut from {asked[name]} to {most}" for name in cut]
    if not asked:
        cut = {"max_tokens": most}
    return ({**body, **cut} if cut else body), tuple(notes)
