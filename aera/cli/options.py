"""What the commands share: options of the lab, lines on the terminal, progress bars."""

from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console

from aera.workers import SERIAL, Workers

if TYPE_CHECKING:
    from aera.lab.truths import Truths
    from aera.pools.record import Records
    from aera.reading.health import Readability
    from aera.reading.task import Task

Item = TypeVar("Item")

PoolArgument = Annotated[
    str, typer.Argument(help="A pool directory, or the folder or URI of one exported as Parquet.")
]
EncoderOption = Annotated[
    str | None,
    typer.Option(help="Encoder for the paper's features: a path, URL#model or model name."),
]
LossOption = Annotated[
    float, typer.Option(help="Accuracy you allow to lose, as a fraction: 0.02 is two points.")
]
CertifyOption = Annotated[
    float | None,
    typer.Option(help="Prove the allowed loss with this chance of error, as 0.1."),
]
PaperOption = Annotated[
    bool, typer.Option("--paper", help="Use the paper's gate: 55 features, plain votes.")
]
ScheduleOption = Annotated[
    str | None, typer.Option(help='Checkpoints at which to decide, as "4,8,16" or "1-128".')
]
SeedOption = Annotated[int, typer.Option(help="Seed of everything that is drawn by chance.")]
EquivalenceOption = Annotated[
    bool,
    typer.Option("--equivalence", help="Ask math-verify which expressions are the same answer."),
]
WorkersOption = Annotated[
    str, typer.Option(help="Who does the work: a number of processes, ray or ray:ADDRESS.")
]

HELD = 64 * 2**20
"""Bytes of a pool on disk whose votes, read once, are held in memory: some 500,000 responses."""


def open_judged(
    address: str, *, equivalence: bool, workers: Workers
) -> "tuple[Records, Truths | None]":
    """Recorded responses that can be judged, with their truths; who is left out is said.

    Small pools are read once and held in memory.
    """
    from aera.lab.open import open_graded
    from aera.pools.open import open_pool
    from aera.pools.pool import Pool
    from aera.pools.record import hold

    records = open_pool(address, equivalence=equivalence)
    graded = open_graded(records, workers=workers)
    if graded.remark is not None:
        say(graded.remark)
    small = isinstance(records, Pool) and (not records.sealed or records.size <= HELD)
    kept = graded.records
    return (hold(kept) if small and workers == SERIAL else kept), graded.truths


def say_readability(health: "Readability", task: "Task") -> None:
    """What was read; where that is little, so that nobody misses it."""
    summary, warning = health.summary(), health.warning(task)
    say(summary)
    if warning is not None:
        Console().print(warning, style="bold red", markup=False, highlight=False)
        for example in health.examples:
            say(f"  not read: {example}")


def say(sentence: str, *, stderr: bool = False) -> None:
    """One line, however long, and no markup: it may hold a path."""
    Console(stderr=stderr).print(sentence, markup=False, highlight=False, soft_wrap=True)
