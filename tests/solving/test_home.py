"""A controller at home, in doubt and abroad; and what is made of it by all that solve."""

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeUpstream
from foreign_questions import BUNDLED, GATED, home_questions, short_questions
from hypothesis import given, settings
from hypothesis import strategies as st
from live import boxed, gathered, live
from streams import edit

from aera import Bounded, Budget, Fixed, Question
from aera.policies.domain import WINDOW, Home, Lookout
from aera.policies.rules import UNTRAINED
from aera.solving.controller import Controller

AT_HOME = home_questions()
SHORT = short_questions(WINDOW)


def sent_home(questions: Iterable[Question]) -> Lookout:
    """A lookout of the bundled controller that has seen these, one after the other."""
    lookout = BUNDLED.make_lookout()
    for question in questions:
        lookout.see(question)
    return lookout


# --- what is noticed ------------------------------------------------------------------------------


def test_unseen_questions_of_the_same_kind_are_home() -> None:
    lookout = BUNDLED.make_lookout()
    doubts = [lookout.see(question) for question in AT_HOME]
    assert not lookout.abroad
    assert sum(doubts) <= 5


def test_a_question_asked_again_says_nothing_new() -> None:
    lookout = sent_home([SHORT[0], SHORT[1]] * WINDOW)
    assert lookout.evidence == sent_home(SHORT[:2]).evidence


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Question: ", "\nAnswer:"),
        ("Read this with care, and take your time!\n\n", "\n\nThink. Then give one number (> 0)."),
        ("  ", "\n\n"),
    ],
)
def test_how_all_questions_are_wrapped_is_no_part_of_them(before: str, after: str) -> None:
    wrapped = [replace(each, text=before + each.text + after) for each in AT_HOME]
    assert not sent_home(wrapped).abroad


def test_a_change_late_in_life_is_noticed_and_so_is_the_way_back() -> None:
    lookout = sent_home(AT_HOME)
    for question in short_questions(2 * WINDOW):
        lookout.see(question)
    assert lookout.abroad
    for question in AT_HOME[:10]:
        lookout.see(question)
    assert lookout.abroad, "a few questions do not bring it home"
    for question in AT_HOME[10:]:
        lookout.see(question)
    assert not lookout.abroad


@settings(max_examples=25)
@given(st.text(), st.text())
def test_any_text_has_a_place(one: str, other: str) -> None:
    lookout = BUNDLED.make_lookout()
    lookout.see(Question("a", one))
    lookout.see(Question("b", other))
    lookout.see(Question("c", other + one))
    assert lookout.evidence < 3


# --- what is kept ---------------------------------------------------------------------------------


def test_an_older_controller_has_none_and_never_doubts(tmp_path: Path) -> None:
    BUNDLED.save(tmp_path)
    edit(tmp_path, "home")
    older = Controller.load(tmp_path)
    assert older.home is None
    assert not any(map(older.make_lookout().see, SHORT))


def test_few_questions_and_questions_without_words_are_no_home() -> None:
    assert Home.of(AT_HOME[:19]) is None
    assert Home.of([Question(f"q{n}", f"q{n}") for n in range(50)]) is None


def test_who_uses_nothing_learned_needs_no_lookout() -> None:
    assert BUNDLED.run_by("asc-0.9").make_lookout().home is None
    assert BUNDLED.run_by("asc-0.9+weighted").make_lookout().home is not None
    assert BUNDLED.run_by("aera-0.3").make_lookout().home is not None


def test_plain_votes_stand_in_within_the_same_bounds() -> None:
    assert (BUNDLED.plain.label, BUNDLED.plain.task) == (str(UNTRAINED), BUNDLED.task)
    assert BUNDLED.run_by("weighted-64").plain.policy == Fixed(64)
    bounded = replace(BUNDLED, policy=Bounded(BUNDLED.policy, minimum=8))
    assert bounded.plain.policy == Bounded(UNTRAINED, minimum=8)


# --- what is made of it ---------------------------------------------------------------------------


def decided(questions: Iterable[Question], **options: Any) -> dict[str, str]:
    """By whom each question was, over real sockets."""
    done = live(FakeUpstream(boxed), lambda by: gathered(questions, by, BUNDLED, **options))
    return {each.question_id: each.policy for each in done}


@pytest.mark.parametrize("shared", [False, True])
def test_questions_are_looked_at_in_order(shared: bool, caplog: pytest.LogCaptureFixture) -> None:
    known: Any = {"shared": True, "budget": Budget(responses=200)} if shared else {}
    at_home = "shared-budget+weighted" if shared else GATED
    away = "shared-budget" if shared else "lead-4+vote"
    assert {*decided(AT_HOME[:12], **known).values()} == {at_home}
    assert not caplog.records
    done = decided(SHORT, **known)
    assert done["s0"] == at_home
    assert {done[each.id] for each in SHORT[10:]} == {away}
    assert [each.levelno for each in caplog.records] == [logging.WARNING]
