"""What the lab's commands share: their options, and how they open a pool with its truths."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console
from rich.progress import track as rich_track

from aera.crew import ALONE, Crew
from aera.errors import ProtocolError
from aera.pool import Pool
from aera.schedule import Schedule

if TYPE_CHECKING:
    from aera.lab.evaluation import Ballot
    from aera.lab.learning import Course
    from aera.lab.study import Study
    from aera.lab.truths import Truths

Item = TypeVar("Item")

PoolArgument = Annotated[Path, typer.Argument(help="A pool directory.")]
EncoderOption = Annotated[
    str | None, typer.Option(help="Another encoder: a path, URL#model or model name.")
]
LossOption = Annotated[float, typer.Option(help="Allowed loss of accuracy, as a fraction.")]
CertifyOption = Annotated[
    float | None, typer.Option(help="Certify the loss with this chance of error, as 0.1.")
]
PaperOption = Annotated[
    bool, typer.Option("--paper", help="The paper's gate: 55 features, plain votes.")
]
ScheduleOption = Annotated[str | None, typer.Option(help='Checkpoints, as "4,8,16" or "1-128".')]
SeedOption = Annotated[int, typer.Option(help="For everything drawn by chance.")]
EquivalenceOption = Annotated[
    bool, typer.Option("--equivalence", help="Expressions: ask math-verify which are the same.")
]
CrewOption = Annotated[
    str, typer.Option(help="Who works: alone, a number of processes, ray or ray:ADDRESS.")
]

HELD = 64 * 2**20
"""Bytes of a pool on disk whose votes, read once, are held in memory: some 500,000 responses."""


def open_pool(path: Path, *, equivalence: bool) -> Pool:
    """A pool, whose task asks for equivalence where the call does."""
    pool = Pool.open(path)
    if not equivalence:
        return pool
    return Pool(path, replace(pool.manifest, task=replace(pool.task, equivalence=True)))


def votes_of(pool: Pool, crew: Crew) -> "tuple[Pool | Sequence[Ballot], Truths | None]":
    """The votes of a pool with its truths.

    Where they are many or a crew is to read them, it is the pool itself, read part by part.
    """
    from aera.lab.evaluation import read_ballots
    from aera.lab.truths import Truths

    size = sum(segment.stat().st_size for segment in pool.segments)
    apart = pool.sealed and (crew != ALONE or size > HELD)
    return pool if apart else read_ballots(pool, pool.task), Truths.open(pool.path)


def study_of(
    pool: Pool,
    source: "Pool | Sequence[Ballot]",
    truths: "Truths | None",
    *,
    encoder: str | None,
    schedule: Schedule | None = None,
    crew: Crew = ALONE,
) -> "Study":
    """Everything a protocol works on; a pool without truths is refused here."""
    from aera.encoders import load_encoder
    from aera.lab.study import open_study

    graded, loaded = _needed(pool, truths), load_encoder(encoder)
    ballots = None if isinstance(source, Pool) else source
    return open_study(
        pool, graded, ballots=ballots, encoder=loaded, schedule=schedule, crew=crew, track=track
    )


def course_of(
    pool: Pool,
    source: "Pool | Sequence[Ballot]",
    truths: "Truths | None",
    *,
    schedule: Schedule | None = None,
    crew: Crew = ALONE,
) -> "Course":
    """What votes and gate are learned from; a pool without truths is refused here."""
    from aera.lab.learning import open_course

    graded = _needed(pool, truths)
    ballots = None if isinstance(source, Pool) else source
    return open_course(pool, graded, ballots=ballots, schedule=schedule, crew=crew, track=track)


def _needed(pool: Pool, truths: "Truths | None") -> "Truths":
    if truths is None:
        raise ProtocolError(
            f'"{pool.path}" has no truths.jsonl, so nothing can be learned from it; '
            "aera evaluate without --protocol shows what policies would spend"
        )
    return truths


def say(sentence: str, *, stderr: bool = False) -> None:
    """One line, however long, and no markup: it may hold a path."""
    Console(stderr=stderr).print(sentence, markup=False, highlight=False, soft_wrap=True)


def track(items: Sequence[Item], name: str, /) -> Iterable[Item]:
    """A progress bar on a terminal, nothing elsewhere."""
    console = Console(stderr=True)
    return rich_track(items, name, console=console, transient=True, disable=not console.is_terminal)
