"""What a gateway tells of itself: Prometheus metrics, and the latest allocations for its page."""

import logging
import time
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from aera.gateway.account import VotedChoice, was_guarded
from aera.reading.health import LITTLE

log = logging.getLogger("aera.gateway")
KEPT = 200
MOST_VOTES, LONGEST = 6, 60
"""Of a row on the page: answers whose votes are counted out, characters of the answer."""
ENOUGH = 40
"""Samples after which it is worth saying that few of them can be read."""
SAMPLES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SECONDS = (0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300)
COUNTERS: dict[str, tuple[str, ...]] = {
    "requests": ("Requests by route and status.", "route", "status"),
    "samples": ("Samples generated for voted requests.",),
    "tokens": ("Tokens by kind.", "kind"),
    "tokens_saved": ("Completion tokens not generated, estimated.",),
    "stops": ("Votes by the reason they ended.", "reason"),
    "unread": ("Samples that could not be read.",),
    "failures": ("Samples that failed upstream.",),
    "guarded": ("Votes in which the guard kept the gate from stopping.",),
    "abroad": ("Plain votes on questions unlike those the controller was taught on.",),
    "escalated": ("Votes answered by the second upstream.",),
    "ties": ("Votes whose winner was tied and won by being first.",),
    "key_requests": ("Requests by the hash of their key.", "key"),
    "key_tokens": ("Tokens of voted requests by the hash of their key.", "key"),
}
"""What each counter counts, and its labels."""


def _clip(answer: str | None) -> str | None:
    return answer if answer is None or len(answer) <= LONGEST else f"{answer[: LONGEST - 2]} …"


class Histogram:
    """How often something was how large."""

    def __init__(self, text: str, bounds: tuple[float, ...]) -> None:
        self.text, self.bounds, self.sum = text, bounds, 0.0
        self.counts = [0] * (len(bounds) + 1)

    def observe(self, size: float) -> None:
        """Count one."""
        self.counts[bisect_left(self.bounds, size)] += 1
        self.sum += size


class Telemetry(Collector):
    """The numbers of one gateway; they become metrics only when somebody asks for them."""

    def __init__(self) -> None:
        self.latest: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self.active = 0
        self.counts: defaultdict[tuple[str, ...], float] = defaultdict(float)
        """By name and labels."""
        self.per_question = Histogram("Samples of one vote.", SAMPLES)
        self.deciding = Histogram("Evidence and gate of one vote.", SECONDS)
        self.overhead = Histogram("What a voted request took beside waiting upstream.", SECONDS)
        self.voting = Histogram("One vote from end to end.", SECONDS)
        self._begun = time.time()
        self._warned = False

    def record(self, voted: VotedChoice) -> None:
        """Count one vote and keep it for the page: its answer, and not a word of what was asked."""
        allocation, account, counts = voted.allocation, voted.account, self.counts
        prompt, completion = voted.tokens
        counts["samples",] += allocation.responses
        counts["tokens", "prompt"] += prompt
        counts["tokens", "completion"] += completion
        counts["tokens_saved",] += max(0, account["tokens_saved"])
        counts["stops", allocation.reason] += 1
        counts["unread",] += voted.unread
        self._watch_reading()
        counts["failures",] += voted.failures
        counts["guarded",] += was_guarded(allocation)
        counts["abroad",] += voted.abroad
        counts["escalated",] += voted.escalated
        counts["ties",] += allocation.aggregate.tied
        self.per_question.observe(allocation.responses)
        self.deciding.observe((allocation.encoder_ms + allocation.gate_ms) / 1000)
        self.voting.observe(allocation.seconds)
        kept = ("samples", "reason", "p_continue", "tokens", "tokens_saved", "tied", "failures")
        shares = sorted(allocation.votes.values(), reverse=True)
        row = {name: account[name] for name in kept}
        row |= {"id": voted.id, "answer": _clip(account["answer"]), "unread": voted.unread}
        row |= {"time": round(time.time(), 3), "seconds": round(allocation.seconds, 3)}
        row |= {"votes": shares[:MOST_VOTES], "votes_left_out": len(shares[MOST_VOTES:])}
        self.latest.append({**row, "strays": list(voted.strays)})

    @property
    def read(self) -> float | None:
        """The share of samples that could be read, None before there are any."""
        came = self.counts["samples",] - self.counts["failures",]
        return 1 - self.counts["unread",] / came if came else None

    def _watch_reading(self) -> None:
        """Say it in the log, once, when most of what comes back cannot be read."""
        if self._warned or self.counts["samples",] < ENOUGH or (self.read or 0.0) >= LITTLE:
            return
        self._warned = True
        log.warning(
            "only %.0f %% of the samples could be read; look at the task (aera tasks) that the "
            "gateway or its controller was started with",
            100 * (self.read or 0.0),
        )

    def collect(self) -> Iterator[Metric]:
        """The numbers as metrics."""
        for name, (text, *labels) in COUNTERS.items():
            counter = CounterMetricFamily(f"aera_{name}", text, labels=labels)
            for said in [key[1:] for key in self.counts if key[0] == name] if labels else [()]:
                counter.add_metric(said, self.counts[name, *said], created=self._begun)
            yield counter
        yield self._metric("samples_per_question", self.per_question)
        yield self._metric("deciding_seconds", self.deciding)
        yield self._metric("overhead_seconds", self.overhead)
        yield self._metric("vote_seconds", self.voting)

    def _metric(self, name: str, seen: Histogram) -> Metric:
        metric = HistogramMetricFamily(f"aera_{name}", seen.text)
        bounds = [*map(floatToGoString, seen.bounds), "+Inf"]
        buckets = list(zip(bounds, accumulate(seen.counts), strict=True))
        metric.add_metric([], buckets, sum_value=seen.sum)
        metric.add_sample(f"aera_{name}_created", {}, self._begun)
        return metric

    def exposition(self) -> bytes:
        """The metrics as Prometheus reads them."""
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)
