"""Questions made up so that what can be learned from them is known."""

from collections.abc import Mapping
from random import Random

from aera import Question, Record, Response, Schedule, get_task
from aera.lab import Ballot, Truths, read_ballots
from aera.lab.learning import Course
from aera.lab.weighing import mark

SCHEDULE = Schedule((2, 4, 8))
TASK = get_task("numeric")
QUESTIONS = 60


def made_ballots(
    seed: int = 0, *, questions: int = QUESTIONS, telling: bool = True
) -> tuple[list[Ballot], dict[str, str]]:
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
    return read_ballots(records, TASK), truths


def course_of(ballots: list[Ballot], truths: Mapping[str, str]) -> Course:
    told = Truths(dict(truths))
    marked = mark(ballots, told, task=TASK, responses=SCHEDULE.last)
    return Course(marked, told, TASK, SCHEDULE)


def made_course(seed: int = 0, *, questions: int = QUESTIONS, telling: bool = True) -> Course:
    return course_of(*made_ballots(seed, questions=questions, telling=telling))
