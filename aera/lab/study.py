"""Study: everything known of a pool's questions that protocols and diagnostics work on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aera.crew import ALONE, Crew
from aera.embedding import Encoder
from aera.errors import ProtocolError
from aera.evidence import scalars, semantics
from aera.lab.dials import Dial, answer_dials, consensus_dial
from aera.lab.evaluation import (
    Ballot,
    Part,
    Source,
    Terms,
    ballots_of,
    check_whole,
    parts_of,
)
from aera.lab.frontier import Point
from aera.lab.labels import continuation_labels, one_shot_targets
from aera.lab.places import Place
from aera.lab.shards import Shards
from aera.lab.states import States, Track, quiet, recorded_encoder
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


@dataclass(frozen=True, eq=False)
class _Share:
    """The part of a study that one part of a pool gives."""

    states: States
    measures: Floats
    """Shape (dials, questions, checkpoints)."""
    trajectories: Trajectories


def open_study(
    pool: Pool | Shards,
    truths: Truths | None,
    *,
    encoder: Encoder,
    ballots: Sequence[Ballot] | None = None,
    schedule: Schedule | None = None,
    crew: Crew = ALONE,
    track: Track = quiet,
) -> Study:
    """Embed, characterise and measure a pool; the embeddings are kept beside it.

    Without its ballots a pool is read part by part, each by whoever works on it.
    """
    source: Source = pool if ballots is None else ballots
    parts = parts_of(source)
    terms = Terms(pool.task, schedule or pool.schedule, truths)
    work = partial(_share, terms=terms, encoder=encoder, folder=pool.path.absolute())
    done = zip(track(parts, "evidence"), crew.map(work, parts), strict=True)
    shares = [share for _, share in done]
    trajectories = Trajectories.joined([share.trajectories for share in shares])
    check_whole(source, trajectories.question_ids)
    states = States(
        np.concatenate([share.states.scalars for share in shares]),
        np.concatenate([share.states.centroids for share in shares]),
    )
    measures = np.concatenate([share.measures for share in shares], axis=1)
    dials = _dials(encoder)
    return Study(
        name=pool.path.name,
        trajectories=trajectories.with_evidence(
            "semantic_consensus", states.named("semantic_consensus")
        ),
        states=states,
        dials={dial.name: dial for dial in dials},
        values={dial.name: values for dial, values in zip(dials, measures, strict=True)},
        encoder=encoder,
    )


def _dials(encoder: Encoder) -> list[Dial]:
    return [*answer_dials(), consensus_dial(encoder)]


def _share(part: Part, *, terms: Terms, encoder: Encoder, folder: Path | Place) -> _Share:
    """Embed one part and take its evidence."""
    ballots = ballots_of(part, terms.task)
    recorded = recorded_encoder(ballots, encoder=encoder, folder=folder)
    dials = _dials(recorded)
    values, centroids, measures = [], [], []
    for ballot in ballots:
        prefixes = ballot.prefixes(terms.schedule)
        values.append([scalars(prefix, recorded) for prefix in prefixes])
        centroids.append([semantics(prefix, recorded).centroid for prefix in prefixes])
        measures.append([[dial.value(prefix) for prefix in prefixes] for dial in dials])
    states = States(np.array(values), np.array(centroids))
    return _Share(states, np.array(measures).swapaxes(0, 1), terms.replay(ballots, ()).trajectories)
