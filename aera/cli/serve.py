"""The command that serves: `aera serve`."""

import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from aera.cli.connecting import CAOption, HeaderOption, chosen_controller, headers_from
from aera.cli.opening import say
from aera.errors import UsageError

if TYPE_CHECKING:
    from aera.gateway.server import Serving
    from aera.upstream import Endpoint

LEVELS = ("debug", "info", "warning", "error")
BACKLOG = 2_048
"""Clients that may wait to be let in."""
LONGEST_WAIT = 5.0
"""Seconds a model server may ask to be left alone; beyond that the client is told to wait."""


def _option(variable: str, text: str, **limits: Any) -> Any:
    """An option that the environment can set too."""
    return typer.Option(envvar=f"AERA_{variable}", help=text, **limits)


UpstreamOption = Annotated[list[str], _option("UPSTREAM", "Server, up to /v1; again per replica.")]
ModelOption = Annotated[str, _option("MODEL", "The model for requests that name none.")]
ControllerOption = Annotated[Path | None, _option("CONTROLLER", "Else ASC 0.95 on plain votes.")]
TaskOption = Annotated[str, _option("TASK", "How to read replies without a controller.")]
EqualOption = Annotated[bool, _option("EQUIVALENCE", "Ask math-verify what is the same.")]
ScorerOption = Annotated[str | None, _option("SCORER", "MODULE:NAME, if saved with one.")]
HostOption = Annotated[str, _option("HOST", "Where to listen.")]
PortOption = Annotated[int, _option("PORT", "Which port.", min=0, max=65535)]
VoteOption = Annotated[bool, _option("VOTE_BY_DEFAULT", "Vote on plain model names too.")]
InstructionOption = Annotated[bool, _option("INSTRUCTION", "Append how to write the answer.")]
MinimumOption = Annotated[int | None, _option("MIN_SAMPLES", "No vote ends before.", min=1)]
RequestsOption = Annotated[int, _option("MAX_REQUESTS", "Most requests at once.", min=1)]
BytesOption = Annotated[int, _option("MAX_BYTES", "The largest request.", min=1)]
KeysOption = Annotated[str, typer.Option(help="Variable with the clients' keys, by comma.")]
SecondOption = Annotated[str | None, _option("ESCALATE_TO", "URL#MODEL for undecided ones.")]
LevelOption = Annotated[str, _option("LOG_LEVEL", "info logs a JSON line per request.")]
OwnKeyOption = Annotated[str, _option("API_KEY_ENV", "Variable with the upstream's key.")]
CallsOption = Annotated[int, _option("CONCURRENCY", "Most calls upstream at once.", min=1)]
TriesOption = Annotated[int, _option("TRIES", "Tries of one call upstream.", min=1)]


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
    from aera.gateway.server import Serving
    from aera.upstream import Endpoint

    keys = _keys(keys_env, host)
    urls = [url for each in upstream for url in each.replace(",", " ").split()]
    if not urls:
        raise UsageError("no upstream is given: set --upstream or AERA_UPSTREAM")
    chosen = chosen_controller(controller, task, equivalence=equivalence, scorer=scorer)
    headers = headers_from(header or ())

    def endpoint(url: str) -> Endpoint:
        return Endpoint(
            *(url, api_key_env, headers, ca_file, concurrency, tries), longest_wait=LONGEST_WAIT
        )

    serving = Serving(
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
    named = f"[{host}]" if ":" in host else host
    place = f"http://{named}:{listening.getsockname()[1]}/"
    shown = ", ".join(map(_without_password, urls))
    say(f"AERA on {place}v1 for {shown}, policy {chosen.policy}", stderr=True)
    say(f'ask for "aera/{model}"; the page is at {place}', stderr=True)
    _run(serving, listening)


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


def _run(serving: "Serving", listening: socket.socket) -> None:
    """Serve until told to stop; what is under way is finished first."""
    import uvicorn

    from aera.gateway.server import collect_seldom, create_app

    app = create_app(serving)
    collect_seldom()
    # The server finishes its work on SIGTERM and raises it again: then all is well.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    config = uvicorn.Config(app, log_level="warning", access_log=False, backlog=BACKLOG)
    uvicorn.Server(config).run(sockets=[listening])
