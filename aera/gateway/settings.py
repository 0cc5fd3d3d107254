"""GatewaySettings: how to serve."""

from dataclasses import dataclass, field

from aera.errors import UsageError
from aera.gateway.ceilings import Ceilings
from aera.gateway.kept import KeptHeaders
from aera.gateway.routes import AllowedRoutes
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
class GatewaySettings:
    """How to serve."""

    upstreams: tuple[Endpoint, ...]
    """Replicas of one model server."""
    model: str
    """For requests that name none."""
    controller: Controller = field(default_factory=default_controller)
    votes_by_default: bool = False
    """Whether a plain model name votes too."""
    instruction: bool = False
    """Whether the task's answer instruction is put behind the last user message."""
    keys: tuple[str, ...] = field(default=(), repr=False)
    """Keys clients must present; none: anybody on this machine may ask."""
    key_limits: KeyLimits = field(default_factory=KeyLimits)
    forward_key: bool = False
    """Whether a client's own key goes upstream, in place of ours."""
    kept: KeptHeaders = field(default_factory=KeptHeaders)
    """Headers of a client that its samples carry too."""
    routes: AllowedRoutes = field(default_factory=AllowedRoutes)
    """What is passed on of /v1."""
    hosts: tuple[str, ...] = ()
    """Names by which the gateway may be called; none: any. Pages of other origins are refused."""
    largest_request: int = 16 * 2**20
    most_requests: int = 512
    """Requests under way at once; more are answered with 429."""
    ceilings: Ceilings = field(default_factory=Ceilings)
    escalation: tuple[Endpoint, str] | None = None
    """A second upstream and its model, for undecided questions."""
    minimum: int | None = None
    """Minimum samples before a vote may stop."""
    keep_alive: float = 5.0
    """Seconds of silence after which a stream sends a comment; what fails before is a status."""
    body_patience: float = 20.0
    """Seconds for the body of a request, beside what its size takes on a slow line."""
