"""Clients by their keys: who may ask, how much at once, in a minute, and for how much money."""

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from aera.core import Response
from aera.errors import UsageError
from aera.files import write_json
from aera.gateway.config import Config, KeyConfig
from aera.gateway.openai import DeniedError, Headers, too_many, used_up
from aera.sampling.budget import Bound, Budget, Held, Ledger

log = logging.getLogger("aera.gateway")
MINUTE, DAY = 60.0, 86_400.0
ONE = Bound(max_tokens=1, prompt_tokens=0)
# Seconds after which what was spent is written down again.
SAVED = 1.0


class Client:
    """Whoever holds one key; without keys, all together."""

    def __init__(self, key: KeyConfig, config: Config) -> None:
        limits, self.secret = config.limits, key.secret.encode()
        # What logs and metrics call it: its name or a hash of the key; empty without keys.
        self.name = key.name or (key.secret and hashlib.sha256(self.secret).hexdigest()[:8])
        self.models = frozenset(key.models)
        share = limits.key_share if key.share is None else key.share
        share = share if len(config.key) > 1 else 1.0
        self._most = max(1, int(share * limits.max_requests))
        requests = key.requests_per_minute or limits.key_requests_per_minute
        self._requests = Ledger(Budget(responses=requests), period=MINUTE) if requests else None
        self.active = 0
        # What it spends in tokens and in money, where that is limited.
        self.ledgers: tuple[Ledger, ...] = ()
        if tokens := key.tokens_per_minute or limits.key_tokens_per_minute:
            self.ledgers += (Ledger(Budget(tokens=tokens, with_prompts=True), period=MINUTE),)
        if money := key.money_per_day or limits.key_money_per_day:
            prompt, completion = key.prices or limits.prices
            budget = Budget(money=money, prompt_price=prompt, completion_price=completion)
            self.ledgers += (Ledger(budget, period=DAY),)

    def may_see(self, model: str) -> bool:
        """Whether it may ask for a model."""
        return not self.models or model in self.models

    def enter(self) -> None:
        """A request begins; DeniedError where it has to wait."""
        if self.active >= self._most:
            raise too_many("too many requests of this key are under way", 1.0)
        if self._requests and (wait := self._requests.wait(ONE)):
            raise too_many("this key has used up its requests of the minute", wait)
        if any(each.wait() for each in self.ledgers):
            raise used_up(self.ledgers)
        if self._requests:
            self._requests.book([Response("")])
        self.active += 1

    async def hold(self, n: int, bound: Bound) -> Held:
        """Room for a request that is passed on, all of it."""
        held = await Ledger(Budget(), above=self.ledgers).reserve(n, bound)
        if held is None or held.responses < n:
            if held is not None:
                held.close()
            raise used_up(self.ledgers, bound)
        return held


def admit(clients: Sequence[Client], headers: Headers) -> Client:
    """The client of a request by its key; DeniedError for an unknown one."""
    given = [value for name, value in headers if name == b"authorization"]
    if len(given) > 1:
        text = "a request takes one Authorization header, but this one has several"
        raise DeniedError(text, status=400, code="invalid_header")
    scheme, _, key = (given[0] if given else b"").partition(b" ")
    # Every key is compared, each in constant time: timing teaches nothing.
    same = [each for each in clients if hmac.compare_digest(key.strip(), each.secret)]
    if scheme.lower() != b"bearer" or not same:
        raise DeniedError("a valid key is needed", status=401, code="invalid_api_key")
    return same[0]


# --- what outlives a restart ----------------------------------------------------------------------


def restore(file: Path, clients: Sequence[Client]) -> None:
    """Give keys back what they had spent."""
    try:
        told = json.loads(file.read_text("utf-8"))
        seconds = max(0.0, time.time() - told["time"])
        for client in clients:
            for each in client.ledgers:
                saved = told["keys"].get(client.name, {}).get(str(each.period))
                if saved is not None:
                    each.restore(saved, seconds)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        text = f'"{file}" does not say what keys have spent: remove it, and they begin anew'
        raise UsageError(text) from None


@contextlib.asynccontextmanager
async def kept(file: Path, clients: Sequence[Client]) -> AsyncIterator[None]:
    """Keep what is spent until the end; a kill loses at most the last second of it."""
    over = asyncio.Event()

    async def keep() -> None:
        saved, warned = dict[str, dict[str, list[float]]](), False
        while not over.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), SAVED)
            spent = {c.name: {str(each.period): each.saved for each in c.ledgers} for c in clients}
            if spent == saved:
                continue
            try:
                await asyncio.to_thread(write_json, file, {"time": time.time(), "keys": spent})
                saved = spent
            except OSError as error:
                if not warned:
                    text = "what keys have spent cannot be kept (%s: %s): spent of [keys] names "
                    log.warning(text + "a place", file, error.strerror)
                warned = True

    task = asyncio.create_task(keep())
    try:
        yield
    finally:
        over.set()
        await task
