"""The paper's learner: a gate on 55 features of plain votes, fitted to continuation labels."""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from operator import ge
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aera.arrays import Columns, Flags, Floats, Vectors
from aera.core import Question, Schedule
from aera.errors import UsageError
from aera.lab.calibrating.calibration import Goal
from aera.lab.calibrating.families import (
    GATE_FAMILY,
    ONE_SHOT_FAMILY,
    Family,
    answer_families,
    grid,
)
from aera.lab.frontier import Point, Trajectories, sweep
from aera.lab.learning.fit import standardize
from aera.lab.learning.folds import Split, check_enough, group_questions, split_rows
from aera.lab.replay import ReplaySettings
from aera.lab.truths import Truths
from aera.network import Layer, Network
from aera.paper.encoder import Encoder, StaticEncoder
from aera.paper.features import (
    FEATURES,
    SCALARS,
    Consensus,
    PaperGate,
    Projection,
    consensus,
    describe_texts,
)
from aera.pools.pool import Record, Records
from aera.reading.task import NOTHING, Readability, Task
from aera.voting.rules import Rule, plain_vote
from aera.workers import SERIAL, Workers, map_named

Halves = NDArray[np.float16]
Examples = tuple[Floats, Floats | Columns | Flags]
"""Evidence rows with their targets: 0/1 for the gate, a column for one-shot allocation."""

ENCODED_AT_ONCE = 2_048
DUST = 1e-12
"""Differences of equal utilities leave dust of the last bits, which is no gain."""
INNER = (0.6, 0.15, 0.25)
"""Shares of questions for fitting, for ending the fit in time, and for calibration."""
ENDING = (0.85, 0.15)
"""The same for a fit that is not told which questions end it."""


# --- labels, made in hindsight --------------------------------------------------------------------


def _utilities(grades: Floats, costs: Floats, cost_weight: float) -> Floats:
    """Grade minus the weighted cost, which is cumulative, as a share of each question's full cost.

    Rows are questions, columns checkpoints.
    """
    utility: Floats = grades - cost_weight * (costs / np.maximum(costs[:, -1:], 1e-12))
    return utility


def continuation_labels(
    grades: Floats, costs: Floats, *, cost_weight: float = 0.1, margin: float = 0.0
) -> Flags:
    """Whether continuing pays at each checkpoint (Eq. 2): a later one gains more than the margin.

    The best advantage of any later checkpoint over stopping now is Eq. 1; behind the last nothing
    lies.
    """
    utility = _utilities(grades, costs, cost_weight)
    best_later = np.maximum.accumulate(utility[:, ::-1], axis=1)[:, ::-1]
    labels: Flags = np.zeros(grades.shape, dtype=np.bool_)
    labels[:, :-1] = best_later[:, 1:] - utility[:, :-1] > margin + DUST
    return labels


def one_shot_targets(grades: Floats, costs: Floats, *, cost_weight: float = 0.1) -> Columns:
    """The cheapest checkpoint of highest utility, which one-shot allocation must predict."""
    utility = _utilities(grades, costs, cost_weight)
    targets: Columns = np.argmax(utility >= utility.max(axis=1, keepdims=True) - DUST, axis=1)
    return targets


# --- evidence, and the embeddings behind it -------------------------------------------------------


class RecordedEncoder:
    """An encoder that already knows the texts of a pool and asks the real one for all others.

    Their vectors are read from a file in the pool's folder, or made and put there.
    """

    def __init__(self, records: Iterable[Record], encoder: Encoder, folder: Path | None) -> None:
        texts = [response.text for record in records for response in record.responses]
        self.identity, self.dimensions = encoder.identity, encoder.dimensions
        self._encoder = encoder
        self._rows = {text: row for row, text in enumerate(texts)}
        self._vectors = _embed(texts, encoder, folder)

    def encode(self, texts: Sequence[str]) -> Vectors:
        """The recorded rows, or fresh ones where any text is new."""
        rows = [self._rows[text] for text in texts if text in self._rows]
        if len(rows) < len(texts):
            return self._encoder.encode(texts)
        found: Vectors = self._vectors[rows].astype(np.float32)
        return found


def _embed(texts: Sequence[str], encoder: Encoder, folder: Path | None) -> Halves:
    shape, file = (len(texts), encoder.dimensions), None
    if folder is not None:
        file = _cache_file(folder, texts, encoder=encoder)
        with suppress(OSError, ValueError, EOFError):
            kept: Halves = np.load(file)
            if kept.shape == shape and kept.dtype == np.float16:
                return kept
    vectors = np.empty(shape, dtype=np.float16)
    for start in range(0, len(texts), ENCODED_AT_ONCE):
        some = slice(start, start + ENCODED_AT_ONCE)
        vectors[some] = encoder.encode(texts[some])
    if file is not None:
        # Two workers may embed the same part when one of them is taken for dead.
        half = file.with_suffix(f".{os.getpid()}.partial.npy")
        with suppress(OSError):  # a read-only pool is no reason to stop
            try:
                np.save(half, vectors)
                half.replace(file)
            finally:
                half.unlink(missing_ok=True)
    return vectors


