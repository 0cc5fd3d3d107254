from dataclasses import replace
from math import log, log1p, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aera import Prefix, Question, Response, Schedule, Vote, unfold
from aera.core import beta_confidence
from aera.policies.gate import TINY, VOTE_FEATURE_NAMES, vote_features

SCHEDULE = Schedule((2, 4, 8, 16))
weights = st.sampled_from([0.0, 0.125, 0.5, 0.75, 1.0])
votes = st.builds(Vote, st.sampled_from(["1", "2", "3", None]), weight=weights)
streams = st.lists(votes, min_size=16, max_size=16)


def chain(stream: list[Vote], tokens: int = 9) -> list[Prefix]:
    responses = [Response("", tokens=tokens + place) for place in range(len(stream))]
    return list(unfold(Question("q", "?"), responses, votes=stream, schedule=SCHEDULE))


def named(prefix: Prefix) -> dict[str, float]:
    return dict(zip(VOTE_FEATURE_NAMES, vote_features(prefix).tolist(), strict=True))


def test_a_vote_is_described_by_its_standing() -> None:
    stream = [Vote("1", weight=1.0), Vote("2", weight=0.5), Vote("1", weight=0.5), Vote(None)]
    horizon = 2.5 / (2 * sqrt(6 * 0.625 * 0.375 * 10 / 5 + 0.05))
    assert named(chain(stream * 4)[1]) == pytest.approx(
        {
            "log_responses": log(4),
            "tokens_each": log1p(10.5),
            "lead_share": 0.75,
            "lead_gap": 0.5,
            "lead_weight": log1p(1.5),
            "rival_weight": log1p(0.5),
            "lead_mean": 0.75,
            "mean_weight": 2 / 3,
            "doubt": log(TINY + 1 - beta_confidence(1.5, 0.5)),
            "plain_doubt": log(TINY + 5 / 16),
            "persistence": 2,
            "horizon": horizon,
            "horizon_later": horizon * log(4),
        }
    )


@given(streams, streams)
def test_nothing_after_a_checkpoint_moves_it(stream: list[Vote], later: list[Vote]) -> None:
    for column, checkpoint in enumerate(SCHEDULE.checkpoints[:-1]):
        changed = chain([*stream[:checkpoint], *later[checkpoint:]])[column]
        np.testing.assert_array_equal(vote_features(changed), vote_features(chain(stream)[column]))


@given(streams, st.integers(0, 16))
def test_every_number_is_finite(stream: list[Vote], silent: int) -> None:
    muted = [replace(vote, answer=None) for vote in stream[:silent]]
    for prefix in chain([*muted, *stream[silent:]], tokens=0):
        assert np.isfinite(vote_features(prefix)).all()
