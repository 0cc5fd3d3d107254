"""Config: all that a gateway can be told, as dataclasses that a TOML file is read into.

Every setting has its default, its limits and one sentence (`aera serve --print-config`). A table of
the file is one dataclass; what is written as [[model]] may stand several times.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

from aera.errors import UsageError
from aera.sampling.client import Endpoint
from aera.settings import read_table, setting

# Characters below which a client's key can be guessed.
SHORTEST_KEY = 16
# Seconds a model server may ask to be left alone; beyond that the client is told to wait.
LONGEST_WAIT = 5.0
FULL_BUDGET = "full-budget"
# Where nobody else can listen in or ask.
LOCAL = ("localhost", "127.0.0.1", "::1")
LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True)
class UpstreamConfig:
    """A model server, or several replicas of one."""

    name: str = setting("", "What the models here call it.")
    urls: tuple[str, ...] = setting(
        (), "Addresses up to /v1, one for each replica.", keys=("urls", "url")
    )
    api_key_env: tuple[str, ...] = setting((), "Variable with its key; one, or one a replica.")
    headers: dict[str, str] = setting({}, "Extra headers of every call.")
    ca_file: Path | None = setting(None, "File with the certificates to trust.")
    concurrency: int = setting(256, "Most calls in flight to a replica.", low=1)
    timeout: float = setting(600.0, "Seconds for a call and its retries.", low=0.001)
    tries: int = setting(3, "Tries of one call.", low=1)
    max_reply_bytes: int = setting(64 * 2**20, "Largest reply, in bytes.", low=1)
    forward_key: bool = setting(False, "Send each client's own key, not ours.")

    def __post_init__(self) -> None:
        if not self.urls:
            raise UsageError("give url or urls: where the model server is")
        if len(self.api_key_env) not in (0, 1, len(self.urls)):
            raise UsageError("api_key_env is given once, or once for each of the urls")
        _ = self.endpoints  # an address or a file that cannot be is refused here

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The replicas."""
        keys = (self.api_key_env or (None,)) * len(self.urls)
        ca_file = str(self.ca_file) if self.ca_file else None
        patience = (self.concurrency, self.tries, self.timeout, LONGEST_WAIT)
        return tuple(
            Endpoint(url, key, self.headers, ca_file, *patience, largest_reply=self.max_reply_bytes)
            for url, key in zip(self.urls, keys, strict=False)  # one key may be that of all
        )


