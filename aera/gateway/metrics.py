"""What a gateway tells of itself: Prometheus metrics, and the latest allocations for its page."""

import time
from collections import Counter as Tally
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from aera.files import Json
from aera.sampling.replicas import Replicas
from aera.solving.run import Allocation

KEPT = 200
# Seconds of a point of the page's lines, and points that are kept: an hour.
POINT, POINTS = 10, 360
# Of a row on the page: answers whose votes are counted out, characters of the answer.
MOST_VOTES, LONGEST = 6, 60
SHOWN = (
    "samples", "reason", "p_continue", "tokens", "tokens_saved", "tied", "failures", "unread",
    "strays",
)  # fmt: skip
# Counters of what a vote says of itself by the same name.
COUNTED = ("samples", "unread", "failures", "escalated", "guarded", "drifted")
REPLICA = ("upstream", "replica")
# Every metric: its kind, what it tells, and its labels.
METRICS: dict[str, tuple[Any, ...]] = {
    "requests": (Counter, "Requests by route, status and model.", "route", "status", "model"),
    "samples": (Counter, "Samples generated for voted requests."),
    "tokens": (Counter, "Tokens by kind.", "kind", "model"),
    "tokens_saved": (Counter, "Completion tokens not generated, estimated.", "model"),
    "stops": (Counter, "Votes by the reason they ended.", "reason", "model"),
    "unread": (Counter, "Samples that could not be read."),
    "failures": (Counter, "Samples that failed upstream."),
    "guarded": (Counter, "Votes in which the guard kept the gate from stopping."),
    "drifted": (Counter, "Plain votes on questions unlike those the controller was taught on."),
    "escalated": (Counter, "Votes answered by the second upstream."),
    "ties": (Counter, "Votes whose winner was tied and won by being first."),
    "audits": (Counter, "Audits by what came of them.", "outcome", "model"),
    "audit_tokens": (Counter, "Tokens spent on audits.", "kind", "model"),
    "key_requests": (Counter, "Requests by key.", "key", "model"),
    "key_tokens": (Counter, "Tokens of voted requests by key.", "key", "model"),
    "key_tokens_estimated": (Counter, "Tokens charged by estimate, for no reply said them.", "key"),
    "active_requests": (Gauge, "Requests under way."),
    "upstream_inflight": (Gauge, "Calls under way at a replica.", *REPLICA),
    "upstream_waiting": (Gauge, "Calls that wait for a permit.", *REPLICA),
    "upstream_permits": (Gauge, "Calls allowed at once to the model refused most.", *REPLICA),
    "upstream_up": (Gauge, "Whether a replica is trusted.", *REPLICA),
    "audit_seen": (Gauge, "Audits counted since the policy was taken up.", "model"),
    "audit_changed": (Gauge, "Those whose answer was not the full budget's.", "model"),
    "audit_share": (Gauge, "Their share of changed answers.", "model"),
    "audit_share_low": (Gauge, "The low end of its confidence sequence.", "model"),
    "audit_share_high": (Gauge, "The high end of its confidence sequence.", "model"),
    "audit_alarm": (Gauge, "Whether early answers change too often.", "model"),
    "samples_per_question": (Histogram, "Samples of one vote."),
    "deciding_seconds": (Histogram, "Evidence and gate of one vote."),
    "overhead_seconds": (Histogram, "What a voted request took beside waiting upstream."),
    "vote_seconds": (Histogram, "One vote from end to end."),
}
SAMPLES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SECONDS = (0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300)
MOST_MODELS, LONGEST_MODEL = 100, 100
OTHER = "other"


