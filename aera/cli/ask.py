"""The commands `solve` and `sample`: answers for what each is worth, and pools."""

import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from aera.cli.options import (
    Deciding,
    argument,
    as_set,
    grouped,
    key_option,
    option,
    prices_from,
    say,
    without_password,
)
from aera.core import Leaders, Question, Response, Schedule
from aera.errors import PoolError, UpstreamError, UsageError
from aera.files import take_field, write_whole
from aera.policies.rules import UNREADABLE, range_of
from aera.pools.pool import Log, Plan, Pool, append, health_of, mend, read_votes
from aera.reading.task import Readability, Task, get_task
from aera.sampling.budget import Budget, Ledger
from aera.sampling.client import MOST_UNHEARD, Endpoint
from aera.sampling.sampler import DEFAULTS, Chat, OpenAISampler, record, request_bound
from aera.solving.controller import Controller
from aera.solving.run import Allocation
from aera.solving.solve import shared_label, solve_many
from aera.trace import FULL, PLAIN

EVERY = 10.0
"""Seconds between two lines about progress where there is no terminal."""
WORKERS = 1_024
"""Blocks of a pool that are asked for at once, as far as the server takes their calls."""
SOME_UNANSWERED = 3
"""Exit code where some questions have no answer."""
OWN_FIELDS = ("model", "messages", "n", "stream")
"""Fields of a request that are made of other options, or by the policy."""


