"""The commands `solve` and `sample`: answers for what each is worth, and pools."""

import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Container, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from aera.cli.options import (
    CAOption,
    ConcurrencyOption,
    ControllerOption,
    Deciding,
    EquivalenceOption,
    HeaderOption,
    KeyOption,
    MapOption,
    MaximumOption,
    ModelOption,
    MoneyOption,
    PolicyOption,
    PricesOption,
    ResponsesLimit,
    ScheduleOption,
    ScorerOption,
    SecondsOption,
    SettingOption,
    SystemOption,
    TaskOption,
    TokensOption,
    URLOption,
    WeightsOption,
    headers_from,
    prices_from,
    say,
    settings_from,
    without_password,
)
from aera.core import Schedule
from aera.errors import PoolError, UsageError
from aera.files import take_field, to_line, write_whole
from aera.policies.labels import parse_policy
from aera.policies.rules import Fixed
from aera.pools.log import append, mend
from aera.reading.task import get_task
from aera.sampling.budget import Budget

if TYPE_CHECKING:
    from aera.core import Question, Schedule
    from aera.pools.log import Log
    from aera.pools.pool import Pool
    from aera.reading.task import Task
    from aera.sampling.budget import Budget, Ledger
    from aera.sampling.sampler import OpenAISampler
    from aera.solving.controller import Controller
    from aera.solving.run import Allocation


EVERY = 10.0
"""Seconds between two lines about progress where there is no terminal."""


