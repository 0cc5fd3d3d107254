"""The command `evaluate`: replay, or learn and judge, then show and write what came out."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from aera.cli.endpoint import load_controller
from aera.cli.options import (
    CertifyOption,
    EncoderOption,
    EquivalenceOption,
    LossOption,
    PaperOption,
    PoolArgument,
    ScheduleOption,
    SeedOption,
    WorkersOption,
    open_judged,
    say_readability,
)
from aera.cli.outputs import FiguresOption, JsonOption, Outputs, ReportOption
from aera.policies.labels import standard_policies
from aera.progress import show_progress
from aera.schedule import Schedule
from aera.workers import parse_workers

if TYPE_CHECKING:
    from aera.lab.judging.evaluation import Evaluation


class Protocol(StrEnum):
    """The ways to evaluate."""

    REPLAY = "replay"
    CROSSFIT = "crossfit"
    NESTED = "nested"
    HOLDOUT = "holdout"


ProtocolOption = Annotated[
    Protocol,
    typer.Option(
        help="replay: policies as given. crossfit, nested, holdout: learn from some questions and "
        "judge others."
    ),
]
ControllerOption = Annotated[
    Path | None, typer.Option(help="Also replay this controller, and its own full budget.")
]
PoliciesOption = Annotated[
    str | None,
    typer.Option(help="Policies by label, as fixed-32,asc-0.95,esc-5+min8 (aera policies)."),
]
RuleOption = Annotated[
    str, typer.Option(help="How votes are counted: vote, or re2-vote to compare with Re2.")
]
CleanOption = Annotated[
    bool, typer.Option(help="Crossfit: end training on an inner split, not on the judged fold.")
]


def evaluate(
    pool: PoolArgument,
    protocol: ProtocolOption = Protocol.REPLAY,
    controller: ControllerOption = None,
    policies: PoliciesOption = None,
    schedule: ScheduleOption = None,
    rule: RuleOption = "vote",
    paper: PaperOption = False,
    clean: CleanOption = False,
    max_loss: LossOption = 0.02,
    certify: CertifyOption = None,
    encoder: EncoderOption = None,
    seed: SeedOption = 0,
    equivalence: EquivalenceOption = False,
    workers: WorkersOption = "1",
    json_file: JsonOption = None,
    report: ReportOption = None,
    figures: FiguresOption = None,
) -> None:
    """Replay policies on recorded responses; without truths, show spend and agreement only."""
    from aera.lab.judging.evaluation import EvaluationSettings, evaluate_pool, parse_policies

    outputs = Outputs(json_file, report, figures)
    settings = EvaluationSettings(
        protocol=protocol.value,
        rule=rule,
        paper=paper,
        clean=clean,
        max_loss=max_loss,
        alpha=certify,
        encoder=encoder,
        seed=seed,
        schedule=Schedule.parse(schedule) if schedule else None,
    )
    outputs.check()
    working = parse_workers(workers)
    loaded = load_controller(controller, equivalence=equivalence) if controller else None
    equal = loaded.task.equivalence if loaded else equivalence
    records, truths = open_judged(pool, equivalence=equal, workers=working)
    checkpoints = settings.schedule or (loaded or records).schedule
    chosen = (
        standard_policies(checkpoints)
        if policies is None
        else parse_policies(policies, records, checkpoints, encoder=encoder, seed=seed)
    )
    made = evaluate_pool(
        records,
        chosen,
        truths=truths,
        settings=settings,
        controller=loaded,
        workers=working,
        track=show_progress,
    )
    _show(made, transitions=policies is None)
    outputs.write(made)


def _show(made: "Evaluation", *, transitions: bool) -> None:
    """Tables on the terminal, and how far their claims reach."""
    from aera.lab.report.terminal import print_calibration, print_frontier, print_transitions

    console, frontier = Console(), made.frontier.without_sweeps()
    graded = frontier.trajectories.grades is not None
    print_frontier(console, frontier, title=made.title if graded else f"{made.title}, no truths")
    if graded and transitions:
        print_transitions(console, frontier.trajectories)
    if "calibration" in made.sections:
        print_calibration(console, made.sections["calibration"])
    say_readability(made.readability, made.records.task)
    for line in made.remarks:
        console.print(line, highlight=False)