@dataclass(frozen=True)
class Asking:
    """Which model is asked, how, and within what limits, as the options say it."""

    base_url: str = option(..., "Address of an OpenAI-compatible server, up to /v1.")
    model: str = option(..., "Name of the model at that server.")
    system: str | None = option(None, "System message sent with every question.")
    settings: list[str] | None = option(
        None, "A field of the request, as temperature=0.6; repeatable.", "--set"
    )
    header: list[str] | None = option(
        None, "Extra header of every call, as Name: value; repeatable."
    )
    ca_file: str | None = option(None, "File with the certificates to trust, for a private server.")
    api_key_env: str = key_option()
    concurrency: str = option(
        "auto",
        "Most calls in flight at once; auto finds out how many give most tokens a second.",
    )
    max_tokens_total: int | None = option(
        None, "Most completion tokens for all questions together."
    )
    max_responses: int | None = option(None, "Most responses for all questions together.")
    max_seconds: float | None = option(None, "Seconds after which nothing more is asked for.")
    max_money: float | None = option(None, "Most money for all questions together, by --prices.")
    prices: str = option(
        "0,0", "Price of a million prompt and of a million completion tokens, as 0.5,1.5."
    )
    columns: list[str] | None = option(
        None, "A column under another name, as question=asked; repeatable.", "--map"
    )

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

    def _fields(self) -> dict[str, Any]:
        """Request fields from name=value; values are JSON where they can be."""
        found: dict[str, Any] = {}
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
        chat, budget = self.sampler.chat, self.ledger.budget
        bounds = [request_bound(chat.body(each)) for each in questions]
        length = bounds[0].max_tokens
        prompts = sum((bound.prompt_tokens or 0) / 4 for bound in bounds)
        each = sum(one.tokens for one in paid) / len(paid) if paid else usual
        told = [_span(fewest, most, "response")]
        if each is not None:
            low, high = fewest * each, most * each
            told.append(f"about {_span(low, high, 'token')} at {each:,.0f} each")
            calls = 1.0 if low < high else most / len(questions)
            low_cost = budget.cost(calls * prompts, low)
        elif length is not None:
            high = most * length
            told.append(f"at most {high:,} tokens, for max_tokens is {length:,}")
            low_cost = None
        else:
            told.append("of unknown length, for the request has no max_tokens")
        if budget.priced and (each is not None or length is not None):
            # A server that takes no `n` bills the prompt with every response.
            cost = budget.cost(most / len(questions) * prompts, high)
            shown = dict.fromkeys(f"{c:,.4g}" for c in (low_cost, cost) if c is not None)
            word = "at most about" if low_cost is None else "about"
            told.append(f"{word} {' to '.join(shown)} in money")
        return f"{_many(len(questions), 'question')}: {', '.join(told)}{self._limits(length, most)}"

    def _limits(self, length: int | None, most: int) -> str:
        """The limits, and how many responses may be under way within them."""
        budget = self.ledger.budget
        concurrency = self.sampler.upstream.endpoint.concurrency or MOST_UNHEARD
        stated = {
            "responses": budget.responses,
            "tokens": budget.tokens,
            "seconds": budget.seconds,
            "in money": budget.money,
        }
        said = [f"{limit:,} {name}" for name, limit in stated.items() if limit is not None]
        text = f"; the limit is {' and '.join(said)}" if said else ""
        if length is None:
            return text
        cost = budget.cost(0, length)
        fits = [budget.tokens // length] if budget.tokens else []
        fits += [int(budget.money / cost)] if budget.money and cost else []
        at_once = max(1, min(fits, default=concurrency))
        if at_once >= min(concurrency, most):
            return text
        return (
            f"{text}, in which {_many(at_once, 'response')} can be under way at once, for "
            f"max_tokens is {length:,}; a lower one lets more"
        )

    @property
    def place(self) -> str:
        """Who is asked."""
        where = without_password(self.sampler.upstream.endpoint.base_url)
        return f"asking {self.sampler.chat.model} at {where}"

    def progress(self) -> str:
        """What was spent so far."""
        return f"{self.ledger.spent.completion_tokens:,} tokens{self.money(', ')}"

    def money(self, before: str) -> str:
        """The same in money, where there are prices."""
        if not self.ledger.budget.priced:
            return ""
        return f"{before}{self.ledger.money:,.4g} in money"

    def advice(self, error: str) -> str:
        """What to do about an error, where its words tell."""
        endpoint = self.sampler.upstream.endpoint
        if "upstream 401" in error or "upstream 403" in error:
            return f" (the key in {endpoint.api_key_env} was refused)"
        if "upstream 404" in error and not endpoint.base_url.rstrip("/").endswith("/v1"):
            return " (did you forget /v1 in --base-url?)"
        if "upstream 400" in error and ("max_tokens" in error or "context" in error):
            return " (try --set max_tokens=2048)"
        if "connection failed" in error:
            return f" (is there a server at {without_password(endpoint.base_url)}?)"
        return ""

    def lost(self) -> Iterator[str]:
        """What never came and may have been billed, which a limit holds back."""
        lost = self.ledger.lost
        if lost.responses:
            tokens = lost.completion_tokens
            held = f", so {tokens:,} tokens are held back" if tokens else ""
            whys = self.ledger.lost_to.most_common(3)
            why = "; ".join(f"{reason} ({count:,} times)" for reason, count in whys)
            came = f"{_many(lost.responses, 'response')} never came and may have been billed"
            yield f"{came}{held}: {why}"


def _span(low: float, high: float, what: str) -> str:
    """From so many to so many."""
    if round(low) == round(high):
        return _many(round(high), what)
    return f"{low:,.0f} to {_many(round(high), what)}"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


class Shown:
    """Progress of work that spends: a bar on a terminal, a line now and then elsewhere."""

    def __init__(self, name: str, total: int, *, done: int = 0) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn(name), BarColumn(), TextColumn("{task.fields[told]}"),
            console=console, disable=not console.is_terminal,
        )  # fmt: skip
        self._lines = not console.is_terminal
        self._begun = self._said = time.monotonic()
        self._before, self._total = done, total
        self._task = self._bar.add_task("", total=total, completed=done, told="")

    def __enter__(self) -> "Shown":
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def update(self, done: int, describe: Callable[[], str]) -> None:
        """So much is done; the rest of the line is made only where it is shown."""
        now = time.monotonic()
        if self._lines and now - self._said < EVERY:
            return
        rate = (done - self._before) / max(now - self._begun, 1e-9)
        left = f", {(self._total - done) / rate:,.0f} s left" if rate else ""
        told = f"{done:,}/{self._total:,} {describe()}{left}"
        self._bar.update(self._task, completed=done, told=told)
        if self._lines:
            self._said = now
            say(told, stderr=True)


# --- solve ----------------------------------------------------------------------------------------


