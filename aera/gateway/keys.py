"""Clients by their keys: who may ask, how much at once, in a minute, and for how much money."""

import hashlib
import hmac
import time

from aera.gateway.config import Config, KeyConfig
from aera.gateway.openai import DeniedError, Headers, too_many
from aera.sampling.budget import Bound, Budget, Held, Ledger

MINUTE, DAY = 60.0, 86_400.0


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
        self._per_minute = key.requests_per_minute or limits.key_requests_per_minute
        self._left, self._filled = float(self._per_minute or 0), time.monotonic()
        self.active = 0
        tokens = key.tokens_per_minute or limits.key_tokens_per_minute
        money = key.money_per_day or limits.key_money_per_day
        made = []
        if tokens:
            made.append(Ledger(Budget(tokens=tokens, with_prompts=True), period=MINUTE))
        if money:
            prices = key.prices or limits.prices
            made.append(Ledger(Budget(money=money, prompt_price=prices[0],
                                      completion_price=prices[1]), period=DAY))  # fmt: skip
        # What it spends in tokens and in money, where that is limited.
        self.ledgers = tuple(made)

    def enter(self) -> None:
        """A request begins; DeniedError where it has to wait."""
        if self.active >= self._most:
            raise too_many("too many requests of this key are under way", 1.0)
        if self._per_minute:
            now = time.monotonic()
            rate = self._per_minute / MINUTE
            self._left = min(self._per_minute, self._left + (now - self._filled) * rate)
            self._filled = now
            if self._left < 1:
                wait = (1 - self._left) / rate
                raise too_many("this key has used up its requests of the minute", wait)
        for each in self.ledgers:
            if wait := each.wait():
                raise used_up(each, wait)
        self._left -= 1
        self.active += 1

    def leave(self) -> None:
        """A request is over."""
        self.active -= 1

    async def hold(self, n: int, bound: Bound) -> Held | None:
        """Room for a request that is passed on; None where nobody counts."""
        if not self.ledgers:
            return None
        held = await Ledger(Budget(), above=self.ledgers).reserve(n, bound)
        if held is None:
            first = max(self.ledgers, key=Ledger.wait)
            raise used_up(first, max(1.0, first.wait()))
        return held


def used_up(ledger: Ledger, wait: float) -> DeniedError:
    """The refusal of a key that has spent what it may."""
    what = "tokens of the minute" if ledger.period == MINUTE else "money of the day"
    return too_many(f"this key has used up its {what}", wait)


class Keys:
    """Finds the client of a request by its key."""

    def __init__(self, config: Config) -> None:
        self._keys = [key.secret.encode() for key in config.key]
        self._clients = [Client(key, config, alone=len(config.key) == 1) for key in config.key]
        self._anybody = Client(KeyConfig(), config, alone=True)

    def admit(self, headers: Headers) -> Client:
        """The client of a request; DeniedError for an unknown one."""
        if not self._keys:
            return self._anybody
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
