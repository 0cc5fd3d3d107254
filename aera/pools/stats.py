"""Stats: what the responses of a pool are, counted, and what recorded audits say.

An outcome is 1 where the full budget's answer is another than the early one, else 0. Nothing is
assumed of the outcomes but that each has some chance of being 1 given all before it; traffic may
change as it likes.

The interval is for the running mean of those chances, p. For every fixed tilt, the product of
exp(tilt x) / (1 - p_i + p_i e^tilt) is a martingale. The logarithm of what stands below is concave
in p_i, so with the mean p in place of each p_i the product is only smaller: exp(tilt S) / (1 - p +
p e^tilt)^n, of which a mixture over tilts ever reaches 2/alpha with chance alpha/2 at most (Ville).
Whatever p has not reached it is in the interval. It needs no more than the two counts.

The alarm is a Shiryaev-Roberts e-detector (Shin, Ramdas and Rinaldo): R = (1 + R) L(x), with L the
likelihood of a larger share over that of the limit. While no chance is above the limit, R - n is a
supermartingale, so the mean number of audits until R reaches RUN_LENGTH is at least RUN_LENGTH.
Unlike one wealth since the beginning it does not remember how long all was well.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice

from aera.files import Json
from aera.pools.pool import Audit, Manifest, Record
from aera.reading.task import Readability, Task

SAME = "same"
"""The outcome of an audit whose answer did not change."""
ALPHA = 0.05
"""The chance that an interval ever leaves out the mean, however often it is looked at."""
RUN_LENGTH = 10_000
"""Audits until a false alarm, on average at least."""
TILTS = tuple(0.02 * 1.5**step for step in range(18))
LARGER = (2.0, 3.0, 4.5, 8.0, 16.0)
"""The shares that the alarm looks for, in limits."""
SMALLEST = 1e-4
"""A smaller limit counts as this one: nothing is larger than none by any number of times."""
HALVINGS = 40


@lru_cache(1_024)
def interval(changed: int, audits: int) -> tuple[float, float]:
    """Where the running mean is with chance 1 - ALPHA, at all times together."""
    if not audits:
        return 0.0, 1.0
    return _bound(changed, audits), 1.0 - _bound(audits - changed, audits)


def _bound(ones: int, audits: int) -> float:
    """The smallest mean that so many ones do not speak against."""
    goal = -math.log(ALPHA / 2)
    low, high = 0.0, ones / audits
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _wealth(ones, audits, middle) > goal else (low, middle)
    return low


def _wealth(ones: int, audits: int, mean: float) -> float:
    """The logarithm of the mixture against means up to this one."""
    each = [tilt * ones - audits * math.log1p(mean * math.expm1(tilt)) for tilt in TILTS]
    most = max(each)
    return most + math.log(sum(math.exp(one - most) for one in each) / len(each))


@dataclass
class Detector:
    """Counts audits, and notices that more than `limit` of the answers change."""

    limit: float
    seen: int = 0
    changed: int = 0
    alarmed: bool = False
    """Whether it ever did; it is not taken back."""

    def __post_init__(self) -> None:
        self._limit = max(self.limit, SMALLEST)
        self._shares = [min(times * self._limit, (1 + self._limit) / 2) for times in LARGER]
        self._evidence = [0.0] * len(self._shares)

    @property
    def level(self) -> float:
        """What is compared with RUN_LENGTH."""
        return sum(self._evidence) / len(self._evidence)

    def see(self, changed: bool) -> bool:
        """One more audit; whether it is the one that raises the alarm."""
        self.seen, self.changed = self.seen + 1, self.changed + changed
        for place, share in enumerate(self._shares):
            odds = share / self._limit if changed else (1 - share) / (1 - self._limit)
            # Beyond the alarm nothing depends on it, and it could grow out of all numbers.
            self._evidence[place] = min((1 + self._evidence[place]) * odds, 1e300)
        before, self.alarmed = self.alarmed, self.alarmed or self.level >= RUN_LENGTH
        return self.alarmed and not before


def judge_audits(audits: Iterable[Audit]) -> list[Json]:
    """What recorded audits, in their order, say of each policy of each model.

    An older version did not record what came of them, so only some may be judged.
    """
    found: Counter[tuple[str, str]] = Counter()
    detectors: dict[tuple[str, str], Detector] = {}
    alarms: dict[tuple[str, str], str] = {}
    for audit in audits:
        key = str(audit.model), str(audit.policy)
        found[key] += 1
        if audit.outcome is not None and audit.limit is not None:
            detector = detectors.setdefault(key, Detector(audit.limit))
            if detector.see(audit.outcome != SAME):
                at = datetime.fromtimestamp(audit.time, UTC)
                alarms[key] = at.isoformat(timespec="seconds")
    judged = []
    for (model, policy), count in found.items():
        own = detectors.get((model, policy))
        seen, changed, limit = (own.seen, own.changed, own.limit) if own else (0, 0, None)
        low, high = interval(changed, seen)
        told = {"model": model, "policy": policy, "audits": count, "judged": seen}
        told |= {"changed": changed, "low": round(low, 5), "high": round(high, 5)}
        judged.append({**told, "limit": limit, "alarm": alarms.get((model, policy))})
    return judged


# --- what is in a pool ----------------------------------------------------------------------------


def count_contents(records: Iterable[Record], task: Task) -> Json:
    """How many responses there are, of whom, how long, and what could be read of them."""
    health: list[Readability] = []
    found: Counter[str] = Counter()
    models: Counter[str] = Counter()
    for record in records:
        votes = record.read(task).votes
        health.append(Readability.of(record.question.id, record.responses, votes))
        for response in record.responses:
            found["tokens"] += response.tokens
            found["texts"] += bool(response.text)
            found["answers_only"] += response.answer is not None
            found["logprobs"] += response.logprob is not None
            found["traces"] += response.trace is not None
            models.update([response.model] if response.model else [])
    read = Readability().join(health)
    each = round(found["tokens"] / read.responses, 1) if read.responses else None
    counted = {name: found[name] for name in ("texts", "answers_only", "logprobs", "traces")}
    tokens = {"all": found["tokens"], "each": each}
    return {"readability": read.as_json(), "tokens": tokens, **counted, "models": dict(models)}


FEW = 3
"""Questions that are named of those that something is the matter with."""


def tell_pool(manifest: Manifest, where: object) -> list[str]:
    """How large a pool is, which questions do not count, and whether more responses could."""
    counts = f"{manifest.questions} questions, {manifest.responses:,} responses"
    lines = [f"{where}: {counts}, task {manifest.task.name}, checkpoints {manifest.schedule}"]
    if left_out := manifest.left_out:
        lines.append(f"left out: {name_few(left_out)}")
    if manifest.responses > manifest.questions * manifest.each:
        lines.append(
            f"some questions have more than the {manifest.each} responses that count; "
            "--responses raises it"
        )
    return lines


def name_few(reasons: Mapping[str, str]) -> str:
    """How many questions, and the first three by name, each with its reason."""
    few = [f"{name} ({why})" for name, why in islice(reasons.items(), FEW)]
    ending = ", …" if len(reasons) > FEW else ""
    count = f"{len(reasons):,} question{'s' * (len(reasons) > 1)}"
    return f"{count}: {', '.join(few)}{ending}"
