"""Evidence: the 55 numbers that describe a prefix, from one table.

Everything comes from the prefix, the question and the schedule; nothing estimates correctness. A
checkpoint costs only its new block: what was embedded and counted before is carried along.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log1p, nan

import numpy as np

from aera.arrays import Floats
from aera.evidence.encoder import Encoder
from aera.evidence.feature import Feature
from aera.evidence.semantics import Semantics, semantics
from aera.response import Prefix

# --- the table ------------------------------------------------------------------------------------

Measure = Callable[[Prefix, Semantics], float]
PROJECTED = 32


def _change(value: Callable[[Prefix], float]) -> Measure:
    """The change of a quantity since the checkpoint before, 0 at the first."""

    def change(prefix: Prefix, _: Semantics) -> float:
        return value(prefix) - value(prefix.previous) if prefix.previous else 0.0

    return change


def _majority(prefix: Prefix) -> float:
    return prefix.tally.majority


def _entropy(prefix: Prefix) -> float:
    return prefix.tally.entropy


def _redo_rate(prefix: Prefix) -> float:
    return prefix.redos / len(prefix)


def _next_fraction(prefix: Prefix, _: Semantics) -> float:
    return (prefix.next_checkpoint or prefix.schedule.last) / prefix.schedule.last


def _tokens_spread(prefix: Prefix, _: Semantics) -> float:
    return float(np.std([response.tokens for response in prefix.responses]))


def _top_changed(prefix: Prefix, _: Semantics) -> float:
    before = prefix.previous
    return float(before is not None and before.tally.leaders.answer != prefix.tally.leaders.answer)


def _row(
    name: str, group: str, meaning: str, measure: Measure, *, neutral: float | None = None
) -> tuple[Feature, Measure]:
    return Feature(name, group, neutral, meaning), measure


BUDGET, ANSWERS, TEMPORAL = "budget and cost", "answer distribution", "temporal change"
REDO, SEMANTIC, PROJECTION = "re-solving", "semantic state", "projection"

_SCALARS: tuple[tuple[Feature, Measure], ...] = (
    _row(
        "checkpoint_fraction",
        BUDGET,
        "responses so far over the full budget",
        lambda p, s: len(p) / p.schedule.last,
    ),
    _row("next_fraction", BUDGET, "the next checkpoint over the full budget", _next_fraction),
    _row(
        "tokens_so_far",
        BUDGET,
        "log(1 + completion tokens spent)",
        lambda p, s: log1p(p.completion_tokens),
    ),
    _row(
        "tokens_per_response",
        BUDGET,
        "mean completion tokens of a response",
        lambda p, s: p.completion_tokens / len(p),
    ),
    _row("tokens_spread", BUDGET, "standard deviation of completion tokens", _tokens_spread),
    _row(
        "majority_ratio",
        ANSWERS,
        "share of the leading answer among valid votes, 0 without one",
        lambda p, s: _majority(p),
    ),
    _row(
        "entropy",
        ANSWERS,
        "entropy of the valid votes over its maximum, 0 when unanimous",
        lambda p, s: _entropy(p),
    ),
    _row(
        "unique_ratio",
        ANSWERS,
        "distinct answers over responses",
        lambda p, s: len(p.tally) / len(p),
    ),
    _row("top_two_gap", ANSWERS, "gap of the two largest shares", lambda p, s: p.tally.gap),
    _row(
        "majority_change",
        TEMPORAL,
        "change of majority_ratio since the last checkpoint",
        _change(_majority),
        neutral=0.0,
    ),
    _row(
        "entropy_change",
        TEMPORAL,
        "change of entropy since the last checkpoint",
        _change(_entropy),
        neutral=0.0,
    ),
    _row(
        "redo_change",
        TEMPORAL,
        "change of redo_rate since the last checkpoint",
        _change(_redo_rate),
        neutral=0.0,
    ),
    _row(
        "top_changed",
        TEMPORAL,
        "1 if the leading answer changed since the last checkpoint",
        _top_changed,
        neutral=0.0,
    ),
    _row(
        "top_persistence",
        TEMPORAL,
        "checkpoints in a row with this leading answer",
        lambda p, s: float(p.persistence),
        neutral=1.0,
    ),
    _row(
        "redo_rate",
        REDO,
        "share of all responses that ask to redo the question",
        lambda p, s: _redo_rate(p),
    ),
    _row(
        "semantic_consensus",
        SEMANTIC,
        "mean cosine over all pairs of responses",
        lambda p, s: s.consensus,
    ),
    _row(
        "similarity_std",
        SEMANTIC,
        "standard deviation of the pairwise cosine",
        lambda p, s: s.spread,
    ),
    _row(
        "similarity_min",
        SEMANTIC,
        "smallest pairwise cosine",
        lambda p, s: s.least if s.pairs else nan,
    ),
    _row(
        "similarity_max",
        SEMANTIC,
        "largest pairwise cosine",
        lambda p, s: s.most if s.pairs else nan,
    ),
    _row("dispersion", SEMANTIC, "mean distance from the centroid", lambda p, s: s.dispersion),
    _row(
        "centroid_shift",
        SEMANTIC,
        "cosine distance the centroid moved since the last checkpoint",
        lambda p, s: s.shift if p.previous else 0.0,
        neutral=0.0,
    ),
    _row(
        "block_novelty",
        SEMANTIC,
        "mean distance of new responses from their nearest earlier one",
        lambda p, s: s.novelty if p.previous else 0.0,
        neutral=0.0,
    ),
    _row(
        "answer_separation",
        SEMANTIC,
        "mean cosine inside the leading answer minus that to all others",
        lambda p, s: s.separation(p.tally.leaders.answer),
    ),
)

SCALARS: tuple[Feature, ...] = tuple(feature for feature, _ in _SCALARS)
FEATURES: tuple[Feature, ...] = (
    *SCALARS,
    *(
        Feature(f"projection_{i:02}", PROJECTION, None, f"coordinate {i} of the projected centroid")
        for i in range(PROJECTED)
    ),
)
NAMES: tuple[str, ...] = tuple(feature.name for feature in FEATURES)


def scalars(prefix: Prefix, encoder: Encoder) -> Floats:
    """The 23 features that need no projection; NaN where a quantity does not exist."""
    state = semantics(prefix, encoder)
    return np.array([measure(prefix, state) for _, measure in _SCALARS])


@dataclass(frozen=True, eq=False)
class Projection:
    """A frozen linear map of the centroid, fitted without labels on training questions."""

    mean: Floats
    components: Floats
    """Shape (32, dimensions of the encoder)."""

    def apply(self, centroids: Floats) -> Floats:
        """Coordinates of one centroid or of an array of them."""
        projected: Floats = (centroids - self.mean) @ self.components.T
        return projected


def characterize(prefix: Prefix, encoder: Encoder, *, projection: Projection) -> Floats:
    """The evidence of a prefix: 55 numbers in the order of FEATURES."""
    state = semantics(prefix, encoder)
    return np.concatenate([scalars(prefix, encoder), projection.apply(state.centroid)])


def describe_texts(chains: Sequence[Sequence[Prefix]], encoder: Encoder) -> tuple[Floats, Floats]:
    """The scalar features and the centroids of every prefix, by question and checkpoint."""
    rows = [[scalars(prefix, encoder) for prefix in chain] for chain in chains]
    centres = [[semantics(prefix, encoder).centroid for prefix in chain] for chain in chains]
    return np.array(rows), np.array(centres)
