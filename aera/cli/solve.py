"""The command `solve`: answers, each for what it is worth, as JSON lines."""

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Container, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aera.cli.endpoint import (
    CAOption,
    ConcurrencyOption,
    ControllerOption,
    Deciding,
    HeaderOption,
    KeyOption,
    MapOption,
    MaximumOption,
    ModelOption,
    MoneyOption,
    PolicyOption,
    PricesOption,
    ResponsesLimit,
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
    settings_from,
    without_password,
)
from aera.cli.options import EquivalenceOption, ScheduleOption, say
from aera.cli.spending import Estimate, Shown, Summary
from aera.errors import UsageError
from aera.files import take_field, to_line, write_whole
from aera.pools.log import append, mend

if TYPE_CHECKING:
    from aera.pools.log import Log
    from aera.response import Question
    from aera.sampling.budget import Budget, Ledger
    from aera.sampling.sampler import OpenAISampler
    from aera.schedule import Schedule
    from aera.solving.controller import Controller
    from aera.solving.run import Allocation

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
    from aera.sampling.sampler import DEFAULTS, Chat, OpenAISampler
    from aera.sampling.upstream import Endpoint

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
        from aera.policies.policy import range_of

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
    from aera.lab.formats.questions import read_questions
    from aera.lab.formats.rows import Columns, parse_map
    from aera.response import Question

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