@grouped
def solve(
    *,
    asking: Asking,
    deciding: Deciding,
    question: str | None = argument(None, "The question; without it, --file or standard input."),
    file: Path | None = option(
        None, "File of questions: plain lines, JSON lines or list, CSV, Parquet."
    ),
    out: Path | None = option(
        None, "Write the answers here; run again to go on, nothing is paid for twice."
    ),
    seed: int | None = option(None, "Seed of the first response; later ones add one."),
    shared_budget: bool = option(
        False, "Spend the limit on the questions where it promises most.", "--shared-budget"
    ),
) -> None:
    """Solve a question, or many, spending only what each is worth. JSON lines come out.

    The exit code is 3 where some questions have no answer.
    """
    asked = _read_questions(question, file, asking.columns or ())
    controller, budget = deciding.load(), asking.budget()
    if shared_budget and not budget.limited:
        raise UsageError("--shared-budget needs a limit: --max-tokens-total, for example")
    if shared_budget and deciding.policy is not None:
        raise UsageError(
            "--policy says when each question stops, and with --shared-budget the limit does; "
            "leave one of them out"
        )
    sampler = asking.sampler(controller.task, controller.asks, seed)
    job = _Solving(sampler, Ledger(budget), controller, shared_budget)
    try:
        done = asyncio.run(job.run(asked, out))
    except KeyboardInterrupt:
        if out is not None:
            say("what was paid for is kept; run the same command again to go on", stderr=True)
        raise
    for sentence in (*job.summarize(done), *job.lost()):
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
            answers = None
            if out is not None and log is not None:
                answers = Answers(out)
                # Plain votes decide where the controller steps aside.
                labels = [self.label(each) for each in (self.controller, self.controller.plain)]
                answers.begin(labels, self.controller.schedule, log)
                for damage in log.damaged:
                    say(f"{log.path}: {damage}: half-written, dropped", stderr=True)
            known = answers.known if answers else {}
            done = [*known.values()]
            self._announce([each for each in asked if each.id not in known], len(known), log)
            short = out is None and len(asked) == 1 and sys.stdout.isatty()
            with Shown("solving", len(asked), done=len(done)) as shown:
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
                        if answers is not None:
                            answers.add(line)
                        elif not short:
                            typer.echo(line)
                        if allocation.error and not any(each.error for each in done):
                            say(
                                f"aera: {allocation.error}{self.advice(allocation.error)}",
                                stderr=True,
                            )
                        done.append(allocation)
                        shown.update(len(done), self._progress)
            if short:  # a reader, not a program
                typer.echo(self._shortly(done[0]))
        return done

    def _open_log(self, asked: list[Question], out: Path) -> Log:
        """The log of what was paid for, beside the answers."""
        chat = self.sampler.chat
        told = {"model": chat.model, "system": chat.system, **chat.settings}
        seed = chat.settings.get("seed")
        plan = Plan(chat.task, None, told, seed, self.controller.schedule, chat.body)
        return Log.open(out.with_name(f"{out.name}.pool"), plan, asked, command="aera solve")

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

    def _line(self, allocation: Allocation) -> dict[str, Any]:
        line = {**allocation_line(allocation), "schedule": [*self.controller.schedule]}
        if self.ledger.budget.priced:
            spent = allocation.prompt_tokens, allocation.completion_tokens
            line["money"] = round(self.ledger.budget.cost(*spent), 9)
        return line

    def _shortly(self, allocation: Allocation) -> str:
        """The answer to the only question, for a reader: what it is, and what it took and why."""
        answer = "no answer" if allocation.answer is None else allocation.answer
        spent = f"{_many(allocation.responses, 'response')}, {self.progress()}"
        return f"{answer}\n{spent}: {allocation.reason}"

    def _progress(self) -> str:
        return f"questions, {self.ledger.spent.responses:,} responses, {self.progress()}"

    def summarize(self, done: Sequence[Allocation]) -> Iterator[str]:
        """What was spent and saved, and what is not as one would wish.

        What was billed may be more than what the answers were made of.
        """
        budget, booked = self.ledger.budget, self.ledger.spent
        saved = sum(each.tokens_saved for each in done)
        responses = max(sum(each.responses for each in done), booked.responses)
        prompts = max(sum(each.prompt_tokens for each in done), booked.prompt_tokens)
        spent = max(sum(each.completion_tokens for each in done), booked.completion_tokens)
        money = f", {budget.cost(prompts, spent):,.4g} in money" if budget.priced else ""
        worth = f", worth {budget.cost(0, saved):,.4g} in money" if budget.priced else ""
        share = f", {saved / (saved + spent):.0%} of the full budget's" if saved else ""
        unanswered = sum(each.answer is None for each in done)
        yield (
            f"{len(done) - unanswered:,} of {_many(len(done), 'question')} answered for "
            f"{_many(responses, 'response')} and {_many(spent, 'token')}{money}; saved "
            f"about {_many(saved, 'token')}{share}{worth}"
        )
        aside = sum(each.policy != self.label(self.controller) for each in done)
        if aside:
            yield (
                f"{_many(aside, 'question')} decided by plain votes, for they are not clearly like "
                "those that the controller was taught on (--trust keeps it)"
            )
        yield from self._reading(done)
        lacking: Counter[str] = Counter()
        for each in done:
            lacking.update(each.lacking)
        for said, count in lacking.items():
            yield f"{_many(count, 'response')} {said}"
        yield from _trouble(done)
        if unanswered:
            yield f"{_many(unanswered, 'question')} without an answer"

    def _reading(self, done: Sequence[Allocation]) -> Iterator[str]:
        """How much could be read, and what to do where nothing could."""
        everything = Readability().join(each.readability for each in done)
        if everything.responses:
            yield everything.summary(self.controller.task)
        unread = [each.readability for each in done if each.reason == UNREADABLE]
        if unread:
            joined, task = Readability().join(unread), self.controller.task
            example = f"; one ends with {joined.examples[0]!r}" if joined.examples else ""
            yield (
                f"{len(unread)} of {_many(len(done), 'question')} stopped after two blocks "
                f"in which nothing could be read; the task {task.name} looks for "
                f"{task.describe()}{example}; {joined.advice(task)}"
            )


