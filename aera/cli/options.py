"""What the commands that ask a model share: their options, and what those mean."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import urlsplit

import typer
from rich.console import Console

from aera.errors import UsageError
from aera.files import write_json
from aera.reading.task import get_task
from aera.workers import SERIAL, Workers

if TYPE_CHECKING:
    from aera.lab.judging.best_of_n import Scoring
    from aera.lab.judging.evaluation import Evaluation
    from aera.lab.replay.money import Prices
    from aera.lab.truths import Truths
    from aera.pools.pool import Records
    from aera.reading.task import Readability, Task
    from aera.solving.controller import Controller


URLOption = Annotated[str, typer.Option(help="Address of an OpenAI-compatible server, up to /v1.")]
ModelOption = Annotated[str, typer.Option(help="Name of the model at that server.")]
KeyOption = Annotated[
    str, typer.Option(help="Environment variable that holds the key for that server.")
]
SystemOption = Annotated[str | None, typer.Option(help="System message sent with every question.")]
PricesOption = Annotated[
    str,
    typer.Option(help="Price of a million prompt and of a million completion tokens, as 0.5,1.5."),
]
ConcurrencyOption = Annotated[int, typer.Option(help="Most calls in flight at once.")]
SettingOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="A field of the request, as temperature=0.6; repeatable."),
]
HeaderOption = Annotated[
    list[str] | None, typer.Option(help="Extra header of every call, as Name: value; repeatable.")
]
CAOption = Annotated[
    str | None, typer.Option(help="File with the certificates to trust, for a private server.")
]
TaskOption = Annotated[
    str, typer.Option(help="Task used when no controller is given (aera tasks).")
]
ControllerOption = Annotated[
    Path | None,
    typer.Option(help="Controller directory; without one, ASC(0.95) on plain votes decides."),
]
ScorerOption = Annotated[
    str | None,
    typer.Option(help="Scorer as MODULE:NAME, for a controller that was saved with one."),
]


PolicyOption = Annotated[
    str | None,
    typer.Option(help="Policy by its label, as asc-0.9 or asc-0.9+weighted (aera policies)."),
]
WeightsOption = Annotated[
    str | None,
    typer.Option(
        help="Weights that need no training: traces, for a server that gives top_logprobs."
    ),
]
MaximumOption = Annotated[
    int | None, typer.Option("--max-samples", help="Most responses for one question.")
]
TokensOption = Annotated[
    int | None, typer.Option(help="Most completion tokens for all questions together.")
]
ResponsesLimit = Annotated[
    int | None, typer.Option(help="Most responses for all questions together.")
]
SecondsOption = Annotated[
    float | None, typer.Option(help="Seconds after which nothing more is asked for.")
]
MoneyOption = Annotated[
    float | None, typer.Option(help="Most money for all questions together, by --prices.")
]
MapOption = Annotated[
    list[str] | None,
    typer.Option("--map", help="A column under another name, as question=asked; repeatable."),
]


OWN_FIELDS = ("model", "messages", "n", "stream")
"""Fields of a request that are made of other options, or by the policy."""


def settings_from(fields: Iterable[str]) -> dict[str, Any]:
    """Request fields from name=value; values are JSON where they can be."""
    settings: dict[str, Any] = {}
    for each in fields:
        name, found, value = each.partition("=")
        if not found or not name:
            raise UsageError(f'--set takes name=value, but got "{each}"')
        if name in OWN_FIELDS:
            raise UsageError(f"--set cannot set {name}: that is for aera to say")
        try:
            settings[name] = json.loads(value)
        except ValueError:
            settings[name] = value
    return settings


def headers_from(lines: Iterable[str]) -> dict[str, str]:
    """Headers from "Name: value" lines."""
    headers = {}
    for line in lines:
        name, found, value = line.partition(":")
        if not found:
            raise UsageError(f'--header takes "Name: value", but got "{line}"')
        headers[name.strip()] = value.strip()
    return headers


def prices_from(text: str) -> tuple[float, float]:
    """Prices of a million prompt and completion tokens."""
    try:
        prompt, completion = map(float, text.split(","))
    except ValueError:
        raise UsageError(
            f'--prices takes a prompt and a completion price, but got "{text}"'
        ) from None
    return prompt, completion


def without_password(url: str) -> str:
    """An address as it may be shown."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


