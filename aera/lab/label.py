"""Which questions are worth a label: those on which two ways to answer differ.

Where both say the same, a label tells nothing about which of them is better. On most pools that is
nearly everywhere, so a few labels drawn by chance decide nothing.
"""

import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from aera.core import Question, Weighting
from aera.files import whole_file
from aera.policies.rules import Fixed, Policy, label_of
from aera.pools.parquet import ANSWER
from aera.pools.pool import Records
from aera.solving.run import replay
from aera.voting.rules import gives_weights

Candidate = tuple[Question, dict[str, str | None]]
"""A question with what each way answers, by label."""


def find_candidates(
    records: Records, policies: Sequence[Policy], weigher: Weighting | None = None
) -> list[Candidate]:
    """The questions on which the ways differ, those that divide them most evenly first.

    The ways are the policies and the full budget; with a weigher, both on weighted votes, and the
    full budget of plain ones.
    """
    task, schedule = records.task, records.schedule
    full = Fixed(schedule.last)
    found: list[Candidate] = []
    for record in records:
        voted = record.read(task)
        seen = voted.prefixes(schedule)
        ways = [(seen, way, False) for way in ((full,) if weigher else (full, *policies))]
        if weigher is not None:
            weighed = voted.first(schedule.last).weigh(weigher).prefixes(schedule)
            ways += [(weighed, way, gives_weights(weigher)) for way in (full, *policies)]
        answers = {
            label_of(way, weighted=weighted): replay(chain, way, task=task).allocation.answer
            for chain, way, weighted in ways
        }
        if len(set(answers.values())) > 1:
            found.append((record.question, answers))
    return sorted(found, key=_split, reverse=True)


def _split(candidate: Candidate) -> tuple[int, int]:
    """How evenly the ways are divided, then how many different answers there are."""
    counts = Counter(candidate[1].values())
    return counts.total() - counts.most_common(1)[0][1], len(counts)


def write_labels(out: Path, candidates: Iterable[Candidate]) -> None:
    """A table to fill in: the right answer of each question goes into the column `answer`."""
    with whole_file(out) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["id", "question", "choices", ANSWER, "answers"])
        for question, answers in candidates:
            said: dict[str | None, list[str]] = {}
            for label, answer in answers.items():
                said.setdefault(answer, []).append(label)
            told = "; ".join(f"{answer}: {', '.join(labels)}" for answer, labels in said.items())
            table.writerow([question.id, question.text, " | ".join(question.choices), "", told])
