"""Commands of the lab: train, audit."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from aera.cli.opening import (
    CertifyOption,
    CrewOption,
    EncoderOption,
    EquivalenceOption,
    LossOption,
    PaperOption,
    PoolArgument,
    SeedOption,
    course_of,
    open_pool,
    study_of,
    votes_of,
)
from aera.crew import Crew, parse_crew
from aera.errors import ProtocolError, UsageError
from aera.pool import Pool

if TYPE_CHECKING:
    from aera.lab.building import Built
    from aera.lab.protocols import Demand

FEW = 300
"""Questions below which a threshold without a certificate is not to be trusted."""


def train(
    pool: PoolArgument,
    out: Annotated[Path, typer.Option(help="Where the controller goes.")],
    max_loss: LossOption = 0.02,
    certify: CertifyOption = None,
    paper: PaperOption = False,
    rival: Annotated[
        list[str] | None, typer.Option(help="With --paper: a dial to step aside to, as asc.")
    ] = None,
    encoder: EncoderOption = None,
    seed: SeedOption = 0,
    equivalence: EquivalenceOption = False,
    crew: CrewOption = "alone",
) -> None:
    """Learn how votes weigh and when to stop, calibrate, and write the controller."""
    from aera.lab.building import build_controller
    from aera.lab.protocols import Demand

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f'"{out}" exists already; choose another place or remove it first')
    if not paper and (rival or encoder):
        raise UsageError("--rival and --encoder go with --paper")
    workers, demand = parse_crew(crew), Demand(max_loss, certify)
    opened = open_pool(pool, equivalence=equivalence)
    if paper:
        built = _paper_built(
            opened, demand, rivals=rival or (), encoder=encoder, seed=seed, crew=workers
        )
    else:
        course = course_of(opened, *votes_of(opened, workers), crew=workers)
        built = build_controller(course, demand=demand, seed=seed)
    built.controller.save(out, card=built.card)
    console = Console()
    console.print(f"{out}: {built.controller.policy}; {built.story}", highlight=False)
    style = "green" if built.choice.feasible else "bold red"
    console.print(built.choice.verdict, style=style, highlight=False)
    if certify is None and built.choice.questions < FEW:
        note = f"{built.choice.questions} questions are few: expect other ones to lose more"
        console.print(f"{note}, or ask for a certificate (--certify 0.1)", style="yellow")


def _paper_built(
    pool: Pool,
    demand: "Demand",
    *,
    rivals: Sequence[str],
    encoder: str | None,
    seed: int,
    crew: Crew,
) -> "Built":
    from aera.lab.building import build_paper_controller

    study = study_of(pool, *votes_of(pool, crew), encoder=encoder, crew=crew)
    unknown = sorted(set(rivals) - set(study.dials))
    if unknown:
        raise UsageError(f'--rival is one of {", ".join(study.dials)}, but got "{unknown[0]}"')
    return build_paper_controller(
        study, pool, demand=demand, rivals=rivals, encoder_name=encoder, seed=seed
    )


def audit(
    path: Annotated[Path, typer.Argument(help="A pool or a controller directory.")],
    encoder: EncoderOption = None,
) -> None:
    """The leakage audit: where every input comes from; fails when something leaks."""
    from aera.encoders import load_encoder
    from aera.lab.audit import audit_controller, audit_pool
    from aera.lab.tables import audit_verdict, print_audit

    is_controller = (path / "config.json").is_file()
    done = audit_controller(path) if is_controller else audit_pool(path, load_encoder(encoder))
    console = Console()
    print_audit(console, done)
    console.print(audit_verdict(done), style="bold")
    if done.leaks:
        raise ProtocolError(f"{len(done.leaks)} leaks, the first is {done.leaks[0].subject}")
