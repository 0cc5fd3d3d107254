"""Which questions are worth a label: those on which two ways to answer differ.

Where both say the same, a label tells nothing about which of them is better. On most pools that is
nearly everywhere, so a few labels drawn by chance decide nothing.
"""

import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from aera.core import Question, Weighting
from aera.files import whole_file
from aera.policies.rules import Fixed, Policy, label_of
from aera.pools.parquet import ANSWER
from aera.pools.pool import Records, VotedRecord
from aera.solving.run import replay
from aera.voting.rules import gives_weights

Answers = dict[str, str | None]


@dataclass(frozen=True)
class Candidate:
    """A question with what each way answers, by label."""

    question: Question
    answers: Answers

    @property
    def split(self) -> tuple[int, int]:
        """How evenly the ways are divided, then how many different answers there are."""
        counts = Counter(self.answers.values())
        return len(self.answers) - counts.most_common(1)[0][1], len(counts)


def find_candidates(
    records: Records, policies: Sequence[Policy], weigher: Weighting | None = None
) -> list[Candidate]:
    """The questions on which the ways differ, those that divide them most evenly first.

    The ways are the policies and the full budget; with a weigher, both on weighted votes, and the
    full budget of plain ones.
    """
    task, schedule = records.task, records.schedule
    full = Fixed(schedule.last)
    named = (full, *policies)

    def answers(record: VotedRecord, ways: Sequence[Policy], weighted: bool = False) -> Answers:
        chain = record.prefixes(schedule)
        labels = [label_of(way, weighted=weighted) for way in ways]
        runs = [replay(chain, way, task=task) for way in ways]
        return {label: run.allocation.answer for label, run in zip(labels, runs, strict=True)}

    found = []
    for record in records:
        voted = record.read(task)
        told = answers(voted, named if weigher is None else (full,))
        if weigher is not None:
            weighed = voted.first(schedule.last).weigh(weigher)
            told |= answers(weighed, named, gives_weights(weigher))
        if len(set(told.values())) > 1:
            found.append(Candidate(record.question, told))
    return sorted(found, key=lambda each: each.split, reverse=True)


def write_labels(out: Path, candidates: Iterable[Candidate]) -> None:
    """A table to fill in: the right answer of each question goes into the column `answer`."""
    rows = [_row(each) for each in candidates]
    with whole_file(out) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, ["id", "question", "choices", ANSWER, "answers"])
        table.writeheader()
        table.writerows(rows)


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