def _trouble(done: Sequence[Allocation]) -> Iterator[str]:
    """Ties, failures, limits, and who got nothing."""
    if tied := sum(each.leaders.tied for each in done):
        yield f"{_many(tied, 'answer')} tied and won by being first"
    if failed := sum(each.error is not None for each in done):
        yield f"{failed} failed; the lines with an error say why"
    if cut := sum(each.reason.startswith("limit: ") for each in done):
        yield f"{_many(cut, 'question')} ended by a limit"
    if nothing := [each.question_id for each in done if not each.responses]:
        shown = ", ".join(nothing[:5]) + (", ..." if len(nothing) > 5 else "")
        yield f"{_many(len(nothing), 'question')} got nothing: {shown}"


def allocation_line(allocation: Allocation) -> dict[str, Any]:
    """An allocation as one JSON line holds it."""
    fields = asdict(allocation)
    leaders = fields.pop("leaders")
    if not allocation.readability.markers:
        del fields["readability"]["markers"]
    told = {"answer": leaders["answer"], "tied": leaders["tied"], "text": fields.pop("text")}
    return {**told, **fields, "tokens_saved": allocation.tokens_saved}


def read_line(line: dict[str, Any]) -> Allocation:
    """The allocation that a line holds, less its steps and weights; older lines say less."""
    for name in ("question_id", "policy", "reason"):
        take_field(line, name, (str,))
    take_field(line, "error", (str, type(None)))
    told = {each.name: line[each.name] for each in fields(Allocation) if each.name in line}
    told["leaders"] = Leaders(line["answer"], 0.0, 0.0, line["tied"])
    return Allocation(**{**told, "steps": (), "readability": Readability(**line["readability"])})


