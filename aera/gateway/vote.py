"""The gateway's decisions: one chat request in, voted choices with their accounts out. No HTTP."""

import asyncio
import hashlib
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial

from aera.core import Question, Reader, Response, Vote
from aera.errors import AeraError, RunError, UpstreamError, UsageError
from aera.files import Json
from aera.gateway import openai
from aera.gateway.audit import Auditor, Finish
from aera.gateway.config import ModelConfig
from aera.gateway.openai import DeniedError, Headers, RequestOptions
from aera.policies.gate import OUTSIDE
from aera.policies.rules import UNREADABLE, Fixed, range_of
from aera.reading.task import question_reader
from aera.sampling.budget import Bound, Budget, Held, Ledger
from aera.sampling.client import LENGTHS, RequestBody, run_together
from aera.sampling.replicas import Replicas
from aera.sampling.replies import is_whole, trim_logprobs
from aera.sampling.sampler import request_bound
from aera.solving.controller import Controller
from aera.solving.run import Allocation, Run
from aera.solving.solve import drive, feed, look_at, off_loop
from aera.voting.rules import find_winner
from aera.voting.structure import StructureReader

OWN_FIELDS = ("aera", "n", "best_of", "stream", "stream_options")
# Seconds beyond a deadline in which a block under way may still be counted.
LATE = 0.03
# Controllers that are kept for requests with the same options.
CACHED = 1_024
DRIFTED = "plain votes, for the questions here are not those that the controller was taught on"
DOUBT = "plain votes, until it is clear that the controller was taught on questions like these"
ALARMED = "the full budget, for audits say that early answers change too often"
GREEDY = "temperature 0 gives one sample, nothing to vote on"
# Answers that a reply lists, the others being counted together, and characters of each.
SHOWN, LONGEST = 20, 200
# Counts beyond it are no counts.
LARGEST = 2**53


