"""The command that serves: `aera serve`."""

import inspect
import logging
import socket
import sys
from typing import TYPE_CHECKING, Any

from aera.cli.endpoint import without_password
from aera.cli.options import say
from aera.cli.serve_options import ServeOptions
from aera.cli.serve_settings import read_settings
from aera.errors import AeraError, UsageError

if TYPE_CHECKING:
    from aera.gateway.settings import GatewaySettings, ServedModel

LEVELS = ("debug", "info", "warning", "error")


def serve(*given: Any, **named: Any) -> None:
    """Serve voted answers behind the OpenAI API: ask for aera/MODEL."""
    from aera.gateway.process import make_server, run_server

    options = ServeOptions(*given, **named)
    if options.check:
        _check(options)
        return
    settings = read_settings(options)
    _set_logging(options.log_level)
    listening = _bound(options)
    _announce(options, listening, settings)
    server = make_server(settings, drain=options.drain_seconds)
    sys.exit(min(1, run_server(server, listening)))


# The command line makes its options of these fields, so that they are listed once.
serve.__signature__ = inspect.signature(ServeOptions)  # type: ignore[attr-defined]
serve.__annotations__ = dict(ServeOptions.__annotations__)


def _check(options: ServeOptions) -> None:
    """Say what would be served; whatever is wrong is a wrong call."""
    from aera.gateway.serving import prepare

    try:
        settings = read_settings(options)
        prepare(settings)
    except AeraError as error:
        raise UsageError(str(error)) from None
    for model in settings.models:
        say(_describe(model))
    keys, named = len(settings.keys), [key.name for key in settings.keys if key.name]
    shown = f" ({', '.join(named)} by name)" if named else ""
    say(f"{keys} keys{shown}; all is well")


def _describe(model: "ServedModel") -> str:
    """A model in one line."""
    theirs = f' as "{model.upstream_name}"' if model.upstream_name else ""
    second = f', undecided ones to "{model.escalation[1]}"' if model.escalation else ""
    others = ", and every other name" if model.other_names else ""
    by_default = ", votes by default" if model.votes_by_default else ""
    drawn = model.audits.share
    audits = f", {drawn:.3g} of the votes audited" if drawn else ""
    return (
        f'"{model.name}"{theirs} at {_places(model)}, policy {model.controller.label}, '
        f"checkpoints {model.controller.schedule}{by_default}{second}{others}{audits}"
    )


def _describe_record(model: "ServedModel") -> str:
    return (
        f"audited requests are recorded in {model.record}: the question, its system message and "
        f"all responses, up to {model.record_max:,} bytes; no keys, names or headers. aera drop "
        "removes them"
    )


def _places(model: "ServedModel") -> str:
    return ", ".join(without_password(endpoint.base_url) for endpoint in model.upstreams)


def _announce(options: ServeOptions, listening: socket.socket, settings: "GatewaySettings") -> None:
    """Say where the gateway is and what to ask it for."""
    named = f"[{options.host}]" if ":" in options.host else options.host
    place, first = f"http://{named}:{listening.getsockname()[1]}/", settings.models[0]
    if len(settings.models) == 1:
        about = f"for {_places(first)}, policy {first.controller.label}"
    else:
        about = f"for {len(settings.models)} models"
    say(f"AERA on {place}v1 {about}", stderr=True)
    for model in settings.models:
        if model.record is not None:
            say(_describe_record(model), stderr=True)
    names = " or ".join(f'"aera/{model.name}"' for model in settings.models)
    say(f"ask for {names}; the page is at {place}", stderr=True)


def _set_logging(level: str) -> None:
    if level.lower() not in LEVELS:
        raise UsageError(f'--log-level is one of {", ".join(LEVELS)}, but got "{level}"')
    logging.basicConfig(format="%(message)s", level=level.upper())
    # No line names a thread, a process or a place in the code, so nobody looks for them.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None
    # Its own lines say what ours say too.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


def _bound(options: ServeOptions) -> socket.socket:
    """Where clients will connect, taken before anybody is told of it."""
    from aera.gateway.process import bind

    host, port = options.host, options.port
    try:
        return bind(host, port)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host}, port {port}: {error.strerror}; choose another address"
        ) from None
