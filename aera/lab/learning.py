"""Learn from a pool what a controller needs beyond the paper: votes that weigh, and a gate on them.

Everything a choice rests on is out of fold within the questions given: the weigher is kept only
where it gains, the gate only where it saves more than ASC on the same votes. Calibration and
judgement belong to other questions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from aera.crew import ALONE, Crew
from aera.gate import VoteGate, sigmoid
from aera.lab.calibration import Choice, calibrate, chosen_stops
from aera.lab.dials import ASC_DIAL, GATE, Dial
from aera.lab.evaluation import Ballot, Part, Source, Terms, ballots_of, parts_of
from aera.lab.folds import fold_numbers
from aera.lab.protocols import Demand, Verdict, check_enough, merged, split_rows
from aera.lab.shards import Shards
from aera.lab.states import Track, quiet
from aera.lab.trajectory import Columns, Floats, Trajectories
from aera.lab.truths import Truths
from aera.lab.votegate import fit_vote_gate
from aera.lab.weighing import Marked, crossfit_weights, fit_weigher, mark
from aera.pool import Pool
from aera.schedule import Schedule
from aera.standing import standing
from aera.task import Task
from aera.weigher import Weigher

SHARES = (0.5, 0.5)
"""Questions for learning and for a certificate."""
MARGIN = 1.0
"""Standard errors that an uncertified loss must stay below its limit: on few questions the cheapest
setting that seemed to lose little loses more on others."""
LOSSES = (0.0, 0.005, 0.01, 0.015, 0.02)
"""Where the gate and ASC are compared: the saving at one allowed loss alone is a matter of luck."""


@dataclass(frozen=True, eq=False)
class Measured:
    """How the vote stands at every checkpoint, beside what it is worth in hindsight."""

    trajectories: Trajectories
    evidence: Floats
    """Shape (questions, checkpoints, features of the standing)."""
    confidence: Floats
    """What ASC looks at, on the same votes."""

    @classmethod
    def joined(cls, parts: "Sequence[Measured]") -> "Measured":
        """The questions of several, one after the other."""
        return cls(
            Trajectories.joined([part.trajectories for part in parts]),
            np.concatenate([part.evidence for part in parts]),
            np.concatenate([part.confidence for part in parts]),
        )

    @cached_property
    def grades(self) -> Floats:
        """The grade of the leading answer."""
        assert self.trajectories.grades is not None, "nothing can be learned without truths"
        return self.trajectories.grades

    def chances(self, gate: VoteGate) -> Floats:
        """The gate's p_continue, shape (questions, checkpoints)."""
        return sigmoid(gate.network.outputs(self.evidence))[..., 0]

    def fitted(self, rows: Columns) -> VoteGate:
        """A gate of these questions."""
        tokens = self.trajectories.tokens[rows]
        return fit_vote_gate(self.evidence[rows], self.grades[rows], tokens)

    def crossfit(self, *, folds: int = 5, seed: int) -> Floats:
        """p_continue of every question by a gate of the other folds."""
        numbers = fold_numbers(len(self.grades), folds, seed=seed)
        chances = np.empty(self.grades.shape)
        for fold in range(folds):
            gate = self.fitted(np.flatnonzero(numbers != fold))
            chances[numbers == fold] = self.chances(gate)[numbers == fold]
        return chances


@dataclass(frozen=True, eq=False)
class Course:
    """A pool made ready for learning."""

    marked: Marked
    truths: Truths
    task: Task
    schedule: Schedule
    crew: Crew = ALONE
    """Who does the work that falls into parts."""

    def measured(self, rows: Columns, weights: Floats | None) -> Measured:
        """Replay these questions with these weights."""
        ballots = self.marked.reweighed(rows, weights)
        work = partial(_measured, terms=Terms(self.task, self.schedule, self.truths))
        return Measured.joined([*self.crew.map(work, parts_of(ballots))])


def _measured(part: Part, *, terms: Terms) -> Measured:
    """The standing of one part's questions."""
    ballots = ballots_of(part, terms.task)
    chains = [ballot.prefixes(terms.schedule) for ballot in ballots]
    return Measured(
        terms.replay(ballots, ()).trajectories,
        np.array([[standing(prefix) for prefix in chain] for chain in chains]),
        np.array([[ASC_DIAL.value(prefix) for prefix in chain] for chain in chains]),
    )


def open_course(
    pool: Pool | Shards,
    truths: Truths,
    *,
    ballots: Sequence[Ballot] | None = None,
    schedule: Schedule | None = None,
    crew: Crew = ALONE,
    track: Track = quiet,
) -> Course:
    """Read the traits of a pool's responses and grade them.

    Without its ballots a pool is read part by part, each by whoever works on it.
    """
    source: Source = pool if ballots is None else ballots
    checkpoints = schedule or pool.schedule
    check_enough(pool.path.name, len(source), checkpoints)
    last = checkpoints.last
    marked = mark(source, truths, task=pool.task, responses=last, crew=crew, track=track)
    return Course(marked, truths, pool.task, checkpoints, crew)