@dataclass(eq=False)
class VotedChoice:
    """One choice that is voted on: who decides it, what it asks for, and how it came about.

    It is its own sampler: whatever the question, its request is asked again.
    """

    run: Run
    controller: Controller
    reader: Reader
    upstream: Replicas
    body: RequestBody
    ledger: Ledger
    # Where its samples begin, so that those of another with the same seed are others.
    offset: int = 0
    notes: tuple[str, ...] = ()
    # Whether plain votes stand in for a controller that was taught on other questions.
    drifted: bool = False
    # Another upstream's reply, asked for because the vote was undecided.
    second: Response | None = None
    second_answer: str | None = None
    # Why there is not one reply.
    failure: AeraError | None = None
    # Seconds spent waiting for model servers.
    waited: float = 0.0
    # Every reply by its place in the order asked, counted or too late.
    heard: dict[int, Response] = field(default_factory=dict)
    # Once it is decided.
    allocation: Allocation = field(init=False)

    # --- asking -----------------------------------------------------------------------------------

    async def sample(
        self,
        question: Question,
        n: int,
        *,
        start: int = 0,
        deadline: float | None = None,
        held: Held | None = None,
    ) -> list[Response]:
        """Ask a replica for `n` more responses."""
        first, ask = self.offset + start, self.upstream.complete
        got = await self.wait(ask(self.body, n, start=first, deadline=deadline, held=held))
        self.heard.update(enumerate(got, start=start))
        return got

    async def wait(self, asking: Awaitable[list[Response]]) -> list[Response]:
        """What a model server gives; the time that takes is counted."""
        begun = time.monotonic()
        try:
            return await asking
        finally:
            self.waited += time.monotonic() - begun

    def bound(self, question: Question) -> Bound:
        """What one response can take at most, by the request."""
        return request_bound(self.body)

    # --- what came of it --------------------------------------------------------------------------

    @property
    def left(self) -> float | None:
        """Seconds until the answer is due, None where there is no deadline."""
        due = self.ledger.deadline
        return None if due is None else max(0.0, due - time.monotonic())

    @property
    def responses(self) -> tuple[Response, ...]:
        """All samples."""
        return self.run.prefix.responses

    @cached_property
    def response(self) -> Response:
        """The reply that is returned: that with the largest weight behind the winning answer."""
        if self.second is not None:
            return self.second
        good = (response for response in self.responses if response.error is None)
        return find_winner(self.run.prefix, self.allocation.answer) or next(good)

    @property
    def tokens(self) -> tuple[int, int]:
        """Prompt and completion tokens: all samples, and the second upstream's."""
        found, more = self.allocation, self.second or Response("")
        return found.prompt_tokens + more.prompt_tokens, found.completion_tokens + more.tokens

    @property
    def guarded(self) -> bool:
        """Whether the gate wanted to stop on evidence it was never trained on."""
        return any(step.decision.outside for step in self.allocation.steps)

    @property
    def observed(self) -> Json:
        """What operators see of it beside the account.

        `strays` are inputs of the gate outside their training range that kept it from stopping.
        """
        gate = self.controller.gate
        strays = gate.strays(self.run.prefix) if self.guarded and gate is not None else ()
        told = {"guarded": self.guarded, "drifted": self.drifted, "strays": [*strays]}
        return {**told, "prompt_tokens": self.tokens[0]}

    @property
    def undecided(self) -> bool:
        """Whether no policy wanted this end, the guard had to step in, or there is no winner."""
        found = self.allocation
        forced = any(step.decision.forced or step.decision.outside for step in found.steps)
        return forced or found.leaders.tied or found.error is not None

    @cached_property
    def account(self) -> Json:
        """The `aera` object of a reply; the metrics read it too."""
        found, votes = self.allocation, self.allocation.votes
        leading = [*votes]
        if len(votes) > SHOWN:
            leading = sorted(votes, key=votes.__getitem__, reverse=True)[:SHOWN]
        failures = sum(response.error is not None for response in self.responses)
        return {
            "answer": self.second_answer if self.second else found.answer,
            "policy": found.policy,
            "samples": found.responses,
            "checkpoint": found.checkpoint,
            "reason": found.reason,
            "p_continue": [step.decision.p_continue for step in found.steps],
            "votes": {_shorten(answer): votes[answer] for answer in leading},
            "other_votes": sum((votes[each] for each in votes.keys() - {*leading}), 0.0),
            "tied": found.leaders.tied,
            "failures": failures,
            "unread": found.readability.responses - found.readability.read,
            "tokens": self.tokens[1],
            "tokens_saved": found.tokens_saved,
            "reply_tokens": self.response.tokens,
            "escalate": self.undecided,
            "escalated": self.second is not None,
            "warnings": [*self.notes, *self._warnings(failures)],
        }

    def _warnings(self, failures: int) -> Iterator[str]:
        found = self.allocation
        if found.reason == UNREADABLE:
            yield "no reply could be read, so nothing was voted on"
        if found.leaders.tied:
            yield "the winning answer was tied and won by being first"
        if self.guarded:
            yield OUTSIDE
        if failures:
            yield f"{failures} of {found.responses} samples failed"
        for said, count in found.lacking.items():
            yield f"{count} samples {said}"
        if doubt := self.ledger.doubt:
            yield doubt

    def find_failure(self) -> AeraError | None:
        """Why there is not one reply: the deadline, the key's limit or the upstream's own error."""
        run, ledger = self.run, self.ledger
        if any(response.error is None for response in self.responses):
            # Of what was paid for nothing could be judged.
            judged = run.error is None or run.steps or isinstance(run.error, UpstreamError)
            return None if judged else RunError(str(run.error))
        if self.left == 0:
            limit = f"{ledger.budget.seconds:g} s"
            return UpstreamError(f"no reply within {limit}", status=504, kind="timeout_error")
        if run.error is None and run.reason == "limit: key":
            return openai.used_up(ledger.above, self.bound(run.question))
        causes = [r.source for r in self.responses if isinstance(r.source, UpstreamError)]
        lost = "; ".join(ledger.lost_to)
        why = f"{lost}; a limit left no room for another try" if lost else "no reply could be had"
        return run.error or [UpstreamError(why), *causes][-1]

    def cut_off(self) -> Run:
        """A run of what there is; what came and was not compared in time is read as it stands."""
        run = self.run
        block = range(len(run.prefix), run.prefix.next_checkpoint or len(run.prefix))
        late = [r for place in block if (r := self.heard.get(place)) and r.error is None]
        # What could not be weighed or scored in time has no weight to vote with.
        plain = None if self.controller.weigher else self.controller.task
        votes = [plain.read(each) if plain else Vote(None) for each in late]
        return run.cut_off("limit: seconds", late, votes)


