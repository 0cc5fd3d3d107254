"""The command that serves: `aera serve`."""

import logging
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from aera.cli.options import Deciding, say, without_password
from aera.errors import AeraError, UsageError

if TYPE_CHECKING:
    from aera.gateway.config import Config, ModelConfig


def _option(variable: str, text: str, **limits: Any) -> Any:
    """An option that the environment can set too."""
    return typer.Option(envvar=f"AERA_{variable}", help=text, **limits)


def serve(
    upstream: Annotated[
        list[str] | None, _option("UPSTREAM", "Model server, up to /v1; repeat it per replica.")
    ] = None,
    model: Annotated[
        str | None, _option("MODEL", "Model for requests that name none [default: default].")
    ] = None,
    controller: Annotated[
        Path | None,
        _option("CONTROLLER", "Controller directory; without one, ASC(0.95) on plain votes."),
    ] = None,
    task: Annotated[
        str | None, _option("TASK", "Task without a controller (aera tasks) [default: expression].")
    ] = None,
    policy: Annotated[
        str | None, _option("POLICY", "Policy by its label, as asc-0.9 (aera policies).")
    ] = None,
    instruction: Annotated[
        bool | None,
        _option("INSTRUCTION", "Append the task's answer instruction to each question."),
    ] = None,
    vote_by_default: Annotated[
        bool | None, _option("VOTE_BY_DEFAULT", "Also vote where a request names the plain model.")
    ] = None,
    max_samples: Annotated[
        int | None, _option("MAX_SAMPLES", "Most samples of one request [default: 512].")
    ] = None,
    deadline: Annotated[
        float | None, _option("DEADLINE", "Deadline in seconds of a request that names none.")
    ] = None,
    escalate_to: Annotated[
        str | None, _option("ESCALATE_TO", "Second model for undecided questions, as URL#MODEL.")
    ] = None,
    audit_share: Annotated[
        float | None,
        _option("AUDIT_SHARE", "Share of votes that run on to the full budget afterwards."),
    ] = None,
    record: Annotated[
        Path | None,
        _option("RECORD", "Folder for audited questions with their responses, a pool for train."),
    ] = None,
    api_key_env: Annotated[
        list[str] | None,
        _option(
            "API_KEY_ENV",
            "Environment variable with the model server's key [default: OPENAI_API_KEY]; once, or "
            "once for each --upstream.",
        ),
    ] = None,
    keys_file: Annotated[
        Path | None, _option("KEYS_FILE", "File with clients' keys, one a line; else AERA_KEYS.")
    ] = None,
    host: Annotated[
        str | None, _option("HOST", "Address to listen on [default: 127.0.0.1].")
    ] = None,
    port: Annotated[
        int | None, _option("PORT", "Port to listen on; 0 takes a free one [default: 8001].")
    ] = None,
    log_level: Annotated[
        str | None, _option("LOG_LEVEL", "debug, info (a JSON line per request), warning or error.")
    ] = None,
    config: Annotated[
        Path | None,
        _option("CONFIG", "TOML file with several models, upstreams, keys and all other settings."),
    ] = None,
    check: Annotated[
        bool, _option("CHECK", "Read and check everything, say what would be served, and end.")
    ] = False,
    print_config: Annotated[
        bool, typer.Option(help="Print every setting as TOML, with its value and a sentence.")
    ] = False,
) -> None:
    """Serve voted answers behind the OpenAI API: ask for aera/MODEL."""
    from aera.gateway.app import GatewayServer, bind, run
    from aera.gateway.config import read_config, read_file, write_config

    own = _given(
        controller=controller,
        task=task,
        policy=policy,
        instruction=instruction,
        vote_by_default=vote_by_default,
        max_samples=max_samples,
        deadline=deadline,
        audit_share=audit_share,
        record=record,
    )
    urls, keys = _words(upstream), _words(api_key_env)
    if not (urls or config or print_config):
        raise UsageError("no upstream is given: set --upstream or AERA_UPSTREAM, or give --config")
    if print_config and not urls and config is None:
        urls = ["http://localhost:8000/v1"]
    tables = _upstreams(urls, keys, escalate_to)
    place, folder = "", Path()
    if config is not None:
        if own or escalate_to:
            named = ", ".join(f"--{name.replace('_', '-')}" for name in own) or "--escalate-to"
            raise UsageError(f"{named} says something of one model: with --config, say it there")
        told = read_file(config)
        if tables and "upstream" in told:
            raise UsageError(f"{config} has [[upstream]] tables, so leave out --upstream")
        tables, place, folder = {**tables, **told}, f"{config}, ", config.parent
        if model is not None:
            tables.setdefault("default", model)
    else:
        tables["model"][0] |= {"name": model or "default", "other_names": True, **own}
    tables["server"] = {
        **_given(host=host, port=port, log_level=log_level), **tables.get("server", {})
    }  # fmt: skip
    if keys_file is not None:
        tables["keys"] = {"file": str(keys_file.absolute()), **tables.get("keys", {})}
    try:
        settings = read_config(tables, place, folder)
        if print_config:
            say(write_config(settings))
            return
        settings = _load(settings, place)
        if check:
            _check(settings)
            return
    except AeraError as error:
        raise UsageError(str(error)) if check else error from None
    _set_logging(settings.server.log_level)
    server = GatewayServer(settings)
    try:
        listening = bind(settings.server.host, settings.server.port)
    except OSError as error:
        place = f"{settings.server.host}, port {settings.server.port}"
        raise UsageError(
            f"cannot listen on {place}: {error.strerror}; choose another address"
        ) from None
    _announce(settings, listening)
    sys.exit(min(1, run(server, listening)))