@dataclass(frozen=True)
class Estimate:
    """What is about to be asked, from the fewest responses it can take to the most."""

    questions: int
    fewest: int
    most: int
    max_tokens: int | None
    """The longest that a response may be, by the request."""
    usual: float | None = None
    """Tokens of a response, where responses were seen before."""
    prompt_tokens: float = 0.0
    """Of all prompts together, asked once; a server that takes no `n` bills one per response."""

    def describe(self, budget: Budget, *, concurrency: int) -> str:
        """It in one sentence, with tokens and money."""
        told = [_span(self.fewest, self.most, "response")]
        if self.usual is not None:
            low, high = self.fewest * self.usual, self.most * self.usual
            told.append(f"about {_span(low, high, 'token')} at {self.usual:,.0f} each")
            told += self._money(budget, low, high, "about ")
        elif self.max_tokens is not None:
            high = self.most * self.max_tokens
            told.append(f"at most {high:,} tokens, for max_tokens is {self.max_tokens:,}")
            told += self._money(budget, high, high, "at most about ")
        else:
            told.append("of unknown length, for the request has no max_tokens")
        return f"{_many(self.questions, 'question')}: {', '.join(told)}" + self._limits(
            budget, concurrency
        )

    def _money(self, budget: Budget, low: float, high: float, word: str) -> list[str]:
        if not budget.priced:
            return []
        each = self.most / max(1, self.questions)
        prompts = (self.prompt_tokens if low < high else each * self.prompt_tokens, low)
        costs = [budget.cost(*prompts), budget.cost(each * self.prompt_tokens, high)]
        shown = dict.fromkeys(f"{cost:,.4g}" for cost in costs)
        return [f"{word}{' to '.join(shown)} in money"]

    def _limits(self, budget: Budget, concurrency: int) -> str:
        """The limits, and how many responses may be under way within them."""
        stated = {
            "responses": budget.responses,
            "tokens": budget.tokens,
            "seconds": budget.seconds,
            "in money": budget.money,
        }
        said = [f"{limit:,} {name}" for name, limit in stated.items() if limit is not None]
        if not said:
            return ""
        text = f"; the limit is {' and '.join(said)}"
        if self.max_tokens is None or not (budget.tokens or budget.money):
            return text
        cost = budget.cost(0, self.max_tokens)
        fits = [(budget.tokens or 0) // self.max_tokens] if budget.tokens else []
        fits += [int((budget.money or 0) / cost)] if budget.money and cost else []
        at_once = max(1, min(fits)) if fits else concurrency
        if at_once >= min(concurrency, self.most):
            return text
        return (
            f"{text}, in which {_many(at_once, 'response')} can be under way at once, for "
            f"max_tokens is {self.max_tokens:,}; a lower one lets more"
        )


def _span(low: float, high: float, what: str) -> str:
    """From so many to so many."""
    if round(low) == round(high):
        return _many(round(high), what)
    return f"{low:,.0f} to {_many(round(high), what)}"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


@dataclass
class Summary:
    """What became of some questions, and what it cost."""

    budget: Budget
    task: "Task"
    policy: str = ""
    """What decides where the controller does not step aside."""
    lines: list[dict[str, Any]] = field(default_factory=list)
    """The answers, each as it is written."""

    def add(self, line: dict[str, Any]) -> None:
        """One more answer."""
        self.lines.append(line)

    @property
    def unanswered(self) -> list[dict[str, Any]]:
        """The questions without an answer."""
        return [line for line in self.lines if line["answer"] is None]

    def say(self, ledger: "Ledger") -> None:
        """What was spent and saved, and what is not as one would wish."""
        for sentence in (*self.sentences(ledger), *tell_lost(ledger)):
            say(f"aera: {sentence}", stderr=True)

    def sentences(self, ledger: "Ledger") -> Iterable[str]:
        """The same as sentences; what was billed may be more than what the answers were made of."""
        booked, saved = ledger.spent, self._sum("tokens_saved")
        responses = max(self._sum("responses"), booked.responses)
        spent = max(self._sum("completion_tokens"), booked.completion_tokens)
        cost = self.budget.cost(max(self._sum("prompt_tokens"), booked.prompt_tokens), spent)
        money = f", {cost:,.4g} in money" if self.budget.priced else ""
        worth = f", worth {self.budget.cost(0, saved):,.4g} in money" if self.budget.priced else ""
        share = f", {saved / (saved + spent):.0%} of the full budget's" if saved else ""
        answered = len(self.lines) - len(self.unanswered)
        yield (
            f"{answered:,} of {_many(len(self.lines), 'question')} answered for "
            f"{_many(responses, 'response')} and {_many(spent, 'token')}{money}; saved "
            f"about {_many(saved, 'token')}{share}{worth}"
        )
        aside = sum(line["policy"] != self.policy for line in self.lines)
        if aside:
            yield (
                f"{_many(aside, 'question')} decided by plain votes, for they are not clearly like "
                "those that the controller was taught on (--trust keeps it)"
            )
        yield from self._reading()
        yield from self._weighing()
        yield from self._trouble()

    def _sum(self, name: str) -> int:
        return sum(line[name] for line in self.lines)

    def _reading(self) -> Iterable[str]:
        """How much could be read, and what to do where nothing could."""
        from aera.policies.rules import UNREADABLE
        from aera.reading.task import Readability

        health = [Readability(**line["readability"]) for line in self.lines]
        everything = Readability().join(health)
        if everything.responses:
            yield everything.summary()
        unread = [
            own
            for own, line in zip(health, self.lines, strict=True)
            if line["reason"] == UNREADABLE
        ]
        if unread:
            joined, task = Readability().join(unread), self.task
            example = f"; one ends with {joined.examples[0]!r}" if joined.examples else ""
            yield (
                f"{len(unread)} of {_many(len(self.lines), 'question')} stopped after two blocks "
                f"in which nothing could be read; the task {task.name} looks for "
                f"{task.describe()}{example}. Give another --task (aera tasks), a task file with "
                "a pattern or path, or MODULE:NAME"
            )

    def _weighing(self) -> Iterable[str]:
        """Which votes brought less than the weights need; older lines do not say."""
        lacking: Counter[str] = Counter()
        for line in self.lines:
            lacking.update(line.get("lacking", {}))
        for said, count in lacking.items():
            yield f"{_many(count, 'response')} {said}"

    def _trouble(self) -> Iterable[str]:
        """Ties, failures, limits, and who has no answer."""
        tied = sum(line["tied"] for line in self.lines)
        if tied:
            yield f"{_many(tied, 'answer')} tied and won by being first"
        failed = sum(line["error"] is not None for line in self.lines)
        if failed:
            yield f"{failed} failed; the lines with an error say why"
        cut = sum(line["reason"].startswith("limit: ") for line in self.lines)
        if cut:
            yield f"{_many(cut, 'question')} ended by a limit"
        nothing = [line["question_id"] for line in self.lines if not line["responses"]]
        if nothing:
            shown = ", ".join(nothing[:5]) + (", ..." if len(nothing) > 5 else "")
            yield f"{_many(len(nothing), 'question')} got nothing: {shown}"
        if self.unanswered:
            yield f"{_many(len(self.unanswered), 'question')} without an answer"


def tell_lost(ledger: "Ledger") -> Iterable[str]:
    """What never came and may have been billed, which a limit holds back; nothing where nothing."""
    lost = ledger.lost
    if lost.responses:
        held = (
            f", so {lost.completion_tokens:,} tokens are held back"
            if lost.completion_tokens
            else ""
        )
        yield f"{_many(lost.responses, 'response')} never came and may have been billed{held}"


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
        due = self._lines and now - self._said >= EVERY
        if self._lines and not due:
            return
        rate = (done - self._before) / max(now - self._begun, 1e-9)
        left = f", {(self._total - done) / rate:,.0f} s left" if rate else ""
        told = f"{done:,}/{self._total:,} {describe()}{left}"
        self._bar.update(self._task, completed=done, told=told)
        if due:
            self._said = now
            say(told, stderr=True)


SOME_UNANSWERED = 3
"""Exit code where some questions have no answer."""

QuestionArgument = Annotated[
    str | None, typer.Argument(help="The question; without it, --file or standard input.")
]
FileOption = Annotated[
    Path | None,
    typer.Option(help="File of questions: plain lines, JSON lines or list, CSV, Parquet."),
]
OutOption = Annotated[
    Path | None,
    typer.Option(help="Write the answers here; run again to go on, nothing is paid for twice."),
]
SeedOption = Annotated[
    int | None, typer.Option(help="Seed of the first response; later ones add one.")
]
SharedOption = Annotated[
    bool,
    typer.Option(
        "--shared-budget", help="Spend the limit on the questions where it promises most."
    ),
]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust", help="Keep the controller where the questions are unlike those it was taught on."
    ),
]


