"""What the options of `aera serve` mean: the settings of a gateway, from a file or without one."""

import os
from collections.abc import Iterable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from aera.cli.endpoint import Deciding, headers_from, prices_from
from aera.cli.serve_options import ServeOptions
from aera.errors import UsageError

if TYPE_CHECKING:
    from aera.gateway.auditing import AuditRules
    from aera.gateway.settings import ClientKey, GatewaySettings, KeyLimits, ServedModel
    from aera.sampling.upstream import Endpoint
    from aera.solving.controller import Controller

LONGEST_WAIT = 5.0
"""Seconds a model server may ask to be left alone; beyond that the client is told to wait."""
ON_ALARM = ("log", "full-budget")
SHORTEST_KEY = 16
"""Characters below which a client's key can be guessed."""


def read_settings(options: ServeOptions) -> "GatewaySettings":
    """All that is to be served, as files and the environment say it now."""
    from aera.cli.serve_file import read_file

    if options.config is None:
        model = model_from(options, upstreams_from(options), options.model, other_names=True)
        return settings_from(options, (model,), keys_from(options))
    return read_file(options)


def settings_from(
    options: ServeOptions,
    models: "tuple[ServedModel, ...]",
    keys: "tuple[ClientKey, ...]",
    default: str = "",
) -> "GatewaySettings":
    """What belongs to the server."""
    from aera.gateway.kept import KeptHeaders
    from aera.gateway.settings import GatewaySettings

    if not keys and options.keys_file is not None:
        raise UsageError(
            f'the file of keys "{options.keys_file}" has none, and without a key anybody may ask: '
            "put one in, or leave the file out"
        )
    if not keys and not _is_loopback(options.host):
        raise UsageError(
            f"{options.host} can be reached from outside, so clients need keys: set "
            f"{options.keys_env}, or listen on 127.0.0.1"
        )
    return GatewaySettings(
        models,
        default,
        keys,
        limits_from(options),
        hosts=_hosts(options.allowed_host or (), options.host, with_keys=bool(keys)),
        largest_request=options.max_bytes,
        most_requests=options.max_requests,
        kept=KeptHeaders.of(words(options.keep_header or ())),
    )


# --- models ---------------------------------------------------------------------------------------


def model_from(
    options: ServeOptions, upstreams: "tuple[Endpoint, ...]", name: str, **own: Any
) -> "ServedModel":
    """A model behind these upstreams."""
    from aera.gateway.ceilings import Ceilings
    from aera.gateway.settings import ServedModel
    from aera.pools.recorded import AuditFolder

    deciding = Deciding(
        options.controller,
        options.task,
        options.equivalence,
        options.scorer,
        options.policy,
        options.schedule,
        trust=options.trust,
        weights=options.weights,
    )
    ceilings = Ceilings(
        samples=options.max_samples,
        choices=options.max_n,
        tokens=options.max_tokens,
        tokens_total=options.max_tokens_total,
        deadline=options.max_deadline,
        usual_deadline=options.deadline,
    )
    given: dict[str, Any] = {"escalation": _second(options, upstreams[0]), **own}
    controller = deciding.load()
    return ServedModel(
        name,
        upstreams,
        controller,
        votes_by_default=options.vote_by_default,
        instruction=options.instruction,
        forward_key=options.forward_key,
        ceilings=ceilings,
        minimum=options.min_samples,
        audits=_audits(options, controller),
        record=AuditFolder(options.record, options.record_max) if options.record else None,
        **given,
    )


def _audits(options: ServeOptions, controller: "Controller") -> "AuditRules":
    """How audits are drawn, and what an alarm does."""
    from aera.gateway.auditing import AuditRules

    if options.on_alarm not in ON_ALARM:
        known = " or ".join(ON_ALARM)
        raise UsageError(f'--on-alarm is {known}, but got "{options.on_alarm:.40}"')
    promised = controller.calibration.get("max_loss")
    if not (controller.calibration.get("by_agreement") and isinstance(promised, float)):
        promised = AuditRules.limit
    return AuditRules(
        options.audit_share,
        options.audit_limit or promised,
        options.audit_max,
        options.audit_tokens,
        full_on_alarm=options.on_alarm == ON_ALARM[1],
    )


