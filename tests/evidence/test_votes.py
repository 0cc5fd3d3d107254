from collections import defaultdict
from dataclasses import replace
from math import log, log1p, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aera import Prefix, Question, Response, Schedule, Vote, unfold
from aera.policies.features import TINY, VOTE_FEATURE_NAMES, vote_features

QUESTION = Question("q", "how many?")
SCHEDULE = Schedule((2, 4, 8, 16))

votes = st.builds(
    Vote,
    st.sampled_from(["1", "2", "3", None]),
    weight=st.sampled_from([0.0, 0.125, 0.5, 0.75, 1.0]),
)
streams = st.lists(votes, min_size=16, max_size=16)


def chain(stream: list[Vote], tokens: int = 9) -> list[Prefix]:
    responses = [Response("", tokens=tokens + place) for place in range(len(stream))]
    return list(unfold(QUESTION, responses, votes=stream, schedule=SCHEDULE))


def named(prefix: Prefix) -> dict[str, float]:
    return dict(zip(VOTE_FEATURE_NAMES, vote_features(prefix).tolist(), strict=True))


# --- a second, naive way --------------------------------------------------------------------------


def naive_lead(stream: list[Vote]) -> tuple[str | None, float, float]:
    """The leading answer, the earliest of equals; its weight and the next one's."""
    sums: dict[str, float] = defaultdict(float)
    for vote in stream:
        if vote.answer is not None:
            sums[vote.answer] += vote.weight
    ranked = sorted(sums, key=lambda answer: -sums[answer])  # stable: first seen, first named
    first, second = ([*ranked, None, None])[:2]
    weight, rival = (sums[a] if a else 0.0 for a in (first, second))
    return first, weight, rival


def naive_doubt(lead: float, rival: float) -> float:
    """The mass of Beta(lead + 1, rival + 1) below one half, by adding up thin slices."""
    middles = (np.arange(20_000) + 0.5) / 20_000
    density = np.exp(lead * np.log(middles) + rival * np.log1p(-middles))
    return log(TINY + density[middles < 0.5].sum() / density.sum())


def naive_horizon(lead: float, rival: float, seen: int) -> float:
    """How many deviations the leader will be ahead of the rival once all votes are in."""
    both = lead + rival
    coming = (SCHEDULE.last - seen) * both / seen
    share = (lead + 1) / (both + 2)
    ahead = (lead - rival) + coming * (2 * share - 1)
    spread = coming * share * (1 - share) * (both + 2 + coming) / (both + 3)
    return min(6.0, max(-4.0, ahead / (2 * sqrt(spread + 0.05))))


def naive(stream: list[Vote], tokens: int = 9) -> list[dict[str, float]]:
    rows, leaders = [], []
    for checkpoint in SCHEDULE:
        seen = stream[:checkpoint]
        leader, lead, rival = naive_lead(seen)
        leaders.append(leader)
        valid = [vote for vote in seen if vote.answer is not None]
        counts = {a: sum(v.answer == a for v in valid) for a in ("1", "2", "3")}
        own = counts.pop(leader) if leader else 0
        total = sum(vote.weight for vote in valid)
        same = 0
        while same < len(leaders) and leaders[-1 - same] == leader:
            same += 1
        rows.append(
            {
                "log_responses": log(checkpoint),
                "tokens_each": log1p(sum(tokens + i for i in range(checkpoint)) / checkpoint),
                "lead_share": lead / total if total else 0.0,
                "lead_gap": (lead - rival) / total if total else 0.0,
                "lead_weight": log1p(lead),
                "rival_weight": log1p(rival),
                "lead_mean": lead / own if own else 0.0,
                "mean_weight": total / len(valid) if valid else 0.0,
                "doubt": naive_doubt(lead, rival),
                "plain_doubt": naive_doubt(own, max(counts.values())),
                "persistence": float(same),
                "horizon": naive_horizon(lead, rival, checkpoint),
                "horizon_later": naive_horizon(lead, rival, checkpoint) * log(checkpoint),
            }
        )
    return rows


@settings(deadline=None, max_examples=40)
@given(streams)
def test_it_agrees_with_a_naive_count(stream: list[Vote]) -> None:
    for prefix, wanted in zip(chain(stream), naive(stream), strict=True):
        assert named(prefix) == pytest.approx(wanted, abs=1e-5)


# --- what is claimed for all votes ----------------------------------------------------------------


@given(streams, streams)
def test_nothing_after_a_checkpoint_moves_it(stream: list[Vote], later: list[Vote]) -> None:
    for column, checkpoint in enumerate(SCHEDULE.checkpoints[:-1]):
        changed = chain([*stream[:checkpoint], *later[checkpoint:]])[column]
        np.testing.assert_array_equal(vote_features(changed), vote_features(chain(stream)[column]))


@given(streams)
def test_every_number_is_finite(stream: list[Vote]) -> None:
    for silent in (0, 2, 8, 16):
        muted = [replace(v, answer=None) if i < silent else v for i, v in enumerate(stream)]
        for prefix in chain(muted, tokens=0):
            assert np.isfinite(vote_features(prefix)).all()


def test_without_a_valid_vote_nobody_leads() -> None:
    last = named(chain([Vote(None)] * 16)[-1])
    for name in ("lead_share", "lead_gap", "lead_weight", "rival_weight", "lead_mean"):
        assert last[name] == 0
    assert last["doubt"] == last["plain_doubt"] == pytest.approx(log(0.5), abs=1e-5)
    assert last["mean_weight"] == 0