def _cache_file(folder: Path, texts: Sequence[str], *, encoder: Encoder) -> Path:
    """Named after the encoder and after the texts themselves, so neither can go stale."""
    digest = hashlib.sha256()
    for text in texts:
        content = text.encode("utf-8", "surrogatepass")
        digest.update(len(content).to_bytes(8) + content)
    name = "".join(c if c.isalnum() or c in "-." else "_" for c in encoder.identity)
    return folder / f"embeddings-{name}-{digest.hexdigest()[:12]}.npy"


@dataclass(frozen=True, eq=False)
class States:
    """Evidence before projection. Rows are questions, columns checkpoints."""

    scalars: Floats
    """Shape (questions, checkpoints, 23)."""
    centroids: Floats
    """Shape (questions, checkpoints, dimensions of the encoder)."""

    def feature(self, name: str) -> Floats:
        """One scalar feature, shape (questions, checkpoints)."""
        place = [feature.name for feature in SCALARS].index(name)
        values: Floats = self.scalars[:, :, place]
        return values

    def evidence(self, projection: Projection) -> Floats:
        """All 55 features, shape (questions, checkpoints, 55)."""
        return np.concatenate([self.scalars, projection.apply(self.centroids)], axis=2)

    def project(self, rows: Columns, *, dimensions: int = 32) -> Projection:
        """Principal directions of the centroids of these questions; no label is looked at."""
        seen = self.centroids[rows].reshape(-1, self.centroids.shape[2])
        seen = seen[~np.isnan(seen).any(axis=1)]
        if not len(seen):  # nobody said anything
            return Projection(np.zeros(seen.shape[1]), np.zeros((dimensions, seen.shape[1])))
        mean: Floats = seen.mean(axis=0)
        centred = seen - mean
        directions = np.linalg.eigh(centred.T @ centred)[1].T[::-1][:dimensions]
        # A direction and its opposite are the same; the largest entry decides which one is kept.
        leading = np.abs(directions).argmax(axis=1)
        directions = directions * np.sign(directions[np.arange(len(directions)), leading])[:, None]
        components: Floats = np.zeros((dimensions, seen.shape[1]))
        components[: len(directions)] = directions
        return Projection(mean, components)


# --- the perceptron -------------------------------------------------------------------------------


# As in the paper.
HIDDEN = (64, 32)
DROPOUT = 0.1
RATE, DECAY, BATCH = 1e-3, 1e-4, 256
EPOCHS = 300
PATIENCE = 25
"""Epochs without a lower held-out loss after which a fit ends."""


def fit_network(
    train: Examples, held: Examples, *, outputs: int, epochs: int = EPOCHS, seed: int
) -> tuple[Network, int, float]:
    """Train a perceptron; returns it with the epoch it is from and its held-out loss."""
    try:
        import torch
    except ImportError:
        raise UsageError(
            'the paper\'s gate needs torch; install it with pip install "aera[paper]"'
        ) from None
    _, scale = standardize(train[0])

    def tensors(examples: Examples) -> tuple[Any, Any]:
        evidence, targets = examples
        filled = np.where(np.isnan(evidence), scale["medians"], evidence)
        scaled = (filled - scale["means"]) / scale["deviations"]
        wanted = targets[:, None] if outputs == 1 else targets
        kind = torch.float32 if outputs == 1 else torch.long
        return torch.tensor(scaled, dtype=torch.float32), torch.tensor(wanted, dtype=kind)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the order of additions must not vary
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = _perceptron(torch, train[0].shape[1], outputs)
            loss = _loss(torch, float(train[1].mean()), outputs)
            epoch, best = _descend(torch, model, loss, tensors(train), tensors(held), epochs)
    finally:
        torch.set_num_threads(threads)
    arrays = [each.detach().numpy().astype(np.float64) for each in model.parameters()]
    *inner, weight, bias = arrays
    layers = tuple(Layer(*inner[start : start + 4]) for start in range(0, len(inner), 4))
    return Network(layers=layers, weight=weight, bias=bias, **scale), epoch, best


def _perceptron(torch: Any, inputs: int, outputs: int) -> Any:
    """Two blocks of Linear, LayerNorm, GELU and dropout, and a linear end."""
    parts, width = [], inputs
    for wide in HIDDEN:
        parts += [torch.nn.Linear(width, wide), torch.nn.LayerNorm(wide), torch.nn.GELU()]
        parts.append(torch.nn.Dropout(DROPOUT))
        width = wide
    return torch.nn.Sequential(*parts, torch.nn.Linear(width, outputs))