@dataclass(frozen=True)
class Deciding:
    """What decides, as the options of a command say it."""

    controller: Path | None
    task: str
    equivalence: bool = False
    scorer: str | None = None
    policy: str | None = None
    schedule: str | None = None
    max_samples: int | None = None
    trust: bool = False
    """Whether to keep the controller where it finds itself abroad."""
    weights: str | None = None

    def load(self) -> "Controller":
        """A saved controller, or ASC on plain votes, under the policy that was stated."""
        from aera.core import Schedule
        from aera.voting.rules import find_weights

        made = choose_controller(
            self.controller, self.task, equivalence=self.equivalence, scorer=self.scorer
        )
        if self.trust:
            made = replace(made, home=None)
        if self.weights is not None:
            if self.controller is not None:
                raise UsageError("--weights goes without --controller, which has its own votes")
            made = replace(made, weigher=find_weights(self.weights))
        if self.schedule is not None:
            made = replace(made, schedule=Schedule.parse(self.schedule))
        if self.policy is not None:
            made = made.run_by(self.policy)
        return made if self.max_samples is None else made.cut_to(self.max_samples)


def choose_controller(
    path: Path | None, task: str, *, equivalence: bool, scorer: str | None
) -> "Controller":
    """What decides: a saved controller, its scorer put back, or ASC on plain votes."""
    from aera.reading.equivalence import check_installed
    from aera.solving.controller import default_controller

    if path is None:
        if scorer is not None:
            raise UsageError("--scorer needs --controller: one that was saved with a scorer")
        if equivalence:
            check_installed()
        return default_controller(replace(get_task(task), equivalence=equivalence))
    return load_controller(path, equivalence=equivalence, scorer=scorer)


def load_controller(path: Path, *, equivalence: bool, scorer: str | None = None) -> "Controller":
    """A saved controller; whether equal expressions vote together was decided in training."""
    from aera.solving.controller import Controller
    from aera.voting.rules import load_scorer

    loaded = Controller.load(path, scorer=None if scorer is None else load_scorer(scorer))
    if equivalence and not loaded.task.equivalence:
        raise UsageError(
            f'--equivalence would change the votes that "{path}" was made for; make one with '
            "aera train --equivalence"
        )
    return loaded


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
    from aera.pools.parquet import open_pool
    from aera.pools.pool import Pool, hold

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
    from aera.voting.rules import load_scorer

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


JsonOption = Annotated[
    Path | None, typer.Option("--json", help="Write the evaluation to this file, for programs.")
]
ReportOption = Annotated[
    Path | None, typer.Option(help="Write one offline page with figures, as report.html.")
]
FiguresOption = Annotated[
    Path | None, typer.Option(help="Write the figures of the page as SVG into this folder.")
]


@dataclass(frozen=True)
class Outputs:
    """Where each of them goes, None for nowhere."""

    json: Path | None = None
    report: Path | None = None
    figures: Path | None = None

    @property
    def wanted(self) -> bool:
        """Whether there is anything to write."""
        return any((self.json, self.report, self.figures))

    def check(self) -> None:
        """Refuse a place that cannot be written to, before any work is done."""
        for option, file in (("json", self.json), ("report", self.report)):
            if file and not file.absolute().parent.is_dir():
                raise UsageError(f'--{option} cannot write "{file}": there is no such folder')
        if self.report and self.report.suffix.lower() not in (".html", ".htm"):
            raise UsageError(f'--report writes a page, as report.html, but got "{self.report}"')
        if self.figures and self.figures.exists() and not self.figures.is_dir():
            raise UsageError(f'--figures needs a folder, but "{self.figures}" is a file')
        if self.report or self.figures:
            from aera.lab.report.page import converter

            converter()

    def write(self, made: "Evaluation") -> None:
        """Everything that was asked for."""
        from aera.lab.report.page import Report, export_svg, write_report

        if not self.wanted:
            return
        report = Report.of(made)
        if self.json:
            write_json(self.json, report.evaluation)
        if self.report:
            write_report(self.report, report)
        if self.figures:
            export_svg(self.figures, report)