@dataclass(frozen=True)
class ModelConfig:
    """A model as clients see it: where it is, how votes on it are decided, and what they take."""

    name: str = setting("default", "By which clients ask for it; aera/NAME votes.")
    upstream: str = setting("", "Name of its upstream; the only one needs none.")
    model: str = setting("", "What the model server calls it, where that is another name.")
    other_names: bool = setting(False, "Take names that no model has, and ask for them as such.")
    controller: Path | None = setting(
        None, "Controller directory; without one, lead-4 on plain votes decides."
    )
    task: str = setting("expression", "Task used when no controller is given (aera tasks).")
    policy: str | None = setting(
        None, "Policy by its label, as asc-0.95, the careful one (aera policies)."
    )
    schedule: str | None = setting(None, 'Checkpoints at which to decide, as "4,8,16" or "1-128".')
    weights: str | None = setting(None, "Weights that need no training: traces, by top_logprobs.")
    equivalence: bool = setting(False, "Ask math-verify which expressions are the same answer.")
    scorer: str | None = setting(None, "Scorer as MODULE:NAME, for a controller saved with one.")
    trust: bool = setting(False, "Keep the controller on questions unlike those it was taught on.")
    vote_by_default: bool = setting(False, "Also vote where a request names the plain model.")
    instruction: bool = setting(False, "Append the task's answer instruction to each question.")
    min_samples: int | None = setting(None, "Minimum samples before a vote may stop.", low=1)
    max_samples: int = setting(512, "Most samples of one request, all choices together.", low=1)
    max_n: int = setting(16, "Largest n of a voted request.", low=1)
    max_tokens: int | None = setting(None, "Longest response of a vote, in tokens.", low=1)
    max_tokens_total: int | None = setting(None, "Most completion tokens of one vote.", low=1)
    deadline: float | None = setting(None, "Seconds for a vote that names none.", low=0.001)
    max_deadline: float = setting(1_800.0, "Most seconds that a vote may name.", low=0.001)
    escalate: dict[str, str] = setting({}, "As { upstream, model }: for the undecided.")
    audit_share: float = setting(0.0, "Share of votes that run on to the end.", low=0, high=1)
    audit_limit: float | None = setting(
        None,
        "Changed share that raises the alarm; else as certified, or 0.02.",
        low=1e-4,
        high=0.9999,
    )
    audit_max: int = setting(16, "Most audits under way at once.", low=1)
    audit_tokens: int | None = setting(None, "Most completion tokens of audits a day.", low=1)
    on_alarm: str = setting(
        "log", "What it does: a line in the log, or nobody stops.", choices=("log", FULL_BUDGET)
    )
    record: Path | None = setting(None, "Folder for audited questions: a pool for aera train.")
    record_max: int = setting(2**30, "Most bytes recorded there.", low=1)

    def __post_init__(self) -> None:
        if not self.name or self.name.startswith("aera/"):
            raise UsageError(
                'name must be a name, without "aera/" before it, which asks for a vote'
            )
        if self.record is not None and not self.audit_share:
            raise UsageError("only audited requests are recorded: give audit_share too")
        if self.controller is not None and self.task != ModelConfig.task:
            raise UsageError("task is the controller's own: give one of them")


@dataclass(frozen=True)
class KeyConfig:
    """A key that clients present, and what its holder may do; what is left out, [limits] says."""

    name: str = setting("", "What logs and metrics call its holder.")
    env: str = setting("", "Environment variable with the key.")
    models: tuple[str, ...] = setting((), "Models that its holder may ask for; none: all.")
    share: float | None = setting(None, "As key_share of [limits].", low=0, high=1)
    requests_per_minute: int | None = setting(None, "Most requests a minute.", low=1)
    tokens_per_minute: int | None = setting(None, "Most tokens a minute, prompts included.", low=1)
    money_per_day: float | None = setting(None, "Most money a day, by prices.", low=1e-9)
    prices: tuple[float, ...] = setting((), "Of a million prompt and a million reply tokens.")
    # The key itself, where it is known.
    secret: str = field(default="", repr=False)


@dataclass(frozen=True)
class LimitsConfig:
    """What all may take together, and what each key may that says nothing of its own."""

    max_requests: int = setting(512, "Most requests at once; others get 429.", low=1)
    max_bytes: int = setting(16 * 2**20, "Largest request, in bytes.", low=1)
    key_share: float = setting(0.5, "Share of these that one key may take.", low=0, high=1)
    key_requests_per_minute: int | None = setting(None, "Most requests of one key a minute.", low=1)
    key_tokens_per_minute: int | None = setting(None, "Most tokens of one key a minute.", low=1)
    key_money_per_day: float | None = setting(None, "Most money of one key a day.", low=1e-9)
    prices: tuple[float, ...] = setting((), "Of a million prompt and reply tokens: [0.5, 1.5].")


@dataclass(frozen=True)
class KeysConfig:
    """Keys without limits of their own; with none at all, only this machine may ask."""

    env: str = setting("AERA_KEYS", "Environment variable with keys, separated by commas.")
    file: Path | None = setting(None, "File with keys, one a line.")
    spent: Path | None = setting(None, "File of what keys have spent; else one beside this file.")


