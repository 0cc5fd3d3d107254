"""The command that serves: `aera serve`."""

import inspect
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterable
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from aera.cli.endpoint import Deciding, headers_from, prices_from, without_password
from aera.cli.options import say
from aera.cli.serve_options import ServeOptions
from aera.errors import UsageError

if TYPE_CHECKING:
    from aera.gateway.server import GatewaySettings
    from aera.sampling.upstream import Endpoint
    from aera.solving.controller import Controller

LEVELS = ("debug", "info", "warning", "error")
LONGEST_WAIT = 5.0
"""Seconds a model server may ask to be left alone; beyond that the client is told to wait."""
SHORTEST_KEY = 16
"""Characters below which a client's key can be guessed."""


def serve(*given: Any, **named: Any) -> None:
    """Serve voted answers behind the OpenAI API: ask for aera/MODEL."""
    from aera.gateway.process import run_gateway

    options = ServeOptions(*given, **named)
    deciding = Deciding(
        options.controller,
        options.task,
        options.equivalence,
        options.scorer,
        options.policy,
        options.schedule,
        weights=options.weights,
    )
    chosen = deciding.load()
    settings = _settings(options, chosen)
    _set_logging(options.log_level)
    listening = _bound(options.host, options.port)
    _announce(options, listening, label=chosen.label)
    cut_off = run_gateway(settings, listening, drain=options.drain_seconds)
    sys.exit(1 if cut_off else 0)


# The command line makes its options of these fields, so that they are listed once.
serve.__signature__ = inspect.signature(ServeOptions)  # type: ignore[attr-defined]
serve.__annotations__ = dict(ServeOptions.__annotations__)


def _settings(options: ServeOptions, controller: "Controller") -> "GatewaySettings":
    """What the options mean."""
    from aera.gateway.ceilings import Ceilings
    from aera.gateway.server import GatewaySettings
    from aera.gateway.settings import KeyLimits
    from aera.sampling.upstream import Endpoint

    keys = _keys(options.keys_env, options.host)
    endpoint = partial(
        Endpoint,
        ca_file=options.ca_file,
        concurrency=options.concurrency,
        tries=options.tries,
        timeout=options.timeout,
        longest_wait=LONGEST_WAIT,
        largest_reply=options.max_reply_bytes,
    )
    return GatewaySettings(
        _upstreams(options, endpoint),
        options.model,
        controller,
        votes_by_default=options.vote_by_default,
        instruction=options.instruction,
        keys=keys,
        key_limits=KeyLimits(
            options.key_share,
            options.key_requests_per_minute,
            options.key_tokens_per_minute,
            options.key_money_per_day,
            prices_from(options.prices),
        ),
        forward_key=options.forward_key,
        hosts=_hosts(options.allowed_host or (), options.host, keys),
        largest_request=options.max_bytes,
        most_requests=options.max_requests,
        ceilings=Ceilings(
            samples=options.max_samples,
            choices=options.max_n,
            tokens=options.max_tokens,
            tokens_total=options.max_tokens_total,
            deadline=options.max_deadline,
            usual_deadline=options.deadline,
        ),
        escalation=_second(options, endpoint),
        minimum=options.min_samples,
    )


def _words(given: Iterable[str]) -> list[str]:
    """What was repeated, or separated by commas or spaces."""
    return [word for each in given for word in each.replace(",", " ").split()]


def _upstreams(
    options: ServeOptions, endpoint: "Callable[..., Endpoint]"
) -> "tuple[Endpoint, ...]":
    """The replicas, each with its own key or all with the same."""
    urls, headers = _words(options.upstream), _headers(options.header, "AERA_HEADER")
    names = _words(options.api_key_env or ()) or ["OPENAI_API_KEY"]
    if not urls:
        raise UsageError("no upstream is given: set --upstream or AERA_UPSTREAM")
    if len(names) not in (1, len(urls)):
        raise UsageError(
            f"--api-key-env is given once, or once for each of {len(urls)} upstreams, but got "
            f"{len(names)}"
        )
    each = names * len(urls) if len(names) == 1 else names
    return tuple(
        endpoint(url, api_key_env=name, headers=headers)
        for url, name in zip(urls, each, strict=True)
    )


def _second(
    options: ServeOptions, endpoint: "Callable[..., Endpoint]"
) -> "tuple[Endpoint, str] | None":
    """Where undecided questions go, from URL#MODEL, with credentials of its own.

    Those of the first server are used only where the second is at the same address.
    """
    if options.escalate_to is None:
        return None
    url, _, model = options.escalate_to.partition("#")
    if not model:
        raise UsageError(f'--escalate-to takes URL#MODEL, but got "{options.escalate_to}"')
    first = _upstreams(options, endpoint)[0]
    same = _origin(url) == _origin(first.base_url)
    name = options.escalate_key_env or (first.api_key_env if same else None)
    own = _headers(options.escalate_header, "AERA_ESCALATE_HEADER")
    headers = own or (first.headers if same else {})
    return endpoint(url, api_key_env=name, headers=headers), model


def _headers(given: list[str] | None, variable: str) -> dict[str, str]:
    """Headers from options or from the lines of a variable, which may hold spaces."""
    lines = os.environ.get(variable, "").splitlines() if given is None else given
    return headers_from(line for line in lines if line.strip())


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.lower()


def _announce(options: ServeOptions, listening: socket.socket, *, label: str) -> None:
    """Say where the gateway is and what to ask it for."""
    named = f"[{options.host}]" if ":" in options.host else options.host
    place = f"http://{named}:{listening.getsockname()[1]}/"
    shown = ", ".join(map(without_password, _words(options.upstream)))
    say(f"AERA on {place}v1 for {shown}, policy {label}", stderr=True)
    say(f'ask for "aera/{options.model}"; the page is at {place}', stderr=True)


def _keys(variable: str, host: str) -> tuple[str, ...]:
    """The keys clients must present; none will do only where nobody from outside can ask."""
    keys = tuple(key.strip() for key in os.environ.get(variable, "").split(",") if key.strip())
    if not keys and not _is_loopback(host):
        raise UsageError(
            f"{host} can be reached from outside, so clients need keys: set {variable}, or listen "
            "on 127.0.0.1"
        )
    shortest = min(map(len, keys), default=SHORTEST_KEY)
    if shortest < SHORTEST_KEY:
        raise UsageError(
            f"a key in {variable} has {shortest} characters and could be guessed; give each at "
            f"least {SHORTEST_KEY}, as openssl rand -hex 16 makes them"
        )
    return keys


def _hosts(allowed: Iterable[str], host: str, keys: tuple[str, ...]) -> tuple[str, ...]:
    """Names by which the gateway may be called: its own where it needs no key, or those given."""
    from aera.gateway.origin import LOCAL

    names = tuple(name.lower() for name in _words(allowed))
    return names if keys else (*LOCAL, host.lower(), *names)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _set_logging(level: str) -> None:
    if level.lower() not in LEVELS:
        raise UsageError(f'--log-level is one of {", ".join(LEVELS)}, but got "{level}"')
    logging.basicConfig(format="%(message)s", level=level.upper())
    # No line names a thread, a process or a place in the code, so nobody looks for them.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None
    # Its own lines say what ours say too.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


def _bound(host: str, port: int) -> socket.socket:
    """Where clients will connect, taken before anybody is told of it."""
    from aera.gateway.process import bind

    try:
        return bind(host, port)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host}, port {port}: {error.strerror}; choose another address"
        ) from None
