"""Commands that answer: solve, demo."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from aera.cli.connecting import (
    CAOption,
    ConcurrencyOption,
    HeaderOption,
    KeyOption,
    ModelOption,
    PricesOption,
    SettingOption,
    SystemOption,
    URLOption,
    chosen_controller,
    headers_from,
    prices_from,
    settings_from,
)
from aera.cli.opening import EquivalenceOption, say
from aera.errors import UsageError

if TYPE_CHECKING:
    from aera.allocator import Budget
    from aera.controller import Controller
    from aera.response import Question
    from aera.run import Allocation
    from aera.sampler import Sampler

    Solving = Callable[[list[Question], Sampler, Controller, int], AsyncIterator[Allocation]]


def solve(
    base_url: URLOption,
    model: ModelOption,
    question: Annotated[
        str | None, typer.Argument(help="A question; else --file or stdin.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Questions, one JSON object per line.")] = None,
    controller: Annotated[
        Path | None, typer.Option(help="A controller directory; else ASC 0.95 on plain votes.")
    ] = None,
    task: Annotated[str, typer.Option(help="How to read replies without one.")] = "expression",
    equivalence: EquivalenceOption = False,
    scorer: Annotated[
        str | None, typer.Option(help="MODULE:NAME, for a controller that was saved with one.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the first response.")] = None,
    system: SystemOption = None,
    settings: SettingOption = None,
    header: HeaderOption = None,
    ca_file: CAOption = None,
    api_key_env: KeyOption = "OPENAI_API_KEY",
    concurrency: ConcurrencyOption = 64,
    max_tokens_total: Annotated[int | None, typer.Option(help="Limit over all questions.")] = None,
    spread: Annotated[
        bool, typer.Option("--spread", help="Spend --max-tokens-total where it promises most.")
    ] = False,
    max_responses: Annotated[int | None, typer.Option(help="Limit over all questions.")] = None,
    max_seconds: Annotated[float | None, typer.Option(help="Limit over all questions.")] = None,
    max_money: Annotated[float | None, typer.Option(help="Limit over all, by --prices.")] = None,
    prices: PricesOption = "0,0",
) -> None:
    """Solve a question, or many, spending only what each is worth. JSON lines come out."""
    from aera.allocator import Budget
    from aera.sampler import DEFAULTS, Chat, OpenAISampler
    from aera.upstream import Endpoint

    asked = _asked(question, file)
    loaded = chosen_controller(controller, task, equivalence=equivalence, scorer=scorer)
    stepped = {} if seed is None else {"seed": seed}
    fields = {**DEFAULTS, **loaded.asks, **settings_from(settings or ()), **stepped}
    endpoint = Endpoint(base_url, api_key_env, headers_from(header or ()), ca_file, concurrency)
    budget = Budget(max_responses, max_tokens_total, max_seconds, max_money, *prices_from(prices))
    solving = _best_first(budget) if spread else _as_they_come(budget)
    failed = 0

    async def work() -> None:
        nonlocal failed
        chat = Chat(model, loaded.task, fields, system)
        async with OpenAISampler(endpoint, chat) as sampler:
            async for allocation in solving(asked, sampler, loaded, concurrency):
                failed += allocation.error is not None
                typer.echo(allocation_line(allocation))

    asyncio.run(work())
    if failed:
        say(f"aera: {failed} failed; the lines with an error say why", stderr=True)
        raise typer.Exit(1)


def _as_they_come(budget: "Budget") -> "Solving":
    """Every question on its own, while the budget lasts."""
    from aera.allocator import Allocator

    def solving(
        asked: "list[Question]", sampler: "Sampler", controller: "Controller", concurrency: int
    ) -> "AsyncIterator[Allocation]":
        allocator = Allocator(sampler, controller, concurrency=concurrency, budget=budget)
        return allocator.solve(asked)

    return solving


def _best_first(budget: "Budget") -> "Solving":
    """All questions under one limit; nothing is final before the limit is spent."""
    from aera.batch import solve_batch

    tokens = budget.tokens
    others = (budget.responses, budget.seconds, budget.money)
    if tokens is None or any(limit is not None for limit in others):
        raise UsageError("--spread needs --max-tokens-total, and no other limit")

    async def solving(
        asked: "list[Question]", sampler: "Sampler", controller: "Controller", concurrency: int
    ) -> "AsyncIterator[Allocation]":
        done = await solve_batch(asked, sampler, controller, tokens=tokens, concurrency=concurrency)
        for allocation in done:
            yield allocation

    return solving


def _asked(question: str | None, file: Path | None) -> "list[Question]":
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


def demo(
    questions: Annotated[int, typer.Option(help="How many of the bundled questions.")] = 150,
    pace: Annotated[float, typer.Option(help="Seconds per thousand tokens.")] = 0.6,
    out: Annotated[Path | None, typer.Option(help="Keep the imported pool here.")] = None,
) -> None:
    """Solve bundled questions live against recorded real responses on loopback. No network."""
    from aera.lab.demo import run_demo

    run_demo(Console(), questions=questions, pace=pace, out=out)
