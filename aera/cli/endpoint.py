"""What the commands that ask a model share: their options, and what those mean."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from aera.errors import UsageError
from aera.reading.presets import get_task

if TYPE_CHECKING:
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
        from aera.schedule import Schedule
        from aera.voting.trace_weights import find_weights

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
    from aera.voting.best_of_n import load_scorer

    loaded = Controller.load(path, scorer=None if scorer is None else load_scorer(scorer))
    if equivalence and not loaded.task.equivalence:
        raise UsageError(
            f'--equivalence would change the votes that "{path}" was made for; make one with '
            "aera train --equivalence"
        )
    return loaded
