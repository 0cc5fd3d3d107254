"""Audits: some votes run on to the full budget after their answer has left, and are compared.

A request is drawn before its vote, by chance that nobody can foresee, so that nobody can choose
what is looked at; a text that was drawn is not drawn again. Where there is no room it is
skipped, which says nothing of its answer. One that cannot finish counts as changed. What is still
under way when the gateway stops is cancelled and counts as nothing.
"""

import asyncio
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from random import SystemRandom
from typing import Any

from aera.errors import AeraError
from aera.files import Json
from aera.gateway.config import FULL_BUDGET, ModelConfig
from aera.gateway.openai import RequestOptions, structure_of
from aera.pools.log import Log
from aera.pools.pool import Audit, Plan
from aera.pools.stats import SAME, Detector, interval
from aera.sampling.budget import Bound, Budget, Ledger
from aera.sampling.client import cancel_all
from aera.solving.controller import Controller
from aera.solving.run import Allocation, Run

log = logging.getLogger("aera.gateway")
CHANCE = SystemRandom()
# Texts that are remembered as drawn.
TEXTS = 100_000
DAY = 86_400.0
Finish = Callable[[], Awaitable[Allocation]]
CHANGED, UNFINISHED = "changed", "unfinished"
SKIPPED, CANCELLED = "skipped", "cancelled"


