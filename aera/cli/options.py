"""What several commands share: options that are stated once, what decides, what is wrong with a
model server, and how things are said.

The default of a field or parameter says what its option is for: `seed: int = option("...")`.
Where a command takes a dataclass, each field of that is an option of the command.
"""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from textwrap import fill
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer
from rich.console import Console
from typer.core import TyperCommand

from aera.core import Schedule
from aera.errors import UsageError
from aera.gateway.config import ModelConfig
from aera.reading.equivalence import check_installed
from aera.reading.task import get_task
from aera.sampling.client import Endpoint, Upstream
from aera.sampling.replicas import Replicas
from aera.sampling.replies import NO_API
from aera.settings import setting_of
from aera.solving.controller import Controller, default_controller
from aera.voting.rules import find_weights, load_scorer


def option(text: str, *spelt: str, default: Any = None, **more: Any) -> Any:
    """An option, as the default of a field or parameter; with `...` it has to be given."""
    return _stated(default, typer.Option(*spelt, help=text, **more))


def argument(text: str, *, default: Any = ..., **more: Any) -> Any:
    """An argument, in the same way."""
    return _stated(default, typer.Argument(help=text, **more))


def _stated(default: Any, how: Any) -> Any:
    return field(default=MISSING if default is ... else default, metadata={"how": how})


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer takes it, with an option for each field of a dataclass it takes."""
    groups: dict[str, Any] = {}
    options: list[Parameter] = []
    for each in signature(command).parameters.values():
        if is_dataclass(each.annotation):
            groups[each.name] = each.annotation
            options += [_parameter(one.name, one.type, one) for one in fields(each.annotation)]
        else:
            options.append(_parameter(each.name, each.annotation, each.default))

    @wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in fields(group)})
        command(**given)

    run.__signature__ = Signature(options)  # type: ignore[attr-defined]
    return run


def _parameter(name: str, kind: Any, stated: Field[Any]) -> Parameter:
    """A parameter that says what typer is to know of it; what is False else is a flag."""
    default, how = stated.default, stated.metadata["how"]
    if default is False and how.default is ...:  # it is not spelt otherwise
        how.param_decls = (f"--{name.replace('_', '-')}",)
    default = Parameter.empty if default is MISSING else default
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, how])


GROUPS = {
    "The server": "upstream base-url model system set header ca-file api-key-env concurrency "
    "traces escalate-to",
    "Limits and prices": "max-tokens-total max-responses max-seconds max-money prices",
    "What decides": "controller policy policies schedule max-samples trust weights task "
    "equivalence rule max-loss certify block shared-budget instruction vote-by-default deadline",
    "How to learn": "protocol without-truths labels weigher paper baseline encoder clean",
    "Best-of-n": "scorer price judge",
    "The gateway": "host port keys-file config check print-config log-level",
    "Files": "file format map out json report figures raw-traces record audit-share",
}
"""Headings of options, for every command that has them; what is under none comes last."""


class Grouped(TyperCommand):
    """A command whose help has its options under headings, and which names what is missing."""

    def make_context(self, info_name: str | None, args: list[str], *known: Any, **more: Any) -> Any:
        """Read the words of a call; where some are missing, say which call would do."""
        given = [*args]
        try:
            return super().make_context(info_name, args, *known, **more)
        except typer.BadParameter as error:
            if not error.message and error.param is not None:  # all it says is what is missing
                first = error.param.param_type_name == "argument"
                words = [error.param.name.upper()] if first and error.param.name else []
                for each in self.params:
                    if each.required and each.opts[0][:1] == "-" and not {*each.opts} & {*given}:
                        given += [each.opts[0], each.opts[0].rpartition("-")[2].upper()]
                error.message = f"Try: aera {info_name} {' '.join(words + given)}"
            raise

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then the groups that the command has anything of."""
        titles = {name: title for title, names in GROUPS.items() for name in names.split()}
        found: dict[str, list[tuple[str, str]]] = {"Arguments": [], **{t: [] for t in GROUPS}}
        found["Other options"] = []
        for each in self.get_params(ctx):
            title = titles.get(each.opts[0].removeprefix("--"), "Other options")
            title = "Arguments" if each.param_type_name == "argument" else title
            if told := each.get_help_record(ctx):
                found[title].append((told[0].replace("<list[str]>", "<str>"), told[1]))
        for title, records in found.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def as_set(name: str) -> Any:
    """An option for what a gateway's file sets of a model too, in the same words."""
    setting = setting_of(ModelConfig, name)
    return option(setting.metadata["text"], default=setting.default)


