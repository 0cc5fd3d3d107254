from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aera import Prefix, Record, Vote
from aera.lab import Ballot, crossfit_bayes, fold_numbers, learn_prior

RecordOf = Callable[[str, str], Record]
VotesOf = Callable[[str], tuple[Vote, ...]]


@pytest.fixture
def ballots(record_of: RecordOf, votes_of: VotesOf) -> list[Ballot]:
    """Twenty questions of sixteen votes, some hard, some easy."""
    rng = Random(2)
    streams = ["".join(rng.choices("1234.", [9, 1 + i / 3, i / 4, 1, 2], k=16)) for i in range(20)]
    return [Ballot(record_of(f"q{i}", s), votes_of(s)) for i, s in enumerate(streams)]


def test_shares_are_sorted_and_softened(record_of: RecordOf, votes_of: VotesOf) -> None:
    prior = learn_prior([Ballot(record_of("a", "2112.1"), votes_of("2112.1"))], ranks=3)
    assert prior.shares[0] == pytest.approx((3.5 / 6.5, 2.5 / 6.5, 0.5 / 6.5))
    assert prior.shares[1] == pytest.approx((1 / 3, 1 / 3, 1 / 3))


def test_a_question_without_votes_teaches_nothing(record_of: RecordOf, votes_of: VotesOf) -> None:
    silent = Ballot(record_of("a", "...."), votes_of("...."))
    assert learn_prior([silent]).shares == learn_prior([]).shares


def test_every_row_is_a_falling_distribution(ballots: list[Ballot]) -> None:
    matrix = learn_prior(ballots).matrix
    assert matrix.shape == (21, 8)
    assert (np.diff(matrix, axis=1) <= 0).all()
    assert matrix.sum(axis=1) == pytest.approx(np.ones(21))


def test_each_question_is_judged_by_the_other_folds(ballots: list[Ballot]) -> None:
    policy = crossfit_bayes(ballots, 0.9, folds=4, seed=3)
    numbers = fold_numbers(20, 4, seed=3)
    for fold in range(4):
        others = [b for b, n in zip(ballots, numbers, strict=True) if n != fold]
        assert policy.policies[fold].prior.shares == learn_prior(others).shares
    assert policy.fold_of == {f"q{i}": n for i, n in enumerate(numbers)}


def test_a_questions_own_votes_never_reach_its_judge(
    ballots: list[Ballot], votes_of: VotesOf
) -> None:
    before = crossfit_bayes(ballots, 0.9)
    for place, ballot in enumerate(ballots):
        changed = [*ballots]
        changed[place] = Ballot(ballot.record, votes_of("4" * 16))
        after, fold = crossfit_bayes(changed, 0.9), before.fold_of[ballot.record.question.id]
        assert after.policies[fold].prior.shares == before.policies[fold].prior.shares


def test_the_label_is_that_of_the_rule(ballots: list[Ballot]) -> None:
    assert str(crossfit_bayes(ballots, 0.95)) == "eb-0.95"


def test_it_decides_with_the_policy_of_the_fold(
    ballots: list[Ballot], prefix_of: Callable[..., Prefix]
) -> None:
    prefix = prefix_of("1112")
    policy = crossfit_bayes(ballots, 0.8)
    for fold in range(5):
        of = {prefix.question.id: fold}
        judge = type(policy)(policy.label, policy.policies, of)
        assert judge.decide(prefix) == policy.policies[fold].decide(prefix)


@given(st.integers(0, 60), st.integers(1, 9), st.integers(0, 99))
def test_folds_are_even_and_follow_the_seed(count: int, folds: int, seed: int) -> None:
    numbers = fold_numbers(count, folds, seed=seed)
    sizes = [int((numbers == fold).sum()) for fold in range(folds)]
    assert sum(sizes) == count
    assert max(sizes) - min(sizes) <= 1
    assert (numbers == fold_numbers(count, folds, seed=seed)).all()
