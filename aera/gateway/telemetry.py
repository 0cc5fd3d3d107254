"""What a gateway tells of itself: Prometheus metrics, and the latest allocations for its page."""

import logging
import time
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from aera.gateway.account import VotedChoice, was_guarded
from aera.gateway.auditing import Auditor, Found
from aera.pools.stats import interval
from aera.reading.health import LITTLE
from aera.sampling.replicas import Replicas

log = logging.getLogger("aera.gateway")
KEPT = 200
MOST_VOTES, LONGEST = 6, 60
"""Of a row on the page: answers whose votes are counted out, characters of the answer."""
ENOUGH = 40
"""Samples after which it is worth saying that few of them can be read."""
SAMPLES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SECONDS = (0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300)
COUNTERS: dict[str, tuple[str, ...]] = {
    "requests": ("Requests by route, status and model.", "route", "status", "model"),
    "samples": ("Samples generated for voted requests.",),
    "tokens": ("Tokens by kind.", "kind", "model"),
    "tokens_saved": ("Completion tokens not generated, estimated.", "model"),
    "stops": ("Votes by the reason they ended.", "reason", "model"),
    "unread": ("Samples that could not be read.",),
    "failures": ("Samples that failed upstream.",),
    "guarded": ("Votes in which the guard kept the gate from stopping.",),
    "abroad": ("Plain votes on questions unlike those the controller was taught on.",),
    "escalated": ("Votes answered by the second upstream.",),
    "ties": ("Votes whose winner was tied and won by being first.",),
    "audits": ("Audits by what came of them.", "outcome", "model"),
    "audit_tokens": ("Tokens spent on audits.", "kind", "model"),
    "key_requests": ("Requests by the hash of their key.", "key", "model"),
    "key_tokens": ("Tokens of voted requests by the hash of their key.", "key", "model"),
}
"""What each counter counts, and its labels."""
REPLICA = ("upstream", "replica")
GAUGES: dict[str, tuple[str, ...]] = {
    "active_requests": ("Requests under way.",),
    "upstream_inflight": ("Calls under way at a replica.", *REPLICA),
    "upstream_waiting": ("Calls that wait for a permit.", *REPLICA),
    "upstream_permits": ("Calls allowed at once to the model refused most.", *REPLICA),
    "upstream_up": ("Whether a replica is trusted.", *REPLICA),
    "audit_seen": ("Audits counted since the policy was taken up.", "model"),
    "audit_changed": ("Those whose answer was not the full budget's.", "model"),
    "audit_share": ("Their share of changed answers.", "model"),
    "audit_share_low": ("The low end of its confidence sequence.", "model"),
    "audit_share_high": ("The high end of its confidence sequence.", "model"),
    "audit_alarm": ("Whether early answers change too often.", "model"),
}
"""What each gauge shows, and its labels."""
MOST_MODELS, LONGEST_MODEL = 100, 100
OTHER = "other"


