"""Responses: some of each question's, with their answers and weights, within a bounded page."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from aera.core import Response, Vote
from aera.pools.pool import VotedRecord

MOST_CHARACTERS = 550_000
"""Of all responses on a page."""
MOST, FEWEST = 8, 2
"""Responses of one question."""
LONGEST = 1_000
"""Characters of one response; the middle of a longer one is left out."""
WORTH = 600
"""Characters that make a response worth showing, where there are many questions."""


@dataclass(frozen=True)
class Room:
    """How many responses of a question a page has room for, and how much of each."""

    responses: int
    characters: int

    @classmethod
    def of(cls, questions: int) -> "Room":
        """What is there for each of so many questions."""
        own = MOST_CHARACTERS // max(1, questions)
        count = max(FEWEST, min(MOST, own // WORTH))
        return cls(count, min(LONGEST, own // count))


def show_responses(record: VotedRecord, room: Room, *, count: int) -> list[dict[str, Any]]:
    """Some of the first `count` responses, in their order.

    The first one, one for each answer that many gave, one that could not be read, then the next.
    """
    return [
        _show(place, record.responses[place], record.votes[place], room)
        for place in _choose(record.votes[:count], room.responses)
    ]


def _choose(votes: tuple[Vote, ...], most: int) -> list[int]:
    said = [vote.answer for vote in votes]
    # By how many gave it, not by weight: whoever weighs otherwise sees the same responses.
    frequent = [answer for answer, _ in Counter(a for a in said if a is not None).most_common(most)]
    unread = [said.index(None)] if None in said else []
    wanted = [0, *(said.index(answer) for answer in frequent[:4]), *unread]
    wanted += [*(said.index(answer) for answer in frequent[4:]), *range(len(said))]
    return sorted(list(dict.fromkeys(wanted))[:most])


def _show(place: int, response: Response, vote: Vote, room: Room) -> dict[str, Any]:
    text = response.text or (response.answer or "")
    told = {
        "number": place + 1,
        "answer": vote.answer,
        "weight": round(vote.weight, 3),
        "tokens": response.tokens,
        "text": shorten(text, room.characters),
    }
    return told if vote.answer is not None else {**told, "why": _why(response)}


def _why(response: Response) -> str:
    """Why nothing was read."""
    if response.error is not None:
        return "failed"
    return "cut off before an answer" if response.truncated else "no answer could be found"


def shorten(text: str, most: int) -> str:
    """The beginning and, where an answer would stand, more of the end."""
    if len(text) <= most:
        return text
    head, tail = most // 3, most - most // 3
    return f"{text[:head]} … [{len(text) - most:,} characters left out] … {text[-tail:]}"
