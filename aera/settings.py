"""Settings: dataclasses that a TOML file is read into, with a sentence for each field."""

import sys
import tomllib
from collections.abc import Mapping
from dataclasses import Field, field, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from aera.errors import AeraError, UsageError

WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
WORDS |= {Path: "text", dict: "a table of texts"}
MOST = sys.float_info.max


def setting(default: Any, text: str, **limits: Any) -> Any:
    """A field that a file may set: its default, one sentence, and its `low`, `high`, `choices`.

    `keys` are what a file may call it, where that is not its name alone.
    """
    about = {"text": text, **limits}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=about)
    return field(default=default, metadata=about)


def setting_of(kind: Any, name: str) -> Field[Any]:
    """The setting of a table that has this name."""
    return next(each for each in fields(kind) if each.name == name)


def keys_of(kind: Any) -> dict[str, Field[Any]]:
    """What a table may say, and the setting that each key is of."""
    known = [each for each in fields(kind) if each.metadata]
    return {key: each for each in known for key in each.metadata.get("keys", (each.name,))}


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a file."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f'"{path}" cannot be read: {error.strerror}') from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from None


def read_table(kind: Any, table: object, place: str = "", folder: Path = Path()) -> Any:
    """A dataclass from its table; whatever is wrong is said with its place."""
    made = read_fields(kind, table, place, folder)
    try:
        return kind(**made)
    except AeraError as error:
        raise UsageError(f"{_where(place)}{error}") from None


def read_fields(kind: Any, table: object, place: str, folder: Path = Path()) -> dict[str, Any]:
    """The fields that a table sets; paths in it are meant from the folder."""
    where = _where(place)
    if not isinstance(table, Mapping):
        raise UsageError(f"{where}this must be a table")
    hints, known, made = get_type_hints(kind), keys_of(kind), dict[str, Any]()
    for key, value in table.items():
        if key not in known:
            near = get_close_matches(key, known, 1)
            more = f'; did you mean "{near[0]}"?' if near else f"; there are {', '.join(known)}"
            inside = [
                f"[[{table}]]" if get_args(hint) else f"[{table}]"
                for table, hint in hints.items()
                if is_dataclass(told := (*get_args(hint), hint)[0]) and key in keys_of(told)
            ]
            more = f" here; it goes into {' or '.join(inside)}" if inside else more
            raise UsageError(f'{where}"{key}" is unknown{more}')
        name = known[key].name
        hint = hints[name]
        several = get_origin(hint) is tuple
        inner: Any = get_args(hint)[0] if several else hint
        if not is_dataclass(inner):
            listed = value if several and isinstance(value, list) else [value]
            told = [_value(inner, known[key], each, f"{where}{key}", folder) for each in listed]
            made[name] = tuple(told) if several else told[0]
        elif not several:
            made[name] = read_table(inner, value, f"{place}[{name}]", folder)
        elif isinstance(value, list):
            rows = [(f"{place}{_called(name, n, row)}", row) for n, row in enumerate(value, 1)]
            made[name] = tuple(read_table(inner, row, at, folder) for at, row in rows)
        else:
            raise UsageError(f"{where}write [[{name}]], as there may be several")
    return made


def _where(place: str) -> str:
    return f"{place.removesuffix(', ')}: " if place else ""


def _value(hint: Any, about: Field[Any], value: Any, where: str, folder: Path) -> Any:
    """What a setting is given, as what it must be."""
    kind = hint if get_origin(hint) is dict else (*get_args(hint), hint)[0]
    plain = get_origin(kind) or kind
    wanted: Any = {Path: str, float: (int, float)}.get(plain, plain)
    fits = isinstance(value, wanted) and (plain is bool or not isinstance(value, bool))
    if plain is float:  # TOML knows nan and inf, and no limit holds against those
        fits = fits and abs(value) <= MOST
    if plain is dict:
        fits = fits and all(isinstance(each, str) for each in value.values())
    if not fits or (wanted is str and not value.strip()):
        raise UsageError(f"{where} must be {WORDS[plain]}, but is {value!r:.40}")
    low, high, choices = (about.metadata.get(name) for name in ("low", "high", "choices"))
    if choices and value not in choices:
        known = ", ".join(choices)
        raise UsageError(f'{where} is one of {known}, but got "{value:.40}"')
    if (low is not None and value < low) or (high is not None and value > high):
        bounds = f"at least {low:g}" if high is None else f"from {low:g} to {high:g}"
        raise UsageError(f"{where} must be {bounds}, but is {value}")
    return folder / value if plain is Path else float(value) if plain is float else value


def _called(name: str, number: int, table: Any) -> str:
    called = table.get("name") if isinstance(table, Mapping) else None
    return f"[[{name}]] " + (f'"{called}"' if isinstance(called, str) else str(number))