class ModelNames:
    """Models as labels: those that have answered, up to a number; all others are one.

    Clients can name anything, and every new name would be a new series.
    """

    def __init__(self) -> None:
        self._configured, self._answered = {""}, set[str]()

    def configure(self, names: Iterable[str]) -> None:
        """Names that count whether they have answered or not."""
        self._configured.update(names)

    def label(self, name: str) -> str:
        """What a model is counted as; "" where it is not known which it is."""
        return name if name in self._configured or name in self._answered else OTHER

    def note(self, name: str) -> str:
        """A model has answered; returns its label."""
        room = len(self._answered) < MOST_MODELS and name not in self._configured
        if room and len(name) <= LONGEST_MODEL and name.isprintable():
            self._answered.add(name)
        return self.label(name)


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
        self.models = ModelNames()
        self.upstreams: Mapping[str, Replicas] = {}
        """Whose calls are shown, by the model they are for."""
        self.auditors: Mapping[str, Auditor] = {}
        """By the model that they look at."""
        self.latest: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self.active = 0
        self.counts: defaultdict[tuple[str, ...], float] = defaultdict(float)
        """By name and labels."""
        self.per_question = Histogram("Samples of one vote.", SAMPLES)
        self.deciding = Histogram("Evidence and gate of one vote.", SECONDS)
        self.overhead = Histogram("What a voted request took beside waiting upstream.", SECONDS)
        self.voting = Histogram("One vote from end to end.", SECONDS)
        self.begun = time.time()
        self._warned = False

    def record(self, voted: VotedChoice, model: str = "") -> None:
        """Count one vote and keep it for the page: its answer, and not a word of what was asked."""
        label = self.models.note(model)
        allocation, account, counts = voted.allocation, voted.account, self.counts
        prompt, completion = voted.tokens
        counts["samples",] += allocation.responses
        counts["tokens", "prompt", label] += prompt
        counts["tokens", "completion", label] += completion
        counts["tokens_saved", label] += max(0, account["tokens_saved"])
        counts["stops", allocation.reason, label] += 1
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
        row |= {
            "id": voted.id,
            "model": label,
            "answer": _clip(account["answer"]),
            "unread": voted.unread,
        }
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
                counter.add_metric(said, self.counts[name, *said], created=self.begun)
            yield counter
        yield from self._gauges()
        yield self._metric("samples_per_question", self.per_question)
        yield self._metric("deciding_seconds", self.deciding)
        yield self._metric("overhead_seconds", self.overhead)
        yield self._metric("vote_seconds", self.voting)

    def watch_audits(self, auditors: Mapping[str, Auditor]) -> None:
        """Count what these find from now on."""
        self.auditors = {name: each for name, each in auditors.items() if each.rules.share}
        for name, auditor in self.auditors.items():
            auditor.told = partial(self._count_audit, name)

    def _count_audit(self, model: str, found: Found) -> None:
        self.counts["audits", found.outcome, model] += 1
        self.counts["audit_tokens", "prompt", model] += found.prompt_tokens
        self.counts["audit_tokens", "completion", model] += found.tokens

    def gauges(self) -> dict[tuple[str, ...], float]:
        """How things are right now at every replica, by gauge and labels."""
        seen: dict[tuple[str, ...], float] = {}
        for model, replicas in self.upstreams.items():
            for place, name in enumerate(replicas.names):
                upstream = replicas.upstreams[place]
                seen["upstream_inflight", model, name] = replicas.busy[place]
                seen["upstream_waiting", model, name] = upstream.waiting
                seen["upstream_permits", model, name] = upstream.allowed
                seen["upstream_up", model, name] = replicas.healthy[place]
        for model, auditor in self.auditors.items():
            seen["audit_seen", model] = auditor.seen
            seen["audit_changed", model] = auditor.changed
            seen["audit_alarm", model] = auditor.alarmed
        return seen

    def audits(self) -> dict[str, dict[str, float]]:
        """What audits say of each model; two counts make the interval."""
        seen, found = self.gauges(), dict[str, dict[str, float]]()
        for model in [key[1] for key in seen if key[0] == "audit_seen"]:
            names = ("seen", "changed", "alarm")
            row = {name: seen.get((f"audit_{name}", model), 0.0) for name in names}
            count, changed = int(row["seen"]), int(row["changed"])
            low, high = interval(changed, count)
            row |= {"share": changed / count if count else 0.0, "share_low": low}
            tokens = self.counts["audit_tokens", "completion", model]
            found[model] = {**row, "share_high": high, "tokens": tokens}
        return found

    def _gauges(self) -> Iterator[Metric]:
        seen = {("active_requests",): float(self.active), **self.gauges()}
        for model, row in self.audits().items():
            for name in ("share", "share_low", "share_high"):
                seen[f"audit_{name}", model] = row[name]
        for name, (text, *labels) in GAUGES.items():
            gauge = GaugeMetricFamily(f"aera_{name}", text, labels=labels)
            for key, value in seen.items():
                if key[0] == name:
                    gauge.add_metric(key[1:], value)
            yield gauge

    def _metric(self, name: str, seen: Histogram) -> Metric:
        metric = HistogramMetricFamily(f"aera_{name}", seen.text)
        bounds = [*map(floatToGoString, seen.bounds), "+Inf"]
        buckets = list(zip(bounds, accumulate(seen.counts), strict=True))
        metric.add_metric([], buckets, sum_value=seen.sum)
        metric.add_sample(f"aera_{name}_created", {}, self.begun)
        return metric

    def exposition(self) -> bytes:
        """The metrics as Prometheus reads them."""
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)
