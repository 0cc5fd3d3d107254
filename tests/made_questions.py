"""Questions made up so that what can be learned from them is known, and who learns from them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import numpy as np
from lab_fixtures import Letters

from aera import BestOfN, Question, Record, Response, Schedule, get_task, lab
from aera.arrays import Columns, Floats
from aera.lab.replay import Dataset
from aera.pools.pool import HeldRecords, VotedRecord, read_votes
from aera.voting.weigher import Weigher

SCHEDULE = Schedule((2, 4, 8))
TASK = get_task("numeric")
QUESTIONS = 60


def made_records(
    seed: int = 0,
    *,
    questions: int = QUESTIONS,
    telling: bool = True,
    shares: Sequence[float] = (0.3, 0.4, 0.45, 0.9),
) -> tuple[list[VotedRecord], dict[str, str]]:
    """Questions with eight responses, of which these shares are right, and their truths.

    Right and wrong answers look alike. Wrong responses hedge where they are telling; else whoever
    likes does.
    """
    rng = Random(seed)
    records, truths = [], {}
    for place in range(questions):
        truth, wrong = rng.sample(range(11, 99), 2)
        share = rng.choice(shares)
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
    return lab.VoteLearner().prepare(held, lab.Truths(dict(truths)))


def made_table(seed: int = 0, *, questions: int = QUESTIONS, telling: bool = True) -> Dataset:
    return table_of(*made_records(seed, questions=questions, telling=telling))


def trajectories_of(
    grades: Sequence[Sequence[float]] | Floats, tokens: Floats | None = None, **evidence: Floats
) -> lab.Trajectories:
    """Trajectories with these grades; a response costs one token unless said otherwise."""
    marks = np.array(grades, dtype=np.float64)
    schedule = Schedule(tuple(4 * 2**i for i in range(marks.shape[1])))
    spent = np.tile(np.array(schedule.checkpoints, dtype=np.float64), (len(marks), 1))
    names = tuple(f"q{row}" for row in range(len(marks)))
    return lab.Trajectories(
        names, schedule, spent if tokens is None else tokens, marks, evidence, marks
    )


# --- who learns from two hundred of them ----------------------------------------------------------


class Long:
    """A response is worth more the fewer its words are."""

    def score(self, question: Question, responses: Sequence[Response]) -> list[float]:
        return [1 / len(response.text) for response in responses]


class Written:
    """A response says its score itself, in its first word."""

    def score(self, question: Question, responses: Sequence[Response]) -> list[float]:
        return [float(response.text.split()[0]) for response in responses]


EVERY = np.arange(200)
TRUTHS = lab.Truths(made_records(questions=200)[1])
LEARNERS: dict[str, Any] = {
    "labels": lab.VoteLearner(),
    "majority": lab.VoteLearner("majority"),
    "scores": lab.VoteLearner("scores", best_of_n=BestOfN(Long())),
    "paper": lab.PaperLearner(Letters(), epochs=8),
}
GOALS: dict[str, lab.LossLimit | lab.MostUtility] = {
    "labels": lab.limit_for(LEARNERS["labels"], 0.05),
    "majority": lab.limit_for(LEARNERS["majority"], 0.1, by_agreement=True),
    "scores": lab.MostUtility(0.2),
    "paper": lab.LossLimit(0.05),
}


def prepared(teacher: str, turned: Columns | None = None) -> Any:
    """Two hundred questions; those `turned` have other responses and other truths."""
    records, truths = made_records(questions=200)
    if turned is not None:
        other, wrong = made_records(seed=9, questions=200)
        for row in turned:
            records[row] = replace(other[row], question=records[row].question)
            truths[f"q{row}"] = wrong[f"q{row}"]
    return LEARNERS[teacher].prepare(HeldRecords(records, TASK, SCHEDULE), lab.Truths(truths))


@cache
def data_of(teacher: str) -> Any:
    return prepared(teacher)


def judge(protocol: str, teacher: str, data: Any, *, seed: int = 1) -> lab.Judgement:
    learner, goal = LEARNERS[teacher], GOALS[teacher]
    if protocol == "crossfit":
        return lab.crossfit(learner, data, folds=3, seed=seed, clean=True)
    if protocol == "nested":
        return lab.nested(learner, data, [goal], folds=3, seed=seed)[0]
    return lab.holdout(learner, data, goal, seed=seed)


@cache
def judged_by(protocol: str, teacher: str) -> lab.Judgement:
    return judge(protocol, teacher, data_of(teacher))


def bytes_of(model: object) -> bytes:
    """All that was learned."""
    parts = [model.learned.encode()]
    if model.gate is not None:
        parts += [array.tobytes() for array in model.gate.tensors().values()]
    if isinstance(model, lab.PaperModel):
        return b"".join([*parts, str(model.loss).encode()])
    if isinstance(model.weigher, Weigher):
        parts += [array.tobytes() for array in model.weigher.network.tensors().values()]
    return b"".join([*parts, *(values.tobytes() for values in model.own.values.values())])