def _shorten(answer: str) -> str:
    """A long answer is cut and marked by a hash."""
    if len(answer) <= LONGEST:
        return answer
    mark = hashlib.sha256(answer.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{answer[: LONGEST - 14]}… {mark}"


class Model:
    """A model that is served: its servers, who decides its votes, and what those may take."""

    def __init__(
        self,
        config: ModelConfig,
        controller: Controller,
        replicas: Replicas,
        second: Replicas | None,
        count: Callable[..., None],
        *,
        forward_key: bool,
    ) -> None:
        self.config, self.replicas, self.forward_key = config, replicas, forward_key
        self.controller, self.auditor = controller, Auditor(config, controller, count)
        self._second = second
        # Tells whether the questions here are those that the controller was taught on.
        self.lookout = self.controller.make_lookout()
        self._choose = lru_cache(CACHED)(self._choose_anew)

    def translate(self, name: str) -> str:
        """What the model server calls the model that is asked for by this name."""
        return (self.config.model or name) if name == self.config.name else name

    def upstream(self, headers: Headers) -> Replicas:
        """The model servers, asked with the caller's own key where that is passed on."""
        if not self.forward_key:
            return self.replicas
        given = [value for name, value in headers if name == b"authorization"]
        if not given:
            raise DeniedError("the model server needs your key", status=401, code="invalid_api_key")
        return self.replicas.with_headers({"Authorization": given[0].decode("latin-1")})

    # --- what is asked for ------------------------------------------------------------------------

    def open(
        self,
        body: Json,
        options: RequestOptions,
        *,
        size: int,
        upstream: Replicas,
        above: Sequence[Ledger] = (),
    ) -> list[VotedChoice]:
        """As many independent votes as the client asked for choices.

        `size` is what the request took in bytes; `upstream` carries the caller's headers; `above`
        are the ledgers of the caller's key.
        """
        wanted = openai.count_choices(body, self.config.max_n)
        wants_json, tools = openai.structure_of(body)
        structured = wants_json or tools
        words = self.controller.task.question_in(openai.find_last_words(body))
        asked = Question(f"chatcmpl-{os.urandom(16).hex()}", words, system=openai.find_system(body))
        notes: list[str] = []
        allowed = limit_options(options, self.config, notes)
        fields = {name: value for name, value in body.items() if name not in OWN_FIELDS}
        fields |= limit_lengths(body, self.config.max_tokens, notes)
        named = options.policy is not None or options.threshold is not None
        own = named or structured
        plain = not own and look_at(asked, self.controller, self.lookout) is not self.controller
        chosen, told = self._choose(allowed, wanted, plain)
        if self.auditor.spends_all and not named:
            chosen, told = fully(chosen), (*told, ALARMED)
        if body.get("temperature") == 0:
            chosen, told = replace(chosen, policy=Fixed(1)), (GREEDY,)
        drifted, last = plain and self.lookout.abroad, chosen.schedule.last
        notes += [*told, *([DRIFTED if drifted else DOUBT] if plain else [])]
        wishes = {} if structured else chosen.asks
        task = chosen.task if wishes else None
        request = RequestBody(fields, size=size, wishes=wishes, task=task)
        limits = Budget(tokens=allowed.max_tokens_total, seconds=allowed.deadline_s)
        ledger, reader = Ledger(limits, above=above), question_reader(self.controller.task)
        if structured:
            reader = StructureReader(reader, wants_json, tools)
        shared = chosen, reader, upstream, request, ledger
        made = []
        for place in range(wanted):
            run, first = chosen.start(asked, reader=reader), place * last
            made.append(VotedChoice(run, *shared, first, tuple(notes), drifted))
        return made

    def _choose_anew(
        self, options: RequestOptions, choices: int, plain: bool
    ) -> tuple[Controller, tuple[str, ...]]:
        """The controller within the request's and the operator's bounds, and what was cut."""
        chosen, most = self.controller.plain if plain else self.controller, self.config.max_samples
        if options.policy is not None:
            chosen = chosen.run_by(options.policy.strip())
        if options.threshold is not None:
            chosen = chosen.at(options.threshold)
        allowed = min(chosen.schedule.last, most // choices)
        if allowed < 1:
            raise UsageError(
                f'"n" of {choices} needs more than the {most} samples that a request may take here'
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

    async def answer(
        self, choices: Sequence[VotedChoice], body: Json, options: RequestOptions, request_id: str
    ) -> list[VotedChoice]:
        """What a vote brings; where it was drawn before, an audit follows it."""
        with self.auditor.drawn(body, options) as text:
            voted = await self.vote(choices)
        if text is not None:
            self.auditor.follow(text, request_id, voted[0].allocation, *self._reopen(voted[0]))
        return voted

    async def vote(self, choices: Sequence[VotedChoice]) -> list[VotedChoice]:
        """The choices that could be had, with a word of those that could not."""
        if len(choices) == 1:
            await self.decide(choices[0])
        else:
            await run_together(map(self.decide, choices))
        voted = [each for each in choices if each.failure is None]
        failed = [each.failure for each in choices if each.failure is not None]
        if not voted:
            raise failed[0]
        if failed:
            note = f"{len(failed)} of {len(choices)} choices could not be had: {failed[0]}"
            voted[0].notes += (note,)
        return voted

    async def decide(self, choice: VotedChoice) -> None:
        """Feed its run until it ends; at the deadline, with what has been read by then."""
        run, begun = choice.run, time.monotonic()
        # Who reads in another thread does not know of the deadline.
        left = None if run.pace == "quick" else choice.left
        try:
            async with asyncio.timeout(None if left is None else left + LATE):
                choice.allocation = await drive(run, choice, choice.ledger)
        except TimeoutError:
            choice.run = run = choice.cut_off()
            choice.allocation = replace(run.allocation, seconds=time.monotonic() - begun)
        choice.failure = choice.find_failure()
        if choice.failure is None:
            if run.error is not None:
                choice.notes += (f"no further samples could be had: {run.error}",)
            if self._second is not None and choice.left != 0 and choice.undecided:
                await self._escalate(choice, self._second)

    async def _escalate(self, choice: VotedChoice, second: Replicas) -> None:
        """Take the second upstream's reply, where it has one and the limits have room for it."""
        left, ledger = choice.left, choice.ledger
        asked = second.with_headers(choice.upstream.tracing)
        body = {**choice.body, "model": self.config.escalate["model"]}
        try:
            async with asyncio.timeout(None if left is None else left + LATE):
                held = await ledger.reserve(1, choice.bound(choice.run.question))
                if held is None:
                    raise UsageError(f"no room for it, limit: {ledger.limit}")
                with closing(held):
                    asking = asked.complete(body, 1, deadline=ledger.deadline, held=held)
                    [reply] = await choice.wait(asking)
                if reply.error is None:
                    reading = partial(choice.reader.read, reply)
                    read = await off_loop(choice.run, reading, size=len(reply.text))
                    choice.second, choice.second_answer = reply, read.answer
            problem = reply.error
        except (UpstreamError, UsageError, TimeoutError) as error:
            problem = str(error) or "the deadline is over"
        if problem is not None:
            choice.notes += (f"escalation failed: {problem}",)

    def _reopen(self, voted: VotedChoice) -> tuple[Run, Finish]:
        """The same vote from its beginning, with how to finish it.

        It takes the full budget without the client's limits: what was paid for, then what is
        missing.
        """
        controller = fully(voted.controller)
        run = controller.start(voted.run.question, reader=voted.reader)
        limits = Budget(seconds=self.config.max_deadline)
        ledger = Ledger(limits, above=self.auditor.ledgers)
        again = replace(voted, run=run, controller=controller, ledger=ledger, heard={})

        async def finish() -> Allocation:
            known = [*voted.responses]
            while known and run.want:
                block, known = known[: run.want], known[run.want :]
                await feed(run, block)
            return await drive(run, again, ledger)

        return run, finish


def fully(controller: Controller) -> Controller:
    """The same, where nobody stops before the most that it may take."""
    _, most = range_of(controller.policy, controller.schedule.last)
    return replace(controller, policy=Fixed(most))


# --- ceilings -------------------------------------------------------------------------------------


def limit_options(options: RequestOptions, config: ModelConfig, notes: list[str]) -> RequestOptions:
    """The options as far as the operator allows them; each that was cut is noted."""
    kept: Json = {}
    for name, usual, limit in (
        ("max_tokens_total", config.max_tokens_total, config.max_tokens_total),
        ("deadline_s", config.deadline, config.max_deadline),
    ):
        asked = getattr(options, name)
        wanted = usual if asked is None else asked
        kept[name] = limit if wanted is None or (limit and wanted > limit) else wanted
        if asked is not None and asked != kept[name]:
            notes.append(f"{name} was cut from {asked:g} to {limit:g}, the most allowed here")
    return replace(options, **kept)


def limit_lengths(body: Json, most: int | None, notes: list[str]) -> dict[str, int]:
    """The fields that keep responses as short as allowed; each that was cut is noted."""
    asked = {name: body[name] for name in LENGTHS if body.get(name) is not None}
    if most is None or not asked:
        return {} if most is None else {"max_tokens": most}
    # Some servers take "500" for a length, and -1 for no end.
    fits = {name for name, told in asked.items() if is_whole(told) and 0 < told <= most}
    cut = {name: most for name in asked if name not in fits}
    notes += [f"{name} was cut from {asked[name]} to {most}" for name in cut]
    return cut


# --- replies --------------------------------------------------------------------------------------


def completion(voted: Sequence[VotedChoice], model: str, asked: Json) -> Json:
    """The OpenAI reply: representative choices, usage summed over all samples, the account.

    Of logprobs it holds what was asked for, and not what only the weigher wanted.
    """
    choices = []
    for place, each in enumerate(voted):
        source = each.response.source if isinstance(each.response.source, dict) else {}
        choices.append(trim_logprobs({**source, "index": place}, asked))
    prompt, spent = (sum(counts) for counts in zip(*(v.tokens for v in voted), strict=True))
    ledger = voted[0].ledger
    if not ledger.unsaid:  # choices that nobody asked for are billed too
        spent = max(spent, ledger.spent.completion_tokens)
    usage = {"prompt_tokens": prompt, "completion_tokens": spent, "total_tokens": prompt + spent}
    said = _reply_of(voted[0].response)
    return {
        "id": voted[0].run.question.id,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": choices,
        "usage": {**usage, **_sum_details(voted)},
        **{name: said[name] for name in openai.KEPT if name in said},
        "aera": voted[0].account if len(voted) == 1 else {"choices": [v.account for v in voted]},
    }


def _reply_of(response: Response) -> Json:
    """The fields of the reply that a choice came in, where they were kept."""
    found: Json = getattr(response.source, "reply", {})
    return found


def _sum_details(voted: Sequence[VotedChoice]) -> dict[str, dict[str, int]]:
    """The details of usage, as cached or reasoning tokens, summed over all calls."""
    totals: dict[str, dict[str, int]] = {}
    responses = (r for v in voted for r in (*v.responses, *([v.second] if v.second else [])))
    # Siblings share a reply, and only the first of them counts a call.
    for usage in (_reply_of(response).get("usage") for response in responses if response.calls):
        for name, details in usage.items() if isinstance(usage, Mapping) else ():
            if not isinstance(details, Mapping) or not str(name).endswith("_details"):
                continue
            total = totals.setdefault(str(name), {})
            for kind, count in details.items():
                if isinstance(count, int) and 0 <= count < LARGEST:
                    total[str(kind)] = total.get(str(kind), 0) + count
    return totals
