from collections import Counter
from collections.abc import Sequence
from math import isfinite, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab_fixtures import Letters

from aera import Prefix, Question, Response, Schedule, Vote, unfold
from aera.arrays import Floats
from aera.paper.features import FEATURES, NAMES, SCALARS, Projection, characterize, semantics

QUESTION = Question("q", "how many?")
SHORT = Schedule((2, 4, 8))
COUNTS = {
    "budget and cost": 5,
    "answer distribution": 4,
    "temporal change": 5,
    "re-solving": 1,
    "semantic state": 8,
    "projection": 32,
}
MAY_BE_MISSING = {f.name for f in FEATURES if f.group in ("semantic state", "projection")}
Said = tuple[Response, Vote]


def said(text: str, answer: str | None, redo: bool = False, tokens: int = 5) -> Said:
    """One response and what was read from it."""
    return Response(text, tokens), Vote(None if redo else answer, redo)


SAID = st.builds(
    said,
    st.sampled_from(["", "  ", "one way", "another", "a third way", "no", "yes", "so"]),
    st.sampled_from(["1", "2", "3", None]),
    st.booleans(),
    st.integers(0, 400),
)
STREAM = st.lists(SAID, min_size=8, max_size=8)
PROJECTION = Projection(
    np.linspace(-1, 1, Letters.dimensions),
    np.random.default_rng(0).normal(size=(32, Letters.dimensions)),
)


def prefixes(stream: Sequence[Said], schedule: Schedule = SHORT) -> list[Prefix]:
    responses, votes = zip(*stream, strict=True)
    return list(unfold(QUESTION, responses, votes=votes, schedule=schedule))


def evidence(prefix: Prefix) -> Floats:
    return characterize(prefix, Letters(), projection=PROJECTION)


def by_name(prefix: Prefix) -> dict[str, float]:
    return dict(zip(NAMES, evidence(prefix).tolist(), strict=True))


# --- the table ------------------------------------------------------------------------------------


def test_there_are_55_features_in_the_order_of_the_design() -> None:
    assert [*Counter(feature.group for feature in FEATURES).items()] == [*COUNTS.items()]
    assert len(set(NAMES)) == len(NAMES) == 55
    assert len(SCALARS) == 23
    assert len({feature.meaning for feature in FEATURES}) == 55


# --- nothing but the prefix -----------------------------------------------------------------------


@settings(max_examples=40)
@given(STREAM, STREAM, st.lists(SAID, max_size=4), st.integers(0, 2))
def test_other_responses_later_on_change_no_bit(
    stream: list[Said], other: list[Said], beyond: list[Said], column: int
) -> None:
    checkpoint = SHORT.checkpoints[column]
    changed = prefixes([*stream[:checkpoint], *other[checkpoint:], *beyond])
    assert evidence(changed[column]).tobytes() == evidence(prefixes(stream)[column]).tobytes()


# --- the values -----------------------------------------------------------------------------------


def spoken(stream: Sequence[Said]) -> tuple[Floats, list[str | None]]:
    loud = [(response.text, vote.answer) for response, vote in stream if response.text.strip()]
    vectors = Letters().encode([text for text, _ in loud]) if loud else np.zeros((0, 8))
    return vectors.astype(np.float64), [answer for _, answer in loud]


def mean(values: Floats) -> float:
    return float(values.mean()) if values.size else nan


def direction(vectors: Floats) -> Floats:
    centre: Floats = vectors.sum(axis=0)
    return centre / (np.linalg.norm(centre) or nan)


def naive_semantics(stream: Sequence[Said], before: Sequence[Said]) -> dict[str, float]:
    """All pairs, from scratch."""
    (vectors, answers), earlier = spoken(stream), spoken(before)[0]
    cosines, old = vectors @ vectors.T, len(earlier)
    every = cosines[np.triu_indices(len(vectors), 1)]
    nearest = cosines[old:, :old].max(axis=1) if old else np.zeros(0)
    counts = Counter(vote.answer for _, vote in stream if vote.answer)
    top = max(counts, key=counts.__getitem__, default="")
    ours = np.array([answer == top for answer in answers], bool)
    within = cosines[np.ix_(ours, ours)][np.triu_indices(ours.sum(), 1)]
    return {
        "semantic_consensus": mean(every),
        "similarity_std": float(np.std(every)) if every.size else nan,
        "similarity_min": min(every, default=nan),
        "similarity_max": max(every, default=nan),
        "dispersion": mean(1 - vectors @ direction(vectors)),
        "centroid_shift": float(1 - direction(earlier) @ direction(vectors)) if before else 0.0,
        "block_novelty": 1 - mean(nearest) if before else 0.0,
        "answer_separation": mean(within) - mean(cosines[np.ix_(ours, ~ours)]),
    }


@settings(max_examples=40)
@given(STREAM)
def test_block_by_block_equals_all_pairs_from_scratch(stream: list[Said]) -> None:
    for prefix in prefixes(stream):
        found, before = by_name(prefix), stream[: prefix.start]
        wanted = naive_semantics(stream[: len(prefix)], before)
        assert {name: found[name] for name in wanted} == pytest.approx(
            wanted, abs=1e-6, rel=0, nan_ok=True
        )
        missing = {name for name, value in found.items() if not isfinite(value)}
        assert missing <= MAY_BE_MISSING
        assert all(np.isnan(found[name]) for name in missing)
        if not before:
            neutral = {f.name: f.neutral for f in FEATURES if f.neutral is not None}
            assert {name: found[name] for name in neutral} == neutral


# --- where something does not exist ---------------------------------------------------------------


def test_without_a_vote_the_answer_features_are_zero() -> None:
    found = by_name(prefixes([said(f"so {'n' * i}", None, True) for i in range(8)])[-1])
    assert [found[f.name] for f in FEATURES if f.group == "answer distribution"] == [0, 0, 0, 0]
    assert (found["redo_rate"], found["top_changed"], found["top_persistence"]) == (1, 0, 3)
    assert {name for name, value in found.items() if np.isnan(value)} == {"answer_separation"}


# --- the work -------------------------------------------------------------------------------------


def test_a_chain_of_thousands_of_checkpoints_may_be_asked_at_its_end() -> None:
    stream = [said(f"way {i % 7}", "1") for i in range(1_500)]
    last = prefixes(stream, Schedule.parse("1-1500"))[-1]
    assert len(semantics(last, Letters()).vectors) == 1_500
