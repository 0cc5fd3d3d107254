"""Labels: the right answers of recorded responses, and the questions that are worth one.

Those are the questions on which two ways to answer differ. Where both say the same, a label tells
nothing about which of them is better. On most pools that is nearly everywhere, so a few labels
drawn by chance decide nothing.
"""

import csv
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from aera.core import Question, Weighting
from aera.errors import ProtocolError, UsageError
from aera.files import whole_file
from aera.lab.formats.sources import read_csv, shown
from aera.lab.truths import Truths
from aera.policies.rules import Fixed, Policy, label_of
from aera.pools.parquet import ANSWER, ParquetPool, read_columns
from aera.pools.pool import FewerRecords, Pool, Records
from aera.pools.stats import name_few
from aera.reading.task import readable_answer
from aera.solving.run import replay
from aera.voting.rules import gives_weights
from aera.workers import SERIAL, Workers

STOPPED = "; those that a policy stopped early are the easy ones, so this says nothing of them all"
Candidate = tuple[Question, dict[str, str | None]]
"""A question with what each way answers, by label."""


def open_truths(records: Records, *, workers: Workers = SERIAL) -> Truths | None:
    """The truths of a pool, or those that were exported along; None where there are none."""
    if not isinstance(records, ParquetPool):
        return Truths.open(records.folder) if records.folder else None
    told = workers.map(_answers, records.groups)
    answers = {name: answer for part in told for name, answer in part.items()}
    return Truths(answers) if answers else None


def _answers(group: Any) -> dict[str, str]:
    """The truths of a row group, whose column is read by itself and never with the responses."""
    columns = read_columns(group, ["question_id", ANSWER])
    pairs = zip(columns["question_id"], columns[ANSWER], strict=True)
    return {question_id: answer for question_id, answer in pairs if answer is not None}


def open_graded(
    records: Records, *, workers: Workers = SERIAL
) -> tuple[Records, Truths | None, str | None]:
    """The questions that can be judged: those with enough responses and, where any has, a truth.

    With their truths, and with which questions had to be left out, and why.
    """
    truths = open_truths(records, workers=workers)
    solved = isinstance(records, Pool) and records.is_open and not records.wanted
    if truths is not None:
        without = [name for name in records.questions if name not in truths.answers]
        if len(without) == len(records.questions):
            raise ProtocolError(f'none of the questions of "{records.name}" has a truth')
        if without:
            records = FewerRecords(records, dict.fromkeys(without, "has no truth"))
    if not (left := records.left_out):
        return records, truths, None
    biased = STOPPED if solved else ""
    return records, truths, f"left out: {name_few(left)}{biased}"


def read_labels(path: Path) -> Truths:
    """The right answers that somebody has filled in; questions left empty are left out."""
    if not path.is_file():
        raise UsageError(f'the labels "{path}" cannot be read: there is no such file')
    rows = [row for _, row in read_csv(path)]
    if rows and not {"id", ANSWER} <= rows[0].keys():
        raise UsageError(
            f'"{path}" is no CSV with columns "id" and "{ANSWER}", as aera label writes it'
        )
    found = dict[str, str]()
    for row in rows:
        name, said = row["id"], (row[ANSWER] or "").strip()
        if name and said and found.setdefault(name, said) != said:
            raise UsageError(f'"{path}" has two answers to the question {name}')
    if not found:
        raise UsageError(f'"{path}" has no right answer yet: fill in its column "{ANSWER}"')
    return Truths(found)


def fit_labels(labels: Truths, records: Records) -> Truths:
    """Those that can be used, as the task reads them; others are told, or refused where all are."""
    task, questions, useless = records.task, records.questions, dict[str, str]()
    found = dict[str, str]()
    for name, said in labels.answers.items():
        answer = readable_answer(questions[name], said, task) if name in questions else None
        if answer is not None:
            found[name] = answer
        else:
            what = f"no {task.kind} answer: {shown(said)}"
            useless[name] = what if name in questions else f'no question of "{records.name}"'
    if useless:
        told = f"of {len(labels)} labels, no use have those of {name_few(useless)}"
        if not found:
            raise UsageError(told)
        logging.getLogger("aera.lab").warning("%s", told)
    return Truths(found)


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
