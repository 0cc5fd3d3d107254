"""What a gateway tells of itself: Prometheus metrics, and the latest allocations for its page."""

import logging
import time
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
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

from aera.gateway.audit import Auditor, Found
from aera.gateway.vote import VotedChoice
from aera.reading.task import LITTLE
from aera.sampling.replicas import Replicas

log = logging.getLogger("aera.gateway")
KEPT = 200
# Of a row on the page: answers whose votes are counted out, characters of the answer.
MOST_VOTES, LONGEST = 6, 60
# Samples after which it is worth saying that few of them can be read.
ENOUGH = 40
SAMPLES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SECONDS = (0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300)
# What each counter counts, and its labels.
COUNTERS: dict[str, tuple[str, ...]] = {
    "requests": ("Requests by route, status and model.", "route", "status", "model"),
    "samples": ("Samples generated for voted requests.",),
    "tokens": ("Tokens by kind.", "kind", "model"),
    "tokens_saved": ("Completion tokens not generated, estimated.", "model"),
    "stops": ("Votes by the reason they ended.", "reason", "model"),
    "unread": ("Samples that could not be read.",),
    "failures": ("Samples that failed upstream.",),
    "guarded": ("Votes in which the guard kept the gate from stopping.",),
    "drifted": ("Plain votes on questions unlike those the controller was taught on.",),
    "escalated": ("Votes answered by the second upstream.",),
    "ties": ("Votes whose winner was tied and won by being first.",),
    "audits": ("Audits by what came of them.", "outcome", "model"),
    "audit_tokens": ("Tokens spent on audits.", "kind", "model"),
    "key_requests": ("Requests by key.", "key", "model"),
    "key_tokens": ("Tokens of voted requests by key.", "key", "model"),
    "key_tokens_estimated": ("Tokens charged by estimate, for no reply said them.", "key"),
}
REPLICA = ("upstream", "replica")
# What each gauge shows, and its labels.
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
MOST_MODELS, LONGEST_MODEL = 100, 100
OTHER = "other"


class Histogram:
    """How often something was how large."""

    def __init__(self, text: str, bounds: tuple[float, ...]) -> None:
        self.text, self.bounds, self.sum = text, bounds, 0.0
        self.counts = [0] * (len(bounds) + 1)

    def observe(self, size: float) -> None:
        """Count one."""
        self.counts[bisect_left(self.bounds, size)] += 1
        self.sum += size


