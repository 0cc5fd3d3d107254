"""Audits: some votes run on to the full budget after their answer has left, and are compared.

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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any

from aera.core import Question
from aera.errors import AeraError
from aera.gateway.config import FULL_BUDGET, ModelConfig
from aera.gateway.openai import Json, RequestOptions, find_last_words, find_system
from aera.gateway.vote import VotedChoice, Voter, VoteRequest
from aera.pools.log import Log
from aera.pools.pool import Plan
from aera.pools.stats import Detector, interval
from aera.sampling.budget import Budget, Ledger
from aera.sampling.client import cancel_all
from aera.solving.run import Run
from aera.solving.solve import drive, off_loop
from aera.voting.structure import is_structured

log = logging.getLogger("aera.gateway")
# Texts that are remembered as drawn.
TEXTS = 100_000
DAY = 86_400.0
SAME, CHANGED, UNFINISHED = "same", "changed", "unfinished"
SKIPPED, CANCELLED = "skipped", "cancelled"
# What lines of the log are about.
EVENT, ALARM = "audit", "audit alarm"


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
    found: Found | None = None
    withdrawn: bool = False
    """Whether there was no answer to look at."""
    begun: float = field(default_factory=time.monotonic)
    came: float = field(default_factory=time.time)


class Auditor:
    """The audits of one model since the gateway started."""

    def __init__(
        self, config: ModelConfig, voter: Voter, told: Callable[[str, Found], None]
    ) -> None:
        self.config, self._voter, self._told = config, voter, told
        self.policy = voter.controller.label
        # What the lines of this sequence have in common.
        self.sequence = os.urandom(4).hex()
        self.counts: Counter[str] = Counter()
        self.limit = config.alarm_limit
        self.detector = Detector(self.limit)
        self._recorded = None if config.record is None else open_record(config)
        tokens = config.audit_tokens
        self._ledgers = (Ledger(Budget(tokens=tokens), period=DAY),) if tokens else ()
        self._key = os.urandom(16)
        self._texts: dict[bytes, None] = {}
        self._waiting: deque[Audit] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False

    # --- drawing ----------------------------------------------------------------------------------

    def draw(self, request_id: str, body: Json, options: RequestOptions) -> Audit | None:
        """The audit of a request, where it is drawn; `finish` is then called in any case."""
        if not self._is_drawn() or self._stopped or self.spends_all or _is_own(body, options):
            return None
        text = self._hash(json.dumps(body.get("messages"), sort_keys=True).encode())
        if text in self._texts:
            return None
        over = any(each.wait() for each in self._ledgers)
        if over or len(self._waiting) >= self.config.audit_max:
            self._told(self.config.name, Found(SKIPPED))
            return None
        self._texts[text] = None
        if len(self._texts) > TEXTS:
            del self._texts[next(iter(self._texts))]
        self._waiting.append(audit := Audit(request_id, text))
        return audit

    def _is_drawn(self) -> bool:
        share = self.config.audit_share
        return share > 0 and int.from_bytes(self._hash(os.urandom(16))) < share * 2**128

    def _hash(self, content: bytes) -> bytes:
        return hashlib.blake2b(content, key=self._key, digest_size=16).digest()

    def finish(self, audit: Audit, request: VoteRequest, voted: VotedChoice | None) -> None:
        """The request is over: look at its answer, or at nothing where there is none."""
        if voted is None:
            audit.withdrawn = True
            self._texts.pop(audit.text, None)  # it may be drawn again
            self._count_up()
        elif not self._stopped:
            task = asyncio.create_task(self._audit(audit, request, voted))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    # --- the work ---------------------------------------------------------------------------------

    async def _audit(self, audit: Audit, request: VoteRequest, voted: VotedChoice) -> None:
        again = self._voter.reopen(request, self._ledgers)
        run = again.run
        try:
            finished = await self._run_on(again, voted)
            same = finished and run.allocation.answer == voted.allocation.answer
            outcome = (SAME if same else CHANGED) if finished else UNFINISHED
            if not finished and run.reason == "limit: key":
                outcome = CANCELLED  # the tokens of the day are spent, whatever it would have said
            if finished and self._recorded is not None:
                work = partial(self._record, audit, again, voted, outcome)
                await asyncio.get_running_loop().run_in_executor(_recording_thread(), work)
        except asyncio.CancelledError:
            audit.found = _tell(CANCELLED, run, voted)
            raise
        except AeraError:
            outcome = UNFINISHED
        except Exception:  # whatever it was: those drawn after it wait for this one
            log.exception("an audit failed")
            outcome = UNFINISHED
        audit.found = _tell(outcome, run, voted)
        self._count_up()

    async def _run_on(self, again: VoteRequest, voted: VotedChoice) -> bool:
        """Feed what was paid for already, then what is missing; whether all of it could be had."""
        run, known = again.run, list(voted.responses)
        while known and run.want:
            block, known = known[: run.want], known[run.want :]
            await off_loop(run, partial(run.feed, block), size=sum(len(r.text) for r in block))
        await drive(run, again.sampler, again.ledger)
        return run.error is None and run.prefix.next_checkpoint is None

    def _record(self, audit: Audit, again: VoteRequest, voted: VotedChoice, outcome: str) -> None:
        """Keep the question and all its responses; who asked, and with which key, is not kept."""
        assert self._recorded is not None
        text = again.controller.task.question_in(find_last_words(again.body))
        question = Question(voted.id, text, system=find_system(again.body))
        about = {
            "time": audit.came,
            "request": audit.id,
            "model": self.config.name,
            "policy": self.policy,
            "stopped_at": voted.allocation.responses,
            "outcome": outcome,
            "limit": self.limit,
        }
        responses, most = again.run.prefix.responses, self.config.record_max
        try:
            room = self._recorded.add_audit(question, responses, about, most=most)
            why = f"record_max of {most} bytes is reached; aera drop makes room"
        except OSError as error:
            room, why = False, f"{error.filename}: {error.strerror}"
        if not room:
            log.warning(json.dumps({"event": "not recorded", "id": audit.id, "why": why}))

    # --- outcomes ---------------------------------------------------------------------------------

    def _count_up(self) -> None:
        """An audit counts when all that were drawn before it have ended too."""
        while self._waiting and not self._stopped:
            first = self._waiting[0]
            if first.found is None and not first.withdrawn:
                return
            self._waiting.popleft()
            if first.found is not None:
                self._count(first, first.found)

    def _count(self, audit: Audit, found: Found) -> None:
        self._told(self.config.name, found)
        self._log(audit, found)
        if found.outcome == CANCELLED:
            return
        self.counts[found.outcome] += 1
        before = self.detector.alarmed
        self.detector.see(found.outcome != SAME)
        if self.detector.alarmed and not before:
            numbers = self.numbers()
            state = {
                "audits": self.counts.total(),
                "changed": int(numbers["changed"]),
                "low": round(numbers["share_low"], 5),
                "high": round(numbers["share_high"], 5),
                "limit": self.limit,
                "alarm": True,
            }
            log.warning(json.dumps({"event": ALARM, **self._about(), **state}))

    async def stop(self) -> None:
        """Cancel what is under way."""
        self._stopped = True
        await cancel_all(self._tasks)
        if self._recorded is not None:
            self._recorded.close()
        while self._waiting:
            audit = self._waiting.popleft()
            if not audit.withdrawn:
                spent = audit.found or Found(CANCELLED)
                cancelled = Found(CANCELLED, spent.samples, spent.prompt_tokens, spent.tokens)
                self._told(self.config.name, cancelled)
                self._log(audit, cancelled)

    @property
    def spends_all(self) -> bool:
        """Whether votes take the full budget until somebody has looked."""
        return self.detector.alarmed and self.config.on_alarm == FULL_BUDGET

    def numbers(self) -> dict[str, float]:
        """Audits that were counted, those whose answer changed, their share, and the alarm."""
        seen = self.counts.total()
        changed = seen - self.counts[SAME]
        low, high = interval(changed, seen)
        share = changed / seen if seen else 0.0
        shares = {"share": share, "share_low": low, "share_high": high}
        return {"seen": seen, "changed": changed, "alarm": self.detector.alarmed, **shares}

    def _about(self) -> dict[str, Any]:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        about = {"model": self.config.name, "policy": self.policy, "sequence": self.sequence}
        return {"time": now, **about}

    def _log(self, audit: Audit, found: Found) -> None:
        if not log.isEnabledFor(logging.INFO):
            return
        spent = {name: getattr(found, name) for name in ("samples", "prompt_tokens", "tokens")}
        took = {"limit": self.limit, "ms": round(1000 * (time.monotonic() - audit.begun), 1)}
        line = {"event": EVENT, **self._about(), "id": audit.id, "outcome": found.outcome}
        log.info(json.dumps({**line, **spent, **took}))


@cache
def _recording_thread() -> ThreadPoolExecutor:
    """One of its own: whoever waits for the folder's lock keeps no vote waiting."""
    return ThreadPoolExecutor(1, "aera-recording")


def open_record(config: ModelConfig) -> Log:
    """The log that a model's audits are written to, which only its owner may read."""
    assert config.record is not None
    return Log.open(
        config.record, Plan(config.decider.task, None), command="aera serve", private=True
    )


def _tell(outcome: str, run: Run, voted: VotedChoice) -> Found:
    prefix, paid = run.prefix, voted.allocation
    return Found(
        outcome,
        max(0, len(prefix) - paid.responses),
        max(0, prefix.prompt_tokens - paid.prompt_tokens),
        max(0, prefix.completion_tokens - paid.completion_tokens),
    )


def _is_own(body: Json, options: RequestOptions) -> bool:
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


# --- what they say --------------------------------------------------------------------------------

# The chance that an interval ever leaves out the mean, however often it is looked at.
ALPHA = 0.05
# Audits until a false alarm, on average at least.
RUN_LENGTH = 10_000
TILTS = tuple(0.02 * 1.5**step for step in range(18))
# The shares that the alarm looks for, in limits.
LARGER = (2.0, 3.0, 4.5, 8.0, 16.0)
HALVINGS = 40
