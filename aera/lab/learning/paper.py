"""The paper's learner: a gate on 55 features of plain votes, fitted to continuation labels."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from operator import ge
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
    grid,
)
from aera.lab.frontier import Point, Trajectories, sweep
from aera.lab.learning.folds import group_questions, split_rows
from aera.lab.learning.labels import continuation_labels, one_shot_targets
from aera.lab.learning.learner import Split, check_enough
from aera.lab.learning.perceptron import Perceptron, fit_network
from aera.lab.learning.states import RecordedEncoder, States
from aera.lab.replay import ReplaySettings
from aera.lab.truths import Truths
from aera.network import sigmoid
from aera.paper.encoder import Encoder, StaticEncoder
from aera.paper.features import FEATURES, SCALARS, Consensus, PaperGate, consensus, describe_texts
from aera.policies.gate import Gated
from aera.policies.rules import Policy
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
            families=_families(self.encoder),
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

        def learn(seen: Floats, targets: Floats, outputs: int) -> tuple[PaperGate, int, float]:
            flat = [
                (seen[each].reshape(-1, seen.shape[2]), targets[each].ravel())
                for each in (rows, held)
            ]
            network, epochs, loss = fit_network(
                *flat, outputs=outputs, settings=self.perceptron, seed=seed
            )
            return PaperGate(network, projection, self.encoder), epochs, loss

        # The last checkpoint is no decision, so it is no example.
        gate, epochs, loss = learn(evidence[:, :-1], table.labels[:, :-1].astype(np.float64), 1)
        head = None
        if self.one_shot:
            goals = table.one_shot_targets[:, None].astype(np.float64)
            head, _, _ = learn(evidence[:, :1], goals, len(table.schedule))
        families = {GATE_FAMILY.name: GATE_FAMILY, **table.families}
        return PaperModel(gate, epochs, loss, families, head)


def _families(encoder: Encoder) -> dict[str, Family]:
    return {each.name: each for each in (*answer_families(), consensus_family(encoder))}


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
    values = {
        each.name: np.array([[each.measure(prefix) for prefix in chain] for chain in chains])
        for each in _families(recorded).values()
        if each.measure is not None
    }
    seen = replayed.trajectories.with_evidence(
        "semantic_consensus", states.feature("semantic_consensus")
    )
    return PaperTable(
        name=name,
        task=settings.task,
        questions=tuple(record.question for record in voted),
        trajectories=replace(seen, values=values),
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
    measure, make = partial(consensus, encoder), partial(Consensus, encoder)
    shares = grid(0.6, 0.98, 0.02)[::-1]
    fine = grid(0.6, 0.99, 0.01)[::-1]
    return Family("consensus", shares, fine, ge, measure, make)