class Metrics(Collector):
    """The numbers of one gateway; they become metrics only when somebody asks for them."""

    def __init__(self, models: Iterable[str]) -> None:
        self._configured, self._answered = {"", *models}, set[str]()
        # Whose calls are shown, by the model they are for.
        self.upstreams: Mapping[str, Replicas] = {}
        # By the model that they look at.
        self.auditors: Mapping[str, Auditor] = {}
        self.latest: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self.active = 0
        # By name and labels.
        self.counts: defaultdict[tuple[str, ...], float] = defaultdict(float)
        self.histograms = {
            "samples_per_question": Histogram("Samples of one vote.", SAMPLES),
            "deciding_seconds": Histogram("Evidence and gate of one vote.", SECONDS),
            "overhead_seconds": Histogram(
                "What a voted request took beside waiting upstream.", SECONDS
            ),
            "vote_seconds": Histogram("One vote from end to end.", SECONDS),
        }
        self.begun = time.time()
        self._warned = False

    def label(self, model: str) -> str:
        """What a model is counted as: its name, or `other`, for clients can name anything."""
        return model if model in self._configured or model in self._answered else OTHER

    def note(self, model: str) -> str:
        """A model has answered, so it has a label, up to a number of them."""
        room = len(self._answered) < MOST_MODELS and model not in self._configured
        if room and len(model) <= LONGEST_MODEL and model.isprintable():
            self._answered.add(model)
        return self.label(model)

    def record(self, voted: VotedChoice, model: str = "") -> None:
        """Count one vote and keep it for the page: its answer, and not a word of what was asked."""
        label = self.note(model)
        found, account, counts = voted.allocation, voted.account, self.counts
        prompt, completion = voted.tokens
        counts["samples",] += found.responses
        counts["tokens", "prompt", label] += prompt
        counts["tokens", "completion", label] += completion
        counts["tokens_saved", label] += max(0, account["tokens_saved"])
        counts["stops", found.reason, label] += 1
        counts["unread",] += voted.unread
        counts["failures",] += voted.failures
        counts["guarded",] += voted.guarded
        counts["drifted",] += voted.drifted
        counts["escalated",] += voted.second is not None
        counts["ties",] += found.aggregate.tied
        self._watch_reading()
        self.histograms["samples_per_question"].observe(found.responses)
        self.histograms["deciding_seconds"].observe((found.encoder_ms + found.gate_ms) / 1000)
        self.histograms["vote_seconds"].observe(found.seconds)
        kept = ("samples", "reason", "p_continue", "tokens", "tokens_saved", "tied", "failures")
        shares = sorted(found.votes.values(), reverse=True)
        answer = account["answer"]
        if answer is not None and len(answer) > LONGEST:
            answer = f"{answer[: LONGEST - 2]} …"
        self.latest.append(
            {name: account[name] for name in kept}
            | {"id": voted.id, "model": label, "answer": answer, "unread": voted.unread}
            | {"time": round(time.time(), 3), "seconds": round(found.seconds, 3)}
            | {"votes": shares[:MOST_VOTES], "votes_left_out": len(shares[MOST_VOTES:])}
            | {"strays": list(voted.strays)}
        )

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

    def count_audit(self, model: str, found: Found) -> None:
        """An audit has ended."""
        self.counts["audits", found.outcome, model] += 1
        self.counts["audit_tokens", "prompt", model] += found.prompt_tokens
        self.counts["audit_tokens", "completion", model] += found.tokens

    def audits(self, model: str) -> dict[str, float] | None:
        """What audits say of a model, None where there are none."""
        if model not in self.auditors:
            return None
        tokens = self.counts["audit_tokens", "completion", model]
        return {**self.auditors[model].numbers(), "tokens": tokens}

    # --- Prometheus -------------------------------------------------------------------------------

    def collect(self) -> Iterator[Metric]:
        """The numbers as metrics."""
        for name, (text, *labels) in COUNTERS.items():
            counter = CounterMetricFamily(f"aera_{name}", text, labels=labels)
            for said in [key[1:] for key in self.counts if key[0] == name] if labels else [()]:
                counter.add_metric(said, self.counts[name, *said], created=self.begun)
            yield counter
        seen = self._gauges()
        for name, (text, *labels) in GAUGES.items():
            gauge = GaugeMetricFamily(f"aera_{name}", text, labels=labels)
            for key, value in seen.items():
                if key[0] == name:
                    gauge.add_metric(key[1:], value)
            yield gauge
        for name, histogram in self.histograms.items():
            metric = HistogramMetricFamily(f"aera_{name}", histogram.text)
            bounds = [*map(floatToGoString, histogram.bounds), "+Inf"]
            buckets = list(zip(bounds, accumulate(histogram.counts), strict=True))
            metric.add_metric([], buckets, sum_value=histogram.sum)
            metric.add_sample(f"aera_{name}_created", {}, self.begun)
            yield metric

    def _gauges(self) -> dict[tuple[str, ...], float]:
        """How things are right now, by gauge and labels."""
        seen: dict[tuple[str, ...], float] = {("active_requests",): self.active}
        for model, replicas in self.upstreams.items():
            for place, name in enumerate(replicas.names):
                upstream = replicas.upstreams[place]
                seen["upstream_inflight", model, name] = replicas.busy[place]
                seen["upstream_waiting", model, name] = upstream.waiting
                seen["upstream_permits", model, name] = upstream.allowed
                seen["upstream_up", model, name] = replicas.healthy[place]
        for model, auditor in self.auditors.items():
            for what, value in auditor.numbers().items():
                seen[f"audit_{what}", model] = value
        return seen

    def exposition(self) -> bytes:
        """The metrics as Prometheus reads them."""
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)
