"""The commands `train` and `audit`: a controller from a pool, and where its inputs come from."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from aera.cli.options import (
    CertifyOption,
    EncoderOption,
    EquivalenceOption,
    LossOption,
    PaperOption,
    PoolArgument,
    SeedOption,
    WorkersOption,
    open_judged,
    say_readability,
)
from aera.errors import ProtocolError, UsageError
from aera.files import already_there
from aera.progress import show_progress
from aera.workers import parse_workers

if TYPE_CHECKING:
    pass

FEW = 300
"""Questions below which a threshold without a certificate is not to be trusted."""


def train(
    pool: PoolArgument,
    out: Annotated[Path, typer.Option(help="Where the controller goes.")],
    max_loss: LossOption = 0.02,
    certify: CertifyOption = None,
    paper: PaperOption = False,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            help="With --paper: use this baseline where it saves more, as asc; repeatable."
        ),
    ] = None,
    encoder: EncoderOption = None,
    seed: SeedOption = 0,
    equivalence: EquivalenceOption = False,
    workers: WorkersOption = "1",
) -> None:
    """Learn how votes weigh and when to stop, calibrate, and write the controller."""
    from aera.lab.calibrating.certificate import questions_needed
    from aera.lab.judging.build import build, choose_learner
    from aera.lab.judging.protocols import limit_for
    from aera.lab.open import need_truths

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise already_there(out)
    if not paper and (baseline or encoder):
        raise UsageError("--baseline and --encoder go with --paper")
    working = parse_workers(workers)
    learner = choose_learner(paper=paper, encoder=encoder, workers=working)
    limit = limit_for(learner, max_loss, certify)
    records, truths = open_judged(pool, equivalence=equivalence, workers=working)
    graded = need_truths(records, truths)
    table = learner.prepare(records, graded, workers=working, track=show_progress)
    table.readability.check(records.task, pool)
    known = table.families if paper else {}
    unknown = sorted(set(baseline or ()) - set(known))
    if unknown:
        raise UsageError(f'--baseline is one of {", ".join(known)}, but got "{unknown[0]}"')
    built = build(learner, table, limit, baselines=baseline or (), encoder_name=encoder, seed=seed)
    built.controller.save(out)
    say_readability(table.readability, records.task)
    console = Console()
    console.print(f"{out}: {built.controller.label}; {built.learned}", highlight=False)
    style = "green" if built.choice.feasible else "bold red"
    console.print(built.choice.summary, style=style, highlight=False)
    if certify is None and built.choice.questions < FEW:
        note = f"{built.choice.questions} questions are few: expect other ones to lose more"
        # Half of the questions certify; advice that could only end in a refusal is none.
        needed = questions_needed(max_loss, 0.1)
        could = needed is not None and built.choice.questions // 2 >= needed
        advice = ", or ask for a certificate (--certify 0.1)" if could else ""
        console.print(f"{note}{advice}", style="yellow")


def audit(
    path: Annotated[Path, typer.Argument(help="A pool or a controller directory.")],
    encoder: EncoderOption = None,
) -> None:
    """The leakage audit: where every input comes from; fails when something leaks."""
    from aera.evidence.encoders import load_encoder
    from aera.lab.judging.audit import audit_controller, audit_pool
    from aera.lab.report.terminal import audit_summary, print_audit

    is_controller = (path / "config.json").is_file()
    done = audit_controller(path) if is_controller else audit_pool(path, load_encoder(encoder))
    console = Console()
    print_audit(console, done)
    console.print(audit_summary(done), style="bold")
    if done.leaks:
        raise ProtocolError(f"{len(done.leaks)} leaks, the first is {done.leaks[0].subject}")
