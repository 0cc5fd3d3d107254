"""What a gateway tells of itself: Prometheus metrics, and the latest allocations for its page."""

from collections import deque
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from aera.gateway.votes import Voted, guarded

KEPT = 200
SAMPLES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SECONDS = (0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300)


class Telemetry:
    """Counters of one gateway; its own registry, so that several can live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.latest: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self.active = 0
        self.requests = self._counter(
            "requests", "Requests by route and status.", "route", "status"
        )
        self.samples = self._counter("samples", "Samples generated for voted requests.")
        self.tokens = self._counter("tokens", "Tokens by kind.", "kind")
        self.saved = self._counter("tokens_saved", "Completion tokens not generated, estimated.")
        self.stops = self._counter("stops", "Votes by the reason they ended.", "reason")
        self.unread = self._counter("unread", "Samples that could not be read.")
        self.failures = self._counter("failures", "Samples that failed upstream.")
        self.guarded = self._counter(
            "guarded", "Votes in which the guard kept the gate from stopping."
        )
        self.escalated = self._counter("escalated", "Votes answered by the second upstream.")
        self.per_question = self._histogram("samples_per_question", "Samples of one vote.", SAMPLES)
        self.deciding = self._histogram(
            "deciding_seconds", "Evidence and gate of one vote.", SECONDS
        )
        self.overhead = self._histogram(
            "overhead_seconds", "What a voted request took beside waiting upstream.", SECONDS
        )
        self.voting = self._histogram("vote_seconds", "One vote from end to end.", SECONDS)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"aera_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"aera_{name}", text, registry=self.registry, buckets=buckets)

    def record(self, voted: Voted) -> None:
        """Count one vote and keep it for the page, without a word of what was asked."""
        allocation, account = voted.allocation, voted.account
        self.samples.inc(allocation.responses)
        prompt, completion = voted.tokens
        self.tokens.labels("prompt").inc(prompt)
        self.tokens.labels("completion").inc(completion)
        self.saved.inc(max(0, account["tokens_saved"]))
        self.stops.labels(allocation.reason).inc()
        read = sum(allocation.votes.values())
        self.unread.inc(max(0.0, allocation.responses - voted.failures - read))
        self.failures.inc(voted.failures)
        self.guarded.inc(guarded(allocation))
        self.escalated.inc(voted.escalated)
        self.per_question.observe(allocation.responses)
        self.deciding.observe((allocation.encoder_ms + allocation.gate_ms) / 1000)
        self.voting.observe(allocation.seconds)
        kept = ("samples", "reason", "p_continue", "tokens", "tokens_saved", "tied", "failures")
        shares = sorted(allocation.votes.values(), reverse=True)[:6]
        row = {name: account[name] for name in kept}
        times = {"seconds": round(allocation.seconds, 3)}
        self.latest.append({**row, **times, "votes": shares, "strays": list(voted.strays)})

    def exposition(self) -> bytes:
        """The metrics as Prometheus reads them."""
        return generate_latest(self.registry)