@dataclass(frozen=True, eq=False)
class Votes:
    """Measured questions with what each dial looks at."""

    measured: Measured
    values: Mapping[str, Floats]
    """By dial: p_continue for the gate, the posterior for ASC."""
    ballots: tuple[Ballot, ...] = ()
    """The questions with their weights, where somebody wants to look at them."""

    def calibrated(
        self, dial: Dial, demand: Demand, *, margin: float = MARGIN, seed: int
    ) -> Choice:
        """The cheapest setting that meets the demand here."""
        return calibrate(
            dial,
            self.values[dial.name],
            self.measured.trajectories,
            max_loss=demand.max_loss,
            alpha=demand.alpha,
            margin=margin,
            seed=seed,
        )

    def saving(self, dial: Dial) -> float:
        """Tokens saved, mean over a few allowed losses, as measured."""
        choices = [self.calibrated(dial, Demand(loss), margin=0.0, seed=0) for loss in LOSSES]
        return float(np.mean([choice.token_saving for choice in choices]))


@dataclass(frozen=True, eq=False)
class Learned:
    """What some questions taught."""

    weigher: Weigher | None
    gate: VoteGate
    dial: Dial
    """GATE, or ASC where the gate stepped aside."""
    own: Votes
    """The same questions out of fold: every one weighed and judged by models of others."""
    gain: float
    """Points the weigher gained there, mean over the checkpoints."""

    def votes(self, course: Course, rows: Columns) -> Votes:
        """Other questions as the learned weigher and gate see them."""
        seen = course.marked.traits[rows]
        weights = self.weigher.weights(seen) if self.weigher else None
        measured = course.measured(rows, weights)
        votes = _votes(measured, measured.chances(self.gate))
        return replace(votes, ballots=tuple(course.marked.reweighed(rows, weights)))


def _votes(measured: Measured, chances: Floats) -> Votes:
    return Votes(measured, {GATE.name: chances, ASC_DIAL.name: measured.confidence})


def learn(course: Course, rows: Columns, *, seed: int) -> Learned:
    """Weigher, gate and dial from these questions alone."""
    plain = course.measured(rows, None)
    weights = crossfit_weights(course.marked, rows, seed=seed, crew=course.crew)
    weighed = course.measured(rows, weights)
    gains = (weighed.grades - plain.grades).mean(axis=1)
    keeps = bool(gains.mean() > gains.std() / np.sqrt(len(gains)))
    measured = weighed if keeps else plain
    own = _votes(measured, measured.crossfit(seed=seed))
    return Learned(
        weigher=fit_weigher(course.marked, rows, seed=seed) if keeps else None,
        gate=measured.fitted(np.arange(len(rows))),
        dial=GATE if own.saving(GATE) >= own.saving(ASC_DIAL) else ASC_DIAL,
        own=own,
        gain=100 * float(gains.mean()),
    )


def learn_and_tune(
    course: Course, rows: Columns, *, certified: bool, seed: int
) -> tuple[Learned, Votes]:
    """What these questions teach, with the votes to calibrate on.

    Without a certificate those are the same questions, out of fold. A certificate needs questions
    that nothing was learned from.
    """
    if not certified:
        learned = learn(course, rows, seed=seed)
        return learned, learned.own
    fit, tune = split_rows(rows, SHARES, seed=seed)
    learned = learn(course, fit, seed=seed)
    return learned, learned.votes(course, tune)


def judge(learned: Learned, tuning: Votes, judged: Votes, *, demand: Demand, seed: int) -> Verdict:
    """Calibrate on the tuning votes, then stop the judged questions.

    Three names: `aera` is the dial that was learned, `gate` and `asc` are both, for comparison.
    """
    dials = {"aera": learned.dial, "gate": GATE, "asc": ASC_DIAL}
    choices = {name: tuning.calibrated(dial, demand, seed=seed) for name, dial in dials.items()}
    stops = {
        name: chosen_stops(choices[name], dial, judged.values[dial.name])
        for name, dial in dials.items()
    }
    trajectories = judged.measured.trajectories
    size = len(trajectories.question_ids)
    return Verdict(
        trajectories,
        np.arange(size),
        stops,
        {name: (choice,) for name, choice in choices.items()},
        judged.values[GATE.name],
        np.zeros(size, np.int64),
        budget="weighed",
        ballots=judged.ballots,
    )


def nested_learned(
    course: Course,
    demands: Sequence[Demand],
    *,
    folds: int = 5,
    seed: int = 0,
    track: Track = quiet,
) -> list[Verdict]:
    """Per outer fold: learn and calibrate inside the rest, then judge the fold, once per demand."""
    numbers = fold_numbers(len(course.marked), folds, seed=seed)
    certified = any(demand.alpha is not None for demand in demands)
    parts: list[list[Verdict]] = [[] for _ in demands]
    for fold in track(range(folds), "nested folds"):
        outer, rest = np.flatnonzero(numbers == fold), np.flatnonzero(numbers != fold)
        learned, tuning = learn_and_tune(course, rest, certified=certified, seed=seed + fold)
        judged = learned.votes(course, outer)
        for part, demand in zip(parts, demands, strict=True):
            verdict = judge(learned, tuning, judged, demand=demand, seed=seed + fold)
            part.append(replace(verdict, rows=outer))
    return [merged(part, numbers) for part in parts]


def holdout_learned(course: Course, *, demand: Demand, seed: int = 0, test: float = 0.4) -> Verdict:
    """Learn, calibrate and freeze on one part of the questions, then test once on the other."""
    rest, judged = split_rows(np.arange(len(course.marked)), (1 - test, test), seed=seed)
    certified = demand.alpha is not None
    learned, tuning = learn_and_tune(course, rest, certified=certified, seed=seed)
    verdict = judge(learned, tuning, learned.votes(course, judged), demand=demand, seed=seed)
    return replace(verdict, rows=judged)