@dataclass(frozen=True)
class ServerConfig:
    """Where the gateway listens, and how it stops."""

    host: str = setting("127.0.0.1", "Address to listen on.")
    port: int = setting(8001, "Port to listen on; 0 takes a free one.", low=0, high=65535)
    allowed_hosts: tuple[str, ...] = setting((), "Other names by which it may be called.")
    keep_headers: tuple[str, ...] = setting((), "Headers of a client that its samples carry too.")
    log_level: str = setting(
        "info", "debug, info (a JSON line per request), warning or error.", choices=LEVELS
    )
    keep_alive: float = setting(5.0, "Seconds after which a silent stream gets a comment.", low=0)
    drain_seconds: float = setting(30.0, "Seconds to finish requests when told to stop.", low=0)


@dataclass(frozen=True)
class Config:
    """How to serve."""

    default: str = setting("", "Model for requests that name none; the first where it is empty.")
    upstream: tuple[UpstreamConfig, ...] = setting((), "The model servers.")
    model: tuple[ModelConfig, ...] = setting((), "The models.")
    server: ServerConfig = setting(ServerConfig(), "Where it listens.")
    keys: KeysConfig = setting(KeysConfig(), "Keys of clients.")
    key: tuple[KeyConfig, ...] = setting((), "Keys with limits of their own.")
    limits: LimitsConfig = setting(LimitsConfig(), "What clients may take.")

    def __post_init__(self) -> None:
        names, keys = [e.name for e in self.model], [e.name for e in self.key if e.name]
        upstreams = [each.name for each in self.upstream]
        for what, listed in (("models", names), ("upstreams", upstreams), ("keys", keys)):
            if not listed and what != "keys":
                raise UsageError(f"there are no {what} to serve: add [[{what.removesuffix('s')}]]")
            if twice := {name for name in listed if listed.count(name) > 1}:
                text = f'two {what} are called "{min(twice)}": give each a name of its own'
                raise UsageError(text)
        folders = [each.record for each in self.model if each.record is not None]
        if len(set(folders)) < len(folders):
            raise UsageError("two models record into one place: give each its own")
        others = sum(each.other_names for each in self.model)
        if others > 1:
            raise UsageError("only one model can take the names that no other has")
        if self.default and self.default not in names:
            raise UsageError(f'the default model "{self.default}" is none of {", ".join(names)}')
        unknown = sorted({name for key in self.key for name in key.models} - {*names})
        if unknown and not others:
            raise UsageError(f'a key names the model "{unknown[0]}", which is none of those served')
        for key in (*self.key, KeyConfig()):
            prices = key.prices or self.limits.prices
            money = key.money_per_day or self.limits.key_money_per_day
            if (prices and len(prices) != 2) or (money and not any(prices)):
                raise UsageError("a limit in money needs prices, as [0.5, 1.5] a million tokens")
        for each in self.model:
            if self.find(each.upstream).forward_key and each.audit_share:
                raise UsageError(
                    f'audits of "{each.name}" would be paid for with the clients\' own keys: leave '
                    "out audit_share or forward_key"
                )
            where = each.escalate
            if where and (
                where.keys() != {"upstream", "model"} or len(self.find(where["upstream"]).urls) > 1
            ):
                raise UsageError("escalate takes a model, and an upstream with one url")

    def find(self, upstream: str) -> UpstreamConfig:
        """An upstream by its name; the only one needs none."""
        if not upstream and len(self.upstream) == 1:
            return self.upstream[0]
        for each in self.upstream:
            if each.name == upstream:
                return each
        known = ", ".join(each.name for each in self.upstream) or "none with a name"
        said = f'there is no upstream "{upstream}"' if upstream else "a model names no upstream"
        raise UsageError(f"{said}; there are {known}")


# --- reading --------------------------------------------------------------------------------------


