"""Limits hold and are used: random jobs on a virtual clock."""

import pytest
from limits import Job, Outcome, run_job

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


@pytest.mark.parametrize(
    "seeds", [range(4), pytest.param(range(4, 24), marks=pytest.mark.nightly)], ids=str
)
@pytest.mark.parametrize("concurrency", [1, 16, 256, None])
@pytest.mark.parametrize("kind", ["responses", "tokens", "money", "seconds"])
def test_a_limit_is_never_passed_and_is_used(
    kind: str, concurrency: int | None, seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in seeds:
        job = Job(kind, concurrency, seed)
        with monkeypatch.context() as patch:
            check(job, run_job(job, patch))
