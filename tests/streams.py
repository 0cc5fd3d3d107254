"""Short ways to write responses and votes: "aab" or ["a", None]; a dot is one that says nothing."""

from collections.abc import Sequence

from aera import Prefix, Question, Record, Response, Schedule, Vote, unfold

Answers = Sequence[str | None]
QUESTION = Question("q", "how many?")


def responses_of(answers: Answers) -> list[Response]:
    """Responses that box these answers."""
    silent = (None, ".")
    texts = ["no idea" if a in silent else f"so it is \\boxed{{{a}}}" for a in answers]
    return [Response(text, tokens=10 + place) for place, text in enumerate(texts)]


def record_of(name: str, answers: Answers) -> Record:
    """A question with responses that box these answers."""
    return Record(Question(name, f"what is {name}?"), (*responses_of(answers),))


def votes_of(answers: Sequence[Vote | str | None]) -> list[Vote]:
    return [a if isinstance(a, Vote) else Vote(None if a in (None, ".") else a) for a in answers]


def prefixes_of(answers: Answers, schedule: Schedule | None = None) -> list[Prefix]:
    """Every prefix of a stream, by default at the paper's checkpoints."""
    responses = [Response("", tokens=1)] * len(answers)
    schedule = schedule or Schedule().upto(len(answers))
    return list(unfold(QUESTION, responses, votes=votes_of(answers), schedule=schedule))


def prefix_of(answers: Sequence[Vote | str | None]) -> Prefix:
    """One prefix, whole, with more to come after it."""
    empty = Prefix(QUESTION, Schedule(tuple(range(1, len(answers) + 2))))
    return empty.extend([Response("", tokens=1)] * len(answers), votes_of(answers))