def _loss(torch: Any, share: float, outputs: int) -> Any:
    """Cross-entropy; for the gate each class weighs as if both were equally frequent."""
    if outputs > 1:
        return torch.nn.CrossEntropyLoss()
    share = min(max(share, 1e-6), 1 - 1e-6)

    def weighted(logits: Any, wanted: Any) -> Any:
        weights = wanted * (0.5 / share) + (1 - wanted) * (0.5 / (1 - share))
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, wanted, weights)

    return weighted


def _descend(
    torch: Any, model: Any, loss: Any, data: Any, test: Any, epochs: int
) -> tuple[int, float]:
    """Adam until the held-out loss has not fallen for a while; leaves the best weights in place."""
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, weight_decay=DECAY)
    best, best_epoch, kept = float("inf"), 0, None
    for epoch in range(1, epochs + 1):
        model.train()
        for rows in torch.randperm(len(data[0])).split(BATCH):
            optimizer.zero_grad()
            loss(model(data[0][rows]), data[1][rows]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            held = float(loss(model(test[0]), test[1]))
        if held < best - 1e-6:
            best, best_epoch = held, epoch
            kept = {name: value.clone() for name, value in model.state_dict().items()}
        elif epoch - best_epoch >= PATIENCE:
            break
    if kept is not None:
        model.load_state_dict(kept)
    return best_epoch, best


# --- the learner ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PaperTable:
    """Trajectories, evidence and measured families of the same questions, row by row."""

    name: str
    task: Task
    questions: tuple[Question, ...]
    trajectories: Trajectories
    states: States
    families: Mapping[str, Family]
    readability: Readability = NOTHING
    cost_weight: float = 0.1
    """Lambda: what the whole budget costs, in units of grade."""

    def __len__(self) -> int:
        return len(self.questions)

    @cached_property
    def groups(self) -> Columns:
        """A number per row, the same for questions that no split may part."""
        return group_questions(self.questions)

    @property
    def schedule(self) -> Schedule:
        """Its checkpoints."""
        return self.trajectories.schedule

    @property
    def grades(self) -> Floats:
        """The grades, which learning cannot do without."""
        return self.trajectories.known_grades

    @cached_property
    def labels(self) -> Flags:
        """Whether continuing pays, question by checkpoint."""
        costs = self.trajectories.tokens
        return continuation_labels(self.grades, costs, cost_weight=self.cost_weight)

    def sweep(self, name: str) -> list[Point]:
        """Every setting of a family, read off afterwards: a descriptive frontier."""
        return sweep(self.families[name], self.trajectories)

    def graded_by(self, grades: Floats, *, cost_weight: float) -> "PaperTable":
        """The same table under other utilities."""
        trajectories = replace(self.trajectories, grades=grades)
        return replace(self, trajectories=trajectories, cost_weight=cost_weight)


@dataclass(frozen=True, eq=False)
class PaperModel:
    """The paper's gate with how its fit went; beside it every threshold on plain votes."""

    gate: PaperGate
    epochs: int
    loss: float
    """Loss on the questions that decided when to end."""
    known: Mapping[str, Family]
    one_shot: PaperGate | None = None
    """A head that names the final checkpoint once, where it was asked for."""
    weigher: None = None
    own: None = None

    @property
    def learned(self) -> str:
        """How it was learned, in one sentence."""
        return f"the paper's gate, fitted in {self.epochs} epochs"

    def families(self, goal: Goal) -> Mapping[str, Family]:
        """The gate, and beside it every threshold on plain votes."""
        return self.known

    def grid(self, family: Family) -> None:
        """The settings that the family has."""

    def values(self, table: PaperTable, rows: Columns) -> Trajectories:
        """Other questions as this gate and the plain thresholds see them."""
        seen = table.trajectories.take(rows)
        evidence = table.states.evidence(self.gate.projection)[rows]
        chances = self.gate.chances(evidence.reshape(-1, evidence.shape[2]))
        values = {GATE_FAMILY.name: chances.reshape(evidence.shape[:2]), **seen.values}
        if self.one_shot is not None:  # its value is 1 from the checkpoint on that is named
            goals = self.one_shot.network.outputs(evidence[:, 0]).argmax(axis=1)
            reached = np.arange(len(table.schedule)) >= goals[:, None]
            values[ONE_SHOT_FAMILY.name] = reached.astype(np.float64)
        return replace(seen, values=values)


@dataclass(frozen=True)
class PaperLearner:
    """The paper's method: 55 inputs, a small perceptron, labels from residual utility."""

    encoder: Encoder = field(default_factory=StaticEncoder.load)
    shares: tuple[float, float, float] = INNER
    epochs: int = EPOCHS
    one_shot: bool = False
    """Whether to fit the one-shot head too."""
    rule: Rule = plain_vote
    """Which answer a prefix returns: what labels, calibration and judgement grade."""
    margin: None = None
    weighted: bool = False

    def prepare(
        self,
        records: Records,
        truths: Truths | None,
        *,
        schedule: Schedule | None = None,
        workers: Workers = SERIAL,
    ) -> PaperTable:
        """Embed, characterise and measure a pool; the embeddings are kept beside it."""
        folder = None if records.folder is None else records.folder.absolute()
        settings = ReplaySettings(records.task, schedule or records.schedule, truths, self.rule)
        work = partial(
            _describe, name=records.name, settings=settings, encoder=self.encoder, folder=folder
        )
        parts = map_named(workers, work, records.parts(), "evidence")
        trajectories = Trajectories.concat([part.trajectories for part in parts])
        records.check_whole(trajectories.question_ids)
        return replace(
            parts[0],
            questions=tuple(question for part in parts for question in part.questions),
            trajectories=trajectories,
            states=States(
                np.concatenate([part.states.scalars for part in parts]),
                np.concatenate([part.states.centroids for part in parts]),
            ),
            families={
                each.name: each for each in (*answer_families(), consensus_family(self.encoder))
            },
            readability=Readability().join(part.readability for part in parts),
        )

    def split(self, table: PaperTable, rows: Columns, *, certified: bool, seed: int) -> Split:
        """Three parts, whether or not anything is certified."""
        return Split(*split_rows(rows, self.shares, groups=table.groups, seed=seed))

    def fit(
        self, table: PaperTable, rows: Columns, *, held: Columns | None = None, seed: int
    ) -> PaperModel:
        """Fit on these questions; end when the loss on the `held` ones no longer falls."""
        check_enough(table)
        if held is None:
            rows, held = split_rows(rows, ENDING, groups=table.groups, seed=seed)
        projection = table.states.project(rows)
        evidence = table.states.evidence(projection)

        def learn(
            seen: Floats, targets: Columns | Flags, outputs: int
        ) -> tuple[PaperGate, int, float]:
            flat = [
                (seen[each].reshape(-1, seen.shape[2]), targets[each].ravel())
                for each in (rows, held)
            ]
            network, epochs, loss = fit_network(
                *flat, outputs=outputs, epochs=self.epochs, seed=seed
            )
            return PaperGate(network, projection, self.encoder), epochs, loss

        # The last checkpoint is no decision, so it is no example.
        gate, epochs, loss = learn(evidence[:, :-1], table.labels[:, :-1], 1)
        head = None
        if self.one_shot:
            goals = one_shot_targets(
                table.grades, table.trajectories.tokens, cost_weight=table.cost_weight
            )
            head, _, _ = learn(evidence[:, :1], goals[:, None], len(table.schedule))
        families = {GATE_FAMILY.name: GATE_FAMILY, **table.families}
        return PaperModel(gate, epochs, loss, families, head)


def _describe(
    part: Iterable[Record],
    *,
    name: str,
    settings: ReplaySettings,
    encoder: Encoder,
    folder: Path | None,
) -> PaperTable:
    """Embed one part and take its evidence."""
    voted = settings.read(part)
    recorded = RecordedEncoder(voted, encoder, folder)
    chains = [record.prefixes(settings.schedule) for record in voted]
    states = States(*describe_texts(chains, recorded))
    replayed = settings.replay(voted)
    seen = replayed.trajectories.with_evidence(
        "semantic_consensus", states.feature("semantic_consensus")
    )
    agreeing = [[consensus(recorded, prefix) for prefix in chain] for chain in chains]
    return PaperTable(
        name=name,
        task=settings.task,
        questions=tuple(record.question for record in voted),
        trajectories=replace(seen, values={**seen.values, "consensus": np.array(agreeing)}),
        states=states,
        families={},
        readability=replayed.readability,
    )


GROUPS: tuple[str, ...] = tuple(dict.fromkeys(feature.group for feature in FEATURES))


def without_group(table: PaperTable, group: str) -> PaperTable:
    """The same table with one group of features made constant, as if it were never measured."""
    if group not in GROUPS:
        raise UsageError(f'no group is called "{group}"; known are {", ".join(GROUPS)}')
    states = table.states
    if group == "projection":
        return replace(table, states=States(states.scalars, np.zeros_like(states.centroids)))
    values = states.scalars.copy()
    values[:, :, [i for i, feature in enumerate(SCALARS) if feature.group == group]] = 0.0
    return replace(table, states=States(values, states.centroids))


def consensus_family(encoder: Encoder) -> Family:
    """The threshold on semantic consensus."""
    shares = grid(0.6, 0.98, 0.02)[::-1]
    fine = grid(0.6, 0.99, 0.01)[::-1]
    return Family("consensus", shares, fine, ge, partial(Consensus, encoder))