class Answers:
    """A file of answers, one JSON line each, that can be gone on with."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: dict[str, Allocation] = {}
        """What was answered before, by question."""

    def begin(self, policies: Sequence[str], schedule: Schedule, log: Log) -> None:
        """Read what is there; a question that failed or met a limit is to be gone on with."""
        mend(self.path)
        kept: dict[str, str] = {}
        old = self.path.read_text("utf-8").splitlines() if self.path.exists() else []
        for number, text in enumerate(old, start=1):
            try:
                line: dict[str, Any] = json.loads(text)
                answer = read_line(line)
            except (ValueError, LookupError, TypeError):
                raise UsageError(
                    f'"{self.path}", line {number}, is no answer of aera solve; write elsewhere'
                ) from None
            points, other = line.get("schedule", [*schedule]), None
            if answer.policy not in policies:
                other = f"answers by {answer.policy}, not by {policies[0]}"
            elif points != [*schedule]:
                other = f"answers of the schedule {points}, not {schedule}"
            if other is not None:
                raise UsageError(
                    f'"{self.path}" holds {other}; write elsewhere, or remove it: what was paid '
                    "for is kept beside it"
                )
            if answer.error is None and not answer.reason.startswith("limit: "):
                self.known[answer.question_id], kept[answer.question_id] = answer, text
        asked = log.requests.keys() | log.dropped.ids
        for name, answer in self.known.items():
            if answer.responses and name not in asked:
                raise UsageError(
                    f'"{self.path}" has an answer to question {name} of which "{log.path}" knows '
                    "nothing, so nobody can tell what was asked; write elsewhere"
                )
        write_whole(self.path, "".join(f"{text}\n" for text in kept.values()))

    def add(self, text: str) -> None:
        """One more answer, in one write."""
        append(self.path, [text + "\n"])


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
    questions: Path = argument(
        ..., "JSON lines, CSV or Parquet with question, id, choices, answer."
    ),
    out: Path = option(..., "Directory of the pool; run again to resume."),
    task: str = option(..., "Task: how to ask and how to read (aera tasks)."),
    asking: Asking,
    responses: int | None = option(
        None, "Responses sampled for each question; 128 if nobody says."
    ),
    seed: int = option(0, "Seed of the first response; later ones add one."),
    schedule: str | None = as_set(None, "schedule"),
    block: int = option(16, "Responses asked for in one call."),
    traces: bool = option(
        False,
        "Ask for the 20 likeliest tokens in every place, and keep what they say of each "
        "response; replies are about forty times as long.",
    ),
    raw_traces: Path | None = option(
        None, "Keep the logprobs of every token in this file too, as JSON lines."
    ),
) -> None:
    """Sample responses into a pool. Interrupted at any moment, it goes on where it was.

    Run again with more --responses or added questions, a finished pool grows by what is missing.
    """
    from aera.lab.formats.rows import read_exam

    chosen = get_task(task)
    asked, truths = read_exam(questions, chosen, asking.columns or (), seed=seed)
    job = Job(asking.sampler(chosen, FULL if traces else PLAIN, seed), Ledger(asking.budget()))
    chat, points = job.sampler.chat, Schedule.parse(schedule) if schedule else None
    each = responses if responses is not None else points.last if points else 128
    told = {"model": chat.model, "system": chat.system, **chat.settings}
    with Log.open(out, Plan(chosen, each, told, seed, points), asked) as log:
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
    """Sample what is missing."""
    with Shown("sampling", log.wanted, done=log.done) as shown:
        async with job.sampler as sampler:
            return await record(
                log,
                sampler,
                concurrency=sampler.upstream.endpoint.concurrency or WORKERS,
                block=block,
                ledger=job.ledger,
                watch=lambda log: shown.update(log.done, lambda: f"responses, {job.progress()}"),
                raw=raw,
            )


def _conclude(log: Log, job: Job, pool: Pool | None) -> None:
    """Say what became of it; a pool of which something is missing is an error."""
    for damage in log.damaged:
        say(f"{damage}: half-written, dropped and asked for again", stderr=True)
    for sentence in job.lost():
        say(sentence, stderr=True)
    if pool is None and job.ledger.refused:
        raise PoolError(
            f"the limit in {job.ledger.limit} ended it: {log.done:,} of {log.wanted:,} responses "
            f'of "{log.path}" are there; run the same command with a higher limit to go on'
        )
    if pool is None:
        advice = job.advice(log.trouble or "")
        again = "sample into another --out" if "--set" in advice else "run the same command again"
        raise PoolError(
            f'{log.wanted - log.done} of {log.wanted} responses of "{log.path}" are missing, '
            f"failures are noted in {log.folder / 'failures.jsonl'} (the last: {log.trouble}); "
            f"{again}{advice}"
        )
    there = f"{log.path}: {log.done:,} responses, {log.resumed:,} were there already"
    say(f"{there}{job.money('; ')}")
    read = Readability()
    for part in pool.parts():
        read = read.join([health_of(read_votes(part, log.plan.task))])
    for line in (*read.lines(log.plan.task), read.warning(log.plan.task)):
        if line:
            say(line, stderr=True)
