"""Replay: the decision loop over recorded responses, several policies at once. No truth is seen."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aera.core import Prefix, Schedule
from aera.policies.rules import Policy
from aera.pools.pool import VotedRecord
from aera.reading.task import Task
from aera.solving.run import Run
from aera.voting.rules import Rule, plain_vote

OBSERVED: dict[str, Callable[[Prefix], float]] = {
    "majority_ratio": lambda prefix: prefix.tally.majority,
    "entropy": lambda prefix: prefix.tally.entropy,
}
"""What the table of transitions compares."""


@dataclass(frozen=True, eq=False)
class Replay:
    """One question at every checkpoint, and the run of every policy on it."""

    answers: tuple[str | None, ...]
    tokens: tuple[float, ...]
    observed: dict[str, tuple[float, ...]]
    runs: tuple[Run, ...]


def replay_record(
    record: VotedRecord,
    policies: Sequence[Policy],
    *,
    task: Task,
    schedule: Schedule,
    rule: Rule = plain_vote,
) -> Replay:
    """Show one question to every policy; each is stopped by itself or by the full budget."""
    prefixes = record.prefixes(schedule)
    return Replay(
        answers=tuple(rule(prefix).answer for prefix in prefixes),
        tokens=tuple(float(prefix.completion_tokens) for prefix in prefixes),
        observed={name: tuple(map(measure, prefixes)) for name, measure in OBSERVED.items()},
        runs=tuple(replay(prefixes, policy, task=task, rule=rule) for policy in policies),
    )


def replay_records(
    records: Sequence[VotedRecord],
    policies: Sequence[Policy],
    *,
    task: Task,
    schedule: Schedule,
    rule: Rule = plain_vote,
) -> list[Replay]:
    """Show every question to every policy."""
    return [
        replay_record(record, policies, task=task, schedule=schedule, rule=rule)
        for record in records
    ]


def replay(
    prefixes: Sequence[Prefix], policy: Policy, *, task: Task, rule: Rule = plain_vote
) -> Run:
    """Show prepared prefixes to one policy until it stops."""
    first = prefixes[0]
    run = Run(first.question, policy, task=task, schedule=first.schedule, rule=rule)
    for prefix in prefixes:
        run.see(prefix)
        if run.stopped:
            break
    return run
