"""The command that serves: `aera serve`."""

import asyncio
import logging
import os
import re
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import typer

from aera.cli.options import UNLISTED, Deciding, diagnose, grouped, option, say, without_password
from aera.errors import AeraError, UsageError
from aera.files import Json
from aera.gateway.config import (
    Config,
    ModelConfig,
    ServerConfig,
    UpstreamConfig,
    read_config,
    write_config,
)
from aera.settings import read_toml, setting_of
from aera.solving.controller import Controller

# Its other limit of samples is one of the schedule, and a model's is one of a request.
DECIDING = [each.name for each in fields(Deciding) if each.name != "max_samples"]


def _option(variable: str, text: str, default: Any = None) -> Any:
    """An option that the environment can set too."""
    return option(text, envvar=f"AERA_{variable}", default=default)


def _set(name: str, kind: type = ModelConfig) -> Any:
    """The same for one that a file can set too."""
    about = setting_of(kind, name)
    usual = f" [default: {about.default}]" if about.default not in (None, False, 0.0) else ""
    return _option(name.upper(), about.metadata["text"].removesuffix(".") + usual + ".")


@dataclass(frozen=True)
class OneModel:
    """Of one model, as its table in a file says it; None: as by default."""

    controller: Path | None = _set("controller")
    task: str | None = _set("task")
    policy: str | None = _set("policy")
    instruction: bool | None = _set("instruction")
    vote_by_default: bool | None = _set("vote_by_default")
    max_samples: int | None = _set("max_samples")
    deadline: float | None = _set("deadline")
    audit_share: float | None = _set("audit_share")
    record: Path | None = _set("record")


@grouped
def serve(
    *,
    upstream: list[str] | None = _option("UPSTREAM", "Model server, up to /v1; repeatable."),
    model: str | None = _option("MODEL", "Model for requests that name none [default: default]."),
    own: OneModel,
    escalate_to: str | None = _option("ESCALATE_TO", "Second model if undecided, as URL#MODEL."),
    api_key_env: list[str] | None = _option(
        "API_KEY_ENV",
        "Environment variable with the model server's key [default: OPENAI_API_KEY]; once, or "
        "once for each --upstream.",
    ),
    keys_file: Path | None = _option("KEYS_FILE", "Clients' keys, one a line; else AERA_KEYS."),
    host: str | None = _set("host", ServerConfig),
    port: int | None = _set("port", ServerConfig),
    log_level: str | None = _set("log_level", ServerConfig),
    config: Path | None = _option("CONFIG", "TOML file with models, servers, keys, all settings."),
    check: bool = _option(
        "CHECK", "Try a chat; say what would be served, or why not.", default=False
    ),
    print_config: bool = option("Print every setting as TOML, with a sentence.", default=False),
) -> None:
    """Serve voted answers behind the OpenAI API: ask for aera/MODEL."""
    from aera.gateway.app import GatewayServer, bind, run

    told_of_it = _given(**vars(own))
    urls, keys = _words(upstream), _words(api_key_env)
    if print_config and config is None:
        urls = urls or ["http://localhost:8000/v1"]
    if not (urls or config):
        raise UsageError("no upstream is given: set --upstream or AERA_UPSTREAM, or give --config")
    tables = _upstreams(urls, keys, escalate_to)
    key_option = "--api-key-env" if tables else "its api_key_env"
    place, folder = "", Path()
    if config is not None:
        if told_of_it or escalate_to:
            flag = next(iter(told_of_it), "escalate_to").replace("_", "-")
            raise UsageError(f"--{flag} says something of one model: with --config, say it there")
        told = read_toml(config)
        if tables and "upstream" in told:
            raise UsageError(f"{config} has [[upstream]] tables, so leave out --upstream")
        tables, place, folder = {**tables, **told}, f"{config}, ", config.parent
        if model is not None:
            tables.setdefault("default", model)
    else:
        tables["model"][0] |= {"name": model or "default", "other_names": True, **told_of_it}
    tables["server"] = {
        **_given(host=host, port=port, log_level=log_level), **tables.get("server", {})
    }  # fmt: skip
    if keys_file is not None:
        tables["keys"] = {"file": str(keys_file.absolute()), **tables.get("keys", {})}
    try:
        settings = read_config(tables, place, folder)
    except UsageError as error:
        raise error if config else UsageError(_in_options(str(error))) from None
    if print_config:
        typer.echo(write_config(settings))  # lines stay lines, also on a terminal
        return
    controllers = _load(settings, place)
    if check:
        _check(settings, controllers, key_option)
        return
    if config is not None and settings.keys.spent is None:  # two on one file have two ports
        spent = config.with_name(f"{config.stem}-{settings.server.port}.spent.json")
        settings = replace(settings, keys=replace(settings.keys, spent=spent))
    _set_logging(settings.server.log_level)
    server = GatewayServer(settings, controllers)
    try:
        listening = bind(settings.server.host, settings.server.port)
    except OSError as error:
        place = f"{settings.server.host}, port {settings.server.port}"
        raise UsageError(
            f"cannot listen on {place}: {error.strerror}; choose another address"
        ) from None
    _announce(settings, controllers, listening)
    # Whatever is wrong with the model servers is said while requests are answered already.
    Thread(target=_ask_servers, args=(settings, key_option), daemon=True).start()
    sys.exit(min(1, run(server, listening)))


