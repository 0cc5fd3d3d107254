"""The file of `aera serve --config`: models, upstreams, keys and limits in TOML.

A table says what an option of the same name says, for itself alone; what it leaves out, the options
of the command say for all.
"""

import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from aera.cli.serve_options import ServeOptions
from aera.cli.serve_settings import (
    check_key,
    endpoint_from,
    headers_of,
    keys_from,
    limits_from,
    model_from,
    settings_from,
    upstreams_from,
)
from aera.errors import AeraError, UsageError

if TYPE_CHECKING:
    from aera.gateway.settings import ClientKey, GatewaySettings, ServedModel
    from aera.sampling.upstream import Endpoint

Kinds = Mapping[str, Any]
OPTIONS = get_type_hints(ServeOptions, include_extras=True)
NAME, NAMES, PAIRS, YES = str, list[str], dict[str, str], bool
TABLES: dict[str, Kinds] = {
    "upstream": {"name": NAME, "url": NAME, "urls": NAMES, "api_key_env": NAME, "headers": PAIRS}
    | {name: OPTIONS[name] for name in (
        "ca_file", "concurrency", "timeout", "tries", "max_reply_bytes", "forward_key"
    )},
    "model": {"name": NAME, "upstream": NAME, "model": NAME, "other_names": YES, "escalate": PAIRS}
    | {name: OPTIONS[name] for name in (
        "controller", "task", "policy", "schedule", "equivalence", "scorer", "trust", "weights",
        "vote_by_default", "instruction", "min_samples", "max_samples", "max_n",
        "max_tokens", "max_tokens_total", "deadline", "max_deadline", "audit_share", "audit_limit",
        "audit_max", "audit_tokens", "on_alarm", "record", "record_max"
    )},
    "keys": {"env": NAME, "file": NAME},
    "key": {"name": NAME, "env": NAME, "models": NAMES, "prices": list[float]}
    | {name: OPTIONS[f"key_{name}"] for name in (
        "share", "requests_per_minute", "tokens_per_minute", "money_per_day"
    )},
    "limits": {"prices": list[float]}
    | {name: OPTIONS[name] for name in (
        "max_requests", "max_bytes", "key_share", "key_requests_per_minute",
        "key_tokens_per_minute", "key_money_per_day"
    )},
}  # fmt: skip
"""The fields of each table."""
REPEATED = ("upstream", "model", "key")
"""Tables that are written as [[name]], as often as needed."""
WORDS = {
    str: "text", int: "a whole number", float: "a number", bool: "true or false", Path: "text",
    NAMES: "a list of texts", PAIRS: "a table of texts", list[float]: "a list of numbers",
}  # fmt: skip


def read_file(options: ServeOptions) -> "GatewaySettings":
    """The settings that a file and the options around it make."""
    assert options.config is not None
    return _File(options.config, options).settings()


