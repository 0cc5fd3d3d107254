"""Serving: the models of a gateway with their connections, made from its settings."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from aera.evidence.encoder import Encoder, StaticEncoder
from aera.gateway.auditing import Auditor
from aera.gateway.clients import Client
from aera.gateway.openai import DeniedError
from aera.gateway.readiness import Readiness
from aera.gateway.settings import GatewaySettings, ServedModel
from aera.gateway.voting import Escalation, Gateway
from aera.policies.gate import PaperGate
from aera.reading.equivalence import question_reader
from aera.sampling.exchange import tls_context
from aera.sampling.replicas import Replicas
from aera.sampling.upstream import Endpoint

SERVING = "aera.serving"
"""Where a request finds it."""
NAMED = 20
"""Models that a refusal names at most."""


@dataclass(eq=False)
class Opened:
    """Open connections to the replicas of one server."""

    endpoints: tuple[Endpoint, ...]
    own_key: bool
    replicas: Replicas
    readiness: Readiness


@dataclass(frozen=True, eq=False)
class OpenModel:
    """A model that is served, with its connections."""

    served: ServedModel
    opened: Opened
    gateway: Gateway

    def translate(self, name: str) -> str:
        """What the model server calls the model that is asked for by this name."""
        return (self.served.upstream_name or name) if name == self.served.name else name

    def upstream(self, headers: Sequence[tuple[bytes, bytes]]) -> Replicas:
        """The model servers, asked with the caller's own key where that is passed on."""
        replicas = self.opened.replicas
        if not self.served.forward_key:
            return replicas
        given = [value for name, value in headers if name == b"authorization"]
        if not given:
            raise DeniedError("the model server needs your key", status=401, code="invalid_api_key")
        return replicas.with_headers({"Authorization": given[0].decode("latin-1")})


class Serving:
    """The models that are served; open inside `async with`."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings = settings
        self.models: dict[str, OpenModel] = {}
        self.default = settings.default or settings.models[0].name
        """The name of the model for requests that name none."""
        self._others: OpenModel | None = None
        self._opened: list[Opened] = []

    async def __aenter__(self) -> "Serving":
        """Connect all models; on an error nothing stays open."""
        try:
            for served in self.settings.models:
                self.models[served.name] = made = await self._open(served)
                if served.other_names:
                    self._others = made
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        for model in self.models.values():
            await model.gateway.auditor.stop()
        while self._opened:
            await self._opened.pop().replicas.__aexit__()

    async def _open(self, served: ServedModel) -> OpenModel:
        opened = await self._connect(served.upstreams, own_key=not served.forward_key)
        escalation = None
        if served.escalation is not None:
            endpoint, model = served.escalation
            second = await self._connect((endpoint,), own_key=True)
            escalation = Escalation(second.replicas, model)
        gateway = Gateway(
            opened.replicas,
            served.controller,
            encoder_of(served),
            minimum=served.minimum,
            escalation=escalation,
            ceilings=served.ceilings,
            auditor=Auditor(served.audits, served.name, served.controller.label),
            record=served.record,
        )
        return OpenModel(served, opened, gateway)

    async def _connect(self, endpoints: tuple[Endpoint, ...], *, own_key: bool) -> Opened:
        """Connections to these; whoever asks the same servers shares them and their permits."""
        for opened in self._opened:
            if (opened.endpoints, opened.own_key) == (endpoints, own_key):
                return opened
        replicas = await Replicas(endpoints).__aenter__()
        opened = Opened(endpoints, own_key, replicas, Readiness(replicas, own_key=own_key))
        self._opened.append(opened)
        return opened

    def find(self, name: str, client: Client) -> OpenModel:
        """The model that is asked for; DeniedError where there is none, or not for this client."""
        found = self.models.get(name) or self._others
        if found is None:
            known = ", ".join(list(self.models)[:NAMED])
            text = f'there is no model "{name:.80}" here; there are {known}'
            raise DeniedError(text, status=404, code="model_not_found")
        if client.models and name not in client.models:
            text = f'this key may not ask for "{name:.80}"'
            raise DeniedError(text, status=403, code="model_not_allowed")
        return found

    @property
    def plain(self) -> bool:
        """Whether every name goes to the same servers, as it is."""
        one = next(iter(self.models.values())).served
        return len(self.models) == 1 and one.other_names and not one.upstream_name

    @property
    def others(self) -> OpenModel | None:
        """Who takes the names that no model has."""
        return self._others

    @property
    def upstreams(self) -> dict[str, Replicas]:
        """The model servers, each by the first model that is asked for there."""
        found: dict[str, Replicas] = {}
        for name, model in self.models.items():
            if model.opened.replicas not in found.values():
                found[name] = model.opened.replicas
            second = model.gateway.escalation
            if second is not None and second.upstream not in found.values():
                found[f"{name}, second"] = second.upstream
        return found

    async def check(self) -> tuple[bool, list[dict[str, Any]]]:
        """Whether any server takes requests, and how each replica is doing."""
        opened = list(dict.fromkeys(model.opened for model in self.models.values()))
        told = await asyncio.gather(*(each.readiness.check() for each in opened))
        rows = []
        for each, (_, replicas) in zip(opened, told, strict=True):
            names = [name for name, model in self.models.items() if model.opened is each]
            rows += [{**row, "models": names} for row in replicas]
        return any(able for able, _ in told), rows


def prepare(settings: GatewaySettings) -> None:
    """Load what the models need, and refuse what cannot be served; this may take a while."""
    for served in settings.models:
        question_reader(served.controller.task)  # refuses where math-verify is missing
        encoder_of(served)
        for endpoint in served.upstreams:
            tls_context(endpoint.ca_file)


def encoder_of(served: ServedModel) -> Encoder:
    """What compares replies: the gate's own encoder, or the bundled one."""
    gate = served.controller.gate
    return gate.encoder if isinstance(gate, PaperGate) else _bundled()


@cache
def _bundled() -> Encoder:
    return StaticEncoder.load()
