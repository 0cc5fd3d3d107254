"""The command that serves: `aera serve`."""

import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from aera.cli.endpoint import CAOption, HeaderOption, choose_controller, headers_from
from aera.cli.options import say
from aera.errors import UsageError

if TYPE_CHECKING:
    from aera.gateway.server import GatewaySettings
    from aera.sampling.upstream import Endpoint

LEVELS = ("debug", "info", "warning", "error")
BACKLOG = 2_048
"""Clients that may wait to be let in."""
LONGEST_WAIT = 5.0
"""Seconds a model server may ask to be left alone; beyond that the client is told to wait."""


def _option(variable: str, text: str, **limits: Any) -> Any:
    """An option that the environment can set too."""
    return typer.Option(envvar=f"AERA_{variable}", help=text, **limits)


UpstreamOption = Annotated[
    list[str], _option("UPSTREAM", "Model server, up to /v1; repeat it for each replica.")
]
ModelOption = Annotated[str, _option("MODEL", "Model for requests that name none.")]
ControllerOption = Annotated[
    Path | None,
    _option("CONTROLLER", "Controller directory; without one, ASC(0.95) on plain votes decides."),
]
TaskOption = Annotated[str, _option("TASK", "Task used when no controller is given (aera tasks).")]
EqualOption = Annotated[
    bool, _option("EQUIVALENCE", "Ask math-verify which expressions are the same answer.")
]
ScorerOption = Annotated[
    str | None,
    _option("SCORER", "Scorer as MODULE:NAME, for a controller that was saved with one."),
]
HostOption = Annotated[str, _option("HOST", "Address to listen on.")]
PortOption = Annotated[int, _option("PORT", "Port to listen on; 0 takes a free one.", max=65535)]
VoteOption = Annotated[
    bool, _option("VOTE_BY_DEFAULT", "Also vote where a request names the plain model.")
]
InstructionOption = Annotated[
    bool, _option("INSTRUCTION", "Append the task's answer instruction to each question.")
]
MinimumOption = Annotated[
    int | None, _option("MIN_SAMPLES", "Minimum samples before a vote may stop.", min=1)
]
RequestsOption = Annotated[int, _option("MAX_REQUESTS", "Most requests at once.", min=1)]
BytesOption = Annotated[int, _option("MAX_BYTES", "Largest request, in bytes.", min=1)]
KeysOption = Annotated[
    str, typer.Option(help="Environment variable with the clients' keys, separated by commas.")
]
SecondOption = Annotated[
    str | None,
    _option("ESCALATE_TO", "Second model for undecided questions, as URL#MODEL."),
]
LevelOption = Annotated[
    str, _option("LOG_LEVEL", "debug, info (a JSON line per request), warning or error.")
]
OwnKeyOption = Annotated[
    str, _option("API_KEY_ENV", "Environment variable with the key for the model server.")
]
CallsOption = Annotated[
    int, _option("CONCURRENCY", "Most calls in flight to the model server.", min=1)
]
TriesOption = Annotated[int, _option("TRIES", "Tries of one call to the model server.", min=1)]


def serve(
    upstream: UpstreamOption,
    model: ModelOption = "default",
    controller: ControllerOption = None,
    task: TaskOption = "expression",
    equivalence: EqualOption = False,
    scorer: ScorerOption = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8001,
    vote_by_default: VoteOption = False,
    instruction: InstructionOption = False,
    min_samples: MinimumOption = None,
    max_requests: RequestsOption = 512,
    max_bytes: BytesOption = 16 * 2**20,
    keys_env: KeysOption = "AERA_KEYS",
    escalate_to: SecondOption = None,
    log_level: LevelOption = "info",
    header: HeaderOption = None,
    ca_file: CAOption = None,
    api_key_env: OwnKeyOption = "OPENAI_API_KEY",
    concurrency: CallsOption = 256,
    tries: TriesOption = 3,
) -> None:
    """Serve voted answers behind the OpenAI API: ask for aera/MODEL."""
    from aera.gateway.server import GatewaySettings
    from aera.sampling.upstream import Endpoint

    keys = _keys(keys_env, host)
    urls = [url for each in upstream for url in each.replace(",", " ").split()]
    if not urls:
        raise UsageError("no upstream is given: set --upstream or AERA_UPSTREAM")
    chosen = choose_controller(controller, task, equivalence=equivalence, scorer=scorer)
    endpoint = partial(
        Endpoint,
        api_key_env=api_key_env,
        headers=headers_from(header or ()),
        ca_file=ca_file,
        concurrency=concurrency,
        tries=tries,
        longest_wait=LONGEST_WAIT,
    )
    settings = GatewaySettings(
        tuple(map(endpoint, urls)),
        model,
        chosen,
        votes_by_default=vote_by_default,
        instruction=instruction,
        keys=keys,
        largest_request=max_bytes,
        most_requests=max_requests,
        escalation=_second(escalate_to, endpoint),
        minimum=min_samples,
    )
    _set_logging(log_level)
    listening = _bound(host, port)
    _announce(host, listening, urls, model=model, label=chosen.label)
    _run(settings, listening)


def _announce(
    host: str, listening: socket.socket, urls: list[str], *, model: str, label: str
) -> None:
    """Say where the gateway is and what to ask it for."""
    named = f"[{host}]" if ":" in host else host
    place = f"http://{named}:{listening.getsockname()[1]}/"
    shown = ", ".join(map(_without_password, urls))
    say(f"AERA on {place}v1 for {shown}, policy {label}", stderr=True)
    say(f'ask for "aera/{model}"; the page is at {place}', stderr=True)


def _keys(variable: str, host: str) -> tuple[str, ...]:
    """The keys clients must present; none will do only where nobody from outside can ask."""
    keys = tuple(key.strip() for key in os.environ.get(variable, "").split(",") if key.strip())
    if not keys and not _is_loopback(host):
        raise UsageError(
            f"{host} can be reached from outside, so clients need keys: set {variable}, or listen "
            "on 127.0.0.1"
        )
    return keys


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _second(
    named: str | None, endpoint: "Callable[[str], Endpoint]"
) -> "tuple[Endpoint, str] | None":
    """Where undecided questions go, from URL#MODEL."""
    if named is None:
        return None
    url, _, model = named.partition("#")
    if not model:
        raise UsageError(f'--escalate-to takes URL#MODEL, but got "{named}"')
    return endpoint(url), model


def _set_logging(level: str) -> None:
    if level.lower() not in LEVELS:
        raise UsageError(f'--log-level is one of {", ".join(LEVELS)}, but got "{level}"')
    logging.basicConfig(format="%(message)s", level=level.upper())


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _bound(host: str, port: int) -> socket.socket:
    """Where clients will connect, taken before anybody is told of it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host}, port {port}: {error.strerror}; choose another address"
        ) from None


def _run(settings: "GatewaySettings", listening: socket.socket) -> None:
    """Serve until told to stop; what is under way is finished first."""
    import uvicorn

    from aera.gateway.server import collect_seldom, create_app

    app = create_app(settings)
    collect_seldom()
    # The server finishes its work on SIGTERM and raises it again: then all is well.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    config = uvicorn.Config(app, log_level="warning", access_log=False, backlog=BACKLOG)
    uvicorn.Server(config).run(sockets=[listening])