def solve(
    base_url: URLOption,
    model: ModelOption,
    question: QuestionArgument = None,
    file: FileOption = None,
    out: OutOption = None,
    controller: ControllerOption = None,
    task: TaskOption = "expression",
    policy: PolicyOption = None,
    weights: WeightsOption = None,
    schedule: ScheduleOption = None,
    max_samples: MaximumOption = None,
    equivalence: EquivalenceOption = False,
    scorer: ScorerOption = None,
    trust: TrustOption = False,
    seed: SeedOption = None,
    system: SystemOption = None,
    settings: SettingOption = None,
    header: HeaderOption = None,
    ca_file: CAOption = None,
    api_key_env: KeyOption = "OPENAI_API_KEY",
    concurrency: ConcurrencyOption = 64,
    max_tokens_total: TokensOption = None,
    shared_budget: SharedOption = False,
    max_responses: ResponsesLimit = None,
    max_seconds: SecondsOption = None,
    max_money: MoneyOption = None,
    prices: PricesOption = "0,0",
    columns: MapOption = None,
) -> None:
    """Solve a question, or many, spending only what each is worth. JSON lines come out.

    The exit code is 3 where some questions have no answer.
    """
    from aera.sampling.budget import Budget, Ledger
    from aera.sampling.client import Endpoint
    from aera.sampling.sampler import DEFAULTS, Chat, OpenAISampler

    asked = _read_questions(question, file, columns or ())
    deciding = Deciding(
        controller, task, equivalence, scorer, policy, schedule, max_samples, trust, weights
    )
    loaded = deciding.load()
    stepped = {} if seed is None else {"seed": seed}
    fields = {**DEFAULTS, **settings_from(settings or ()), **stepped}
    endpoint = Endpoint(base_url, api_key_env, headers_from(header or ()), ca_file, concurrency)
    budget = Budget(max_responses, max_tokens_total, max_seconds, max_money, *prices_from(prices))
    if shared_budget:
        _check_shared(budget, policy)
    sampler = OpenAISampler(endpoint, Chat(model, loaded.task, fields, system, loaded.asks))
    job = _Job(sampler, loaded, Ledger(budget), concurrency, shared=shared_budget)
    _conclude(job, asked, out, Summary(budget, loaded.task, job.label))


