"""Responses on a page: which ones, how much of them, and what is said of the rest."""

from aera import Question, Response
from aera.core import Vote
from aera.lab.report import page
from aera.pools.pool import VotedRecord


def record(answers: list[str | None], *, weights: list[float] | None = None) -> VotedRecord:
    responses = tuple(Response(f"says {answer}", 7) for answer in answers)
    weighed = weights or [1.0] * len(answers)
    pairs = zip(answers, weighed, strict=True)
    votes = tuple(Vote(answer, weight=weight) for answer, weight in pairs)
    return VotedRecord(Question("q", "?"), responses, votes)


def test_every_frequent_answer_and_what_was_not_read_are_among_them() -> None:
    said = record(["1"] * 20 + ["2"] * 5 + [None] + ["3"] * 2)
    shown = page.show_responses(said, (4, 100), count=28)
    assert [one["number"] for one in shown] == [1, 21, 26, 27]
    assert [one["answer"] for one in shown] == ["1", "2", None, "3"]
    assert [one["number"] for one in page.show_responses(said, (8, 100), count=4)] == [1, 2, 3, 4]
    assert shown[2]["why"] == "no answer could be found"
    assert "why" not in shown[0]


def test_weights_change_what_is_told_and_not_which_are_shown() -> None:
    answers: list[str | None] = ["1", "2", "2", "3", None]
    plain = page.show_responses(record(answers), (3, 100), count=5)
    heavy = record(answers, weights=[0.1, 0.2, 0.3, 9.0, 1.0])
    weighed = page.show_responses(heavy, (3, 100), count=5)
    assert [one["number"] for one in plain] == [one["number"] for one in weighed]
    assert weighed[0]["weight"] == 0.1


def test_a_long_text_loses_its_middle_and_says_so() -> None:
    text = "a" * 500 + "the end"
    assert page.shorten(text, 90) == "a" * 30 + " … [417 characters left out] … " + text[-60:]
    assert page.shorten("short", 90) == "short"


def test_a_page_has_room_for_so_many_characters_whatever_it_shows() -> None:
    for questions in (1, 5, 150, 1_000, 2_000):
        responses, characters = page.find_room(questions)
        assert questions * responses * characters <= page.MOST_CHARACTERS
        assert responses <= page.MOST_RESPONSES
        assert characters <= page.LONGEST_RESPONSE
