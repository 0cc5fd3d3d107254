"""Auditor: which requests run on to the full budget, and what came of them, in the order drawn.

A request is drawn before its vote, by a keyed hash of an id that is made here, so that nobody can
choose what is looked at; a text that was drawn is not drawn again. Where there is no room it is
skipped, which says nothing of its answer. One that cannot finish counts as changed. What is still
under way when the gateway stops is cancelled and counts as nothing.
"""

import asyncio
import hashlib
import json
import logging
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from aera.errors import UsageError
from aera.gateway.options import RequestOptions
from aera.pools.stats import Detector, interval
from aera.reading.chat import is_structured
from aera.sampling.upstream import cancel_all

log = logging.getLogger("aera.gateway")
TEXTS = 100_000
"""Texts that are remembered as drawn."""
DAY = 86_400.0
SAME, CHANGED, UNFINISHED = "same", "changed", "unfinished"
SKIPPED, CANCELLED = "skipped", "cancelled"
EVENT, ALARM = "audit", "audit alarm"
"""What lines of the log are about."""


@dataclass(frozen=True)
class AuditRules:
    """How many requests run on to the full budget, and what follows from what they say."""

    share: float = 0.0
    """Of the voted requests; 0 draws none."""
    limit: float = 0.02
    """Share of changed answers above which the alarm is to be raised."""
    most: int = 16
    """Audits under way at once."""
    tokens: int | None = None
    """Completion tokens of all audits in a day, after which none is drawn."""
    full_on_alarm: bool = False
    """Whether every vote takes the full budget after an alarm."""

    def __post_init__(self) -> None:
        if not (0 <= self.share <= 1 and 0 < self.limit < 1):
            raise UsageError("the share and the limit of audits are between 0 and 1")


@dataclass(frozen=True)
class Found:
    """What the full budget says."""

    outcome: str
    samples: int = 0
    prompt_tokens: int = 0
    """Of the audit alone, as are the others."""
    tokens: int = 0


@dataclass(eq=False)
class Audit:
    """One drawn request."""

    id: str
    """The request's own, as in the log."""
    text: bytes = field(repr=False)
    vote: Any = None
    """What is needed to run on; None until there is an answer."""
    found: Found | None = None
    withdrawn: bool = False
    """Whether there was no answer to look at."""
    begun: float = field(default_factory=time.monotonic)


def _told_nobody(found: Found) -> None:
    """Nobody counts."""


