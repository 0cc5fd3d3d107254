"""The commands that may see right answers: evaluate, train, the leak check, and the demo."""

from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from aera.cli.options import (
    LOSS,
    BestOfNOption,
    CertifyOption,
    EncoderOption,
    EquivalenceOption,
    FiguresOption,
    JsonOption,
    JudgeOption,
    LossOption,
    MaxSamplesOption,
    Outputs,
    PaperOption,
    PoolArgument,
    PriceOption,
    ReportOption,
    ScheduleOption,
    SeedOption,
    TokenPricesOption,
    WorkersOption,
    find_scoring,
    load_controller,
    open_judged,
    read_prices,
    say,
    say_readability,
)
from aera.core import Schedule
from aera.errors import ProtocolError, UsageError
from aera.files import already_there
from aera.workers import parse_workers, show_progress

if TYPE_CHECKING:
    from aera.lab.judging.best_of_n import Scoring
    from aera.lab.judging.build import Built
    from aera.lab.judging.evaluation import Evaluation
    from aera.lab.replay.money import Prices


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


FEW = 300
"""Questions below which a threshold without a certificate is not to be trusted."""

StatedOption = Annotated[
    str | None,
    typer.Option(help="Run this policy as it stands, by its label, as asc-0.95; choose nothing."),
]
TrainWithoutOption = Annotated[
    bool,
    typer.Option(
        "--without-truths",
        help="Look at no truth, as where a pool has none: learn from clear votes, calibrate by "
        "agreement with the full budget.",
    ),
]
LabelsOption = Annotated[
    Path | None,
    typer.Option(
        help="Right answers to a few questions, as aera label lists them: without truths they "
        "decide whether weights are used."
    ),
]
WeigherOption = Annotated[
    Path | None,
    typer.Option(help="Use the weights of this controller, taught elsewhere on the same task."),
]
BaselineOption = Annotated[
    list[str] | None,
    typer.Option(help="With --paper: use this baseline where it saves more, as asc; repeatable."),
]


def train(
    pool: PoolArgument,
    out: Annotated[Path, typer.Option(help="Where the controller goes.")],
    max_loss: LossOption = None,
    certify: CertifyOption = None,
    policy: StatedOption = None,
    schedule: ScheduleOption = None,
    max_samples: MaxSamplesOption = None,
    scorer: BestOfNOption = None,
    price: PriceOption = None,
    judge: JudgeOption = None,
    prices: TokenPricesOption = None,
    without_truths: TrainWithoutOption = False,
    labels: LabelsOption = None,
    weigher: WeigherOption = None,
    paper: PaperOption = False,
    baseline: BaselineOption = None,
    encoder: EncoderOption = None,
    seed: SeedOption = 0,
    equivalence: EquivalenceOption = False,
    workers: WorkersOption = "1",
) -> None:
    """Learn how votes weigh and when to stop, calibrate, and write the controller."""
    from aera.lab.judging.asked import choose_schedule
    from aera.lab.judging.labelling import read_labels
    from aera.lab.judging.training import TrainSettings, train_pool

    _check_call(out, max_loss, scorer=scorer, policy=policy)
    money, working = read_prices(prices), parse_workers(workers)
    scoring = find_scoring(scorer, price, judge)
    settings = TrainSettings(
        max_loss=LOSS if max_loss is None else max_loss,
        alpha=certify,
        policy=policy,
        scoring=scoring,
        paper=paper,
        baselines=tuple(baseline or ()),
        encoder=encoder,
        seed=seed,
        without_truths=without_truths,
        labels=None if labels is None else read_labels(labels),
        teacher=None if weigher is None else load_controller(weigher, equivalence=False),
    )
    records, truths = open_judged(pool, equivalence=equivalence, workers=working)
    own, asked = records.schedule, Schedule.parse(schedule) if schedule else None
    chosen = choose_schedule(own, asked, most=max_samples, recorded=own.last)
    settings = replace(settings, schedule=chosen)
    built = train_pool(records, truths, settings, workers=working, track=show_progress)
    built.controller.save(out)
    say_readability(built.readability, records.task)
    _train_show(built, out, money)
    if scoring is not None:
        say(scoring.told(truths))
    if policy is None and scoring is None:
        _advise(built)