class _File:
    """One file as it is read."""

    def __init__(self, path: Path, options: ServeOptions) -> None:
        self.path, self.tables = path, _parse(path)
        limits = self._table("limits")
        if "prices" in limits:
            limits["prices"] = ",".join(map(str, limits["prices"]))
        keys = self._table("keys")
        given: dict[str, Any] = {}
        if "env" in keys:
            with self._at("[keys]"):
                given["keys_env"] = keys["env"]
                _variable(keys, "env")
        if "file" in keys:
            given["keys_file"] = self._beside(keys["file"])
        self.options = replace(options, **limits, **given)

    def settings(self) -> "GatewaySettings":
        """All of it."""
        upstreams = self._upstreams()
        models = tuple(self._model(table, where, upstreams) for where, table in self._each("model"))
        with self._at("[[model]]"):
            if not models:
                raise UsageError("there is none, so nothing is served")
        default, named = self.tables.get("default", ""), self.options.model
        if not isinstance(default, str):
            raise UsageError(f"{self.path}: default must be text")
        if not default and named != ServeOptions.model:
            default = named
        with self._at("[limits]"):
            limits_from(self.options)
        with self._at("[keys]"):
            plain = keys_from(self.options)
        keys = (*plain, *self._keys(plain))
        with self._at(""):
            return settings_from(self.options, models, keys, default)

    def _upstreams(self) -> "dict[str, tuple[ServeOptions, tuple[Endpoint, ...]]]":
        """The servers by name; without any in the file, those of the options."""
        found = list(self._each("upstream"))
        options = self.options
        if not found:
            with self._at("[[upstream]]"):
                return {"": (options, upstreams_from(options))}
        headers = headers_of(options.header, "AERA_HEADER")
        if options.upstream or options.api_key_env or headers:
            raise UsageError(
                f"{self.path} has [[upstream]] tables, so --upstream, --api-key-env and --header "
                "(and their variables) cannot be given beside it"
            )
        made = {}
        for where, table in found:
            with self._at(where):
                name = _need(table, "name")
                if name in made:
                    raise UsageError("an upstream before it has the same name")
                made[name] = self._upstream(table)
        return made

    def _upstream(self, table: dict[str, Any]) -> "tuple[ServeOptions, tuple[Endpoint, ...]]":
        own, headers = dict(table), table.get("headers", {})
        urls = [own.pop("url")] if "url" in own else own.pop("urls", [])
        if not urls or "urls" in own:
            raise UsageError("give either url or urls")
        key = own.pop("api_key_env", None)
        if key is not None:
            _variable(table, "api_key_env")
        if "ca_file" in own:
            own["ca_file"] = str(self._beside(own["ca_file"]))
        plain = {name: own[name] for name in own if name not in ("name", "headers")}
        options = replace(self.options, **plain)
        return options, tuple(endpoint_from(options, url, key, headers) for url in urls)

    def _model(
        self,
        table: dict[str, Any],
        where: str,
        upstreams: "dict[str, tuple[ServeOptions, tuple[Endpoint, ...]]]",
    ) -> "ServedModel":
        with self._at(where):
            name, own = _need(table, "name"), dict(table)
            if name.startswith("aera/"):
                raise UsageError('name must not begin with "aera/", which asks for a vote')
            options, endpoints = _choose(upstreams, own.pop("upstream", None), "upstream")
            more: dict[str, Any] = {"other_names": own.pop("other_names", False)}
            more["upstream_name"] = own.pop("model", "")
            if "escalate" in own:
                more["escalation"] = _escalation(own.pop("escalate"), upstreams)
            if "controller" in own:
                if "task" in own:
                    raise UsageError("task is the controller's own: give one of them")
                own["controller"] = self._beside(own["controller"])
            elif "task" in own:
                own["controller"] = None
            if "record" in own:
                own["record"] = self._beside(own["record"])
            del own["name"]
            return model_from(replace(options, **own), endpoints, name, **more)

    def _keys(self, plain: "tuple[ClientKey, ...]") -> "Iterator[ClientKey]":
        """Keys with limits of their own."""
        from aera.gateway.settings import ClientKey

        seen = {key.secret for key in plain}
        for where, table in self._each("key"):
            with self._at(where):
                variable, name = _need(table, "env"), _need(table, "name")
                secret = _variable(table, "env")
                check_key(secret, variable)
                if secret in seen:
                    raise UsageError("the same key stands in another place")
                seen.add(secret)
                own = {
                    f"key_{field}": value
                    for field, value in table.items()
                    if field not in ("name", "env", "models", "prices")
                }
                if "prices" in table:
                    own["prices"] = ",".join(map(str, table["prices"]))
                limits = limits_from(replace(self.options, **own))
                yield ClientKey(secret, limits, name, frozenset(table.get("models", ())))

    # --- tables -----------------------------------------------------------------------------------

    def _table(self, name: str) -> dict[str, Any]:
        """A table that stands once or not at all."""
        with self._at(f"[{name}]"):
            return _check(self.tables.get(name, {}), TABLES[name])

    def _each(self, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Tables that are repeated, each with its place in the file."""
        for number, table in enumerate(self.tables.get(name, []), 1):
            called = table.get("name") if isinstance(table, dict) else None
            where = f"[[{name}]] " + (f'"{called}"' if isinstance(called, str) else str(number))
            with self._at(where):
                checked = _check(table, TABLES[name])
            yield where, checked

    def _beside(self, path: str | Path) -> Path:
        """A path in the file is meant from where the file is."""
        return self.path.parent / path

    @contextmanager
    def _at(self, where: str) -> Iterator[None]:
        """Errors name the file and the place."""
        try:
            yield
        except AeraError as error:
            place = f"{self.path}, {where}" if where else str(self.path)
            raise UsageError(f"{place}: {error}") from None


def _parse(path: Path) -> dict[str, Any]:
    try:
        tables = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f'"{path}" cannot be read: {error.strerror}') from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    unknown = sorted(tables.keys() - TABLES.keys() - {"default"})
    if unknown:
        known = ", ".join(f"[[{t}]]" if t in REPEATED else f"[{t}]" for t in TABLES)
        raise UsageError(f'{path}: "{unknown[0]}" is unknown; there are default, {known}')
    for name in REPEATED:
        if not isinstance(tables.get(name, []), list):
            raise UsageError(f"{path}: write [[{name}]], as there may be several")
    return tables


def _check(table: Any, kinds: Kinds) -> dict[str, Any]:
    """A table whose fields are known and of their kind."""
    if not isinstance(table, dict):
        raise UsageError("this must be a table")
    for name, value in table.items():
        if name not in kinds:
            raise UsageError(f'"{name}" is unknown; there are {", ".join(kinds)}')
        annotated = kinds[name]
        [kind] = [each for each in _kinds_in(annotated) if each is not type(None)]
        if not _is_of(value, kind):
            raise UsageError(f"{name} must be {WORDS[kind]}, but is {value!r:.40}")
        for option in getattr(annotated, "__metadata__", ()):
            low, high = option.min, option.max
            if (low is not None and value < low) or (high is not None and value > high):
                bounds = f"at least {low:g}" if high is None else f"from {low:g} to {high:g}"
                raise UsageError(f"{name} must be {bounds}, but is {value}")
    return dict(table)


def _kinds_in(annotated: Any) -> tuple[Any, ...]:
    """The kinds that an option may be of."""
    plain = annotated.__origin__ if hasattr(annotated, "__metadata__") else annotated
    if plain in WORDS:
        return (plain,)
    return get_args(plain) or (plain,)


def _is_of(value: Any, kind: Any) -> bool:
    if kind in (NAMES, list[float]):
        inner = get_args(kind)[0]
        return isinstance(value, list) and all(_is_of(each, inner) for each in value)
    if kind == PAIRS:
        return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
    if kind is Path or kind is str:
        return isinstance(value, str) and bool(value.strip())
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float if kind is float else kind)


def _need(table: Mapping[str, Any], name: str) -> str:
    if name not in table:
        raise UsageError(f"{name} is missing")
    return str(table[name])


def _variable(table: Mapping[str, Any], field: str) -> str:
    """What is in the variable that a field names."""
    found = os.environ.get(table[field], "").strip()
    if not found:
        raise UsageError(f"{field} names the variable {table[field]}, which is not set")
    return found


def _choose(upstreams: Mapping[str, Any], name: str | None, field: str) -> Any:
    """An upstream by its name; the only one needs none."""
    if name is None and len(upstreams) == 1:
        return next(iter(upstreams.values()))
    if name is None:
        raise UsageError(f"{field} is missing; there are {', '.join(upstreams)}")
    if name not in upstreams:
        known = ", ".join(filter(None, upstreams)) or "none"
        raise UsageError(f'{field} names "{name}", but there are {known}')
    return upstreams[name]


def _escalation(
    table: Mapping[str, str],
    upstreams: "Mapping[str, tuple[ServeOptions, tuple[Endpoint, ...]]]",
) -> "tuple[Endpoint, str]":
    """Where undecided questions go: { upstream, model }."""
    if table.keys() - {"upstream", "model"} or "model" not in table:
        raise UsageError("escalate takes { upstream, model }")
    _, endpoints = _choose(upstreams, table.get("upstream"), "the upstream of escalate")
    if len(endpoints) != 1:
        raise UsageError("escalate goes to an upstream with one url")
    return endpoints[0], table["model"]
