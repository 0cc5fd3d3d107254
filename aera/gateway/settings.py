"""GatewaySettings: which models to serve, and whom."""

from dataclasses import dataclass, field

from aera.errors import UsageError
from aera.gateway.auditing import AuditRules
from aera.gateway.ceilings import Ceilings
from aera.gateway.kept import KeptHeaders
from aera.policies.ahead import check_hurry
from aera.pools.recorded import AuditFolder
from aera.sampling.upstream import Endpoint
from aera.solving.controller import Controller, default_controller


@dataclass(frozen=True)
class KeyLimits:
    """What the holder of one key may take; None is no limit."""

    share: float = 0.5
    """Of the requests at once, where there are several keys."""
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    """Prompt and completion tokens, as the upstream counts them."""
    money_per_day: float | None = None
    prices: tuple[float, float] = (0.0, 0.0)
    """Of a million prompt and a million completion tokens."""

    def __post_init__(self) -> None:
        if self.money_per_day is not None and not any(self.prices):
            raise UsageError("a limit in money needs a price per million tokens: give --prices")


@dataclass(frozen=True)
class ClientKey:
    """A key that clients present, and what its holder may do."""

    secret: str = field(repr=False)
    limits: KeyLimits = field(default_factory=KeyLimits)
    name: str = ""
    """What logs and metrics call its holder; a hash of the key where there is none."""
    models: frozenset[str] = frozenset()
    """Models that its holder may ask for; none: all."""


@dataclass(frozen=True)
class ServedModel:
    """One model as clients see it: where it is, and how votes on it are decided."""

    name: str
    """By which clients ask for it."""
    upstreams: tuple[Endpoint, ...]
    """Replicas of one model server."""
    controller: Controller = field(default_factory=default_controller)
    upstream_name: str = ""
    """What the model server calls it, where that is another name."""
    other_names: bool = False
    """Whether names that no model has are asked for here, as they are."""
    votes_by_default: bool = False
    """Whether a plain model name votes too."""
    instruction: bool = False
    """Whether the task's answer instruction is put behind the last user message."""
    forward_key: bool = False
    """Whether a client's own key goes upstream, in place of ours."""
    ceilings: Ceilings = field(default_factory=Ceilings)
    escalation: tuple[Endpoint, str] | None = None
    """A second upstream and its model, for undecided questions."""
    minimum: int | None = None
    """Minimum samples before a vote may stop."""
    hurry: float = 0.0
    """How readily samples begin before it is known that they are wanted, 0 to 1."""
    keep_alive: float = 5.0
    """Seconds of silence after which a stream sends a comment; what fails before is a status."""
    audits: AuditRules = field(default_factory=AuditRules)
    record: AuditFolder | None = None
    """Where audited questions are kept with their responses; None keeps nothing."""

    def __post_init__(self) -> None:
        check_hurry(self.hurry)
        if self.record is not None and not self.audits.share:
            raise UsageError("only audited requests are recorded: give --audit-share too")
        if self.audits.share and self.forward_key:
            raise UsageError(
                "audits would be paid for with the clients' own keys: leave out --audit-share or "
                "--forward-key"
            )


@dataclass(frozen=True)
class GatewaySettings:
    """How to serve."""

    models: tuple[ServedModel, ...]
    default: str = ""
    """The model for requests that name none; the first where it is empty."""
    keys: tuple[ClientKey, ...] = ()
    """Keys clients must present; none: anybody on this machine may ask."""
    open_limits: KeyLimits = field(default_factory=KeyLimits)
    """What all may take together where there are no keys."""
    hosts: tuple[str, ...] = ()
    """Names by which the gateway may be called; none: any. Pages of other origins are refused."""
    largest_request: int = 16 * 2**20
    most_requests: int = 512
    """Requests under way at once; more are answered with 429."""
    kept: KeptHeaders = field(default_factory=KeptHeaders)
    """Headers of a client that its samples carry too."""

    def __post_init__(self) -> None:
        names = [model.name for model in self.models]
        twice = sorted({name for name in names if names.count(name) > 1})
        if not names:
            raise UsageError("no model is to be served")
        if twice:
            raise UsageError(f'two models are called "{twice[0]}": give each a name of its own')
        if sum(model.other_names for model in self.models) > 1:
            raise UsageError("only one model can take the names that no other has")
        folders = [model.record.path for model in self.models if model.record is not None]
        if len(set(folders)) < len(folders):
            raise UsageError("two models record into one place: give each its own")
        if self.default and self.default not in names:
            raise UsageError(f'the default model "{self.default}" is none of {", ".join(names)}')
        unknown = sorted({name for key in self.keys for name in key.models} - set(names))
        if unknown and not any(model.other_names for model in self.models):
            raise UsageError(f'a key names the model "{unknown[0]}", which is none of those served')
