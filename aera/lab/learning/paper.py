"""The paper's learner: a gate on 55 features of plain votes, fitted to continuation labels."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from aera.arrays import Columns, Flags, Floats
from aera.core import Question, Schedule
from aera.errors import UsageError
from aera.lab.calibrating.calibration import Goal
from aera.lab.calibrating.families import (
    GATE_FAMILY,
    ONE_SHOT_FAMILY,
    Family,
    answer_families,
    at_least,
    grid,
)
from aera.lab.learning.folds import group_questions, split_rows
from aera.lab.learning.labels import continuation_labels, one_shot_targets
from aera.lab.learning.learner import Split, check_enough
from aera.lab.learning.perceptron import Examples, Perceptron, fit_network
from aera.lab.learning.states import States, recorded_encoder
from aera.lab.replay.frontier import Point, sweep
from aera.lab.replay.replay import ReplaySettings
from aera.lab.replay.trajectory import Trajectories
from aera.lab.truths import Truths
from aera.network import Network, sigmoid
from aera.paper.encoder import Encoder, StaticEncoder
from aera.paper.features import FEATURES, SCALARS, Consensus, PaperGate, consensus, describe_texts
from aera.policies.gate import Gated
from aera.policies.rules import Measure, Policy, measure_all
from aera.pools.pool import Record, Records
from aera.reading.task import NOTHING, Readability, Task
from aera.voting.rules import Rule, plain_vote
from aera.workers import SERIAL, Workers, map_named

INNER = (0.6, 0.15, 0.25)
"""Shares of questions for fitting, for ending the fit in time, and for calibration."""
ENDING = (0.85, 0.15)
"""The same for a fit that is not told which questions end it."""


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
    gain_margin: float = 0.0
    """Delta: the least gain worth continuing for."""

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
        return continuation_labels(
            self.grades, costs, cost_weight=self.cost_weight, margin=self.gain_margin
        )

    @cached_property
    def one_shot_targets(self) -> Columns:
        """The checkpoint one-shot allocation should name."""
        costs = self.trajectories.tokens
        return one_shot_targets(self.grades, costs, cost_weight=self.cost_weight)

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
        values = {GATE_FAMILY.name: _chances(table, self.gate, rows), **seen.values}
        if self.one_shot is not None:
            values[ONE_SHOT_FAMILY.name] = _goals(table, self.one_shot, rows)
        return replace(seen, values=values)

    def policy(self, setting: float, family: Family | None = None) -> Policy:
        """The gate at one threshold, or another family at its own."""
        if family is not None and family.make is not None:
            return family.make(setting)
        return Gated(self.gate, setting)


def _chances(table: PaperTable, gate: PaperGate, rows: Columns) -> Floats:
    """The gate's p_continue at every checkpoint."""
    evidence = table.states.evidence(gate.projection)[rows]
    flat = evidence.reshape(-1, evidence.shape[2])
    return sigmoid(gate.network.outputs(flat)).reshape(evidence.shape[:2])


def _goals(table: PaperTable, head: PaperGate, rows: Columns) -> Floats:
    """1 from the checkpoint on that was named at the first one."""
    evidence = table.states.evidence(head.projection)[rows, 0]
    goals = head.network.outputs(evidence).argmax(axis=1)
    reached: Floats = (np.arange(len(table.schedule)) >= goals[:, None]).astype(np.float64)
    return reached