def key_option() -> Any:
    """The key of a model server."""
    return option(
        "Environment variable that holds the key for that server.", default="OPENAI_API_KEY"
    )


def pool_argument() -> Any:
    """The pool that a command reads."""
    return argument("A pool directory, or the folder or URI of one exported as Parquet.")


@dataclass(frozen=True)
class Deciding:
    """What decides, as the options of a command say it."""

    controller: Path | None = as_set("controller")
    task: str = as_set("task")
    equivalence: bool = as_set("equivalence")
    scorer: str | None = as_set("scorer")
    policy: str | None = as_set("policy")
    schedule: str | None = as_set("schedule")
    max_samples: int | None = option("Most responses for one question.")
    trust: bool = as_set("trust")
    weights: str | None = as_set("weights")

    def load(self) -> Controller:
        """A saved controller, or ASC on plain votes, under the policy that was stated."""
        if self.controller is not None:
            made = load_controller(self.controller, self.equivalence, self.scorer)
            if self.task not in (made.task.name, setting_of(ModelConfig, "task").default):
                raise UsageError(
                    f"--task {self.task} goes without --controller, which was made for "
                    f"{made.task.name}"
                )
        elif self.scorer is not None:
            raise UsageError("--scorer needs --controller: one that was saved with a scorer")
        else:
            if self.equivalence:
                check_installed()
            made = default_controller(replace(get_task(self.task), equivalence=self.equivalence))
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


def load_controller(path: Path, equivalence: bool = False, scorer: str | None = None) -> Controller:
    """A saved controller; whether equal expressions vote together was decided in training."""
    loaded = Controller.load(path, scorer=None if scorer is None else load_scorer(scorer))
    if equivalence and not loaded.task.equivalence:
        raise UsageError(
            f'--equivalence would change the votes that "{path}" was made for; make one with '
            "aera train --equivalence"
        )
    return loaded


def prices_from(text: str) -> tuple[float, float]:
    """Prices of a million prompt and completion tokens."""
    try:
        prompt, completion = map(float, text.split(","))
    except ValueError:
        told = f'--prices takes a prompt and a completion price, as 0.5,1.5, but got "{text}"'
        raise UsageError(told) from None
    return prompt, completion


