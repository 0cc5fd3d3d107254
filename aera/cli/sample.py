"""The command `sample`: fill a pool with one or several workers, and show how far it is."""

import asyncio
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from aera.cli.endpoint import (
    CAOption,
    ConcurrencyOption,
    HeaderOption,
    KeyOption,
    ModelOption,
    PricesOption,
    SettingOption,
    SystemOption,
    URLOption,
    headers_from,
    prices_from,
    settings_from,
)
from aera.cli.options import WorkersOption, say
from aera.errors import PoolError
from aera.reading.presets import get_task
from aera.workers import SERIAL, Workers, parse_workers

if TYPE_CHECKING:
    from aera.lab.formats.questions import QuestionSet
    from aera.sampling import recording
    from aera.sampling.gathering import Connect
    from aera.sampling.plan import Plan


def sample(
    questions: Annotated[
        Path, typer.Argument(help="JSON lines with question, id, choices, answer.")
    ],
    out: Annotated[Path, typer.Option(help="Directory of the pool; run again to resume.")],
    base_url: URLOption,
    model: ModelOption,
    task: Annotated[str, typer.Option(help="Task: how to ask and how to read (aera tasks).")],
    responses: Annotated[int, typer.Option(help="Responses sampled for each question.")] = 128,
    seed: Annotated[int, typer.Option(help="Seed of the first response; later ones add one.")] = 0,
    system: SystemOption = None,
    settings: SettingOption = None,
    header: HeaderOption = None,
    ca_file: CAOption = None,
    api_key_env: KeyOption = "OPENAI_API_KEY",
    concurrency: ConcurrencyOption = 64,
    block: Annotated[int, typer.Option(help="Responses asked for in one call.")] = 16,
    prices: PricesOption = "0,0",
    workers: WorkersOption = "1",
) -> None:
    """Sample responses into a pool. Interrupted at any moment, it goes on where it was.

    Run again with more --responses or added questions, a finished pool grows by what is missing.
    """
    from aera.lab.formats.questions import read_question_set
    from aera.sampling.plan import Plan
    from aera.sampling.recording import Recording, record
    from aera.sampling.sampler import DEFAULTS, Chat, OpenAISampler
    from aera.sampling.upstream import Endpoint

    chosen = get_task(task)
    asked = read_question_set(questions, chosen, seed=seed)
    fields = {**DEFAULTS, **settings_from(settings or ()), "seed": seed}
    chat = Chat(model, chosen, fields, system)
    kept = {"model": model, "system": system, **fields}
    endpoint = Endpoint(base_url, api_key_env, headers_from(header or ()), ca_file, concurrency)
    per_million, working = prices_from(prices), parse_workers(workers)
    plan = Plan(chosen, responses, kept, seed)
    if working != SERIAL:
        connect = partial(OpenAISampler, endpoint, chat)
        _gather(out, plan, asked, connect, workers=working, concurrency=concurrency, block=block)
        return
    recording_ = Recording(out, plan, asked.questions)
    recording_.begin()
    if asked.truths is not None:
        asked.truths.save(out)

    async def work() -> object:
        async with OpenAISampler(endpoint, chat) as sampler:
            with _Shown(recording_.progress, per_million) as shown:
                return await record(
                    recording_, sampler, concurrency=concurrency, block=block, watch=shown.update
                )

    _conclude(recording_, lambda: asyncio.run(work()))


def _gather(
    out: Path,
    plan: "Plan",
    asked: "QuestionSet",
    connect: "Connect",
    *,
    workers: Workers,
    concurrency: int,
    block: int,
) -> None:
    """Let several workers record, each with connections and a concurrency of its own."""
    from aera.sampling.gathering import gather
    from aera.sampling.recording import FAILURES, PARTS

    try:
        pool = gather(
            out,
            plan,
            asked.questions,
            connect=connect,
            workers=workers,
            concurrency=concurrency,
            block=block,
        )
    except KeyboardInterrupt:
        say("what was recorded is kept; run the same command again to go on", stderr=True)
        raise
    if pool is None:
        noted = sorted(out.glob(f"{PARTS}/*/{FAILURES}"))
        last = json.loads(noted[-1].read_text("utf-8").splitlines()[-1])["error"] if noted else "?"
        raise PoolError(
            f'some responses of "{out}" are missing, failures are noted in {out}/{PARTS}/*/'
            f"{FAILURES} (the last: {last}); run the same command again"
        )
    if asked.truths is not None:
        asked.truths.save(out)
    say(f"{out}: {pool.manifest.responses:,} responses")


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
            f"in {recording_.folder / 'failures.jsonl'} (the last: {progress.trouble}); run the "
            "same command again"
        )
    say(f"{out}: {progress.done:,} responses, {progress.resumed:,} were there already")


class _Shown:
    """Progress of a recording: a bar on a terminal, a line now and then elsewhere."""

    EVERY = 10.0

    def __init__(self, progress: "recording.Progress", prices: tuple[float, float]) -> None:
        self._prices = prices
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
        told = self._describe(progress, now)
        self._bar.update(self._task, completed=progress.done, told=told)
        if self._lines and now - self._said >= self.EVERY:
            self._said = now
            say(told, stderr=True)

    def _describe(self, progress: "recording.Progress", now: float) -> str:
        rate = (progress.done - self._before) / max(now - self._begun, 1e-9)
        left = (progress.wanted - progress.done) / rate if rate else 0.0
        prompt, completion = self._prices
        cost = (progress.prompt_tokens * prompt + progress.completion_tokens * completion) / 1e6
        money = f", cost {cost:.2f}" if prompt or completion else ""
        return (
            f"{progress.done:,}/{progress.wanted:,} responses, {progress.completion_tokens:,} "
            f"tokens, {rate:.1f}/s, {left:.0f} s left{money}"
        )