def upstreams_from(options: ServeOptions) -> "tuple[Endpoint, ...]":
    """The replicas, each with its own key or all with the same."""
    urls = words(options.upstream or ())
    names = words(options.api_key_env or ()) or ["OPENAI_API_KEY"]
    if not urls:
        raise UsageError(
            "no upstream is given: set --upstream or AERA_UPSTREAM, or give a file with --config"
        )
    if len(names) not in (1, len(urls)):
        raise UsageError(
            f"--api-key-env is given once, or once for each of {len(urls)} upstreams, but got "
            f"{len(names)}"
        )
    headers = headers_of(options.header, "AERA_HEADER")
    each = names * len(urls) if len(names) == 1 else names
    return tuple(
        endpoint_from(options, url, name, headers) for url, name in zip(urls, each, strict=True)
    )


def endpoint_from(
    options: ServeOptions, url: str, key: str | None, headers: dict[str, str]
) -> "Endpoint":
    """One model server."""
    from aera.sampling.upstream import Endpoint

    return Endpoint(
        url,
        key,
        headers,
        options.ca_file,
        options.concurrency,
        options.tries,
        options.timeout,
        longest_wait=LONGEST_WAIT,
        largest_reply=options.max_reply_bytes,
    )


def _second(options: ServeOptions, first: "Endpoint") -> "tuple[Endpoint, str] | None":
    """Where undecided questions go, from URL#MODEL, with credentials of its own.

    Those of the first server are used only where the second is at the same address.
    """
    if options.escalate_to is None:
        return None
    url, _, model = options.escalate_to.partition("#")
    if not model:
        raise UsageError(f'--escalate-to takes URL#MODEL, but got "{options.escalate_to}"')
    same = _origin(url) == _origin(first.base_url)
    name = options.escalate_key_env or (first.api_key_env if same else None)
    own = headers_of(options.escalate_header, "AERA_ESCALATE_HEADER")
    headers = own or (dict(first.headers) if same else {})
    return endpoint_from(options, url, name, headers), model


def headers_of(given: list[str] | None, variable: str) -> dict[str, str]:
    """Headers from options or from the lines of a variable, which may hold spaces."""
    lines = os.environ.get(variable, "").splitlines() if given is None else given
    return headers_from(line for line in lines if line.strip())


def words(given: Iterable[str]) -> list[str]:
    """What was repeated, or separated by commas or spaces."""
    return [word for each in given for word in each.replace(",", " ").split()]


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.lower()


# --- clients --------------------------------------------------------------------------------------


def keys_from(options: ServeOptions) -> "tuple[ClientKey, ...]":
    """The keys of the environment and of the file of keys, all with the same limits."""
    from aera.gateway.settings import ClientKey

    variable, file = options.keys_env, options.keys_file
    found = [(variable, key) for key in os.environ.get(variable, "").split(",")]
    if file is not None:
        try:
            lines = file.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise UsageError(f'the file of keys "{file}" cannot be read: {why}') from None
        found += [(f'"{file}"', line) for line in lines if not line.lstrip().startswith("#")]
    secrets = {key.strip(): where for where, key in found if key.strip()}
    for secret, where in secrets.items():
        check_key(secret, where)
    limits = limits_from(options)
    return tuple(ClientKey(secret, limits) for secret in secrets)


def check_key(secret: str, where: str) -> None:
    """Refuse a key that could be guessed."""
    if len(secret) < SHORTEST_KEY:
        raise UsageError(
            f"a key in {where} has {len(secret)} characters and could be guessed; give each at "
            f"least {SHORTEST_KEY}, as openssl rand -hex 16 makes them"
        )


def limits_from(options: ServeOptions) -> "KeyLimits":
    """What the holder of a key may take."""
    from aera.gateway.settings import KeyLimits

    return KeyLimits(
        options.key_share,
        options.key_requests_per_minute,
        options.key_tokens_per_minute,
        options.key_money_per_day,
        prices_from(options.prices),
    )


def _hosts(allowed: Iterable[str], host: str, *, with_keys: bool) -> tuple[str, ...]:
    """Names by which the gateway may be called: its own where it needs no key, or those given."""
    from aera.gateway.origin import LOCAL

    names = tuple(name.lower() for name in words(allowed))
    return names if with_keys else (*LOCAL, host.lower(), *names)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
