"""Learn the weigher from graded responses, so that no question is weighed by one that saw it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aera.crew import ALONE, Crew
from aera.errors import ProtocolError
from aera.gate import Network
from aera.lab.evaluation import Ballot, Grader, Part, Source, ballots_of, parts_of
from aera.lab.folds import fold_numbers
from aera.lab.shards import Shard, Shards
from aera.lab.states import Track, quiet
from aera.lab.training import perceptron, statistics, torch_alone, trained_network
from aera.lab.trajectory import Columns, Floats
from aera.lab.truths import Truths
from aera.parts import Segment
from aera.pool import Pool
from aera.task import Task
from aera.traits import traits
from aera.weigher import Weigher

HIDDEN = (32, 32)
DROPOUT = 0.2
RATE = 1e-2
DECAY = 1e-2
EPOCHS = 30
QUESTIONS, RESPONSES = 32, 32
"""A batch: so many questions, with so many of their responses each."""
EDGES = (0.001, 0.999)
"""Traits beyond these quantiles of training count as the quantile."""


@dataclass(frozen=True, eq=False)
class Marked:
    """Ballots with the traits of every response and the grade of its answer."""

    ballots: tuple[Ballot, ...]
    traits: Floats
    """Shape (questions, responses, traits)."""
    voted: NDArray[np.bool_]
    grades: Floats

    def __len__(self) -> int:
        return len(self.ballots)

    @classmethod
    def joined(cls, parts: "Sequence[Marked]") -> "Marked":
        """The questions of several, one after the other."""
        return cls(
            tuple(ballot for part in parts for ballot in part.ballots),
            np.concatenate([part.traits for part in parts]),
            np.concatenate([part.voted for part in parts]),
            np.concatenate([part.grades for part in parts]),
        )

    def reweighed(self, rows: Columns, weights: Floats | None) -> list[Ballot]:
        """The ballots of these questions with other weights; None leaves them plain."""
        chosen = [self.ballots[row] for row in rows]
        if weights is None:
            return chosen
        return [
            replace(
                ballot,
                votes=tuple(
                    replace(vote, weight=float(weight))
                    for vote, weight in zip(ballot.votes, own, strict=True)
                ),
            )
            for ballot, own in zip(chosen, weights, strict=True)
        ]


def mark(
    source: Source,
    truths: Truths,
    *,
    task: Task,
    responses: int,
    crew: Crew = ALONE,
    track: Track = quiet,
) -> Marked:
    """Read the traits of the first `responses` of every question, and grade their answers.

    A pool in place of its ballots is read part by part; its texts are not kept.
    """
    parts = parts_of(source)
    work = partial(_marked, truths=truths, task=task, responses=responses)
    done = zip(track(parts, "traits"), crew.map(work, parts), strict=True)
    marked = Marked.joined([part for _, part in done])
    if isinstance(source, Pool | Shards):
        source.check_whole(ballot.record.question.id for ballot in marked.ballots)
        return marked
    return replace(marked, ballots=tuple(ballot.first(responses) for ballot in source))


def _marked(part: Part, *, truths: Truths, task: Task, responses: int) -> Marked:
    """One part; ballots come back only where they were read here, and without their texts."""
    ballots = [ballot.first(responses) for ballot in ballots_of(part, task)]
    rows, grades = [], []
    for ballot in ballots:
        record = ballot.record
        grader = Grader(task, truths[record.question.id])
        rows.append(traits(record.question, record.responses, ballot.votes))
        grades.append([grader(vote.answer) for vote in ballot.votes])
    voted = [[vote.answer is not None for vote in ballot.votes] for ballot in ballots]
    read_here = map(_without_texts, ballots) if isinstance(part, Segment | Shard) else ()
    return Marked(tuple(read_here), np.array(rows), np.array(voted), np.array(grades))


def _without_texts(ballot: Ballot) -> Ballot:
    bare = tuple(replace(response, text="") for response in ballot.record.responses)
    return replace(ballot, record=replace(ballot.record, responses=bare))


def crossfit_weights(
    marked: Marked, rows: Columns, *, folds: int = 5, seed: int, crew: Crew = ALONE
) -> Floats:
    """Weights for these questions, each by a weigher of the other folds."""
    numbers = fold_numbers(len(rows), folds, seed=seed)
    weights: Floats = np.empty((len(rows), marked.traits.shape[1]))
    work = partial(_fold_weights, replace(marked, ballots=()), rows, numbers, seed=seed)
    for fold, own in enumerate(crew.map(work, range(folds))):
        weights[numbers == fold] = own
    return weights


def _fold_weights(
    marked: Marked, rows: Columns, numbers: Columns, fold: int, *, seed: int
) -> Floats:
    weigher = fit_weigher(marked, rows[numbers != fold], seed=seed + fold)
    return weigher.weights(marked.traits[rows[numbers == fold]])


def fit_weigher(marked: Marked, rows: Columns, *, seed: int) -> Weigher:
    """Fit on these questions: the truth's share of the vote, and each response's own grade."""
    seen, voted, grades = marked.traits[rows], marked.voted[rows], marked.grades[rows]
    if not voted.any():
        raise ProtocolError(
            "none of the responses to learn from can be read, so there is nothing to weigh; "
            "look at the task of the pool"
        )
    known = seen[voted]
    medians, _, _ = statistics(known)
    filled = np.where(np.isnan(known), medians, known)
    lows, highs = np.quantile(filled, EDGES, axis=0)
    _, means, deviations = statistics(np.clip(filled, lows, highs))
    inputs = np.clip(np.where(np.isnan(seen), medians, seen), lows, highs)
    with torch_alone(seed) as torch:
        model = perceptron(torch, seen.shape[2], 1, hidden=HIDDEN, dropout=DROPOUT)
        tensors = (
            torch.tensor((inputs - means) / deviations, dtype=torch.float32),
            torch.tensor(voted),
            torch.tensor(grades, dtype=torch.float32),
        )
        _descend(torch, model, tensors, seed=seed)
    network: Network = trained_network(model, medians, means=means, deviations=deviations)
    return Weigher(replace(network, lows=lows, highs=highs))


def _descend(torch: Any, model: Any, tensors: tuple[Any, Any, Any], *, seed: int) -> None:
    """AdamW over a fixed number of epochs: nothing is held out, so nothing has to be."""
    inputs, voted, grades = tensors
    questions, responses = voted.shape
    chance = np.random.default_rng(seed)
    batches = -(-questions // QUESTIONS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)
    pace = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=EPOCHS * batches)
    model.train()
    for _ in range(EPOCHS):
        for rows in np.array_split(chance.permutation(questions), batches):
            some = min(RESPONSES, responses)
            columns = np.stack([chance.permutation(responses)[:some] for _ in rows])
            place = (torch.tensor(rows)[:, None], torch.tensor(columns))
            scores = model(inputs[place])[..., 0]
            optimizer.zero_grad()
            _loss(torch, scores, voted[place], grades[place]).backward()
            optimizer.step()
            pace.step()
    model.eval()


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
