"""The commands that may see right answers: evaluate, train, the leak check, and the demo."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from aera.cli.options import (
    argument,
    as_set,
    grouped,
    load_controller,
    option,
    pool_argument,
    prices_from,
    say,
)
from aera.errors import ProtocolError, UsageError, check_count
from aera.files import Json, already_there, write_json
from aera.policies.rules import UNTRAINED
from aera.pools.pool import Pool
from aera.reading.task import Readability, Task
from aera.voting.rules import BestOfN, Scorer, load_scorer

if TYPE_CHECKING:
    from aera.lab.build import Built
    from aera.lab.frontier import Prices
    from aera.lab.summary import Evaluation


def whole_option() -> Any:
    """Whether all is shown of an evaluation."""
    return option(
        "Show every policy, where questions stopped, and transitions.", "--all", default=False
    )


Protocol = Literal["replay", "crossfit", "nested", "holdout"]


@dataclass(frozen=True)
class Judging:
    """What evaluate and train are told alike: which responses, and how to learn from them."""

    pool: str = pool_argument()
    max_loss: float | None = option(
        "Accuracy you allow to lose, as a fraction: 0.02 is two points.", show_default="0.02"
    )
    certify: float | None = option("Prove the allowed loss with this chance of error, as 0.1.")
    schedule: str | None = as_set("schedule")
    max_samples: int | None = option("Most responses to use of each question.")
    scorer: str | None = option(
        "Return the response that this scorer, MODULE:NAME, scores highest."
    )
    price: float | None = option(
        "What the mean full budget costs, in units of reward (--scorer).", show_default="0.2"
    )
    judge: str | None = option(
        "Who says what a response is worth: truth or score (--scorer).",
        show_default="the truth, where the pool has it",
    )
    prices: str | None = option(
        "Price of a million prompt and of a million completion tokens: 0.5,1.5."
    )
    paper: bool = option("Learn the paper's gate: 55 features, plain votes.", default=False)
    encoder: str | None = option(
        "Encoder for the paper's features: a .safetensors path or model name."
    )
    seed: int = option("Seed of everything that is drawn by chance.", default=0)
    equivalence: bool = as_set("equivalence")
    workers: str = option(
        "Who does the work: a number of processes, ray or ray:ADDRESS.", default="1"
    )

    @property
    def told(self) -> Json:
        """What is passed on as it was given."""
        own = ("pool", "scorer", "prices")
        return {each: value for each, value in vars(self).items() if each not in own}

    @property
    def tokens(self) -> tuple[float, float] | None:
        """The prices of a million prompt and completion tokens, where somebody gives them."""
        return prices_from(self.prices) if self.prices else None

    def load_scorer(self) -> Scorer | None:
        """The scorer of best-of-n, where one is named."""
        return load_scorer(self.scorer) if self.scorer else None


@dataclass(frozen=True)
class Outputs:
    """Where what came out goes, None for nowhere."""

    json_file: Path | None = option("Write the evaluation to this file, for programs.", "--json")
    report: Path | None = option("Write one offline page with figures, as report.html.")
    figures: Path | None = option("Write the figures of the page as SVG into this folder.")

    def check(self) -> None:
        """Refuse a place that cannot be written to, before any work is done."""
        for name, file in (("json", self.json_file), ("report", self.report)):
            if file and not file.absolute().parent.is_dir():
                raise UsageError(f'--{name} cannot write "{file}": there is no such folder')
        if self.report and self.report.suffix.lower() not in (".html", ".htm"):
            raise UsageError(f'--report writes a page, as report.html, but got "{self.report}"')
        if self.figures and self.figures.exists() and not self.figures.is_dir():
            raise UsageError(f'--figures needs a folder, but "{self.figures}" is a file')
        if self.report or self.figures:
            from aera.lab.report.page import converter

            converter()

    def write(self, made: "Evaluation") -> None:
        """Everything that was asked for."""
        from aera.lab.report.page import export_svg, write_report

        if self.json_file:
            write_json(self.json_file, made.summary)
        if self.report:
            write_report(self.report, made)
            say(f"report: {self.report}")
        if self.figures:
            export_svg(self.figures, made)


@grouped
def evaluate(
    *,
    given: Judging,
    outputs: Outputs,
    protocol: Protocol = option(
        "Replay policies as given, or learn from some questions and judge others "
        "(crossfit, nested, holdout).",
        default="replay",
    ),
    controller: Path | None = option("Also replay this controller, and its own full budget."),
    policies: str | None = option(
        "Replay these, as fixed-32,asc-0.95,esc-5+min8 (aera policies lists them), with a "
        "controller also asc-0.9+weighted,aera-0.2."
    ),
    rule: str = option(
        "How votes are counted: vote, or re2-vote to compare with Re2.", default="vote"
    ),
    without_truths: bool = option(
        "Learn and calibrate as if the pool had no right answers, which then only judge.",
        default=False,
    ),
    clean: bool = option(
        "End training on an inner split, not on the judged fold (crossfit).", default=False
    ),
    whole: bool = whole_option(),
) -> None:
    """Say what stopping early would have saved and lost on recorded responses.

    Without right answers that is the share of answers which stay the same.
    """
    from aera.lab import api

    outputs.check()
    loaded = None
    if controller is not None:
        loaded = load_controller(controller, given.equivalence, given.scorer)
    scored = given.scorer or (loaded is not None and isinstance(loaded.weigher, BestOfN))
    if scored and (outputs.report or outputs.figures):
        raise UsageError("--report and --figures show votes, and best-of-n has none; use --json")
    made = api.evaluate(
        given.pool,
        policies,
        **given.told,
        controller=loaded,
        protocol=protocol,
        rule=rule,
        scorer=given.load_scorer() if loaded is None else None,
        prices=given.tokens,
        without_truths=without_truths,
        clean=clean,
    )
    _show(made, whole=whole, advice=_advise(given.pool, made, controller))
    outputs.write(made)


def _advise(pool: str, made: "Evaluation", controller: Path | None) -> str:
    """The command that goes on from here."""
    from aera.lab.stats import FEW

    if controller is not None and not made.abroad:
        return f'aera solve --controller {controller} --base-url URL --model M "a question"'
    if made.truths is None and made.scoring is None:
        return f"aera label {pool} names the questions to look at"
    train, questions = f"aera train {pool} --out controller", len(made.records)
    if made.scoring is None and questions < FEW:
        few = "1 question is" if questions == 1 else f"{questions} questions are"
        return f"{train} --policy {UNTRAINED} ({few} too few to learn from)"
    return train


def _show(made: "Evaluation", *, whole: bool, advice: str) -> None:
    """The headline, a table, how far its claims reach, and what to do next."""
    from aera.lab.report.terminal import print_calibration, print_policies, print_transitions

    console, trajectories = Console(), made.frontier.trajectories
    headline, *others = made.remarks
    say(headline, style="bold")
    rows = made.table(whole=whole)
    print_policies(console, rows, spoken=made.spoken)
    if whole and trajectories.grades is not None and made.scoring is None:
        print_transitions(console, trajectories)
    if whole and made.done is not None and made.done.choices:
        print_calibration(console, made.done.choices)
    _say_readably(others, made.readability, made.records.task)
    more = len(made.frontier.without_sweeps().points) - len(rows) + 1
    rest = f" ({more} more policies: --all)" if more > 0 else ""
    say(f"Next: {advice}{rest}", style="bold")


def _say_readably(lines: Iterable[str | None], health: Readability, task: Task) -> None:
    """Lines of which one may be that little could be read: so that nobody misses it, and why."""
    warning = health.warning(task)
    for line in filter(None, lines):
        say(line, style="bold red" if line == warning else None)
    for example in health.examples if warning else ():
        say(f"  not read: {example}")


@grouped
def train(
    *,
    given: Judging,
    out: Path = option("Where the controller goes.", default=...),
    policy: str | None = option(
        "Run this policy as it stands, by its label, as asc-0.95; choose nothing."
    ),
    without_truths: bool = option(
        "Look at no right answer: learn from clear votes, and calibrate by agreement with "
        "the full budget.",
        default=False,
    ),
    labels: Path | None = option(
        "Right answers to a few questions, as aera label writes them: they decide whether "
        "weights are used."
    ),
    weigher: Path | None = option(
        "Use the weights of this controller, taught elsewhere on the same task."
    ),
    baseline: list[str] | None = option(
        "Use this baseline, as asc, where it saves more than the paper's gate; repeatable."
    ),
) -> None:
    """Learn how votes weigh and when to stop, for a loss you allow, and write a controller."""
    from aera.lab import api
    from aera.lab.frontier import Prices

    prices = Prices(*given.tokens) if given.tokens else None
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise already_there(out)

    def tell(built: "Built") -> None:
        built.controller.save(out)
        _tell_built(built, given, out, prices)

    api.train(
        given.pool,
        **given.told,
        policy=policy,
        scorer=given.load_scorer(),
        without_truths=without_truths,
        labels=labels,
        weigher=None if weigher is None else load_controller(weigher),
        baselines=baseline or (),
        tell=tell,
    )


def _tell_built(built: "Built", given: Judging, out: Path, prices: "Prices | None") -> None:
    """What was written, how it was learned, what it saves, and what would do better."""
    from aera.lab.words import tell_money

    health, task = built.readability, built.controller.task
    read = (health.summary(task), health.warning(task)) if health.responses else ()
    _say_readably((built.left_out, *read), health, task)
    say(f"{out}: {built.controller.label}; {built.controller.calibration['learned']}")
    style = "green" if built.controller.calibration["feasible"] else "bold red"
    for sentence in built.lines:
        say(sentence, style=style)
    for sentence in tell_money(built.point, prices) if prices else ():
        say(sentence)
    if built.rewards:
        say(built.rewards)
    for sentence in built.advice:
        say(sentence, style="yellow")
    advice = f'aera solve --controller {out} --base-url URL --model M "a question"'
    if built.advice:
        paper = " --paper" if given.paper else ""
        advice = f"aera evaluate {given.pool} --protocol nested{paper} (on questions kept apart)"
    say(f"Next: {advice}", style="bold")


@grouped
def leaks(
    path: Path = argument("A pool or a controller directory."),
    pool: Path | None = argument(
        "With a controller: a pool whose questions it should not have seen.", default=None
    ),
) -> None:
    """Check a pool or a controller for leaks: where every input comes from, and who taught."""
    from aera.lab.leaks import check_controller, check_pool
    from aera.lab.report.terminal import print_leaks

    is_controller = (path / "config.json").is_file()
    if pool is not None and not is_controller:
        raise UsageError(f'two paths are a controller and a pool, and "{path}" is no controller')
    done = check_controller(path, pool) if is_controller else check_pool(path)
    print_leaks(Console(), done)
    if found := [finding.subject for finding in done if finding.leak]:
        raise ProtocolError(f"{len(found)} leaks, the first is {found[0]}")


@grouped
def demo(
    questions: int = option("How many of the bundled questions to ask.", default=150),
    pace: float = option("Seconds a thousand tokens take at the recorded server.", default=0.6),
    out: Path | None = option("Keep the imported pool here."),
    whole: bool = whole_option(),
) -> None:
    """Solve bundled questions live, from recorded responses of a real model: no network, no key."""
    from aera.lab import api
    from aera.lab.formats.pools import import_file
    from aera.lab.live import BUNDLED, run_demo

    check_count("--questions", questions)
    controller = load_controller(BUNDLED / "controller")
    with TemporaryDirectory() as scratch:
        place = out or Path(scratch) / "gsm8k"
        if not place.exists():
            import_file(BUNDLED / "gsm8k.jsonl.gz", place, task="gsm8k")
        pool = Pool.open(place)
        records, _ = run_demo(Console(), pool, controller, questions=questions, pace=pace)
        made = api.evaluate(records, controller=controller)
    then = "aera import FILE --task numeric --out pool, then aera evaluate pool"
    _show(made, whole=whole, advice=then)