class Auditor:
    """The audits of one model since the gateway started; `count` is that of the metrics."""

    def __init__(
        self, config: ModelConfig, controller: Controller, count: Callable[..., None]
    ) -> None:
        self.config, self._count = config, count
        told = controller.calibration
        promised = told.get("max_loss") if told.get("by_agreement") else None
        # The share of changed answers above which the alarm is raised.
        self._limit = config.audit_limit or (promised if isinstance(promised, float) else 0.02)
        self.detector = Detector(self._limit)
        # What the lines of this sequence have in common.
        self._named = {"model": config.name, "policy": controller.label}
        self._named["sequence"] = os.urandom(4).hex()
        self._tokens = 0
        self._log: Log | None = None
        if config.record is not None:  # which only its owner may read
            plan = Plan(controller.task, None)
            self._log = Log(config.record, plan, command="aera serve", private=True)
        tokens = config.audit_tokens
        # What audits may spend.
        self.ledgers = (Ledger(Budget(tokens=tokens), period=DAY),) if tokens else ()
        # By their hashes.
        self._texts: dict[int, None] = {}
        # Those that were drawn, in this order: id, outcome and what it took, once they have ended.
        self._waiting: dict[int, Json] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False

    # --- drawing ----------------------------------------------------------------------------------

    @contextmanager
    def drawn(self, body: Json, options: RequestOptions) -> Iterator[int | None]:
        """Around a vote that may be drawn: its text, as it is remembered; None for any other."""
        text = self._draw(body, options)
        try:
            yield text
        except BaseException:  # it came to nothing, so there is no answer to look at
            if text is not None:
                self._texts.pop(text, None)  # it may be drawn again
                del self._waiting[text]
                self._count_ended()
            raise

    def _draw(self, body: Json, options: RequestOptions) -> int | None:
        drawn = CHANCE.random() < self.config.audit_share
        if not drawn or self._stopped or self.spends_all or _is_own(body, options):
            return None
        text = hash(json.dumps(body["messages"], sort_keys=True))
        if text in self._texts:
            return None
        over = any(each.wait(Bound(prompt_tokens=0)) for each in self.ledgers)
        if over or len(self._waiting) >= self.config.audit_max:
            self._count("audits", SKIPPED, self.config.name)
            return None
        self._texts[text], self._waiting[text] = None, {}
        if len(self._texts) > TEXTS:
            del self._texts[next(iter(self._texts))]
        return text

    def follow(
        self, text: int, request_id: str, paid: Allocation, run: Run, finish: Finish
    ) -> None:
        """After a vote that was drawn, a run that nobody stops."""
        if not self._stopped:
            task = asyncio.create_task(self._audit(text, request_id, paid, run, finish))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    # --- the work ---------------------------------------------------------------------------------

    async def _audit(
        self, text: int, request_id: str, paid: Allocation, run: Run, finish: Finish
    ) -> None:
        came, outcome = time.time(), CANCELLED
        try:
            found = await finish()
            if run.reason == "limit: key":
                pass  # the tokens of the day are spent, whatever it would have said
            elif run.error is not None or run.prefix.next_checkpoint is not None:
                outcome = UNFINISHED
            else:
                outcome = SAME if found.answer == paid.answer else CHANGED
                if self._log is not None:
                    audit = Audit(
                        run.question,
                        tuple(each for each in run.prefix.responses if each.error is None),
                        time=came,
                        request=request_id,
                        stopped_at=paid.responses,
                        outcome=outcome,
                        limit=self._limit,
                        model=self._named["model"],
                        policy=self._named["policy"],
                    )
                    await asyncio.to_thread(self._record, self._log, audit)
        except Exception as error:  # whatever it was: those drawn after it wait for this one
            outcome = UNFINISHED
            if not isinstance(error, AeraError):
                log.exception("an audit failed")
        finally:
            seen = run.prefix
            self._waiting[text] = {
                "id": request_id,
                "outcome": outcome,
                "samples": max(0, len(seen) - paid.responses),
                "prompt_tokens": max(0, seen.prompt_tokens - paid.prompt_tokens),
                "tokens": max(0, seen.completion_tokens - paid.completion_tokens),
                "ms": round(1000 * (time.time() - came), 1),
            }
            self._count_ended()

    def _record(self, kept: Log, audit: Audit) -> None:
        """Keep the question and all its responses; who asked, and with which key, is not kept."""
        most = self.config.record_max
        try:
            room = kept.add_audit(audit, most=most)
            why = f"record_max of {most} bytes is reached; aera drop makes room"
        except OSError as error:
            room, why = False, f"{error.filename}: {error.strerror}"
        except AeraError as error:  # which says nothing of the answer
            room, why = False, str(error)
        if not room:
            log.warning(json.dumps({"event": "not recorded", "id": audit.request, "why": why}))

    # --- outcomes ---------------------------------------------------------------------------------

    def _count_ended(self) -> None:
        """An audit that has ended counts when all that were drawn before it have ended too."""
        for text, told in [*self._waiting.items()]:
            if not told or self._stopped:
                return
            del self._waiting[text]
            self._tell(told)
            if told["outcome"] == CANCELLED:
                continue
            if self.detector.see(told["outcome"] != SAME):
                found = self.numbers()
                low, high = (round(found[f"share_{end}"], 5) for end in ("low", "high"))
                state = {"audits": found["seen"], "changed": found["changed"], "low": low}
                log.warning(self._line("audit alarm", **state, high=high, alarm=True))

    def _tell(self, told: Json) -> None:
        """Count an audit that has ended and what it took, and log it."""
        name = self.config.name
        self._tokens += told.get("tokens", 0)
        self._count("audits", told["outcome"], name)
        for kind, field in (("prompt", "prompt_tokens"), ("completion", "tokens")):
            self._count("audit_tokens", kind, name, by=told.get(field, 0))
        log.info(self._line("audit", **told))

    def _line(self, event: str, **told: Any) -> str:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        named = {"event": event, "time": now, **self._named}
        return json.dumps({**named, **told, "limit": self._limit})

    async def stop(self) -> None:
        """Cancel what is under way."""
        self._stopped = True
        await cancel_all(self._tasks)
        if self._log is not None:
            self._log.close()
        for told in self._waiting.values():
            self._tell({**told, "outcome": CANCELLED})

    @property
    def spends_all(self) -> bool:
        """Whether votes take the full budget until somebody has looked."""
        return self.detector.alarmed and self.config.on_alarm == FULL_BUDGET

    def numbers(self) -> dict[str, float]:
        """Audits that were counted, those whose answer changed, their share, and the alarm."""
        seen, changed = self.detector.seen, self.detector.changed
        low, high = interval(changed, seen)
        share = changed / seen if seen else 0.0
        shares = {"share": share, "share_low": low, "share_high": high, "tokens": self._tokens}
        return {"seen": seen, "changed": changed, "alarm": self.detector.alarmed, **shares}


def _is_own(body: Json, options: RequestOptions) -> bool:
    """Whether a request decides for itself how it is voted on, which nobody promised anything of.

    So do those that take several choices or one sample, and tool calls and JSON have their own
    rules.
    """
    own = RequestOptions(vote=options.vote, min_samples=options.min_samples) != options
    several = body.get("n") not in (None, 1) or body.get("temperature") == 0
    return own or several or any(structure_of(body))
