"""Study: everything known of a pool's questions that protocols and diagnostics work on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from aera.embedding import Encoder
from aera.errors import ProtocolError
from aera.evidence import scalars, semantics
from aera.lab.dials import Dial, answer_dials, consensus_dial
from aera.lab.evaluation import Ballot, evaluate
from aera.lab.frontier import Point
from aera.lab.labels import continuation_labels, one_shot_targets
from aera.lab.states import States, Track, embed_pool, quiet
from aera.lab.trajectory import Columns, Floats, Trajectories
from aera.lab.truths import Truths
from aera.pool import Pool
from aera.schedule import Schedule


@dataclass(frozen=True, eq=False)
class Study:
    """Trajectories, evidence and measured dials of the same questions, row by row."""

    name: str
    trajectories: Trajectories
    states: States
    dials: Mapping[str, Dial]
    values: Mapping[str, Floats]
    """Each dial's measure, shape (questions, checkpoints)."""
    encoder: Encoder
    cost_weight: float = 0.1
    """Lambda: what the whole budget costs, in units of grade."""
    margin: float = 0.0
    """Delta: the least gain worth continuing for."""

    def __len__(self) -> int:
        return len(self.trajectories.question_ids)

    @cached_property
    def grades(self) -> Floats:
        """The grades, which a study cannot do without."""
        if self.trajectories.grades is None:
            raise ProtocolError(f'"{self.name}" has no truths, so nothing can be learned from it')
        return self.trajectories.grades

    @cached_property
    def labels(self) -> NDArray[np.bool_]:
        """Whether continuing pays, question by checkpoint."""
        costs = self.trajectories.tokens
        return continuation_labels(
            self.grades, costs, cost_weight=self.cost_weight, margin=self.margin
        )

    @cached_property
    def one_shot_targets(self) -> Columns:
        """The checkpoint one-shot allocation should name."""
        costs = self.trajectories.tokens
        return one_shot_targets(self.grades, costs, cost_weight=self.cost_weight)

    def point(self, label: str, columns: Columns) -> Point:
        """A policy by the columns at which it stops."""
        return Point(label, columns, self.trajectories)

    def sweep(self, name: str) -> list[Point]:
        """Every setting of a dial, read off afterwards: a descriptive frontier."""
        dial = self.dials[name]
        return [
            self.point(dial.label(setting), dial.stops(self.values[name], setting))
            for setting in dial.settings
        ]

    def graded_by(self, grades: Floats, *, cost_weight: float) -> "Study":
        """The same study under other utilities."""
        trajectories = replace(self.trajectories, grades=grades)
        return replace(self, trajectories=trajectories, cost_weight=cost_weight)


def open_study(
    pool: Pool,
    truths: Truths | None,
    *,
    ballots: Sequence[Ballot],
    encoder: Encoder,
    schedule: Schedule | None = None,
    track: Track = quiet,
) -> Study:
    """Embed, characterise and measure a pool; the embeddings are kept beside it."""
    schedule = schedule or pool.schedule
    recorded = embed_pool(pool, ballots, encoder=encoder, track=track)
    dials = [*answer_dials(), consensus_dial(recorded)]
    values, centroids, measures = [], [], []
    for ballot in track(ballots, "evidence"):
        prefixes = ballot.prefixes(schedule)
        values.append([scalars(prefix, recorded) for prefix in prefixes])
        centroids.append([semantics(prefix, recorded).centroid for prefix in prefixes])
        measures.append([[dial.value(prefix) for prefix in prefixes] for dial in dials])
    states = States(np.array(values), np.array(centroids))
    trajectories = evaluate(
        ballots, (), task=pool.task, schedule=schedule, truths=truths
    ).trajectories
    by_dial = np.array(measures).swapaxes(0, 1)
    return Study(
        name=pool.path.name,
        trajectories=trajectories.with_evidence(
            "semantic_consensus", states.named("semantic_consensus")
        ),
        states=states,
        dials={dial.name: dial for dial in dials},
        values={dial.name: by_dial[i] for i, dial in enumerate(dials)},
        encoder=encoder,
    )
