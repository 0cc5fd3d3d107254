"""Evaluation: one pool evaluated as somebody asked for it, from replay to what is said of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from aera.errors import ProtocolError, UsageError
from aera.evidence.encoders import load_encoder
from aera.lab.calibrating.calibration import LossLimit
from aera.lab.judging.headline import Headline, make_headline
from aera.lab.judging.protocols import CrossFit, Judgement, crossfit, holdout, limit_for, nested
from aera.lab.judging.summary import (
    crossfit_frontier,
    crossfit_sections,
    judgement_frontier,
    judgement_sections,
    summarize,
)
from aera.lab.learning.learner import Learner
from aera.lab.learning.paper import PaperLearner, PaperTable
from aera.lab.learning.priors import crossfit_bayes
from aera.lab.learning.votes import VoteLearner
from aera.lab.open import need_truths
from aera.lab.replay.frontier import Frontier, Kind
from aera.lab.replay.replay import ReplaySettings
from aera.lab.truths import Truths
from aera.policies.baselines import Consensus
from aera.policies.labels import Maker, parse_policy
from aera.policies.policy import Fixed, Policy
from aera.pools.record import Records
from aera.reading.health import Readability
from aera.schedule import Schedule
from aera.solving.controller import Controller
from aera.voting.aggregation import RULES
from aera.workers import SERIAL, Track, Workers, quiet

REPLAY, CROSSFIT, NESTED, HOLDOUT = "replay", "crossfit", "nested", "holdout"


@dataclass(frozen=True)
class EvaluationSettings:
    """How a pool is evaluated."""

    protocol: str = REPLAY
    rule: str = "vote"
    paper: bool = False
    """Whether to learn the paper's gate on plain votes instead of weights and a gate on them."""
    clean: bool = False
    """Whether crossfit ends training on an inner split."""
    max_loss: float = 0.02
    alpha: float | None = None
    encoder: str | None = None
    seed: int = 0
    schedule: Schedule | None = None
    """Other checkpoints than the controller's or the pool's own."""

    def __post_init__(self) -> None:
        LossLimit(self.max_loss, self.alpha)  # refuses what makes no sense
        if self.rule not in RULES:
            raise UsageError(f'--rule is one of {", ".join(RULES)}, but got "{self.rule}"')
        if self.rule != "vote" and self.protocol != REPLAY:
            raise UsageError(
                "--rule goes with replay: everything else is learned from the plain vote"
            )

    @property
    def learner(self) -> Learner[Any]:
        """What crossfit, nested and holdout learn."""
        if self.paper or self.protocol == CROSSFIT:
            return PaperLearner(load_encoder(self.encoder), one_shot=self.protocol == CROSSFIT)
        return VoteLearner()


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What came out."""

    records: Records
    settings: EvaluationSettings
    policies: Sequence[Policy]
    """Those that were replayed as given."""
    truths: Truths | None
    frontier: Frontier
    sections: dict[str, Any] = field(default_factory=dict)
    """What else the protocol has to say."""
    done: CrossFit | Judgement | None = None
    controller: Controller | None = None
    workers: Workers = SERIAL
    left_out: str | None = None
    """Which questions could not be judged, and why."""

    @property
    def readability(self) -> Readability:
        """Which share of the responses could be read."""
        return self.frontier.readability

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The evaluation JSON."""
        protocol, seed = self.settings.protocol, self.settings.seed
        return summarize(
            self.frontier,
            self.records,
            protocol=protocol,
            seed=seed,
            sections=self.sections,
            max_loss=self.settings.max_loss,
        )

    @cached_property
    def headline(self) -> Headline:
        """What it shows, in words: the same in the summary, on a terminal and on a page."""
        return make_headline(
            self.frontier,
            protocol=self.settings.protocol,
            task=self.records.task.name,
            sections=self.sections,
            max_loss=self.settings.max_loss,
        )

    def rows(self) -> list[dict[str, Any]]:
        """One row per policy, as pandas and polars take them."""
        return [
            {name: value for name, value in point.as_json().items() if name != "stops"}
            for point in self.frontier.points
        ]

    def __repr__(self) -> str:
        graded = self.truths is not None
        head = [
            "policy",
            "accuracy %" if graded else "agreement %",
            "responses",
            "tokens",
            "saved %",
        ]
        cells = [
            [
                point.policy,
                f"{(point.accuracy if graded else point.agreement) or 0.0:.2f}",
                f"{point.responses:.2f}",
                f"{point.tokens:,.0f}",
                f"{point.token_saving:.1f}",
            ]
            for point in self.frontier.without_sweeps().points
        ]
        widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
        lines = [
            "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(pairs))
            for pairs in (zip(row, widths, strict=True) for row in [head, *cells])
        ]
        said = [self.left_out, self.readability.summary()]
        said.append(self.readability.warning(self.records.task))
        told = [each for each in said if each is not None]
        return "\n".join([self.title, *lines, *told, *self.remarks])

    @property
    def title(self) -> str:
        """What tables are headed with."""
        merged = ", equal expressions together" if self.records.task.equivalence else ""
        questions = len(self.frontier.trajectories.question_ids)
        return f"{self.records.name}: {questions} questions, {self.settings.protocol}{merged}"

    @property
    def remarks(self) -> list[str]:
        """What a table cannot say: how far its claims reach."""
        told = [self.sections["status"]] if "status" in self.sections else []
        told += self.headline.lines
        if "controller" in self.sections:
            known = self.sections["controller"]
            told.append(f"{known['policy']}: {known['status']}")
        return told


