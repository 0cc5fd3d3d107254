"""Limits hold and are used: random jobs on a virtual clock."""

import pytest
from limits import Job, Outcome, run_hurried, run_job

SLACK = 1e-9


def check(job: Job, made: Outcome) -> None:
    """Never beyond the limit, and at least 90 % of it while anybody wanted more."""
    if job.kind == "seconds":
        seconds = made.budget.seconds
        assert seconds is not None
        assert all(begun <= seconds for begun in made.server.begun)
        assert made.ended <= seconds + 0.1 or not made.hungry
        return
    if job.bounded or job.kind == "responses":
        assert made.spent <= made.limit + SLACK
    if made.hungry:
        assert made.spent + made.at_risk >= 0.9 * made.limit


@pytest.mark.parametrize("concurrency", [1, 16, 256])
@pytest.mark.parametrize("kind", ["responses", "tokens", "money", "seconds"])
def test_a_limit_is_never_passed_and_is_used(
    kind: str, concurrency: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(12):
        job = Job(kind, concurrency, seed)
        with monkeypatch.context() as patch:
            check(job, run_job(job, patch))


@pytest.mark.parametrize("hurry", [0.3, 0.7, 1.0])
def test_a_limit_in_tokens_holds_at_every_hurry(
    hurry: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(60):
        found, server, limit = run_hurried(seed, hurry, monkeypatch)
        assert server.generated <= limit + 1e-6, seed
        assert found.completion_tokens <= limit


def test_a_hurry_under_a_limit_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = 0
    for seed in range(60):
        slow, _, _ = run_hurried(seed, 0.0, monkeypatch, faults=False)
        fast, _, _ = run_hurried(seed, 0.8, monkeypatch, faults=False)
        assert (fast.answer, fast.responses, fast.reason) == (
            slow.answer,
            slow.responses,
            slow.reason,
        ), seed
        ahead += fast.unused.completion_tokens > 0
    assert ahead > 3
