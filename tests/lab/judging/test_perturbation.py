"""Leaks planted where features, traits, weights and lessons are made: each of them is found."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_questions import SCHEDULE, TASK, made_records

import aera
from aera import Controller, Prefix, Question, Response, Vote
from aera.arrays import Floats
from aera.lab import Truths
from aera.lab.judging.perturbation import Moved, Perturbed, replace_truths
from aera.lab.learning import crowd, votes
from aera.lab.learning.crowd import CrowdLearner
from aera.lab.learning.votes import VoteLearner
from aera.voting.weigher import Weigher

SHIPPED = Path(aera.__file__).parent / "demo" / "controller"


@pytest.fixture
def some() -> Perturbed:
    records, truths = made_records(questions=24)
    return Perturbed(tuple(records), Truths(truths), TASK, SCHEDULE)


@pytest.fixture
def shipped(some: Perturbed) -> Perturbed:
    """The same before the controller that ships."""
    return replace(some, controller=replace(Controller.load(SHIPPED), task=TASK, schedule=SCHEDULE))


def moved(found: dict[Any, Moved]) -> list[Any]:
    return [kind for kind, what in found.items() if what]


def test_nothing_moves_where_nothing_leaks(shipped: Perturbed) -> None:
    kinds = ["traits", "weights", "vote features", "p_continue", "decisions"]
    assert shipped.move_future() == dict.fromkeys(kinds)
    assert shipped.move_truths() == dict.fromkeys(kinds)
    assert moved(shipped.move_learning()) == []


def test_every_truth_is_another() -> None:
    truths = Truths({"a": "1", "b": "2", "c": "1", "d": "7"})
    assert dict(replace_truths(truths)) == {"a": "2", "b": "7", "c": "2", "d": "1"}


# --- the future -----------------------------------------------------------------------------------


def test_a_vote_feature_of_a_later_response_is_found(
    some: Perturbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leak(chains: Sequence[Sequence[Prefix]]) -> Floats:
        numbers = describe(chains)
        numbers[:, :, 2] = numbers[:, -1:, 2]  # the leader's share at the full budget
        return numbers

    describe = votes.describe_votes
    monkeypatch.setattr(votes, "describe_votes", leak)
    found = some.move_future()
    assert moved(found) == ["vote features"]
    assert found["vote features"] == "lead_share of q1 moved at 2 with the future"


def test_a_trait_of_other_responses_is_found(
    some: Perturbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leak(question: Question, responses: Sequence[Response], said: Sequence[Vote]) -> Floats:
        numbers = traits(question, responses, said)
        numbers[:, 2] -= numbers[:, 2].mean()  # longer than the question's others?
        return numbers

    traits = votes.traits
    monkeypatch.setattr(votes, "traits", leak)
    found = some.move_future()
    assert moved(found) == ["traits"]
    assert str(found["traits"]).startswith("log_tokens of q0")


class Shared(Weigher):
    """Weights that are shares of all responses, of those to come too."""

    def weights(self, seen: Floats) -> Floats:
        own = super().weights(seen)
        shares: Floats = own / own.sum(axis=1, keepdims=True)
        return shares


@dataclass(frozen=True)
class Foresight:
    """Weights by whether the last response agrees."""

    def weigh(
        self, question: Question, responses: Sequence[Response], votes: Sequence[Vote]
    ) -> list[Vote]:
        return [replace(vote, weight=1.0 + (vote.answer == votes[-1].answer)) for vote in votes]


@pytest.mark.parametrize(
    "leak", [lambda own: Shared(own.network, own.features), lambda _: Foresight()]
)
def test_weights_of_later_responses_are_found_with_all_that_comes_of_them(
    shipped: Perturbed, leak: Callable[[Any], Any]
) -> None:
    assert shipped.controller is not None
    weigher = leak(shipped.controller.weigher)
    found = replace(shipped, controller=replace(shipped.controller, weigher=weigher)).move_future()
    assert {"weights", "vote features", "p_continue"} <= {*moved(found)}
    assert found["traits"] is None


@dataclass(frozen=True)
class Recalling:
    """A policy that has been here before: it stops where the vote will not change."""

    ends: dict[str, str | None]

    def decide(self, prefix: Prefix) -> aera.Decision:
        leader = prefix.tally.leaders.answer
        known = self.ends.get(prefix.question.id)
        if len(prefix) == SCHEDULE.last:
            self.ends[prefix.question.id] = leader
        return aera.Decision(leader == known, "as before")


def test_a_policy_that_remembers_how_questions_ended_is_found(shipped: Perturbed) -> None:
    assert shipped.controller is not None
    policy = Recalling({})
    found = replace(shipped, controller=replace(shipped.controller, policy=policy)).move_future()
    assert moved(found) == ["decisions"]


# --- the truths -----------------------------------------------------------------------------------


def test_a_trait_of_the_truth_is_found(some: Perturbed, monkeypatch: pytest.MonkeyPatch) -> None:
    def leak(part: Any, **told: Any) -> Any:
        voted, seen, health = describe(part, **told)
        seen.traits[..., 0] = seen.grades
        return voted, seen, health

    describe = votes._describe
    monkeypatch.setattr(votes, "_describe", leak)
    found = some.move_truths()
    assert moved(found) == ["traits"]
    assert str(found["traits"]).startswith("mean_logprob of q")
    assert str(found["traits"]).endswith("moved with the truths")


def test_a_crowd_that_knows_the_truths_is_found(
    some: Perturbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowd, "graded_by_crowd", lambda table: table)
    found = some.move_learning()
    assert moved(found) == [("taught by the crowd", "truth")]
    assert found["taught by the crowd", "truth"] == "what responses are worth moved"


# --- judged questions -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("learner", "found"),
    [
        (CrowdLearner, [("taught by the crowd", "judged question")]),
        (VoteLearner, [("taught by truths", "judged question and its truth")]),
    ],
)
def test_a_judged_question_that_teaches_is_found(
    some: Perturbed, monkeypatch: pytest.MonkeyPatch, learner: Any, found: list[Any]
) -> None:
    fit = learner.fit

    def leak(self: Any, table: Any, rows: Any, **told: Any) -> Any:
        return fit(self, table, np.arange(len(table)), **told)

    monkeypatch.setattr(learner, "fit", leak)
    assert moved(some.move_learning()) == found


def test_weights_that_lean_on_judged_questions_are_found(
    some: Perturbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scaling by statistics of the whole table is the leak that is made most often."""
    prepare = VoteLearner.prepare

    def leak(self: Any, *told: Any, **named: Any) -> Any:
        table = prepare(self, *told, **named)
        seen = table.responses.traits
        scaled = seen - np.nan_to_num(seen).mean(axis=(0, 1))
        return replace(table, responses=replace(table.responses, traits=scaled))

    monkeypatch.setattr(VoteLearner, "prepare", leak)
    assert moved(some.move_learning()) == [("taught by truths", "judged question and its truth")]