def evaluate_pool(
    records: Records,
    policies: Sequence[Policy],
    *,
    truths: Truths | None,
    settings: EvaluationSettings,
    controller: Controller | None = None,
    workers: Workers = SERIAL,
    track: Track = quiet,
) -> Evaluation:
    """Replay the policies; then add a controller, or learn and judge as the protocol says."""
    checkpoints = settings.schedule
    if checkpoints is None:
        checkpoints = records.schedule if controller is None else controller.schedule
    replayed = ReplaySettings(records.task, checkpoints, truths, RULES[settings.rule])
    seen = _find_seen(controller, records, settings) if controller else []
    frontier = replayed.evaluate(records, policies, workers=workers)
    made = Evaluation(
        records, settings, policies, truths, frontier, controller=controller, workers=workers
    )
    if controller is not None:
        return _with_controller(made, controller, replayed, seen=seen, workers=workers)
    if settings.protocol == REPLAY:
        return made
    known = need_truths(records, truths)
    return _with_protocol(made, known, checkpoints, workers=workers, track=track)


def _with_protocol(
    made: Evaluation, truths: Truths, schedule: Schedule, *, workers: Workers, track: Track
) -> Evaluation:
    """Learn and judge."""
    settings, learner = made.settings, made.settings.learner
    known: dict[str, Any] = {"workers": workers, "track": track}
    table = learner.prepare(made.records, truths, schedule=schedule, **known)
    seed, given = settings.seed, made.frontier.points
    if settings.protocol == CROSSFIT:
        done = crossfit(learner, table, seed=seed, clean=settings.clean, **known)
        assert isinstance(table, PaperTable)
        frontier = crossfit_frontier(done, table, given, seed=seed)
        frontier = replace(frontier, readability=made.readability)
        sections = crossfit_sections(done, frontier, seed=seed)
        return replace(made, frontier=frontier, sections=sections, done=done)
    limit = limit_for(learner, settings.max_loss, settings.alpha)
    if settings.protocol == NESTED:
        [judged] = nested(learner, table, [limit], seed=seed, **known)
    else:
        judged = holdout(learner, table, limit, seed=seed)
    frontier = replace(judgement_frontier(judged, given), readability=made.readability)
    sections = judgement_sections(judged, frontier, seed=seed)
    return replace(made, frontier=frontier, sections=sections, done=judged)


def _find_seen(controller: Controller, records: Records, settings: EvaluationSettings) -> list[str]:
    """The questions a controller has seen; none are allowed in a holdout test."""
    if settings.protocol in (CROSSFIT, NESTED):
        raise UsageError(f"--controller goes with replay or holdout, not with {settings.protocol}")
    seen = controller.find_seen(records.questions.values())
    if settings.protocol == HOLDOUT and seen:
        raise ProtocolError(
            f"the controller was fitted or calibrated on {len(seen)} of these questions, the "
            f"first is {seen[0]}; a holdout test needs questions it has never seen"
        )
    return seen


def _with_controller(
    made: Evaluation,
    controller: Controller,
    replayed: ReplaySettings,
    *,
    seen: Sequence[str],
    workers: Workers,
) -> Evaluation:
    """A controller's row, and its own full budget, beside policies on plain votes."""
    policies = [controller.policy, Fixed(replayed.schedule.last)]
    weighing = replace(replayed, weigher=controller.weigher)
    own = weighing.evaluate(made.records, policies, workers=workers)
    point = replace(own.points[0], kind=Kind.CONTROLLER, in_sample=bool(seen))
    frontier = made.frontier.with_point(own.points[1]).with_point(point)
    status = f"in-sample: {len(seen)} questions were seen in training" if seen else "unseen"
    known = {"policy": point.policy, "seen": len(seen), "status": status}
    known |= {"task": controller.task.name, "calibration": dict(controller.calibration)}
    sections: dict[str, Any] = {"controller": known}
    return replace(made, frontier=frontier, sections=sections)


def parse_policies(
    labels: str,
    records: Records,
    schedule: Schedule,
    *,
    encoder: str | None = None,
    seed: int = 0,
) -> list[Policy]:
    """The policies of a comma-separated list; empirical Bayes learns its prior out of fold."""
    learned: dict[str, Maker] = {
        "eb": lambda setting: crossfit_bayes(
            (record.read(records.task) for record in records), float(setting), seed=seed
        ),
        "consensus": lambda setting: Consensus(load_encoder(encoder), float(setting)),
    }
    # The oracle needs no policy: hindsight adds it wherever there are truths.
    named = [label.strip() for label in labels.split(",") if label.strip() != "oracle"]
    policies = [parse_policy(label, learned) for label in named]
    for label, policy in zip(named, policies, strict=True):
        if isinstance(policy, Fixed) and policy.responses not in schedule.checkpoints:
            raise UsageError(f"{label} is no checkpoint of {schedule}; --schedule sets others")
    return policies