def read_config(tables: Mapping[str, Any], place: str = "", folder: Path = Path()) -> Config:
    """The configuration that tables make; paths in them are meant from the folder."""
    config: Config = read_table(Config, tables, place, folder)
    for each in config.upstream:
        for variable in each.api_key_env:
            _variable(variable, f'{place}[[upstream]] "{each.name}": api_key_env')
    keys = *_plain_keys(config.keys), *_named_keys(config.key, place)
    known = dict[str, str]()
    for key, where in keys:
        if key.secret in known:  # whose limits would hold?
            text = f"the key in {where} is in {known[key.secret]} too: give each client its own"
            raise UsageError(text)
        known[key.secret] = where
        if len(key.secret) < SHORTEST_KEY:
            raise UsageError(
                f"a key in {where} has {len(key.secret)} characters and could be guessed; give "
                f"each at least {SHORTEST_KEY}, as openssl rand -hex 16 makes them"
            )
    if not keys and config.server.host not in LOCAL:
        raise UsageError(
            f"{config.server.host} can be reached from outside, so clients need keys: set "
            f"{config.keys.env}, or listen on 127.0.0.1"
        )
    return replace(config, key=tuple(key for key, _ in keys))


def _variable(variable: str, where: str) -> str:
    found = os.environ.get(variable, "").strip()
    if not found:
        raise UsageError(f"{where} names the variable {variable}, which is not set")
    return found


def _plain_keys(keys: KeysConfig) -> list[tuple[KeyConfig, str]]:
    """The keys of the environment and of the file of keys, and where each stands."""
    if keys.env != KeysConfig.env:
        _variable(keys.env, "[keys]: env")
    told = [(secret, keys.env) for secret in os.environ.get(keys.env, "").split(",")]
    if keys.file is not None:
        try:
            lines = keys.file.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise UsageError(f'the file of keys "{keys.file}" cannot be read: {why}') from None
        told += [(line, f'"{keys.file}"') for line in lines if not line.lstrip().startswith("#")]
    known = {secret.strip(): where for secret, where in told if secret.strip()}
    if keys.file is not None and not known:
        text = "has none, and without a key anybody may ask: put one in, or leave the file out"
        raise UsageError(f'the file of keys "{keys.file}" {text}')
    return [(KeyConfig(secret=secret), where) for secret, where in known.items()]


def _named_keys(keys: tuple[KeyConfig, ...], place: str) -> Iterator[tuple[KeyConfig, str]]:
    """The keys with names and limits of their own."""
    for key in keys:
        where = f'{place}[[key]] "{key.name}"'
        if not (key.name and key.env):
            raise UsageError(f"{where}: name and env are needed")
        yield replace(key, secret=_variable(key.env, f"{where}: env")), key.env


# --- writing --------------------------------------------------------------------------------------


def write_config(config: Config) -> str:
    """All settings as TOML, each with its sentence; those without a value are comments."""
    first, *tables = fields(config)
    lines = [*_lines(first, config.default)]
    for each in tables:
        several = get_args(get_type_hints(Config)[each.name])
        told = getattr(config, each.name) if several else (getattr(config, each.name),)
        head = f"[[{each.name}]]" if several else f"[{each.name}]"
        # Where there is none, what a table could say; keys without a name are told elsewhere.
        for row in [row for row in told if getattr(row, "env", True)] or several[:1]:
            mark = "# " if isinstance(row, type) else ""
            lines.append(f"\n{mark}{head}  # {str(row.__doc__).splitlines()[0]}")
            for one in fields(row):
                lines += _lines(one, getattr(row, one.name)) if one.metadata else ()
    return "\n".join(lines)


def _lines(about: Field[Any], value: Any) -> tuple[str, str]:
    """A setting: its sentence, and its value."""
    written = json.dumps(value, default=str)  # a path is text
    if isinstance(value, dict):
        pairs = [f"{json.dumps(name)} = {json.dumps(each)}" for name, each in value.items()]
        written = "{ " + ", ".join(pairs) + " }"
    line = f"{about.name} = {written}" if value not in (None, "", (), {}) else f"# {about.name} ="
    return f"# {about.metadata['text']}", line