def _given(**options: Any) -> Json:
    """Those that were given, as a file would say them."""
    told = {name: value for name, value in options.items() if value is not None}
    return {name: str(v) if isinstance(v, Path) else v for name, v in told.items()}


def _in_options(said: str) -> str:
    """What a configuration would be told is wrong, in the words of the options behind it."""
    names = [each.name for each in fields(OneModel)]
    names += ["host", "port", "log_level", "api_key_env"]
    options = {name: f"--{name.replace('_', '-')}" for name in names}
    options["name"] = "--model"
    said = re.sub(r'^\[+\w+\]+( "[^"]*")?: ', "", said)
    return re.sub(r"^\w+|\w+_\w+", lambda word: options.get(word[0], word[0]), said)


def _words(given: list[str] | None) -> list[str]:
    """What was repeated, or separated by commas or spaces."""
    return [word for each in given or () for word in each.replace(",", " ").split()]


def _upstreams(urls: list[str], keys: list[str], second: str | None) -> Json:
    """The tables of the model servers, and of one model where undecided questions go elsewhere.

    The key of the first server is sent to the second only where that is at the same address.
    """
    if not urls:
        return {}
    usual = ["OPENAI_API_KEY"] if os.environ.get("OPENAI_API_KEY") else []
    first = {"name": "upstream", "urls": urls, "api_key_env": keys or usual}
    model: Json = {"upstream": "upstream"}
    tables: Json = {"upstream": [first], "model": [model]}
    if second is not None:
        url, _, name = second.partition("#")
        if not name:
            raise UsageError(f'--escalate-to takes URL#MODEL, but got "{second}"')
        same = urlsplit(url)[:2] == urlsplit(urls[0])[:2]
        own = (keys or usual)[:1] if same else []
        tables["upstream"].append({"name": "second", "urls": [url], "api_key_env": own})
        model["escalate"] = {"upstream": "second", "model": name}
    return tables


def _load(config: Config, place: str) -> dict[str, Controller]:
    """Who decides the votes of each model."""
    made = {}
    for each in config.model:
        told = {name: getattr(each, name) for name in DECIDING}
        try:
            made[each.name] = Deciding(**told).load()
        except AeraError as error:
            where = f'{place}[[model]] "{each.name}": ' if place else ""
            raise type(error)(f"{where}{error}") from None
    return made