def _given(**options: Any) -> dict[str, Any]:
    """Those that were given, as a file would say them."""
    told = {name: value for name, value in options.items() if value is not None}
    return {name: str(v) if isinstance(v, Path) else v for name, v in told.items()}


def _words(given: list[str] | None) -> list[str]:
    """What was repeated, or separated by commas or spaces."""
    return [word for each in given or () for word in each.replace(",", " ").split()]


def _upstreams(urls: list[str], keys: list[str], second: str | None) -> dict[str, Any]:
    """The tables of the model servers, and of one model where undecided questions go elsewhere.

    The key of the first server is sent to the second only where that is at the same address.
    """
    if not urls:
        return {}
    usual = ["OPENAI_API_KEY"] if os.environ.get("OPENAI_API_KEY") else []
    first = {"name": "upstream", "urls": urls, "api_key_env": keys or usual}
    model: dict[str, Any] = {"upstream": "upstream"}
    tables: dict[str, Any] = {"upstream": [first], "model": [model]}
    if second is not None:
        url, _, name = second.partition("#")
        if not name:
            raise UsageError(f'--escalate-to takes URL#MODEL, but got "{second}"')
        same = urlsplit(url)[:2] == urlsplit(urls[0])[:2]
        own = (keys or usual)[:1] if same else []
        tables["upstream"].append({"name": "second", "urls": [url], "api_key_env": own})
        model["escalate"] = {"upstream": "second", "model": name}
    return tables


def _load(config: "Config", place: str) -> "Config":
    """The same with the controllers in place of their directories."""
    made = []
    for each in config.model:
        path = each.controller
        assert path is None or isinstance(path, Path)
        deciding = Deciding(
            path,
            each.task,
            each.equivalence,
            each.scorer,
            each.policy,
            each.schedule,
            trust=each.trust,
            weights=each.weights,
        )
        try:
            made.append(replace(each, controller=deciding.load()))
        except AeraError as error:
            where = f'{place}[[model]] "{each.name}": ' if place else ""
            raise type(error)(f"{where}{error}") from None
    return replace(config, model=tuple(made))


def _check(config: "Config") -> None:
    """Say what would be served."""
    from aera.gateway.app import prepare

    prepare(config)
    for model in config.model:
        say(_describe(model, config))
    named = [key.name for key in config.key if key.name]
    shown = f" ({', '.join(named)} by name)" if named else ""
    say(f"{len(config.key)} keys{shown}; all is well")


def _describe(model: "ModelConfig", config: "Config") -> str:
    """A model in one line."""
    theirs = f' as "{model.model}"' if model.model else ""
    second = f', undecided ones to "{model.escalate.model}"' if model.escalate else ""
    others = ", and every other name" if model.other_names else ""
    by_default = ", votes by default" if model.vote_by_default else ""
    audits = f", {model.audit_share:.3g} of the votes audited" if model.audit_share else ""
    return (
        f'"{model.name}"{theirs} at {_places(model, config)}, policy {model.decider.label}, '
        f"checkpoints {model.decider.schedule}{by_default}{second}{others}{audits}"
    )


def _places(model: "ModelConfig", config: "Config") -> str:
    return ", ".join(map(without_password, config.find(model.upstream).urls))


def _announce(config: "Config", listening: socket.socket) -> None:
    """Say where the gateway is and what to ask it for."""
    host, first = config.server.host, config.model[0]
    named = f"[{host}]" if ":" in host else host
    place = f"http://{named}:{listening.getsockname()[1]}/"
    about = f"for {len(config.model)} models"
    if len(config.model) == 1:
        about = f"for {_places(first, config)}, policy {first.decider.label}"
    say(f"AERA on {place}v1 {about}", stderr=True)
    for model in config.model:
        if model.record is not None:
            say(
                f"audited requests are recorded in {model.record}: the question, its system "
                f"message and all responses, up to {model.record_max:,} bytes; no keys, names or "
                "headers",
                stderr=True,
            )
    names = " or ".join(f'"aera/{model.name}"' for model in config.model)
    say(f"ask for {names}; the page is at {place}", stderr=True)


def _set_logging(level: str) -> None:
    logging.basicConfig(format="%(message)s", level=level.upper())
    # No line names a thread, a process or a place in the code, so nobody looks for them.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None
    # Its own lines say what ours say too.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
