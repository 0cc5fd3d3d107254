"""The command `solve`: answers, each for what it is worth, as JSON lines."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aera.cli.endpoint import (
    CAOption,
    ConcurrencyOption,
    ControllerOption,
    HeaderOption,
    KeyOption,
    ModelOption,
    PricesOption,
    ScorerOption,
    SettingOption,
    SystemOption,
    TaskOption,
    URLOption,
    choose_controller,
    headers_from,
    prices_from,
    settings_from,
)
from aera.cli.options import EquivalenceOption, say
from aera.errors import UsageError

if TYPE_CHECKING:
    from aera.response import Question
    from aera.sampling.sampler import Sampler
    from aera.solving.budget import Budget
    from aera.solving.controller import Controller
    from aera.solving.run import Allocation

    Solving = Callable[[list[Question], Sampler, Controller, int], AsyncIterator[Allocation]]


QuestionArgument = Annotated[
    str | None, typer.Argument(help="The question; without it, --file or standard input.")
]
FileOption = Annotated[
    Path | None, typer.Option(help="File of questions: plain lines, or one JSON object each.")
]
SeedOption = Annotated[
    int | None, typer.Option(help="Seed of the first response; later ones add one.")
]
TokensOption = Annotated[
    int | None, typer.Option(help="Most completion tokens for all questions together.")
]
SharedOption = Annotated[
    bool,
    typer.Option(
        "--shared-budget", help="Spend --max-tokens-total on the questions where it promises most."
    ),
]
ResponsesOption = Annotated[
    int | None, typer.Option(help="Most responses for all questions together.")
]
SecondsOption = Annotated[
    float | None, typer.Option(help="Seconds after which nothing more is asked for.")
]
MoneyOption = Annotated[
    float | None, typer.Option(help="Most money for all questions together, by --prices.")
]


def solve(
    base_url: URLOption,
    model: ModelOption,
    question: QuestionArgument = None,
    file: FileOption = None,
    controller: ControllerOption = None,
    task: TaskOption = "expression",
    equivalence: EquivalenceOption = False,
    scorer: ScorerOption = None,
    seed: SeedOption = None,
    system: SystemOption = None,
    settings: SettingOption = None,
    header: HeaderOption = None,
    ca_file: CAOption = None,
    api_key_env: KeyOption = "OPENAI_API_KEY",
    concurrency: ConcurrencyOption = 64,
    max_tokens_total: TokensOption = None,
    shared_budget: SharedOption = False,
    max_responses: ResponsesOption = None,
    max_seconds: SecondsOption = None,
    max_money: MoneyOption = None,
    prices: PricesOption = "0,0",
) -> None:
    """Solve a question, or many, spending only what each is worth. JSON lines come out."""
    from aera.sampling.sampler import DEFAULTS, Chat, OpenAISampler
    from aera.sampling.upstream import Endpoint
    from aera.solving.budget import Budget

    asked = _read_questions(question, file)
    loaded = choose_controller(controller, task, equivalence=equivalence, scorer=scorer)
    stepped = {} if seed is None else {"seed": seed}
    fields = {**DEFAULTS, **loaded.asks, **settings_from(settings or ()), **stepped}
    endpoint = Endpoint(base_url, api_key_env, headers_from(header or ()), ca_file, concurrency)
    budget = Budget(max_responses, max_tokens_total, max_seconds, max_money, *prices_from(prices))
    solving = _solve_shared(budget) if shared_budget else _solve_each(budget)
    done: list[Allocation] = []

    async def work() -> None:
        chat = Chat(model, loaded.task, fields, system)
        async with OpenAISampler(endpoint, chat) as sampler:
            async for allocation in solving(asked, sampler, loaded, concurrency):
                done.append(allocation)
                typer.echo(allocation_line(allocation))

    asyncio.run(work())
    if _say_trouble(done, loaded):
        raise typer.Exit(1)


def _say_trouble(done: "list[Allocation]", controller: "Controller") -> bool:
    """Say which questions have no answer, and why; whether there are any."""
    from aera.policies.policy import UNREADABLE
    from aera.reading.health import Readability

    failed = sum(each.error is not None for each in done)
    unread = [each for each in done if each.reason == UNREADABLE]
    everything = Readability().join(each.readability for each in done)
    if everything.responses:
        say(f"aera: {everything.summary()}", stderr=True)
    if failed:
        say(f"aera: {failed} failed; the lines with an error say why", stderr=True)
    if unread:
        health, task = Readability().join(each.readability for each in unread), controller.task
        example = f"; one ends with {health.examples[0]!r}" if health.examples else ""
        say(
            f"aera: {len(unread)} of {len(done)} questions stopped after a first block in which "
            f"nothing could be read; the task {task.name} looks for {task.describe()}{example}. "
            "Give another --task (aera tasks), a task file with a pattern or path, or MODULE:NAME",
            stderr=True,
        )
    return bool(failed or unread)


def _solve_each(budget: "Budget") -> "Solving":
    """Every question on its own, while the budget lasts."""
    from aera.solving.solve import Allocator

    def solving(
        asked: "list[Question]", sampler: "Sampler", controller: "Controller", concurrency: int
    ) -> "AsyncIterator[Allocation]":
        allocator = Allocator(sampler, controller, concurrency=concurrency, budget=budget)
        return allocator.solve(asked)

    return solving


def _solve_shared(budget: "Budget") -> "Solving":
    """All questions under one limit; nothing is final before the limit is spent."""
    from aera.solving.shared_budget import solve_shared

    tokens = budget.tokens
    others = (budget.responses, budget.seconds, budget.money)
    if tokens is None or any(limit is not None for limit in others):
        raise UsageError("--shared-budget needs --max-tokens-total, and no other limit")

    async def solving(
        asked: "list[Question]", sampler: "Sampler", controller: "Controller", concurrency: int
    ) -> "AsyncIterator[Allocation]":
        done = await solve_shared(
            asked, sampler, controller, tokens=tokens, concurrency=concurrency
        )
        for allocation in done:
            yield allocation

    return solving


def _read_questions(question: str | None, file: Path | None) -> "list[Question]":
    """The questions of a call: the argument, a file, or standard input."""
    from aera.response import Question

    if question is not None and file is not None:
        raise UsageError("give a question or --file, not both")
    if question is not None:
        return [Question("question", _nonempty(question, "the question"))]
    if file is not None and not file.is_file():
        raise UsageError(f'there is no file "{file}" with questions')
    source = file.name if file else "standard input"
    try:
        text = file.read_text("utf-8") if file else sys.stdin.read()
    except UnicodeDecodeError as error:
        raise UsageError(f"{source} is not UTF-8: {error.reason}") from None
    rows = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    asked = [_line_question(line, f"{source}, line {number}", number) for number, line in rows]
    if not asked:
        raise UsageError(f"{source} holds no question")
    ids = [each.id for each in asked]
    twice = [each for each in ids if ids.count(each) > 1] if len(set(ids)) < len(ids) else []
    if twice:
        raise UsageError(f"{source} has the question {twice[0]} twice")
    return asked


def _line_question(line: str, where: str, number: int) -> "Question":
    """A line is a JSON object with "question", or the question itself."""
    from aera.response import Question

    if not line.lstrip().startswith(("{", "[")):
        return Question(str(number), line)
    try:
        row = json.loads(line)
    except ValueError:
        raise UsageError(f"{where}: not JSON; nothing was asked") from None
    if not isinstance(row, dict) or not isinstance(row.get("question"), str):
        raise UsageError(f'{where}: has no "question"; nothing was asked')
    choices = row.get("choices") or []
    if not isinstance(choices, list):
        raise UsageError(f'{where}: "choices" must be a list; nothing was asked')
    text = _nonempty(row["question"], where)
    return Question(str(row.get("id", number)), text, tuple(map(str, choices)))


def _nonempty(text: str, where: str) -> str:
    if not text.strip():
        raise UsageError(f"{where} is empty")
    return text


def allocation_line(allocation: "Allocation") -> str:
    """An allocation as one JSON line."""
    fields = asdict(allocation)
    aggregate = fields.pop("aggregate")
    return json.dumps({"answer": aggregate["answer"], "tied": aggregate["tied"], **fields})