class Auditor:
    """The audits of one model since the gateway started."""

    def __init__(self, rules: AuditRules, model: str, policy: str) -> None:
        self.rules, self.model, self.policy = rules, model, policy
        self.sequence = os.urandom(4).hex()
        """What the lines of this sequence have in common."""
        self.counts: Counter[str] = Counter()
        self.detector = Detector(rules.limit)
        self.told: Callable[[Found], None] = _told_nobody
        self._key = os.urandom(16)
        self._texts: dict[bytes, None] = {}
        self._waiting: deque[Audit] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False
        self._day, self._spent = time.monotonic(), 0

    # --- drawing ----------------------------------------------------------------------------------

    def draw(
        self, request_id: str, body: Mapping[str, Any], options: RequestOptions
    ) -> Audit | None:
        """The audit of a request, where it is drawn; `finish` is then called in any case."""
        if not self._is_drawn() or self._stopped or self.spends_all or _is_own(body, options):
            return None
        text = self._hash(json.dumps(body.get("messages"), sort_keys=True).encode())
        if text in self._texts:
            return None
        if not self._has_room():
            self.told(Found(SKIPPED))
            return None
        self._texts[text] = None
        if len(self._texts) > TEXTS:
            del self._texts[next(iter(self._texts))]
        self._waiting.append(audit := Audit(request_id, text))
        return audit

    def _is_drawn(self) -> bool:
        share = self.rules.share
        return share > 0 and int.from_bytes(self._hash(os.urandom(16))) < share * 2**128

    def _hash(self, content: bytes) -> bytes:
        return hashlib.blake2b(content, key=self._key, digest_size=16).digest()

    def _has_room(self) -> bool:
        if time.monotonic() - self._day > DAY:
            self._day, self._spent = time.monotonic(), 0
        left = self.rules.tokens is None or self._spent < self.rules.tokens
        return left and len(self._waiting) < self.rules.most

    # --- outcomes ---------------------------------------------------------------------------------

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work of an audit beside everything else; after the end there is none to do."""
        if self._stopped:
            work.close()
            return
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def withdraw(self, audit: Audit) -> None:
        """There was no answer, so nothing can have changed; the text may be drawn again."""
        audit.withdrawn = True
        self._texts.pop(audit.text, None)
        self._count_up()

    def settle(self, audit: Audit, found: Found) -> None:
        """An audit has ended; it counts when all that were drawn before it have ended too."""
        audit.found = found
        self._spent += found.tokens
        self._count_up()

    def _count_up(self) -> None:
        while self._waiting and not self._stopped:
            first = self._waiting[0]
            if first.found is None and not first.withdrawn:
                return
            self._waiting.popleft()
            if first.found is not None:
                self._count(first, first.found)

    def _count(self, audit: Audit, found: Found) -> None:
        self.counts[found.outcome] += 1
        before = self.detector.alarmed
        self.detector.see(found.outcome != SAME)
        self.told(found)
        self._log(audit, found)
        if self.detector.alarmed and not before:
            log.warning(json.dumps({"event": ALARM, **self._about(), **self.state()}))

    async def stop(self) -> None:
        """Cancel what is under way."""
        self._stopped = True
        await cancel_all(self._tasks)
        while self._waiting:
            audit = self._waiting.popleft()
            if not audit.withdrawn:
                spent = audit.found or Found(CANCELLED)
                cancelled = Found(CANCELLED, spent.samples, spent.prompt_tokens, spent.tokens)
                self.told(cancelled)
                self._log(audit, cancelled)

    # --- what is known ----------------------------------------------------------------------------

    @property
    def seen(self) -> int:
        """Audits that were counted."""
        return self.counts.total()

    @property
    def changed(self) -> int:
        """Those whose answer is not the full budget's, as far as anybody knows."""
        return self.seen - self.counts[SAME]

    @property
    def alarmed(self) -> bool:
        """Whether more answers change than may."""
        return self.detector.alarmed

    @property
    def spends_all(self) -> bool:
        """Whether votes take the full budget until somebody has looked."""
        return self.alarmed and self.rules.full_on_alarm

    def state(self) -> dict[str, Any]:
        """The sequence so far."""
        low, high = interval(self.changed, self.seen)
        return {
            "audits": self.seen,
            "changed": self.changed,
            "low": round(low, 5),
            "high": round(high, 5),
            "limit": self.rules.limit,
            "alarm": self.alarmed,
        }

    def _about(self) -> dict[str, Any]:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        about = {"model": self.model, "policy": self.policy, "sequence": self.sequence}
        return {"time": now, **about}

    def _log(self, audit: Audit, found: Found) -> None:
        if not log.isEnabledFor(logging.INFO):
            return
        line = {
            "event": EVENT,
            **self._about(),
            "id": audit.id,
            "outcome": found.outcome,
            "samples": found.samples,
            "prompt_tokens": found.prompt_tokens,
            "tokens": found.tokens,
            "limit": self.rules.limit,
            "ms": round(1000 * (time.monotonic() - audit.begun), 1),
        }
        log.info(json.dumps(line))


def _is_own(body: Mapping[str, Any], options: RequestOptions) -> bool:
    """Whether a request decides for itself how it is voted on, which nobody promised anything of.

    So do those that take several choices or one sample, and tool calls and JSON have their own
    rules.
    """
    own = (
        options.policy,
        options.threshold,
        options.max_samples,
        options.max_tokens_total,
        options.deadline_s,
    )
    several = body.get("n") not in (None, 1) or body.get("temperature") == 0
    return several or is_structured(body) or any(each is not None for each in own)
