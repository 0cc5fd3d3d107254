from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from aera import Prefix, Record, Vote
from aera.lab import crossfit_bayes, learn_prior
from aera.lab.learning.folds import fold_numbers
from aera.pools.record import VotedRecord

RecordOf = Callable[[str, str], Record]
VotesOf = Callable[[str], tuple[Vote, ...]]
VotedOf = Callable[[str, str], VotedRecord]


@pytest.fixture
def voted_of(record_of: RecordOf, votes_of: VotesOf) -> VotedOf:
    """A question with responses that box these answers, and their votes."""

    def make(name: str, answers: str) -> VotedRecord:
        record = record_of(name, answers)
        return VotedRecord(record.question, record.responses, votes_of(answers))

    return make


@pytest.fixture
def records(voted_of: VotedOf) -> list[VotedRecord]:
    """Twenty questions of sixteen votes, some hard, some easy."""
    rng = Random(2)
    streams = ["".join(rng.choices("1234.", [9, 1 + i / 3, i / 4, 1, 2], k=16)) for i in range(20)]
    return [voted_of(f"q{i}", stream) for i, stream in enumerate(streams)]


def test_shares_are_sorted_and_softened(voted_of: VotedOf) -> None:
    prior = learn_prior([voted_of("a", "2112.1")], ranks=3)
    assert prior.shares[0] == pytest.approx((3.5 / 6.5, 2.5 / 6.5, 0.5 / 6.5))
    assert prior.shares[1] == pytest.approx((1 / 3, 1 / 3, 1 / 3))


def test_a_question_without_votes_teaches_nothing(voted_of: VotedOf) -> None:
    assert learn_prior([voted_of("a", "....")]).shares == learn_prior([]).shares


def test_every_row_is_a_falling_distribution(records: list[VotedRecord]) -> None:
    matrix = learn_prior(records).matrix
    assert matrix.shape == (21, 8)
    assert (np.diff(matrix, axis=1) <= 0).all()
    assert matrix.sum(axis=1) == pytest.approx(np.ones(21))


def test_each_question_is_judged_by_the_other_folds(records: list[VotedRecord]) -> None:
    policy = crossfit_bayes(records, 0.9, folds=4, seed=3)
    numbers = fold_numbers(np.arange(20), 4, seed=3)
    for fold in range(4):
        others = [r for r, n in zip(records, numbers, strict=True) if n != fold]
        assert policy.policies[fold].prior.shares == learn_prior(others).shares
    assert policy.fold_of == {f"q{i}": n for i, n in enumerate(numbers)}


def test_a_questions_own_votes_never_reach_its_judge(
    records: list[VotedRecord], votes_of: VotesOf
) -> None:
    before = crossfit_bayes(records, 0.9)
    for place, record in enumerate(records):
        changed = [*records]
        changed[place] = replace(record, votes=votes_of("4" * 16))
        after, fold = crossfit_bayes(changed, 0.9), before.fold_of[record.question.id]
        assert after.policies[fold].prior.shares == before.policies[fold].prior.shares


def test_the_label_is_that_of_the_rule(records: list[VotedRecord]) -> None:
    assert str(crossfit_bayes(records, 0.95)) == "eb-0.95"


def test_it_decides_with_the_policy_of_the_fold(
    records: list[VotedRecord], prefix_of: Callable[..., Prefix]
) -> None:
    prefix = prefix_of("1112")
    policy = crossfit_bayes(records, 0.8)
    for fold in range(5):
        of = {prefix.question.id: fold}
        judge = type(policy)(policy.label, policy.policies, of)
        assert judge.decide(prefix) == policy.policies[fold].decide(prefix)