class Metrics:
    """The numbers of one gateway."""

    def __init__(self, models: Iterable[str]) -> None:
        # Models that have a label of their own.
        self._known = {"", *models}
        self.latest: deque[Json] = deque(maxlen=KEPT)
        # Of each ten seconds with votes: when, and by model how many votes, samples, tokens and
        # saved tokens.
        self.points: deque[tuple[int, dict[str, Tally[str]]]] = deque(maxlen=POINTS)
        self.begun = time.time()
        self.registry = CollectorRegistry()
        self._made: dict[str, Any] = {}
        for name, (kind, text, *labels) in METRICS.items():
            buckets = SAMPLES if name == "samples_per_question" else SECONDS
            sized = {"buckets": buckets} if kind is Histogram else {}
            made = kind(f"aera_{name}", text, labels, registry=self.registry, **sized)
            self._made[name] = made
        # Samples that came, and those of them that could be read.
        self._came = self._read = 0

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """So many more of something."""
        made = self._made[name]
        (made.labels(*labels) if labels else made).inc(by)

    def label(self, model: str) -> str:
        """What a model is counted as: its name, or `other`, for clients can name anything."""
        return model if model in self._known else OTHER

    def note(self, model: str) -> str:
        """A model has answered, so it has a label, up to a number of them."""
        sane = len(model) <= LONGEST_MODEL and model.isprintable()
        if sane and len(self._known) < MOST_MODELS:
            self._known.add(model)
        return self.label(model)

    def record(self, model: str, found: Allocation, told: Mapping[str, Any]) -> None:
        """Count one vote and keep it for the page: its answer, and not a word of what was asked.

        `told` is its account, and what only operators see.
        """
        label = self.note(model)
        self.count("tokens", "prompt", label, by=told["prompt_tokens"])
        self.count("tokens", "completion", label, by=told["tokens"])
        self.count("tokens_saved", label, by=max(0, told["tokens_saved"]))
        self.count("stops", found.reason, label)
        self.count("ties", by=told["tied"])
        for name in COUNTED:
            self.count(name, by=told[name])
        came = found.responses - told["failures"]
        self._came, self._read = self._came + came, self._read + came - told["unread"]
        self.observe("samples_per_question", found.responses)
        self.observe("deciding_seconds", (found.encoder_ms + found.gate_ms) / 1000)
        self.observe("vote_seconds", found.seconds)
        now = time.time()
        point = int(now // POINT) * POINT
        if not self.points or self.points[-1][0] != point:
            self.points.append((point, {}))
        sums = self.points[-1][1].setdefault(label, Tally())
        sums["votes"] += 1
        for name in ("samples", "tokens", "tokens_saved"):
            sums[name] += told[name]
        shares, answer = sorted(found.votes.values(), reverse=True), told["answer"]
        if answer is not None and len(answer) > LONGEST:
            answer = f"{answer[: LONGEST - 2]} …"
        self.latest.append(
            {name: told[name] for name in SHOWN}
            | {"id": found.question_id, "model": label, "answer": answer}
            | {"time": round(now, 3), "seconds": round(found.seconds, 3)}
            | {"votes": shares[:MOST_VOTES], "votes_left_out": len(shares[MOST_VOTES:])}
        )

    def observe(self, name: str, size: float) -> None:
        """One more that was so large."""
        self._made[name].observe(size)

    @property
    def read(self) -> float | None:
        """The share of samples that could be read, None before there are any."""
        return self._read / self._came if self._came else None

    def exposition(
        self,
        active: int,
        servers: Mapping[Replicas, str],
        audits: Mapping[str, Mapping[str, float]],
    ) -> bytes:
        """The metrics as Prometheus reads them; gauges show how things are right now.

        Servers and what audits say stand by the model that they are for.
        """
        self._made["active_requests"].set(active)
        for replicas, model in servers.items():
            for name, server in zip(replicas.names, replicas.servers, strict=True):
                numbers = {"inflight": server.busy, "waiting": server.waiting}
                numbers |= {"permits": server.allowed, "up": server.healthy}
                for what, number in numbers.items():
                    self._made[f"upstream_{what}"].labels(model, name).set(number)
        for model, told in audits.items():
            for what, value in told.items():
                if what != "tokens":  # which have a counter
                    self._made[f"audit_{what}"].labels(model).set(value)
        return generate_latest(self.registry)