@dataclass(frozen=True)
class PaperLearner:
    """The paper's method: 55 inputs, a small perceptron, labels from residual utility."""

    encoder: Encoder = field(default_factory=StaticEncoder.load)
    perceptron: Perceptron = field(default_factory=Perceptron)
    shares: tuple[float, float, float] = INNER
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
        parts = records.parts()
        folder = None if records.folder is None else records.folder.absolute()
        settings = ReplaySettings(records.task, schedule or records.schedule, truths, self.rule)
        work = partial(_share, settings=settings, encoder=self.encoder, folder=folder)
        shares = map_named(workers, work, parts, "evidence")
        trajectories = Trajectories.concat([share.trajectories for share in shares])
        records.check_whole(trajectories.question_ids)
        states = States(
            np.concatenate([share.states.scalars for share in shares]),
            np.concatenate([share.states.centroids for share in shares]),
        )
        measures = np.concatenate([share.measures for share in shares], axis=1)
        families = _families(self.encoder)
        consensus = states.feature("semantic_consensus")
        return PaperTable(
            name=records.name,
            task=records.task,
            questions=tuple(question for share in shares for question in share.questions),
            trajectories=replace(
                trajectories.with_evidence("semantic_consensus", consensus),
                values={
                    family.name: values for family, values in zip(families, measures, strict=True)
                },
            ),
            states=states,
            families={family.name: family for family in families},
            readability=Readability().join(share.readability for share in shares),
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
        states, projection = table.states, table.states.project(rows)
        evidence = states.evidence(projection)
        # The last checkpoint is no decision, so it is no example.
        network, epochs, loss = self._fit(
            _examples(evidence[:, :-1], table.labels[:, :-1], rows),
            _examples(evidence[:, :-1], table.labels[:, :-1], held),
            outputs=1,
            seed=seed,
        )
        head = None
        if self.one_shot:
            first, targets = evidence[:, :1], table.one_shot_targets[:, None]
            goals, _, _ = self._fit(
                _examples(first, targets, rows),
                _examples(first, targets, held),
                outputs=len(table.schedule),
                seed=seed,
            )
            head = PaperGate(goals, projection, self.encoder)
        families = {GATE_FAMILY.name: GATE_FAMILY, **table.families}
        return PaperModel(
            PaperGate(network, projection, self.encoder), epochs, loss, families, head
        )

    def _fit(
        self, train: Examples, held: Examples, *, outputs: int, seed: int
    ) -> tuple[Network, int, float]:
        return fit_network(train, held, outputs=outputs, settings=self.perceptron, seed=seed)


def _examples(evidence: Floats, targets: Flags | Columns, rows: Columns) -> Examples:
    """Every checkpoint of some questions as a row of its own."""
    flat = evidence[rows].reshape(-1, evidence.shape[2])
    return Examples(flat, targets[rows].reshape(-1).astype(np.float64))


def _families(encoder: Encoder) -> list[Family]:
    return [*answer_families(), consensus_family(encoder)]


@dataclass(frozen=True, eq=False)
class _Share:
    """What one part of a pool adds to a table."""

    questions: tuple[Question, ...]
    states: States
    measures: Floats
    """Shape (families, questions, checkpoints)."""
    trajectories: Trajectories
    readability: Readability


def _share(
    part: Iterable[Record],
    *,
    settings: ReplaySettings,
    encoder: Encoder,
    folder: Path | None,
) -> _Share:
    """Embed one part and take its evidence."""
    voted = settings.read(part)
    recorded = recorded_encoder(voted, encoder=encoder, folder=folder)
    chains = [record.prefixes(settings.schedule) for record in voted]
    scalars, centroids = describe_texts(chains, recorded)
    measures = measure_all(_measures(recorded), chains)
    questions = tuple(record.question for record in voted)
    replayed = settings.replay(voted)
    return _Share(
        questions,
        States(scalars, centroids),
        np.array(measures),
        replayed.trajectories,
        replayed.readability,
    )


def _measures(encoder: Encoder) -> Sequence[Measure]:
    return [family.measure for family in _families(encoder) if family.measure is not None]


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
    measure, make = partial(consensus, encoder), partial(Consensus, encoder)
    shares = grid(0.6, 0.98, 0.02)[::-1]
    fine = grid(0.6, 0.99, 0.01)[::-1]
    return Family("consensus", shares, fine, at_least, measure, make)
