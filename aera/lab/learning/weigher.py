"""Fit the weigher on graded responses: the truth's share of the vote, and each one's own grade."""

from collections.abc import Container, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from aera.arrays import Columns, Flags, Floats
from aera.errors import ProtocolError
from aera.lab.learning.folds import Fold, out_of_fold
from aera.lab.learning.perceptron import (
    Perceptron,
    descend,
    extract_network,
    perceptron,
    statistics,
    torch_alone,
)
from aera.voting.traits import (
    COUNTS,
    GROUPS,
    TRACE,
    TRAIT_NAMES,
    TRAITS,
    UNTRACED,
    columns_of,
    having,
)
from aera.voting.weigher import Weigher
from aera.workers import SERIAL, Workers

EDGES = (0.001, 0.999)
"""Traits beyond these quantiles of training count as the quantile."""
NEARLY_ALL = 0.95
"""Share of the responses that must bring what a group of traits needs for it to be learned from."""


@dataclass(frozen=True, eq=False)
class Responses:
    """Responses to some questions: their traits, whether each votes, and what it is worth."""

    traits: Floats
    """Shape (questions, responses, traits)."""
    voted: Flags
    grades: Floats

    def __len__(self) -> int:
        return len(self.traits)

    def taught(self, without: Container[str] = ()) -> tuple[tuple[str, ...], Floats]:
        """The traits to learn from; those that too few responses have are missing in all."""
        had = {
            group
            for group in GROUPS
            if group not in without and having(self.traits[self.voted], group).mean() > NEARLY_ALL
        }
        features = TRAIT_NAMES if TRACE in had else UNTRACED
        kept = [each.group in (COUNTS, *had) for each in TRAITS]
        seen = np.where(kept, self.traits, np.nan)
        return features, seen[..., columns_of(features)]

    def subset(self, rows: Columns) -> "Responses":
        """The responses to some of the questions."""
        return Responses(self.traits[rows], self.voted[rows], self.grades[rows])


@dataclass(frozen=True)
class WeigherFit:
    """How a weigher is fitted: a fixed number of epochs, so nothing has to be held out."""

    perceptron: Perceptron = field(
        default_factory=lambda: Perceptron((32, 32), 0.2, 1e-2, 1e-2, epochs=30, batch=32)
    )
    """Its batch counts questions."""
    responses: int = 32
    """Of each question in a batch."""

    def fit(self, learned: Responses, *, seed: int, without: Container[str] = ()) -> Weigher:
        """A weigher of all these questions, from what nearly all of their responses bring.

        The groups of traits in `without` are left out.
        """
        voted = learned.voted
        if not voted.any():
            raise ProtocolError(
                "none of the responses to learn from can be read, so there is nothing to weigh; "
                "look at the task of the pool"
            )
        features, seen = learned.taught(without)
        known = seen[voted]
        medians, _, _ = statistics(known)
        filled = np.where(np.isnan(known), medians, known)
        lows, highs = np.quantile(filled, EDGES, axis=0)
        _, means, deviations = statistics(np.clip(filled, lows, highs))
        inputs = np.clip(np.where(np.isnan(seen), medians, seen), lows, highs)
        with torch_alone(seed) as torch:
            model = perceptron(torch, seen.shape[2], 1, self.perceptron)
            tensors = (
                torch.tensor((inputs - means) / deviations, dtype=torch.float32),
                torch.tensor(voted),
                torch.tensor(learned.grades, dtype=torch.float32),
            )
            self._descend(torch, model, tensors, seed=seed)
            network = extract_network(torch, model, medians, means=means, deviations=deviations)
        return Weigher(replace(network, lows=lows, highs=highs), features)

    def fit_tiers(self, learned: Responses, *, seed: int) -> Weigher:
        """The same with a lower weigher for responses that bring less, as long as any is left."""
        best = self.fit(learned, seed=seed)
        needed = [group for group in reversed(GROUPS) if group in best.needs]
        lost = [needed[:count] for count in range(1, len(needed))]
        lower = tuple(self.fit(learned, seed=seed, without=without) for without in lost)
        return replace(best, lower=lower)

    def out_of_fold(
        self, learned: Responses, *, groups: Columns, seed: int, workers: Workers = SERIAL
    ) -> Floats:
        """Weights for these questions, each by a weigher of the other folds."""
        work = partial(self._fold, learned, seed=seed)
        return out_of_fold(work, groups, seed=seed, workers=workers)

    def _fold(self, learned: Responses, fold: Fold, *, seed: int) -> Floats:
        weigher = self.fit(learned.subset(fold.rest), seed=seed + fold.number)
        return weigher.weights(learned.traits[fold.own])

    def _descend(self, torch: Any, model: Any, tensors: tuple[Any, Any, Any], *, seed: int) -> None:
        """AdamW with one cycle of its rate."""
        inputs, voted, grades = tensors
        questions, responses = voted.shape
        chance, settings = np.random.default_rng(seed), self.perceptron
        count = -(-questions // settings.batch)
        parameters, rate = model.parameters(), settings.rate
        optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=settings.decay)
        steps = settings.epochs * count
        pace = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)

        def batches() -> Iterator[Any]:
            some = min(self.responses, responses)
            for rows in np.array_split(chance.permutation(questions), count):
                columns = np.stack([chance.permutation(responses)[:some] for _ in rows])
                yield torch.tensor(rows)[:, None], torch.tensor(columns)

        def loss(place: Any) -> Any:
            return _loss(torch, model(inputs[place])[..., 0], voted[place], grades[place])

        descend(model, optimizer, loss, batches=batches, epochs=settings.epochs, pace=pace)


def _loss(torch: Any, scores: Any, voted: Any, grades: Any) -> Any:
    """Minus the log share of the true answer in the vote, plus each response's cross-entropy.

    The share compares responses to one question, which is all a vote does; the cross-entropy
    makes the weight a chance, so that it means the same from question to question.
    """
    if not voted.any():
        return 0 * scores.sum()
    far = -1e9
    log_weights = torch.nn.functional.logsigmoid(scores).masked_fill(~voted, far)
    log_right = log_weights + torch.log(grades.clamp(min=1e-9))
    contested = (voted & (grades > 0)).any(1) & (voted & (grades < 1)).any(1)
    own = torch.nn.functional.binary_cross_entropy_with_logits(scores[voted], grades[voted])
    if not contested.any():
        return own
    share = torch.logsumexp(log_weights[contested], 1) - torch.logsumexp(log_right[contested], 1)
    return share.mean() + own
