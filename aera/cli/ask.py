"""The commands `solve` and `sample`: answers for what each is worth, and pools."""

import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from aera.cli.options import (
    Deciding,
    advise,
    argument,
    as_set,
    diagnose,
    grouped,
    key_option,
    option,
    prices_from,
    say,
    without_password,
)
from aera.core import Leaders, Question, Response, Schedule
from aera.errors import PoolError, UpstreamError, UsageError
from aera.files import Json, take_field, write_whole
from aera.policies.gate import OUTSIDE
from aera.policies.rules import UNREADABLE, range_of
from aera.pools.log import Log, append, mend
from aera.pools.pool import Plan, Pool, Record, health_of, read_votes
from aera.reading.task import Readability, Task, get_task
from aera.sampling.budget import Budget, Ledger
from aera.sampling.client import UNHEARD, Endpoint
from aera.sampling.sampler import (
    DEFAULTS,
    Chat,
    OpenAISampler,
    raw_lines,
    record,
    request_bound,
)
from aera.solving.controller import Controller
from aera.solving.run import Allocation
from aera.solving.solve import shared_label, solve_many
from aera.trace import FULL

EVERY = 10.0
"""Seconds between two lines about progress where there is no terminal, and before the first."""
WORKERS = 1_024
"""Blocks of a pool that are asked for at once, as far as the server takes their calls."""
EARLY = 64
"""Responses after which a pool of which little can be read is told of, before all are paid for."""
SOME_UNANSWERED = 3
"""Exit code where some questions have no answer."""
OWN_FIELDS = ("model", "messages", "n", "stream")
"""Fields of a request that are made of other options, or by the policy."""


@dataclass(frozen=True)
class Asking:
    """Which model is asked, how, and within what limits, as the options say it."""

    base_url: str = option("Address of an OpenAI-compatible server, up to /v1.", default=...)
    model: str = option("Name of the model at that server.", default=...)
    system: str | None = option("System message sent with every question.")
    settings: list[str] | None = option("A request field, as temperature=0.6; repeatable.", "--set")
    header: list[str] | None = option("Extra header of every call, as Name: value; repeatable.")
    ca_file: str | None = option("File with the certificates to trust, for a private server.")
    api_key_env: str = key_option()
    concurrency: str = option("Most calls at once; auto: as many as is fastest.", default="auto")
    max_tokens_total: int | None = option("Most completion tokens for all questions together.")
    max_responses: int | None = option("Most responses for all questions together.")
    max_seconds: float | None = option("Seconds after which nothing more is asked for.")
    max_money: float | None = option("Most money for all questions together, by --prices.")
    prices: str = option("Prices of a million prompt and reply tokens: 0.5,1.5.", default="0,0")
    columns: list[str] | None = option("A column's name: question=asked; repeatable.", "--map")

    def budget(self) -> Budget:
        """The limits."""
        limits = self.max_responses, self.max_tokens_total, self.max_seconds, self.max_money
        return Budget(*limits, *prices_from(self.prices))

    def sampler(self, task: Task, wishes: Mapping[str, Any], seed: int | None) -> OpenAISampler:
        """What asks, in the words of a task."""
        settings = {**DEFAULTS, **self._fields()} | ({} if seed is None else {"seed": seed})
        auto = self.concurrency == "auto"
        if not auto and not self.concurrency.lstrip("-").isdecimal():
            raise UsageError(f'--concurrency is auto or a number, but got "{self.concurrency}"')
        calls = None if auto else int(self.concurrency)
        endpoint = Endpoint(self.base_url, self.api_key_env, self._headers(), self.ca_file, calls)
        return OpenAISampler(endpoint, Chat(self.model, task, settings, self.system, wishes))

    def _fields(self) -> dict[str, object]:
        """Request fields from name=value; values are JSON where they can be."""
        found: dict[str, object] = {}
        for each in self.settings or ():
            name, equals, value = each.partition("=")
            if not equals or not name:
                raise UsageError(f'--set takes name=value, but got "{each}"')
            if name in OWN_FIELDS:
                raise UsageError(f"--set cannot set {name}: that is for aera to say")
            try:
                found[name] = json.loads(value)
            except ValueError:
                found[name] = value
        return found

    def _headers(self) -> dict[str, str]:
        pairs = [line.partition(":") for line in self.header or ()]
        for name, colon, _ in pairs:
            if not colon:
                raise UsageError(f'--header takes "Name: value", but got "{name}"')
        return {name.strip(): value.strip() for name, _, value in pairs}


