"""The commands `train` and `audit`: a controller from a pool, and where its inputs come from."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    say,
    say_readability,
)
from aera.errors import ProtocolError, UsageError
from aera.files import already_there
from aera.progress import show_progress
from aera.schedule import Schedule
from aera.workers import parse_workers

if TYPE_CHECKING:
    from aera.lab.judging.build import Built
    from aera.lab.replay.money import Prices

FEW = 300
"""Questions below which a threshold without a certificate is not to be trusted."""

StatedOption = Annotated[
    str | None,
    typer.Option(help="Run this policy as it stands, by its label, as asc-0.95; choose nothing."),
]
WithoutOption = Annotated[
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
    without_truths: WithoutOption = False,
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
    _show(built, out, money)
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


def _show(built: "Built", out: Path, prices: "Prices | None") -> None:
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
    from aera.evidence.encoders import load_encoder
    from aera.lab.judging.audit import audit_controller, audit_pool
    from aera.lab.report.terminal import audit_summary, print_audit

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
