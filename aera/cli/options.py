"""What the commands share: options of the lab, lines on the terminal, progress bars."""

from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console

from aera.cli.endpoint import prices_from
from aera.workers import SERIAL, Workers

if TYPE_CHECKING:
    from aera.lab.judging.best_of_n import Scoring
    from aera.lab.replay.money import Prices
    from aera.lab.truths import Truths
    from aera.pools.record import Records
    from aera.reading.health import Readability
    from aera.reading.task import Task
    from aera.solving.controller import Controller

Item = TypeVar("Item")

PoolArgument = Annotated[
    str, typer.Argument(help="A pool directory, or the folder or URI of one exported as Parquet.")
]
EncoderOption = Annotated[
    str | None,
    typer.Option(help="Encoder for the paper's features: a .safetensors path or model name."),
]
LOSS = 0.02
"""The accuracy that may be lost where nobody says otherwise."""
LossOption = Annotated[
    float | None,
    typer.Option(
        help="Accuracy you allow to lose, as a fraction: 0.02 is two points, and what is allowed "
        "without this."
    ),
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
MaxSamplesOption = Annotated[
    int | None,
    typer.Option(
        help="Most responses to use: checkpoints above are dropped, this one is the last."
    ),
]
BestOfNOption = Annotated[
    str | None,
    typer.Option(
        "--scorer",
        help="Best-of-n: return the response that this scorer, MODULE:NAME, scores highest.",
    ),
]
PriceOption = Annotated[
    float | None,
    typer.Option(
        help="With --scorer: what the mean full budget costs, in units of reward; 0.2 without this."
    ),
]
JudgeOption = Annotated[
    str | None,
    typer.Option(
        help="With --scorer: who says what a response is worth, truth or score; the truth where "
        "the pool has it."
    ),
]
TokenPricesOption = Annotated[
    str | None,
    typer.Option(
        "--prices",
        help="Tell costs in money: the price of a million prompt and of a million completion "
        "tokens, as 0.5,1.5.",
    ),
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


def find_scoring(
    scorer: str | None,
    price: float | None,
    judge: str | None,
    controller: "Controller | None" = None,
) -> "Scoring | None":
    """Best-of-n, where a scorer is named or a controller was loaded with one."""
    from aera.lab.judging.best_of_n import scoring_for
    from aera.voting.best_of_n import load_scorer

    given = load_scorer(scorer) if scorer and controller is None else None
    return scoring_for(given, price=price, judge=judge, controller=controller)


def read_prices(text: str | None) -> "Prices | None":
    """The prices of tokens, where somebody gives them."""
    from aera.lab.replay.money import Prices

    return Prices(*prices_from(text)) if text else None


def say_readability(health: "Readability", task: "Task") -> None:
    """What was read, if anything had to be; where that is little, so that nobody misses it."""
    if not health.responses:
        return
    summary, warning = health.summary(), health.warning(task)
    say(summary)
    if warning is not None:
        Console().print(warning, style="bold red", markup=False, highlight=False)
        for example in health.examples:
            say(f"  not read: {example}")


def say(sentence: str, *, stderr: bool = False) -> None:
    """One line, however long, and no markup: it may hold a path."""
    Console(stderr=stderr).print(sentence, markup=False, highlight=False, soft_wrap=True)