@dataclass(frozen=True)
class Job:
    """What both commands ask with, and what they say of it."""

    sampler: OpenAISampler
    ledger: Ledger

    @property
    def told(self) -> dict[str, object]:
        """What a log keeps of how it was asked."""
        chat = self.sampler.chat
        return {"model": chat.model, "system": chat.system, **chat.settings}

    def announce(
        self,
        questions: Sequence[Question],
        fewest: int,
        most: int,
        paid: Sequence[Response],
        usual: float | None = None,
    ) -> str:
        """What is about to be asked, from the fewest responses it can take to the most.

        A response is as long as those that were paid for, or else `usual`.
        """
        bounds = [request_bound(self.sampler.chat.body(each)) for each in questions]
        limit = bounds[0].max_tokens
        usual = sum(each.tokens for each in paid) / len(paid) if paid else usual
        told = [_span(fewest, most, "response")]
        if usual is not None:
            told.append(
                f"about {_span(fewest * usual, most * usual, 'token')} at {usual:,.0f} each"
            )
        elif limit is not None:
            told.append(f"at most {most * limit:,} tokens, for max_tokens is {limit:,}")
        else:
            told.append("of unknown length, for the request has no max_tokens")
        length, budget = usual or limit, self.ledger.budget
        if budget.priced and length:
            prompts = sum((bound.prompt_tokens or 0) / 4 for bound in bounds)
            # A server that takes no `n` bills the prompt with every response.
            most_prompts = most / len(questions) * prompts
            costs = budget.cost(prompts, fewest * length), budget.cost(most_prompts, most * length)
            shown = dict.fromkeys(f"{cost:,.4g}" for cost in costs[usual is None :])
            word = "at most about" if usual is None else "about"
            told.append(f"{word} {' to '.join(shown)} in money")
        return f"{_many(len(questions), 'question')}: {', '.join(told)}{self._limits(limit, most)}"

    def _limits(self, length: int | None, most: int) -> str:
        """The limits, and how many responses may be under way within them."""
        budget = self.ledger.budget
        names = ("responses", "tokens", "seconds", "money")
        stated = [(name, limit) for name in names if (limit := vars(budget)[name]) is not None]
        said = [f"{limit:,} {'in ' * (name == 'money')}{name}" for name, limit in stated]
        text = f"; the limit is {' and '.join(said)}" if said else ""
        at_once = min(most, self.sampler.upstream.endpoint.concurrency or UNHEARD)
        room = budget.tokens_for(*budget.limits[1:]) / (length or 1)
        if length is None or room >= at_once:
            return text
        return (
            f"{text}, in which {_many(max(1, int(room)), 'response')} can be under way at once, "
            f"for max_tokens is {length:,}; a lower one lets more"
        )

    @property
    def place(self) -> str:
        """Who is asked."""
        where = without_password(self.sampler.upstream.endpoint.base_url)
        return f"asking {self.sampler.chat.model} at {where}"

    def progress(self) -> str:
        """What was spent so far."""
        spent = self.ledger.spent.completion_tokens
        return f"{spent:,} tokens{self.money(self.ledger.money)}"

    def money(self, cost: float, before: str = ", ") -> str:
        """A cost, where there are prices."""
        return f"{before}{cost:,.4g} in money" if self.ledger.budget.priced else ""

    def advice(self, error: str) -> str:
        """What to do about an error."""
        return advise(self.sampler.upstream.endpoint, self.sampler.chat.model, error)

    def notes(self) -> Iterator[str]:
        """How far the context has cut responses, which lengths are guesses, and what never came."""
        if cut := self.sampler.upstream.memory.get(("cut", self.sampler.chat.model)):
            most, context = cut
            yield f"responses had at most {most:,} tokens: the server's context is {context:,}"
        if doubt := self.ledger.doubt:
            yield doubt
        lost = self.ledger.lost
        if lost.responses:
            tokens = lost.completion_tokens
            held = f", so {tokens:,} tokens are held back" if tokens else ""
            whys = self.ledger.lost_to.most_common(3)
            why = "; ".join(f"{reason} ({count:,} times)" for reason, count in whys)
            came = self.ledger.spent.responses
            asked = f"{_many(came + lost.responses, 'response')} asked for, retries counted"
            yield (
                f"{asked}: {came:,} came, {lost.responses:,} never came and may have been "
                f"billed{held}: {why}"
            )


