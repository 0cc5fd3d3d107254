"""Clients: who may ask, how much at once, in a minute, and for how much money in a day."""

import hashlib
import hmac
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from aera.gateway.openai import DeniedError
from aera.gateway.settings import ClientKey, KeyLimits

Headers = Sequence[tuple[bytes, bytes]]


MINUTE, DAY = 60.0, 86_400.0


class Bucket:
    """So many in a time, all of which may come at once."""

    def __init__(self, most: float, seconds: float = MINUTE) -> None:
        self._most, self._left, self._filled = most, most, time.monotonic()
        self._rate = most / seconds

    def take(self, count: float) -> None:
        """Use some, also more than there are: the next one waits for it."""
        self._fill()
        self._left -= count

    def wait(self, least: float) -> float:
        """Seconds until so many are there, 0 where they are."""
        self._fill()
        return max(0.0, least - self._left) / self._rate

    def _fill(self) -> None:
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._filled) * self._rate)
        self._filled = now


@dataclass(eq=False)
class Client:
    """Whoever holds one key."""

    name: str
    """What logs and metrics call it: its name or a hash of the key; empty without keys."""
    most: int
    """Requests at once."""
    models: frozenset[str] = frozenset()
    """Models that it may ask for; none: all."""
    requests: Bucket | None = None
    tokens: Bucket | None = None
    money: Bucket | None = None
    prices: tuple[float, float] = (0.0, 0.0)
    """Of a million prompt and a million completion tokens."""
    active: int = field(default=0, init=False)

    def refusal(self) -> DeniedError | None:
        """Why this client has to wait, if so."""
        if self.active >= self.most:
            return too_many("too many requests of this key are under way", 1.0)
        wait = self.requests.wait(1.0) if self.requests else 0.0
        if wait:
            return too_many("this key has used up its requests of the minute", wait)
        wait = self.tokens.wait(1.0) if self.tokens else 0.0
        if wait:
            return too_many("this key has used up its tokens of the minute", wait)
        wait = self.money.wait(1e-9) if self.money else 0.0
        return too_many("this key has used up its money of the day", wait) if wait else None

    def enter(self) -> None:
        """A request begins."""
        self.active += 1
        if self.requests is not None:
            self.requests.take(1.0)

    def leave(self) -> None:
        """A request is over."""
        self.active -= 1

    @property
    def counted(self) -> bool:
        """Whether anybody cares what a reply took."""
        return self.tokens is not None or self.money is not None

    def spend(self, prompt: int, completion: int) -> None:
        """Count the tokens that a reply took."""
        if self.tokens is not None:
            self.tokens.take(prompt + completion)
        if self.money is not None:
            self.money.take((prompt * self.prices[0] + completion * self.prices[1]) / 1e6)


def too_many(text: str, wait: float) -> DeniedError:
    """A refusal to be repeated later."""
    kind, code = "rate_limit_error", "too_many_requests"
    return DeniedError(text, status=429, kind=kind, code=code, retry_after=wait)


class Clients:
    """Finds the client of a request by its key."""

    def __init__(
        self, keys: Sequence[ClientKey], *, most: int, limits: KeyLimits | None = None
    ) -> None:
        self._anybody = _make("", ClientKey("", limits or KeyLimits()), most)
        self._clients = [
            _make(key.name or hash_key(key.secret), key, _at_once(key, len(keys), most))
            for key in keys
        ]
        self._keys = [key.secret.encode() for key in keys]

    def find(self, headers: Headers) -> Client:
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


def hash_key(key: str) -> str:
    """What logs and metrics call the holder of a key that has no name."""
    return hashlib.sha256(key.encode()).hexdigest()[:8]


def _at_once(key: ClientKey, keys: int, most: int) -> int:
    """Requests of one key at once: a share, where there are others."""
    return max(1, int((key.limits.share if keys > 1 else 1.0) * most))


def _make(name: str, key: ClientKey, most: int) -> Client:
    limits = key.limits
    return Client(
        name,
        most,
        key.models,
        _bucket(limits.requests_per_minute, MINUTE),
        _bucket(limits.tokens_per_minute, MINUTE),
        _bucket(limits.money_per_day, DAY),
        limits.prices,
    )


def _bucket(most: float | None, seconds: float) -> Bucket | None:
    return Bucket(most, seconds) if most else None