def _check(config: Config, controllers: Mapping[str, Controller], key_option: str) -> None:
    """Say what would be served, and leave with 1 where a model server cannot work."""
    from aera.gateway.app import Gateway

    Gateway(config, controllers)  # refuses what cannot be served
    for model in config.model:
        say(_describe(model, config, controllers[model.name]))
    named = [key.name for key in config.key if key.name]
    shown = f" ({', '.join(named)} by name)" if named else ""
    problems = _ask_servers(config, key_option, chat=True)
    if any(not each.endswith(UNLISTED) for each in problems):
        sys.exit(1)
    tried = any(_names_at(each, config) for each in config.upstream if not each.forward_key)
    well = "all is well" if tried else "no chat was tried, without a model's name and a key"
    say(f"{len(config.key)} keys{shown}, every model server answers; {well}")


def _ask_servers(config: Config, key_option: str, *, chat: bool = False) -> list[str]:
    """Say what is wrong with the model servers, one sentence each."""

    async def ask() -> list[str]:
        asked = [
            diagnose(each, _names_at(upstream, config), own, chat)
            for upstream in config.upstream
            for own in ["" if upstream.forward_key else key_option]
            for each in upstream.endpoints
        ]
        return [problem for problem in await asyncio.gather(*asked) if problem]

    problems = asyncio.run(ask())
    for sentence in problems:
        say(sentence, stderr=True)
    return problems


def _names_at(upstream: UpstreamConfig, config: Config) -> list[str]:
    """What a model server is asked for; a model that takes all names may have one of no meaning."""
    asked = [(one.upstream, one.model or one.name) for one in config.model if not _unnamed(one)]
    asked += [
        (one.escalate["upstream"], one.escalate["model"]) for one in config.model if one.escalate
    ]
    return [name for place, name in asked if config.find(place) is upstream]


def _unnamed(model: ModelConfig) -> bool:
    """Whether nobody said which model it is, so that clients name one of the server's."""
    return model.other_names and (model.model or model.name) == ModelConfig.name


def _describe(model: ModelConfig, config: Config, controller: Controller) -> str:
    """A model in one line."""
    theirs = f' as "{model.model}"' if model.model else ""
    told = [f"policy {controller.label}", f"checkpoints {controller.schedule}"]
    told += ["votes by default"] * model.vote_by_default
    told += [f'undecided ones to "{name}"' for name in [model.escalate.get("model")] if name]
    told += ["and every other name"] * (model.other_names and not _unnamed(model))
    told += [f"{100 * model.audit_share:.3g} % of the votes audited"] if model.audit_share else []
    name = "any model" if _unnamed(model) else f'"{model.name}"{theirs}'
    places = map(without_password, config.find(model.upstream).urls)
    return f"{name} at {', '.join([*places, *told])}"


def _announce(
    config: Config, controllers: Mapping[str, Controller], listening: socket.socket
) -> None:
    """Say where the gateway is and what to ask it for."""
    host = f"[{config.server.host}]" if ":" in config.server.host else config.server.host
    place = f"http://{host}:{listening.getsockname()[1]}/"
    say(f"AERA on {place}v1, its page at {place}", stderr=True)
    for model in config.model:
        say(_describe(model, config, controllers[model.name]), stderr=True)
        if model.record is not None:
            kept = "the question, its system message and all responses; no keys, names or headers"
            where = f"{model.record}, up to {model.record_max:,} bytes"
            say(f"audited requests are recorded in {where}: {kept}", stderr=True)
    names = " or ".join(f'"aera/{model.name}"' for model in config.model)
    if _unnamed(config.model[0]):
        names = '"aera/MODEL", MODEL as the server calls it (--model names one for who does not)'
    say(f"ask for {names}", stderr=True)


def _set_logging(level: str) -> None:
    logging.basicConfig(format="%(message)s", level=level.upper())
    # No line names a thread, a process or a place in the code, so nobody looks for them.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None
    # What else it says is said in our lines, or of bytes that anybody can send.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