def _span(low: float, high: float, what: str) -> str:
    """From so many to so many."""
    before = "" if round(low) == round(high) else f"{low:,.0f} to "
    return f"{before}{_many(round(high), what)}"


def _many(count: float, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


class Shown(Progress):
    """Progress of work that spends: a bar on a terminal, a line now and then elsewhere."""

    def __init__(self, name: str, total: int, *, done: int, job: Job) -> None:
        console = Console(stderr=True)
        columns = TextColumn(name), BarColumn(), TextColumn("{task.fields[told]}")
        super().__init__(*columns, console=console, disable=not console.is_terminal)
        self._begun = self._said = time.monotonic()
        self._before, self._total = done, total
        self._work = self.add_task("", total=total, completed=done, told="")
        self._waiting = asyncio.create_task(self._wait(job))

    async def _wait(self, job: Job) -> None:
        """As long as nothing is done, say so each time that twice as long has passed, and why."""
        endpoint, waited = job.sampler.upstream.endpoint, 0.0
        while True:
            await asyncio.sleep(waited or EVERY)
            waited += waited or EVERY
            problem = await diagnose(endpoint, [job.sampler.chat.model])
            self.say(
                f"{job.place}: nothing is done after {waited:.0f} s, still waiting, up to "
                f"{endpoint.timeout:.0f} s for a call; --max-seconds or Ctrl-C ends it sooner"
                + (f" ({problem})" if problem else "")
            )

    def say(self, sentence: str) -> None:
        """A sentence, above the bar where there is one."""
        say(sentence, console=self.console)

    def answer(self, line: str) -> None:
        """A line of the output, which stands above the bar where one terminal shows both."""
        if self.disable or not sys.stdout.isatty():
            typer.echo(line)
        else:
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def tell(self, done: int, describe: Callable[[], str]) -> None:
        """So much is done; the rest of the line is made only where it is shown."""
        self._waiting.cancel()
        now = time.monotonic()
        if self.disable and now - self._said < EVERY:
            return
        rate = (done - self._before) / max(now - self._begun, 1e-9)
        left = f", {(self._total - done) / rate:,.0f} s left" if rate else ""
        told = f"{done:,}/{self._total:,} {describe()}{left}"
        self.update(self._work, completed=done, told=told)
        if self.disable:
            self._said = now
            self.say(told)


# --- solve ----------------------------------------------------------------------------------------


@grouped
def solve(
    *,
    asking: Asking,
    deciding: Deciding,
    question: str | None = argument("The question; else --file or standard input.", default=None),
    file: Path | None = option("File of questions: plain lines, JSON lines or list, CSV, Parquet."),
    out: Path | None = option("Write the answers here; run again to go on, nothing is paid twice."),
    seed: int | None = option("Seed of the first response; later ones add one."),
    shared_budget: bool = option("Spend the limit where it promises most.", default=False),
) -> None:
    """Solve a question, or many, spending only what each is worth. JSON lines come out.

    The exit code is 3 where some questions have no answer.
    """
    asked = _read_questions(question, file, asking.columns or ())
    controller, budget = deciding.load(), asking.budget()
    if shared_budget and not budget.limited:
        raise UsageError("--shared-budget needs a limit: --max-tokens-total, for example")
    if shared_budget and deciding.policy is not None:
        raise UsageError("--policy and --shared-budget both say when to stop; leave one out")
    sampler = asking.sampler(controller.task, controller.asks, seed)
    job = _Solving(sampler, Ledger(budget), controller, shared_budget)
    try:
        done = asyncio.run(job.run(asked, out))
    except KeyboardInterrupt:
        if out is not None:
            say("what was paid for is kept; run the same command again to go on", stderr=True)
        raise
    for sentence in (*job.summarize(done), *job.notes()):
        say(f"aera: {sentence}", stderr=True)
    if any(each.answer is None for each in done):
        raise typer.Exit(SOME_UNANSWERED)


@dataclass(frozen=True)
class _Solving(Job):
    """Questions are solved: by what, and whether they share the limit."""

    controller: Controller
    shared: bool

    def label(self, controller: Controller) -> str:
        """What answers call a policy."""
        return shared_label(controller) if self.shared else controller.live_label

    async def run(self, asked: list[Question], out: Path | None) -> list[Allocation]:
        """Solve them, print or write each answer, and keep what was paid for beside them."""
        with self._open_log(asked, out) if out else nullcontext() as log:
            known = self._read_answers(out, log) if out and log else {}
            asked = log.questions if log else asked  # without those that are dropped
            done = [*known.values()]
            self._announce([each for each in asked if each.id not in known], len(known), log)
            short = out is None and len(asked) == 1 and sys.stdout.isatty()
            with Shown("solving", len(asked), done=len(done), job=self) as shown:
                async with self.sampler:
                    async for allocation in solve_many(
                        asked,
                        self.sampler,
                        self.controller,
                        budget=self.ledger,
                        shared=self.shared,
                        kept=log,
                        skip=lambda question: question.id in known,
                    ):
                        line = json.dumps(self._line(allocation))
                        if out is not None:
                            append(out, [line + "\n"])
                        elif not short:
                            shown.answer(line)
                        error = allocation.error
                        if error and not any(each.error for each in done):
                            advice = await asyncio.to_thread(self.advice, error)
                            shown.say(f"aera: {error}{advice}")
                        done.append(allocation)
                        shown.tell(len(done), self._progress)
            if short:  # a reader, not a program
                typer.echo(self._shortly(done[0]))
        return done

    def _open_log(self, asked: list[Question], out: Path) -> Log:
        """The log of what was paid for, beside the answers."""
        chat, schedule = self.sampler.chat, self.controller.schedule
        plan = Plan(chat.task, None, self.told, chat.settings.get("seed"), schedule, chat.body)
        return Log(out.with_name(f"{out.name}.pool"), plan, asked, command="aera solve")

    def _read_answers(self, path: Path, log: Log) -> dict[str, Allocation]:
        """What was answered before; a question that failed or met a limit is gone on with."""
        for damage in log.damaged:
            say(f"{log.path}: {damage}: half-written, dropped", stderr=True)
        mend(path)
        # Plain votes decide where the controller steps aside.
        policies = [self.label(each) for each in (self.controller, self.controller.plain)]
        points = [*self.controller.schedule]
        known: dict[str, Allocation] = {}
        kept: dict[str, str] = {}
        old = path.read_text("utf-8").splitlines() if path.exists() else []
        for number, text in enumerate(old, start=1):
            try:
                line: Json = json.loads(text)
                answer, schedule = read_line(line), line["schedule"]
            except (ValueError, LookupError, TypeError):
                raise UsageError(
                    f'"{path}", line {number}, is no answer of aera solve; write elsewhere'
                ) from None
            if answer.policy not in policies or schedule != points:
                by, ours = f"by {answer.policy}, not by {policies[0]}", self.controller.schedule
                other = by if schedule == points else f"of the schedule {schedule}, not {ours}"
                raise UsageError(
                    f'"{path}" holds answers {other}; write elsewhere, or remove it: what was '
                    "paid for is kept beside it"
                )
            if answer.error is None and not answer.reason.startswith("limit: "):
                known[answer.question_id], kept[answer.question_id] = answer, f"{text}\n"
        asked = log.requests.keys() | log.dropped.ids
        for name, answer in known.items():
            if answer.responses and name not in asked:
                raise UsageError(
                    f'"{path}" answers {name}, of which "{log.path}" knows nothing; write elsewhere'
                )
        write_whole(path, "".join(kept.values()))
        return known

    def _announce(self, left: list[Question], known: int, log: Log | None) -> None:
        """Say what is about to be asked, and what was there already."""
        paid = log.paid if log else []
        if known or paid:
            there = f"{known:,} answers and {len(paid):,} responses"
            say(f"aera: {there} were there already", stderr=True)
        if not left:
            return
        schedule = self.controller.schedule
        fewest, most = 1, schedule.last
        if not self.shared:
            least, most = range_of(self.controller.policy, schedule.last)
            fewest = max(least, min(schedule.first, most))
        usual = self.controller.calibration.get("tokens_per_response")
        told = self.announce(left, len(left) * fewest, len(left) * most, paid, usual)
        say(f"aera: {self.place} by {self.label(self.controller)}, {told}", stderr=True)

    def _line(self, allocation: Allocation) -> dict[str, object]:
        line = {**allocation_line(allocation), "schedule": [*self.controller.schedule]}
        if self.ledger.budget.priced:
            spent = allocation.prompt_tokens, allocation.completion_tokens
            line["money"] = round(self.ledger.budget.cost(*spent), 9)
        return line

    def _shortly(self, allocation: Allocation) -> str:
        """The answer to the only question, for a reader: what it is, and what it took and why."""
        answer = "no answer" if allocation.answer is None else allocation.answer
        spent = f"{_many(self.ledger.spent.responses, 'response')}, {self.progress()}"
        return f"{answer}\n{spent}: {allocation.reason}"

    def _progress(self) -> str:
        return f"questions, {self.ledger.spent.responses:,} responses, {self.progress()}"

    def summarize(self, done: Sequence[Allocation]) -> Iterator[str]:
        """What was spent and saved, and what is not as one would wish.

        What was billed may be more than what the answers were made of.
        """
        budget, booked, task = self.ledger.budget, self.ledger.spent, self.controller.task
        saved = sum(each.tokens_saved for each in done)
        read = Readability().join(each.readability for each in done)
        responses = max(read.responses - read.failed, booked.responses)
        prompts = max(sum(each.prompt_tokens for each in done), booked.prompt_tokens)
        spent = max(sum(each.completion_tokens for each in done), booked.completion_tokens)
        money = self.money(budget.cost(prompts, spent))
        worth = self.money(budget.cost(0, saved), ", worth ")
        share = f", {saved / (saved + spent):.0%} of the full budget's" if saved else ""
        unanswered = sum(each.answer is None for each in done)
        whole = _many(len(done), "question")
        yield (
            f"{len(done) - unanswered:,} of {whole} answered for {_many(responses, 'response')} "
            f"and {_many(spent, 'token')}{money}; saved about {_many(saved, 'token')}{share}{worth}"
        )
        if aside := sum(each.policy != self.label(self.controller) for each in done):
            yield (
                f"{_many(aside, 'question')} decided by plain votes, for they are not clearly like "
                "those that the controller was taught on (--trust keeps it)"
            )
        if kept := sum(any(step.decision.outside for step in each.steps) for each in done):
            yield f"{_many(kept, 'question')} asked for more because of {OUTSIDE}"
        if responses:
            yield read.summary(task)
        if unread := [each.readability for each in done if each.reason == UNREADABLE]:
            yield (
                f"{len(unread)} of {whole} stopped after two blocks in which nothing could be "
                f"read; {Readability().join(unread).why(task)}"
            )
        lacking: Counter[str] = Counter()
        for each in done:
            lacking.update(each.lacking)
        for said, count in lacking.items():
            yield f"{_many(count, 'response')} {said}"
        if tied := sum(each.leaders.tied for each in done):
            yield f"{_many(tied, 'answer')} tied and won by being first"
        if len(done) > 1 and (failed := sum(each.error is not None for each in done)):
            yield f"{failed} failed; the lines with an error say why"
        if cut := sum(each.reason.startswith("limit: ") for each in done):
            yield f"{_many(cut, 'question')} ended by a limit"
        if nothing := [each.question_id for each in done if not each.responses]:
            shown = ", ".join(nothing[:5]) + ", ..." * (len(nothing) > 5)
            yield f"{_many(len(nothing), 'question')} got nothing: {shown}"


def allocation_line(allocation: Allocation) -> dict[str, object]:
    """An allocation as one JSON line holds it."""
    fields = asdict(allocation)
    leaders = fields.pop("leaders")
    if not allocation.readability.markers:
        del fields["readability"]["markers"]
    told = {"answer": leaders["answer"], "tied": leaders["tied"], "text": fields.pop("text")}
    return {**told, **fields, "tokens_saved": allocation.tokens_saved}


def read_line(line: Json) -> Allocation:
    """The allocation that a line holds, less its steps and weights; older lines say less."""
    for name in ("question_id", "policy", "reason"):
        take_field(line, name, (str,))
    take_field(line, "error", (str, type(None)))
    told = {each.name: line[each.name] for each in fields(Allocation) if each.name in line}
    told["leaders"] = Leaders(line["answer"], 0.0, 0.0, line["tied"])
    return Allocation(**{**told, "steps": (), "readability": Readability(**line["readability"])})


def _read_questions(
    question: str | None, file: Path | None, columns: Iterable[str]
) -> list[Question]:
    """The questions of a call: the argument, a file, or standard input; no right answers."""
    from aera.lab.formats.rows import read_questions

    if question is not None and file is not None:
        raise UsageError("give a question or --file, not both")
    if question is not None:
        if not question.strip():
            raise UsageError("the question is empty")
        return [Question("question", question)]
    if file is not None:
        return read_questions(file, columns)
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "standard input"
        binary = getattr(sys.stdin, "buffer", None)
        given.write_bytes(binary.read() if binary else sys.stdin.read().encode())
        return read_questions(given, columns)


# --- sample ---------------------------------------------------------------------------------------


@grouped
def sample(
    *,
    questions: Path = argument("JSON lines, CSV or Parquet with question, id, choices, answer."),
    out: Path = option("Directory of the pool; run again to resume.", default=...),
    task: str = option("Task: how to ask and how to read (aera tasks).", default=...),
    asking: Asking,
    responses: int | None = option("Responses sampled for each question; 128 if nobody says."),
    seed: int = option("Seed of the first response; later ones add one.", default=0),
    schedule: str | None = as_set("schedule"),
    block: int = option("Responses asked for in one call.", default=16),
    traces: bool = option(
        "Ask for the 20 likeliest tokens in every place; replies are forty times as long.",
        default=False,
    ),
    raw_traces: Path | None = option("Keep the logprobs of every token here too, as JSON lines."),
) -> None:
    """Sample responses into a pool. Interrupted at any moment, it goes on where it was.

    Run again with more --responses or added questions, a finished pool grows by what is missing.
    """
    from aera.lab.formats.rows import read_exam

    chosen = get_task(task)
    asked, truths = read_exam(questions, chosen, asking.columns or (), seed=seed)
    wishes = FULL if traces else {"logprobs": True} if raw_traces else {}
    job = Job(asking.sampler(chosen, wishes, seed), Ledger(asking.budget()))
    points = Schedule.parse(schedule) if schedule else None
    each = responses if responses is not None else points.last if points else 128
    with Log(out, Plan(chosen, each, job.told, seed, points), asked) as log:
        if truths is not None:  # right answers go apart from everything else
            truths.save(out)
        if missing := [one for one in log.questions if log.missing(one, block=1)]:
            left = log.wanted - log.done
            say(f"{job.place}, {job.announce(missing, left, left, log.paid)}", stderr=True)
        try:
            pool = asyncio.run(_fill(log, job, block, raw_traces))
        except KeyboardInterrupt:
            kept = f"{log.done:,} of {log.wanted:,} responses kept"
            say(f"{kept}; run the same command again to go on", stderr=True)
            raise
        except UpstreamError as error:
            error.args = (f"{error}{job.advice(str(error))}",)
            raise
        _conclude(log, job, pool)


async def _fill(log: Log, job: Job, block: int, raw: Path | None) -> Pool | None:
    """Sample what is missing; where the first that come cannot be read, say so at once."""
    first, task = list[Record](), replace(log.plan.task, equivalence=False)

    def heard(question: Question, start: int, came: Sequence[Response]) -> None:
        if raw is not None:
            append(raw, [*raw_lines(question, start, came)])
        if (before := sum(len(each.responses) for each in first)) >= EARLY:
            return
        first.append(Record(question, tuple(came)))
        enough = before + len(came) >= EARLY
        if enough and (warning := health_of(read_votes(first, task)).warning(task)):
            shown.say(warning)

    with Shown("sampling", log.wanted, done=log.done, job=job) as shown:
        async with job.sampler as sampler:
            return await record(
                log,
                sampler,
                concurrency=sampler.upstream.endpoint.concurrency or WORKERS,
                block=block,
                ledger=job.ledger,
                watch=lambda log: shown.tell(log.done, lambda: f"responses, {job.progress()}"),
                heard=heard,
            )


def _conclude(log: Log, job: Job, pool: Pool | None) -> None:
    """Say what became of it; a pool of which something is missing is an error."""
    damaged = (f"{each}: half-written, dropped and asked for again" for each in log.damaged)
    for sentence in (*damaged, *job.notes()):
        say(sentence, stderr=True)
    if pool is None and job.ledger.exhausted:
        raise PoolError(
            f"the limit in {job.ledger.limit} ended it: {log.done:,} of {log.wanted:,} responses "
            f'of "{log.path}" are there; run the same command with a higher limit to go on'
        )
    if pool is None:
        advice = job.advice(log.trouble)
        again = "sample into another --out" if "--set" in advice else "run the same command again"
        raise PoolError(
            f'{log.wanted - log.done} of {log.wanted} responses of "{log.path}" are missing, '
            f"failures are noted in {log.folder / 'failures.jsonl'} (the last: {log.trouble}); "
            f"{again}{advice}"
        )
    there = f"{log.path}: {log.done:,} responses, {log.resumed:,} were there already"
    say(f"{there}{job.money(job.ledger.money, '; ')}")
    read = Readability().join(health_of(read_votes(p, log.plan.task)) for p in pool.parts())
    for line in (*read.lines(log.plan.task), read.warning(log.plan.task)):
        if line:
            say(line, stderr=True)