def _check_call(
    out: Path, max_loss: float | None, *, scorer: str | None, policy: str | None
) -> None:
    """Refuse a place that is taken, and an allowed loss where nothing is chosen by one."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise already_there(out)
    if max_loss is not None and (scorer or policy):
        raise UsageError(
            "--max-loss chooses a setting, and "
            + ("--policy states one" if policy else "--scorer has a --price for that")
        )


def _advise(built: "Built") -> None:
    """Say where a threshold was chosen on few questions, and what would do."""
    from aera.lab.judging.certified import advise
    from aera.lab.judging.figures import Stated

    choice, told = built.choice, list[str]()
    if isinstance(choice, Stated):
        return
    if not choice.feasible and built.allows is not None:
        wider = replace(choice, max_loss=built.allows)
        told.append(f"these questions allow a limit of {wider.limit}: --max-loss {built.allows:g}")
    if choice.alpha is None and choice.questions < FEW:
        few = f"{choice.questions} questions are few"
        more = f": expect other ones to {choice.verb} more" if choice.feasible else ""
        told.append(f"{few}{more}; {advise(asdict(choice))}")
    for line in told:
        Console().print(line, style="yellow", highlight=False, soft_wrap=True)


def _tell_choice(built: "Built") -> list[str]:
    """What was chosen, and what that promises: the sentences of the model card."""
    from aera.lab.judging.build import describe_setting
    from aera.lab.judging.certified import certify_card
    from aera.lab.judging.figures import Stated
    from aera.lab.learning.rewards import UtilityChoice

    choice = built.choice
    if isinstance(choice, Stated | UtilityChoice):
        return [choice.summary]
    return [f"{describe_setting(choice)}.", certify_card(asdict(choice))]


def _train_show(built: "Built", out: Path, prices: "Prices | None") -> None:
    """What was written, how it was learned, and what it saves."""
    from aera.lab.replay.frontier import fixed_points
    from aera.lab.replay.money import explain_prices, tell_saving, tell_unknown

    console, point = Console(), built.point
    console.print(f"{out}: {built.controller.label}; {built.learned}", highlight=False)
    style = "green" if built.choice.feasible else "bold red"
    for sentence in _tell_choice(built):
        console.print(sentence, style=style, highlight=False, soft_wrap=True)
    if prices is None:
        return
    full = fixed_points(point.trajectories, weighted=point.weighted)[-1]
    told = (tell_saving(point, full, prices), tell_unknown(point, prices), explain_prices(prices))
    for line in told:
        if line is not None:
            say(line)


def audit(
    path: Annotated[Path, typer.Argument(help="A pool or a controller directory.")],
    pool: Annotated[
        Path | None,
        typer.Argument(help="With a controller: a pool on which its inputs are perturbed."),
    ] = None,
    encoder: EncoderOption = None,
) -> None:
    """The leakage audit: where every input comes from; fails when something leaks."""
    from aera.lab.judging.audit import audit_controller, audit_pool
    from aera.lab.report.terminal import audit_summary, print_audit
    from aera.paper.encoder import load_encoder

    is_controller = (path / "config.json").is_file()
    if pool is not None and not is_controller:
        raise UsageError(f'two paths are a controller and a pool, and "{path}" is no controller')
    done = (
        audit_controller(path, pool) if is_controller else audit_pool(path, load_encoder(encoder))
    )
    console = Console()
    print_audit(console, done)
    console.print(audit_summary(done), style="bold")
    if done.leaks:
        raise ProtocolError(f"{len(done.leaks)} leaks, the first is {done.leaks[0].subject}")


def demo(
    questions: Annotated[int, typer.Option(help="How many of the bundled questions to ask.")] = 150,
    pace: Annotated[
        float, typer.Option(help="Seconds a thousand tokens take at the recorded server.")
    ] = 0.6,
    out: Annotated[Path | None, typer.Option(help="Keep the imported pool here.")] = None,
) -> None:
    """Solve bundled questions live against recorded real responses on loopback. No network."""
    from aera.lab.report.demo import run_demo

    run_demo(Console(), questions=questions, pace=pace, out=out)
