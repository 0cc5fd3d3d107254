"""Questions made up so that what can be learned from them is known."""

from collections.abc import Mapping
from random import Random

from aera import Question, Record, Response, Schedule, get_task
from aera.lab import Truths, VoteLearner
from aera.lab.learning.dataset import Dataset
from aera.pools.pool import HeldRecords, VotedRecord, read_votes

SCHEDULE = Schedule((2, 4, 8))
TASK = get_task("numeric")
QUESTIONS = 60


def made_records(
    seed: int = 0, *, questions: int = QUESTIONS, telling: bool = True
) -> tuple[list[VotedRecord], dict[str, str]]:
    """Questions with eight responses and their truths; right and wrong answers look alike.

    Wrong responses hedge where they are telling; else whoever likes does.
    """
    rng = Random(seed)
    records, truths = [], {}
    for place in range(questions):
        truth, wrong = rng.sample(range(11, 99), 2)
        share = rng.choice([0.3, 0.4, 0.45, 0.9])
        responses = []
        for _ in range(SCHEDULE.last):
            right = rng.random() < share
            hedges = (not right) if telling else rng.random() < 0.5
            words = "wait, actually, sorry, it" if hedges else "it"
            text = f"{words} is \\boxed{{{truth if right else wrong}}}"
            responses.append(Response(text, tokens=rng.randint(20, 40)))
        question = Question(f"q{place}", f"how many in the {'very ' * place} end?")
        records.append(Record(question, tuple(responses)))
        truths[question.id] = str(truth)
    return read_votes(records, TASK), truths


def table_of(records: list[VotedRecord], truths: Mapping[str, str]) -> Dataset:
    held = HeldRecords(records, TASK, SCHEDULE)
    return VoteLearner().prepare(held, Truths(dict(truths)))


def made_table(seed: int = 0, *, questions: int = QUESTIONS, telling: bool = True) -> Dataset:
    return table_of(*made_records(seed, questions=questions, telling=telling))
