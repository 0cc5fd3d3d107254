"""The command `evaluate`: replay, or learn and judge, then show and write what came out."""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from aera.cli.endpoint import load_controller
from aera.cli.options import (
    LOSS,
    BestOfNOption,
    CertifyOption,
    EncoderOption,
    EquivalenceOption,
    JudgeOption,
    LossOption,
    MaxSamplesOption,
    PaperOption,
    PoolArgument,
    PriceOption,
    ScheduleOption,
    SeedOption,
    TokenPricesOption,
    WorkersOption,
    find_scoring,
    open_judged,
    read_prices,
    say_readability,
)
from aera.cli.outputs import FiguresOption, JsonOption, Outputs, ReportOption
from aera.errors import UsageError
from aera.progress import show_progress
from aera.schedule import Schedule
from aera.workers import parse_workers

if TYPE_CHECKING:
    from aera.lab.judging.best_of_n import Scoring
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
    typer.Option(
        help="Policies by label, as fixed-32,asc-0.95,esc-5+min8 (aera policies); with "
        "--controller also on its votes and gate, as weighted-32,asc-0.9+weighted,aera-0.2."
    ),
]
RuleOption = Annotated[
    str, typer.Option(help="How votes are counted: vote, or re2-vote to compare with Re2.")
]
WithoutOption = Annotated[
    bool,
    typer.Option(
        "--without-truths",
        help="Nested, holdout: learn and calibrate as where a pool has no truths; those it has "
        "only judge.",
    ),
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
    max_samples: MaxSamplesOption = None,
    rule: RuleOption = "vote",
    scorer: BestOfNOption = None,
    price: PriceOption = None,
    judge: JudgeOption = None,
    prices: TokenPricesOption = None,
    without_truths: WithoutOption = False,
    paper: PaperOption = False,
    clean: CleanOption = False,
    max_loss: LossOption = None,
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
    from aera.lab.judging.asked import ask_policies, choose_schedule
    from aera.lab.judging.evaluation import EvaluationSettings, evaluate_pool

    (outputs := Outputs(json_file, report, figures)).check()
    given: dict[str, Any] = {"rule": rule, "paper": paper, "clean": clean, "encoder": encoder}
    settings = EvaluationSettings(
        protocol=protocol.value,
        max_loss=LOSS if max_loss is None else max_loss,
        alpha=certify,
        seed=seed,
        schedule=Schedule.parse(schedule) if schedule else None,
        prices=read_prices(prices),
        without_truths=without_truths,
        **given,
    )
    working, loaded = parse_workers(workers), None
    if controller is not None:
        loaded = load_controller(controller, equivalence=equivalence, scorer=scorer)
    _check_scored(scoring := find_scoring(scorer, price, judge, loaded), max_loss, outputs)
    settings = replace(settings, scoring=scoring)
    equal = loaded.task.equivalence if loaded else equivalence
    records, truths = open_judged(pool, equivalence=equal, workers=working)
    own, last = (loaded or records).schedule, records.schedule.last
    chosen = choose_schedule(own, settings.schedule, most=max_samples, recorded=last)
    scored = scoring is not None
    asked = ask_policies(policies, chosen, controller=loaded, scored=scored, encoder=encoder)
    settings = replace(settings, schedule=chosen)
    done: dict[str, Any] = {"controller": loaded, "workers": working, "track": show_progress}
    made = evaluate_pool(records, asked, truths=truths, settings=settings, **done)
    _show(made, transitions=policies is None)
    outputs.write(made)


def _check_scored(scoring: "Scoring | None", max_loss: float | None, outputs: Outputs) -> None:
    """Refuse what speaks of votes only, where there are none."""
    if scoring is None:
        return
    if outputs.report or outputs.figures:
        raise UsageError("--report and --figures show votes, and best-of-n has none; use --json")
    if max_loss is not None:
        raise UsageError("--max-loss is for votes, and --scorer has a --price for that")


def _show(made: "Evaluation", *, transitions: bool) -> None:
    """Tables on the terminal, and how far their claims reach."""
    from aera.lab.report.terminal import print_calibration, print_frontier, print_transitions

    console, frontier = Console(), made.frontier.without_sweeps()
    graded = frontier.trajectories.grades is not None
    title = made.title if graded else f"{made.title}, no truths"
    print_frontier(console, frontier, title=title, terms=made.settings.terms)
    if graded and transitions and made.settings.scoring is None:
        print_transitions(console, frontier.trajectories)
    if "calibration" in made.sections:
        print_calibration(console, made.sections["calibration"])
    say_readability(made.readability, made.records.task)
    for line in made.remarks:
        console.print(line, highlight=False)