def _conclude(job: "_Job", asked: "list[Question]", out: Path | None, summary: Summary) -> None:
    """Do it, and say what became of it."""
    try:
        asyncio.run(job.run(asked, out, summary))
    except KeyboardInterrupt:
        if out is not None:
            say("what was paid for is kept; run the same command again to go on", stderr=True)
        raise
    summary.say(job.ledger)
    if summary.unanswered:
        raise typer.Exit(SOME_UNANSWERED)


def _check_shared(budget: "Budget", policy: str | None) -> None:
    """A shared budget has a limit, and nobody stops before it is spent."""
    if not budget.limited:
        raise UsageError("--shared-budget needs a limit: --max-tokens-total, for example")
    if policy is not None:
        raise UsageError(
            "--policy says when each question stops, and with --shared-budget the limit does; "
            "leave one of them out"
        )


@dataclass(frozen=True)
class _Job:
    """Questions to be solved, and everything they are solved with."""

    sampler: "OpenAISampler"
    controller: "Controller"
    ledger: "Ledger"
    concurrency: int
    shared: bool

    @property
    def labels(self) -> tuple[str, ...]:
        """Those of all policies that may decide: plain votes where the controller steps aside."""
        plain = replace(self, controller=self.controller.plain)
        return tuple(dict.fromkeys((self.label, plain.label)))

    @property
    def label(self) -> str:
        """What answers call the policy."""
        from aera.solving.solve import shared_label

        if self.shared:
            return shared_label(self.controller)
        return self.controller.live_label

    async def run(self, asked: "list[Question]", out: Path | None, summary: Summary) -> None:
        """Solve them, print or write each answer, and keep what was paid for beside them."""
        with self._open_log(asked, out) if out else nullcontext() as log:
            answers = Answers(out) if out else None
            if answers is not None and log is not None:
                answers.begin(self.labels, self.controller.schedule, log)
                for damage in log.damaged:
                    say(f"{log.path}: {damage}: half-written, dropped", stderr=True)
                for line in answers.lines.values():
                    summary.add(line)
            answered = answers.lines if answers else {}
            left = [each for each in asked if each.id not in answered]
            with Shown("solving", len(asked), done=len(summary.lines)) as shown:
                self._announce(left, summary, log)
                async with self.sampler:
                    async for allocation in self._solve(asked, answered, log):
                        self._put(allocation, answers, summary)
                        shown.update(len(summary.lines), lambda: self._progress)

    def _open_log(self, asked: "list[Question]", out: Path) -> "Log":
        """The log of what was paid for, beside the answers."""
        from aera.pools.log import Log
        from aera.pools.pool import Plan

        chat = self.sampler.chat
        told = {"model": chat.model, "system": chat.system, **chat.settings}
        seed = chat.settings.get("seed")
        plan = Plan(chat.task, None, told, seed, self.controller.schedule, chat.body)
        return Log.open(out.with_name(f"{out.name}.pool"), plan, asked, command="aera solve")

    def _put(self, allocation: "Allocation", answers: "Answers | None", summary: Summary) -> None:
        line = allocation_line(allocation)
        line["schedule"] = [*self.controller.schedule]
        if self.ledger.budget.priced:
            spent = allocation.prompt_tokens, allocation.completion_tokens
            line["money"] = round(self.ledger.budget.cost(*spent), 9)
        if answers is None:
            typer.echo(json.dumps(line))
        else:
            answers.add(json.dumps(line))
        summary.add(line)

    @property
    def _progress(self) -> str:
        money = f", {self.ledger.money:,.4g} in money" if self.ledger.budget.priced else ""
        tokens = self.ledger.spent.completion_tokens
        return f"questions, {self.ledger.spent.responses:,} responses, {tokens:,} tokens{money}"

    def _solve(
        self, asked: "list[Question]", answered: Container[str], log: "Log | None"
    ) -> "AsyncIterator[Allocation]":
        from aera.solving.solve import solve_many

        return solve_many(
            asked,
            self.sampler,
            self.controller,
            budget=self.ledger,
            concurrency=self.concurrency,
            shared=self.shared,
            kept=log,
            skip=lambda question: question.id in answered,
        )

    def _range(self) -> tuple[int, int]:
        """The fewest and the most responses that a question can take."""
        from aera.policies.rules import range_of

        schedule = self.controller.schedule
        if self.shared:
            return 1, schedule.last
        least, most = range_of(self.controller.policy, schedule.last)
        return max(least, min(schedule.first, most)), most

    def _announce(self, left: "list[Question]", summary: Summary, log: "Log | None") -> None:
        """Say what is about to be asked, and what was there already."""
        from aera.sampling.sampler import request_bound

        paid = log.paid if log else []
        if summary.lines or paid:
            there = f"{len(summary.lines):,} answers and {len(paid):,} responses"
            say(f"aera: {there} were there already", stderr=True)
        if not left:
            return
        fewest, most = self._range()
        bounds = [request_bound(self.sampler.chat.body(each)) for each in left]
        told = self.controller.calibration.get("tokens_per_response")
        usual = sum(each.tokens for each in paid) / len(paid) if paid else told
        estimate = Estimate(
            len(left),
            len(left) * fewest,
            len(left) * most,
            bounds[0].max_tokens,
            usual,
            sum((bound.prompt_tokens or 0) / 4 for bound in bounds),
        )
        endpoint, budget = self.sampler.upstream.endpoint, self.ledger.budget
        where = without_password(endpoint.base_url)
        asking = f"asking {self.sampler.chat.model} at {where} by {self.label}"
        told = estimate.describe(budget, concurrency=self.concurrency)
        say(f"aera: {asking}, {told}", stderr=True)


