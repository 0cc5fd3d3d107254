"""Clients by their keys: who may ask, how much at once, in a minute, and for how much money."""

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import time
from collections.abc import AsyncIterator
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

    def __init__(self, key: KeyConfig, config: Config, *, alone: bool) -> None:
        limits = config.limits
        secret = hashlib.sha256(key.secret.encode()).hexdigest()[:8] if key.secret else ""
        # What logs and metrics call it: its name or a hash of the key; empty without keys.
        self.name = key.name or secret
        self.models = frozenset(key.models)
        share = limits.key_share if key.share is None else key.share
        self._most = max(1, int((1.0 if alone else share) * limits.max_requests))
        requests = key.requests_per_minute or limits.key_requests_per_minute
        self._requests = Ledger(Budget(responses=requests), period=MINUTE) if requests else None
        self.active = 0
        tokens = key.tokens_per_minute or limits.key_tokens_per_minute
        money = key.money_per_day or limits.key_money_per_day
        made = []
        if tokens:
            made.append(Ledger(Budget(tokens=tokens, with_prompts=True), period=MINUTE))
        if money:
            prompt, completion = key.prices or limits.prices
            budget = Budget(money=money, prompt_price=prompt, completion_price=completion)
            made.append(Ledger(budget, period=DAY))
        # What it spends in tokens and in money, where that is limited.
        self.ledgers = tuple(made)

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

    def leave(self) -> None:
        """A request is over."""
        self.active -= 1

    async def hold(self, n: int, bound: Bound) -> Held:
        """Room for a request that is passed on, all of it."""
        held = await Ledger(Budget(), above=self.ledgers).reserve(n, bound)
        if held is None or held.responses < n:
            if held is not None:
                held.close()
            raise used_up(self.ledgers, bound)
        return held


class Keys:
    """Finds the client of a request by its key, and keeps in a file what keys have spent."""

    def __init__(self, config: Config) -> None:
        self._keys = [key.secret.encode() for key in config.key]
        self._clients = [Client(key, config, alone=len(config.key) == 1) for key in config.key]
        self.anybody = Client(KeyConfig(), config, alone=True)
        limited = any(client.ledgers for client in self._clients)
        self._file = config.keys.spent if limited else None
        self._saved: dict[str, dict[str, list[float]]] = {}
        self._warned = False
        if self._file is not None and self._file.exists():
            self._restore(self._file)

    def admit(self, headers: Headers) -> Client:
        """The client of a request; DeniedError for an unknown one."""
        if not self._keys:
            return self.anybody
        given = [value for name, value in headers if name == b"authorization"]
        if len(given) > 1:
            text = "a request takes one Authorization header, but this one has several"
            raise DeniedError(text, status=400, code="invalid_header")
        scheme, _, key = (given[0] if given else b"").partition(b" ")
        # Every key is compared, each in constant time: timing teaches nothing.
        same = [hmac.compare_digest(key.strip(), known) for known in self._keys]
        if scheme.lower() != b"bearer" or not any(same):
            raise DeniedError("a valid key is needed", status=401, code="invalid_api_key")
        return self._clients[same.index(True)]

    # --- what outlives a restart ------------------------------------------------------------------

    def _restore(self, file: Path) -> None:
        try:
            told = json.loads(file.read_text("utf-8"))
            seconds = max(0.0, time.time() - told["time"])
            for client in self._clients:
                for each in client.ledgers:
                    saved = told["keys"].get(client.name, {}).get(str(each.period))
                    if saved is not None:
                        each.restore(saved, seconds)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            text = f'"{file}" does not say what keys have spent: remove it, and they begin anew'
            raise UsageError(text) from None

    async def _save(self, file: Path) -> None:
        """Write down what each key has spent or may have, where that has changed."""
        spent = {
            client.name: {str(each.period): each.saved for each in client.ledgers}
            for client in self._clients
        }
        if spent == self._saved:
            return
        try:
            await asyncio.to_thread(write_json, file, {"time": time.time(), "keys": spent})
            self._saved = spent
        except OSError as error:
            if not self._warned:
                text = "what keys have spent cannot be kept (%s: %s): spent of [keys] names a place"
                log.warning(text, file, error.strerror)
            self._warned = True

    @contextlib.asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Keep what is spent until the end; a kill loses at most the last second of it."""
        file, over = self._file, asyncio.Event()
        if file is None:
            yield
            return

        async def keep() -> None:
            while not over.is_set():
                await self._save(file)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), SAVED)
            await self._save(file)

        task = asyncio.create_task(keep())
        try:
            yield
        finally:
            over.set()
            await task