def without_password(url: str) -> str:
    """An address as it may be shown."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


# --- model servers --------------------------------------------------------------------------------

SILENT = "does not answer: is the model server running there?"
UNLISTED = "does not list its models"
CHAT_SECONDS = 10.0  # for one of a single token
SHOWN = 5
"""Models of a server that are named where one is missing."""


async def diagnose(
    endpoint: Endpoint, names: Sequence[str], key_option: str = "--api-key-env", chat: bool = False
) -> str:
    """What is wrong with a server and what to do, its address first; "" where all is well.

    It is asked for its models, which costs it little and takes seconds at most; with `chat` for a
    token of each of these too, unless its clients bring the key.
    """
    async with Replicas([replace(endpoint, tries=1, timeout=CHAT_SECONDS)]) as servers:
        [told] = await servers.check()
        [server] = servers.servers
        problem = _problem(endpoint, told["status"], server.listing, names, key_option)
        if chat and key_option and names and problem in ("", UNLISTED):
            problem = await _try_chats(server, names)
    return f"{without_password(endpoint.base_url)} {problem}" if problem else ""


async def _try_chats(server: Upstream, names: Sequence[str]) -> str:
    for name in names:
        body = {"model": name, "messages": [{"role": "user", "content": "1"}], "max_tokens": 1}
        [reply] = await server.complete(body, 1)
        # Who wants the limit by its other name has understood the rest.
        if reply.error is not None and "max_completion_tokens" not in reply.error:
            return f'gives no reply as "{name}": {reply.error}'
    return ""


def _about_key(endpoint: Endpoint) -> str:
    where = f" in {endpoint.api_key_env}" if endpoint.api_key_env else ""
    return f"the key{where} was refused" if endpoint.key else f"no key is set{where}"


def _problem(
    endpoint: Endpoint, status: int | None, listing: bytes, names: Sequence[str], key_option: str
) -> str:
    if status is None:
        return SILENT
    if status in (401, 403):  # without an option callers bring their own keys
        return key_option and f"answers {status}: {_about_key(endpoint)}; look at {key_option}"
    if status in (404, 405, 501):  # it has no such path, or nothing to get there
        is_api = endpoint.base_url.rstrip("/").endswith("/v1")
        return UNLISTED if is_api else "has no list of models: did you forget /v1?"
    if status == 429:
        return "answers 429: too many requests"
    if 300 <= status < 400:
        return f"redirects (status {status}), which is not followed: give its final address"
    if status >= 400:
        return f"fails with status {status}"
    try:
        told = json.loads(listing)
        known = [str(row["id"]) for row in told["data"]]
    except (KeyError, TypeError):
        return UNLISTED
    except (ValueError, RecursionError):
        return f"answers with no JSON{NO_API}"
    # As Gemini and Ollama name them, who know them by the plain name too.
    plain = {name.removeprefix("models/").removesuffix(":latest") for name in known}
    lacking = [f'"{name}"' for name in names if name not in plain.union(known)]
    more = [f"{len(known) - SHOWN} more"] if len(known) > SHOWN else []
    has = ", ".join([f'"{name:.80}"' for name in known[:SHOWN]] + more) or "none"
    return f"does not list the model {', '.join(lacking)}: it has {has}" if lacking else ""


def advise(endpoint: Endpoint, model: str, error: str) -> str:
    """What to do about an error of a server, where its words tell or a look at the server does."""
    told = ""
    if "upstream 401" in error or "upstream 403" in error:
        told = _about_key(endpoint)
    elif "upstream 429" in error and "quota" not in error:
        told = "--concurrency can be lowered"
    elif "upstream 400" in error and "max_completion_tokens" in error:
        told = "--set max_tokens=null --set max_completion_tokens=..."
    elif "upstream 400" in error and "max_tokens" in error and "context" not in error:
        told = "try a lower one by --set max_tokens"
    elif error.startswith("upstream") and NO_API not in error:
        told = asyncio.run(diagnose(endpoint, [model]))
    return f" ({told})" if told else ""


def say(
    sentence: str,
    *,
    stderr: bool = False,
    style: str | None = None,
    console: Console | None = None,
) -> None:
    """A sentence without markup, for it may hold a path: one line where it is piped.

    It is printed without what a terminal would obey or no encoding takes. On a terminal lines end
    between words, and never between a number and its unit.
    """
    shown = (
        c if c.isprintable() or c in "\n\xa0" else "\N{REPLACEMENT CHARACTER}" for c in sentence
    )
    console, sentence = console or Console(stderr=stderr), "".join(shown)
    if console.is_terminal:
        glued = re.sub(r"(?<=\d) (?=%|points)|(?<=%:) ", "\xa0", sentence)
        whole = fill(glued, console.width, break_long_words=False, break_on_hyphens=False)
        sentence = whole.replace("\xa0", " ")
    console.print(sentence, style=style, markup=False, highlight=False, soft_wrap=True)