class Answers:
    """A file of answers, one JSON line each, that can be gone on with."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: dict[str, dict[str, Any]] = {}
        """What was answered before, by question."""

    def begin(self, policies: "Sequence[str]", schedule: "Schedule", log: "Log") -> None:
        """Read what is there; a question that failed or met a limit is to be gone on with."""
        mend(self.path)
        if self.path.exists():
            for number, text in enumerate(self.path.read_text("utf-8").splitlines(), start=1):
                line = self._parse(text, number)
                if line["policy"] not in policies:
                    raise UsageError(
                        f'"{self.path}" holds answers by {line["policy"]}, not by {policies[0]}; '
                        "write elsewhere, or remove it: what was paid for is kept beside it"
                    )
                points = line.get("schedule", [*schedule])
                if points != [*schedule]:
                    raise UsageError(
                        f'"{self.path}" holds answers of the schedule {points}, not {schedule}; '
                        "write elsewhere, or remove it: what was paid for is kept beside it"
                    )
                if line["error"] is None and not line["reason"].startswith("limit: "):
                    self.lines[line["question_id"]] = line
        known = log.requests.keys() | log.dropped.ids
        for name, line in self.lines.items():
            if line.get("responses") and name not in known:
                raise UsageError(
                    f'"{self.path}" has an answer to question {name} of which "{log.path}" knows '
                    "nothing, so nobody can tell what was asked; write elsewhere"
                )
        write_whole(self.path, "".join(to_line(line) for line in self.lines.values()))

    def _parse(self, text: str, number: int) -> dict[str, Any]:
        try:
            line: dict[str, Any] = json.loads(text)
            for name in ("question_id", "policy", "reason"):
                take_field(line, name, (str,))
            take_field(line, "error", (str, type(None)))
        except (ValueError, LookupError, TypeError):
            raise UsageError(
                f'"{self.path}", line {number}, is no answer of aera solve; write elsewhere'
            ) from None
        return line

    def add(self, text: str) -> None:
        """One more answer, in one write."""
        append(self.path, [text + "\n"])


def _read_questions(
    question: str | None, file: Path | None, columns: Iterable[str]
) -> "list[Question]":
    """The questions of a call: the argument, a file, or standard input; no right answers."""
    from aera.core import Question
    from aera.lab.formats.questions import read_questions
    from aera.lab.formats.rows import Columns, parse_map

    if question is not None and file is not None:
        raise UsageError("give a question or --file, not both")
    if question is not None:
        if not question.strip():
            raise UsageError("the question is empty")
        return [Question("question", question)]
    names = Columns(parse_map(columns))
    if file is not None:
        return read_questions(file, names)
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "standard input"
        binary = getattr(sys.stdin, "buffer", None)
        given.write_bytes(binary.read() if binary else sys.stdin.read().encode())
        return read_questions(given, names)


def allocation_line(allocation: "Allocation") -> dict[str, Any]:
    """An allocation as one JSON line holds it."""
    fields = asdict(allocation)
    aggregate = fields.pop("aggregate")
    told = {"answer": aggregate["answer"], "tied": aggregate["tied"], "text": fields.pop("text")}
    return {**told, **fields, "tokens_saved": allocation.tokens_saved}


QuestionsArgument = Annotated[
    Path, typer.Argument(help="JSON lines, CSV or Parquet with question, id, choices, answer.")
]
SampleOutOption = Annotated[Path, typer.Option(help="Directory of the pool; run again to resume.")]
SampleTaskOption = Annotated[
    str, typer.Option(help="Task: how to ask and how to read (aera tasks).")
]
ResponsesOption = Annotated[
    int | None, typer.Option(help="Responses sampled for each question; 128 if nobody says.")
]
SampleSeedOption = Annotated[
    int, typer.Option(help="Seed of the first response; later ones add one.")
]
SamplePolicyOption = Annotated[
    str | None, typer.Option(help="Only fixed-N, which is --responses N.")
]
TracesOption = Annotated[
    bool,
    typer.Option(
        help="Ask for the 20 likeliest tokens in every place, and keep what they say of each "
        "response; replies are about forty times as long."
    ),
]
RawOption = Annotated[
    Path | None,
    typer.Option(help="Keep the logprobs of every token in this file too, as JSON lines."),
]
BlockOption = Annotated[int, typer.Option(help="Responses asked for in one call.")]


def sample(
    questions: QuestionsArgument,
    out: SampleOutOption,
    base_url: URLOption,
    model: ModelOption,
    task: SampleTaskOption,
    responses: ResponsesOption = None,
    seed: SampleSeedOption = 0,
    policy: SamplePolicyOption = None,
    schedule: ScheduleOption = None,
    max_samples: MaximumOption = None,
    system: SystemOption = None,
    settings: SettingOption = None,
    header: HeaderOption = None,
    ca_file: CAOption = None,
    api_key_env: KeyOption = "OPENAI_API_KEY",
    concurrency: ConcurrencyOption = 64,
    block: BlockOption = 16,
    traces: TracesOption = False,
    raw_traces: RawOption = None,
    max_tokens_total: TokensOption = None,
    max_responses: ResponsesLimit = None,
    max_seconds: SecondsOption = None,
    max_money: MoneyOption = None,
    prices: PricesOption = "0,0",
    columns: MapOption = None,
) -> None:
    """Sample responses into a pool. Interrupted at any moment, it goes on where it was.

    Run again with more --responses or added questions, a finished pool grows by what is missing.
    """
    from aera.lab.formats.questions import read_question_set
    from aera.lab.formats.rows import Columns, parse_map
    from aera.pools.log import Log
    from aera.pools.pool import Plan
    from aera.sampling.budget import Budget, Ledger
    from aera.sampling.client import Endpoint
    from aera.sampling.sampler import DEFAULTS, Chat, OpenAISampler
    from aera.trace import FULL, PLAIN

    chosen = get_task(task)
    asked = read_question_set(questions, chosen, Columns(parse_map(columns or ())), seed=seed)
    fields = {**DEFAULTS, **settings_from(settings or ()), "seed": seed}
    chat = Chat(model, chosen, fields, system, dict(FULL if traces else PLAIN))
    endpoint = Endpoint(base_url, api_key_env, headers_from(header or ()), ca_file, concurrency)
    budget = Budget(max_responses, max_tokens_total, max_seconds, max_money, *prices_from(prices))
    points = Schedule.parse(schedule) if schedule else None
    each = _count_each(responses, policy, max_samples, points)
    plan = Plan(chosen, each, {"model": model, "system": system, **fields}, seed, points)
    with Log.open(out, plan, asked.questions) as log:
        if asked.truths is not None:  # right answers go apart from everything else
            asked.truths.save(out)
        sampler, ledger = OpenAISampler(endpoint, chat), Ledger(budget)
        _SampleJob(log, sampler, ledger, concurrency, block, raw_traces).conclude()


def _count_each(
    responses: int | None, policy: str | None, maximum: int | None, schedule: Schedule | None
) -> int:
    """How many responses each question gets; whatever says it must say the same."""
    told = {"--responses": responses, "--max-samples": maximum}
    if policy is not None:
        parsed = parse_policy(policy)
        if not isinstance(parsed, Fixed):
            raise UsageError(
                f"a pool holds as many responses for every question, so that any policy can be "
                f"replayed on it; --policy {policy} goes with aera solve, here it is fixed-N"
            )
        told["--policy"] = parsed.responses
    said = {name: count for name, count in told.items() if count is not None}
    if len(set(said.values())) > 1:
        named = " and ".join(f"{name} ({count})" for name, count in said.items())
        raise UsageError(f"{named} disagree about how many responses a question gets")
    default = schedule.last if schedule else 128
    return next(iter(said.values()), default)


@dataclass(frozen=True)
class _SampleJob:
    """A log, and everything it is filled with."""

    log: "Log"
    sampler: "OpenAISampler"
    ledger: "Ledger"
    concurrency: int
    block: int
    raw: Path | None

    def announce(self) -> None:
        """Say what is about to be asked."""
        from aera.sampling.sampler import request_bound

        log, budget = self.log, self.ledger.budget
        left = log.wanted - log.done
        if not left:
            return
        paid = log.paid
        missing = [each for each in log.questions if log.missing(each, block=1)]
        bounds = [request_bound(self.sampler.chat.body(each)) for each in missing]
        blocks = -(-log.wanted // len(log.questions) // self.block)
        estimate = Estimate(
            len(missing),
            left,
            left,
            bounds[0].max_tokens,
            sum(each.tokens for each in paid) / len(paid) if paid else None,
            blocks * sum((bound.prompt_tokens or 0) / 4 for bound in bounds),
        )
        where = without_password(self.sampler.upstream.endpoint.base_url)
        asking = f"asking {self.sampler.chat.model} at {where}"
        say(f"{asking}, {estimate.describe(budget, concurrency=self.concurrency)}", stderr=True)

    async def run(self) -> "Pool | None":
        """Sample what is missing."""
        from aera.sampling.sampler import record

        with Shown("sampling", self.log.wanted, done=self.log.done) as shown:
            async with self.sampler as sampler:
                return await record(
                    self.log,
                    sampler,
                    concurrency=self.concurrency,
                    block=self.block,
                    ledger=self.ledger,
                    watch=lambda log: shown.update(log.done, self._progress),
                    raw=self.raw,
                )

    def _progress(self) -> str:
        ledger = self.ledger
        money = f", {ledger.money:,.4g} in money" if ledger.budget.priced else ""
        return f"responses, {ledger.spent.completion_tokens:,} tokens{money}"

    def conclude(self) -> None:
        """Say what is about to be asked, sample it, and say what became of it."""
        log, ledger, out = self.log, self.ledger, self.log.path
        self.announce()
        try:
            pool = asyncio.run(self.run())
        except KeyboardInterrupt:
            kept = f"{log.done:,} of {log.wanted:,} responses kept"
            say(f"{kept}; run the same command again to go on", stderr=True)
            raise
        for damage in log.damaged:
            say(f"{damage}: half-written, dropped and asked for again", stderr=True)
        for sentence in tell_lost(ledger):
            say(sentence, stderr=True)
        if pool is None and ledger.refused:
            raise PoolError(
                f"the limit in {ledger.limit} ended it: {log.done:,} of {log.wanted:,} responses "
                f'of "{out}" are there; run the same command with a higher limit to go on'
            )
        if pool is None:
            raise PoolError(
                f'{log.wanted - log.done} of {log.wanted} responses of "{out}" are missing, '
                f"failures are noted in {log.folder / 'failures.jsonl'} (the last: {log.trouble}); "
                "run the same command again"
            )
        cost = f"; {ledger.money:,.4g} in money" if ledger.budget.priced else ""
        say(f"{out}: {log.done:,} responses, {log.resumed:,} were there already{cost}")
