"""Which questions are worth a label: those on which two ways to answer differ.

Where both say the same, a label tells nothing about which of them is better. On most pools that is
nearly everywhere, so a few labels drawn by chance decide nothing.
"""

import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from aera.core import Question, Schedule
from aera.errors import UsageError
from aera.files import whole_file
from aera.lab.truths import Truths
from aera.policies.labels import label_of
from aera.policies.rules import Fixed, Policy
from aera.pools.pool import Records, VotedRecord
from aera.solving.replay import replay
from aera.voting.rules import gives_weights
from aera.voting.weigher import Weighting

ANSWER = "answer"
"""The column to fill in."""


@dataclass(frozen=True)
class Candidate:
    """A question with what each way answers, by label."""

    question: Question
    answers: dict[str, str | None]

    @property
    def split(self) -> tuple[int, int]:
        """How evenly the ways are divided, then how many different answers there are."""
        counts = Counter(self.answers.values())
        return len(self.answers) - counts.most_common(1)[0][1], len(counts)


@dataclass(frozen=True)
class Ways:
    """The ways to answer that are compared: policies on plain and on weighted votes."""

    schedule: Schedule
    policies: tuple[Policy, ...]
    weigher: Weighting | None = None
    weighted: tuple[Policy, ...] = ()

    def __post_init__(self) -> None:
        if len(self.policies) + len(self.weighted) < 2:
            raise UsageError("labels decide between two policies at least; give --policies A,B")

    def answer(self, record: VotedRecord, records: Records) -> dict[str, str | None]:
        """What each of them answers."""
        plain = record.prefixes(self.schedule)
        told = [
            (label_of(policy, weighted=False), replay(plain, policy, task=records.task))
            for policy in self.policies
        ]
        if self.weigher is not None and self.weighted:
            chain = record.first(self.schedule.last).weigh(self.weigher).prefixes(self.schedule)
            own = gives_weights(self.weigher)
            told += [
                (label_of(policy, weighted=own), replay(chain, policy, task=records.task))
                for policy in self.weighted
            ]
        return {label: run.allocation.answer for label, run in told}


def usual_ways(schedule: Schedule, policies: Sequence[Policy], weigher: Weighting | None) -> Ways:
    """The policies that were named, and the full budget of plain and of weighted votes."""
    full = Fixed(schedule.last)
    if weigher is None:
        return Ways(schedule, (full, *policies))
    return Ways(schedule, (full,), weigher, (full, *policies))


def find_candidates(records: Records, ways: Ways) -> list[Candidate]:
    """The questions on which the ways differ, those that divide them most evenly first."""
    found = []
    for record in records:
        answers = ways.answer(record.read(records.task), records)
        if len(set(answers.values())) > 1:
            found.append(Candidate(record.question, answers))
    return sorted(found, key=lambda each: each.split, reverse=True)


def write_labels(out: Path, candidates: Iterable[Candidate]) -> None:
    """A table to fill in: the right answer of each question goes into the column `answer`."""
    rows = [_row(each) for each in candidates]
    with whole_file(out) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, ["id", "question", "choices", ANSWER, "answers"])
        table.writeheader()
        table.writerows(rows)


def read_labels(path: Path) -> Truths:
    """The right answers that somebody has filled in; questions left empty are left out."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f'the labels "{path}" cannot be read: {error}') from None
    if rows and not {"id", ANSWER} <= rows[0].keys():
        raise UsageError(f'"{path}" has no columns "id" and "{ANSWER}", as aera label writes them')
    found = {row["id"]: said for row in rows if (said := (row[ANSWER] or "").strip())}
    if not found:
        raise UsageError(f'"{path}" has no right answer yet: fill in its column "{ANSWER}"')
    return Truths(found)


def _row(candidate: Candidate) -> dict[str, str]:
    question = candidate.question
    said: dict[str | None, list[str]] = {}
    for label, answer in candidate.answers.items():
        said.setdefault(answer, []).append(label)
    return {
        "id": question.id,
        "question": question.text,
        "choices": " | ".join(question.choices),
        ANSWER: "",
        "answers": "; ".join(f"{answer}: {', '.join(labels)}" for answer, labels in said.items()),
    }
