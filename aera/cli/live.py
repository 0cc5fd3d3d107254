"""Commands that ask a model: sample, solve, demo."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from aera.errors import PoolError, UsageError
from aera.task import get_task

if TYPE_CHECKING:
    from aera import recording
    from aera.allocator import Budget
    from aera.controller import Controller
    from aera.response import Question
    from aera.run import Allocation
    from aera.sampler import Sampler

    Solving = Callable[[list[Question], Sampler, Controller, int], AsyncIterator[Allocation]]

URLOption = Annotated[str, typer.Option(help="An OpenAI-compatible server, up to /v1.")]
ModelOption = Annotated[str, typer.Option(help="The model's name there.")]
KeyOption = Annotated[str, typer.Option(help="Environment variable that holds the key.")]
ConcurrencyOption = Annotated[int, typer.Option(help="Most calls under way at once.")]
SettingOption = Annotated[
    list[str] | None, typer.Option("--set", help="A request field, as temperature=0.6; repeatable.")
]
HeaderOption = Annotated[list[str] | None, typer.Option(help="An extra header, as Name: value.")]
CAOption = Annotated[str | None, typer.Option(help="File with the certificates to trust.")]


def settings_from(fields: Iterable[str]) -> dict[str, Any]:
    """Request fields from name=value; values are JSON where they can be."""
    settings: dict[str, Any] = {}
    for each in fields:
        name, found, value = each.partition("=")
        if not found or not name:
            raise UsageError(f'--set takes name=value, but got "{each}"')
        try:
            settings[name] = json.loads(value)
        except ValueError:
            settings[name] = value
    return settings


def headers_from(lines: Iterable[str]) -> dict[str, str]:
    """Headers from "Name: value" lines."""
    headers = {}
    for line in lines:
        name, found, value = line.partition(":")
        if not found:
            raise UsageError(f'--header takes "Name: value", but got "{line}"')
        headers[name.strip()] = value.strip()
    return headers


def sample(
    questions: Annotated[Path, typer.Argument(help="JSONL with question, id, choices, answer.")],
    out: Annotated[Path, typer.Option(help="The pool; run again to resume.")],
    base_url: URLOption,
    model: ModelOption,
    task: Annotated[str, typer.Option(help="How to ask and read.")],
    responses: Annotated[int, typer.Option(help="For each question.")] = 128,
    seed: Annotated[int, typer.Option(help="Of the first response; stepped for each.")] = 0,
    system: Annotated[str | None, typer.Option(help="A system message.")] = None,
    settings: SettingOption = None,
    header: HeaderOption = None,
    ca_file: CAOption = None,
    api_key_env: KeyOption = "OPENAI_API_KEY",
    concurrency: ConcurrencyOption = 64,
    block: Annotated[int, typer.Option(help="Responses asked for in one call.")] = 16,
    prices: Annotated[str, typer.Option(help="Per million tokens, as 0.5,1.5.")] = "0,0",
) -> None:
    """Sample responses into a pool. Interrupted at any moment, it goes on where it was."""
    from aera.lab.questions import read_exam
    from aera.recording import Plan, Recording, record
    from aera.sampler import DEFAULTS, Chat, OpenAISampler
    from aera.upstream import Endpoint

    chosen = get_task(task)
    exam = read_exam(questions, chosen, seed=seed)
    fields = {**DEFAULTS, **settings_from(settings or ()), "seed": seed}
    chat = Chat(model, chosen, fields, system)
    kept = {"model": model, "system": system, **fields}
    endpoint = Endpoint(base_url, api_key_env, headers_from(header or ()), ca_file, concurrency)
    per_million = _prices(prices)
    recording_ = Recording(out, Plan(chosen, responses, kept, seed), exam.questions)
    recording_.begin()
    if exam.truths is not None:
        exam.truths.save(out)

    async def work() -> object:
        async with OpenAISampler(endpoint, chat) as sampler:
            with _Shown(recording_.progress, per_million) as shown:
                return await record(
                    recording_, sampler, concurrency=concurrency, block=block, watch=shown.update
                )

    _conclude(recording_, lambda: asyncio.run(work()))


def _conclude(recording_: "recording.Recording", work: Callable[[], object]) -> None:
    """Run a recording and say what became of it."""
    progress, out = recording_.progress, recording_.path
    try:
        pool = work()
    except KeyboardInterrupt:
        kept = f"{progress.done:,} of {progress.wanted:,} responses kept"
        say(f"{kept}; run the same command again to go on", stderr=True)
        raise
    for damage in progress.damaged:
        say(f"{damage}: half-written, dropped and asked for again", stderr=True)
    if pool is None:
        missing = progress.wanted - progress.done
        raise PoolError(
            f'{missing} of {progress.wanted} responses of "{out}" are missing, failures are noted '
            f"in failures.jsonl (the last: {progress.trouble}); run the same command again"
        )
    say(f"{out}: {progress.done:,} responses, {progress.resumed:,} were there already")


def say(sentence: str, *, stderr: bool = False) -> None:
    """One line, however long, and no markup: it may hold a path."""
    Console(stderr=stderr).print(sentence, markup=False, highlight=False, soft_wrap=True)


def _prices(text: str) -> tuple[float, float]:
    try:
        prompt, completion = map(float, text.split(","))
    except ValueError:
        raise UsageError(
            f'--prices takes a prompt and a completion price, but got "{text}"'
        ) from None
    return prompt, completion


class _Shown:
    """Progress of a recording: a bar on a terminal, a line now and then elsewhere."""

    EVERY = 10.0

    def __init__(self, progress: "recording.Progress", prices: tuple[float, float]) -> None:
        self._progress, self._prices = progress, prices
        self._begun = self._said = time.monotonic()
        self._before = progress.done
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("sampling"), BarColumn(), TextColumn("{task.fields[told]}"),
            TimeRemainingColumn(), console=console, disable=not console.is_terminal,
        )  # fmt: skip
        self._lines = not console.is_terminal
        self._task = self._bar.add_task("", total=progress.wanted, told="")

    def __enter__(self) -> "_Shown":
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def update(self, progress: "recording.Progress") -> None:
        now = time.monotonic()
        told = self._told(progress, now)
        self._bar.update(self._task, completed=progress.done, told=told)
        if self._lines and now - self._said >= self.EVERY:
            self._said = now
            say(told, stderr=True)

    def _told(self, progress: "recording.Progress", now: float) -> str:
        rate = (progress.done - self._before) / max(now - self._begun, 1e-9)
        left = (progress.wanted - progress.done) / rate if rate else 0.0
        prompt, completion = self._prices
        cost = (progress.prompt_tokens * prompt + progress.completion_tokens * completion) / 1e6
        money = f", cost {cost:.2f}" if prompt or completion else ""
        return (
            f"{progress.done:,}/{progress.wanted:,} responses, {progress.completion_tokens:,} "
            f"tokens, {rate:.1f}/s, {left:.0f} s left{money}"
        )


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
    seed: Annotated[int | None, typer.Option(help="Of the first response.")] = None,
    system: Annotated[str | None, typer.Option(help="A system message.")] = None,
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
    prices: Annotated[str, typer.Option(help="Per million tokens, as 0.5,1.5.")] = "0,0",
) -> None:
    """Solve a question, or many, spending only what each is worth. JSON lines come out."""
    from aera.allocator import Budget
    from aera.controller import Controller, default_controller
    from aera.sampler import DEFAULTS, Chat, OpenAISampler
    from aera.task import get_task
    from aera.upstream import Endpoint

    asked = _asked(question, file)
    loaded = Controller.load(controller) if controller else default_controller(get_task(task))
    stepped = {} if seed is None else {"seed": seed}
    fields = {**DEFAULTS, **loaded.asks, **settings_from(settings or ()), **stepped}
    endpoint = Endpoint(base_url, api_key_env, headers_from(header or ()), ca_file, concurrency)
    budget = Budget(max_responses, max_tokens_total, max_seconds, max_money, *_prices(prices))
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
