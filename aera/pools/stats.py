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
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import Any

from aera.pools.pool import Manifest, Record
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
HALVINGS = 40


@lru_cache(1_024)
def interval(changed: int, audits: int, alpha: float = ALPHA) -> tuple[float, float]:
    """Where the running mean is with chance 1 - alpha, at all times together."""
    if not audits:
        return 0.0, 1.0
    low = _bound(changed, audits, alpha / 2)
    high = 1.0 - _bound(audits - changed, audits, alpha / 2)
    return low, high


def covers(changed: int, audits: int, mean: float, alpha: float = ALPHA) -> bool:
    """Whether a mean is in the interval; faster than the interval itself."""
    goal, share = -math.log(alpha / 2), changed / audits
    against = (changed, mean) if mean < share else (audits - changed, 1 - mean)
    return mean == share or _wealth(against[0], audits, against[1]) <= goal


def _bound(ones: int, audits: int, alpha: float) -> float:
    """The smallest mean that so many ones do not speak against."""
    goal = -math.log(alpha)
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
    """Notices that more than `limit` of the answers change, from wherever it begins."""

    limit: float
    alarmed: bool = False
    """Whether it ever did; it is not taken back."""
    _evidence: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._shares = [min(times * self.limit, (1 + self.limit) / 2) for times in LARGER]
        self._evidence = [0.0] * len(self._shares)

    @property
    def level(self) -> float:
        """What is compared with RUN_LENGTH."""
        return sum(self._evidence) / len(self._evidence)

    def see(self, changed: bool) -> None:
        """One more audit."""
        for place, share in enumerate(self._shares):
            odds = share / self.limit if changed else (1 - share) / (1 - self.limit)
            # Beyond the alarm nothing depends on it, and it could grow out of all numbers.
            self._evidence[place] = min((1 + self._evidence[place]) * odds, 1e300)
        self.alarmed = self.alarmed or self.level >= RUN_LENGTH


@dataclass
class Audits:
    """What the recorded audits of one policy say, in their order."""

    model: str
    policy: str
    audits: int = 0
    judged: int = 0
    """Those of which is recorded what came of them."""
    changed: int = 0
    alarm: str | None = None
    """When there was one."""
    detector: Detector | None = None

    def see(self, row: Mapping[str, Any]) -> None:
        """One more."""
        self.audits += 1
        if "outcome" not in row:  # an older version's
            return
        changed = row["outcome"] != SAME
        self.judged += 1
        self.changed += changed
        if self.detector is None and "limit" in row:
            self.detector = Detector(row["limit"])
        if self.detector is not None:
            self.detector.see(changed)
            if self.detector.alarmed and self.alarm is None:
                told = datetime.fromtimestamp(row["time"], UTC)
                self.alarm = told.isoformat(timespec="seconds")

    def as_json(self) -> dict[str, Any]:
        """Every number, and the interval."""
        low, high = interval(self.changed, self.judged)
        counted = {"audits": self.audits, "judged": self.judged, "changed": self.changed}
        limit = None if self.detector is None else self.detector.limit
        share = {"low": round(low, 5), "high": round(high, 5), "limit": limit}
        return {"model": self.model, "policy": self.policy, **counted, **share, "alarm": self.alarm}


def judge_audits(rows: Iterable[Mapping[str, Any]]) -> list[Audits]:
    """What audits say of each policy of each model."""
    found: dict[tuple[str, str], Audits] = {}
    for row in rows:
        key = str(row.get("model")), str(row.get("policy"))
        found.setdefault(key, Audits(*key)).see(row)
    return [*found.values()]


# --- what is in a pool ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Contents:
    """How many responses there are, of whom, how long, and what could be read of them."""

    readability: Readability = field(default_factory=Readability)
    tokens: int = 0
    texts: int = 0
    """Responses that have a text."""
    answers: int = 0
    """Responses of which only the answer was recorded."""
    logprobs: int = 0
    """Responses that have the log-probability of their text."""
    traces: int = 0
    """Responses that have a trace."""
    models: Mapping[str, int] = field(default_factory=dict)
    """Responses of each model that is named."""

    @classmethod
    def of(cls, record: Record, task: Task) -> "Contents":
        """The responses to one question."""
        responses = record.responses
        read = Readability.of(record.question.id, responses, record.read(task).votes)
        return cls(
            read,
            tokens=sum(response.tokens for response in responses),
            texts=sum(bool(response.text) for response in responses),
            answers=sum(response.answer is not None for response in responses),
            logprobs=sum(response.logprob is not None for response in responses),
            traces=sum(response.trace is not None for response in responses),
            models=Counter(response.model for response in responses if response.model),
        )

    def join(self, others: "Iterable[Contents]") -> "Contents":
        """These and others together."""
        parts = [self, *others]
        models: Counter[str] = Counter()
        for part in parts:
            models.update(part.models)
        return Contents(
            Readability().join(part.readability for part in parts),
            tokens=sum(part.tokens for part in parts),
            texts=sum(part.texts for part in parts),
            answers=sum(part.answers for part in parts),
            logprobs=sum(part.logprobs for part in parts),
            traces=sum(part.traces for part in parts),
            models=models,
        )

    @property
    def responses(self) -> int:
        """All of them."""
        return self.readability.responses

    def as_json(self) -> dict[str, Any]:
        """Every number, and the tokens of a response on average."""
        each = round(self.tokens / self.responses, 1) if self.responses else None
        return {
            "readability": self.readability.as_json(),
            "tokens": {"all": self.tokens, "each": each},
            "texts": self.texts,
            "answers_only": self.answers,
            "logprobs": self.logprobs,
            "traces": self.traces,
            "models": dict(self.models),
        }


def count_contents(records: Iterable[Record], task: Task) -> Contents:
    """The contents of many questions."""
    return Contents().join(Contents.of(record, task) for record in records)


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
