"""Evaluation: one pool evaluated as somebody asked for it, from replay to what is said of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from aera.core import Schedule
from aera.errors import ProtocolError, UsageError
from aera.lab.calibrating.calibration import LossLimit
from aera.lab.judging.asked import Asked
from aera.lab.judging.best_of_n import Scoring, compare_utility, scored_sections, with_oracle
from aera.lab.judging.headline import Headline, make_headline
from aera.lab.judging.protocols import CrossFit, Judgement, crossfit, holdout, limit_for, nested
from aera.lab.judging.summary import (
    crossfit_frontier,
    crossfit_sections,
    judgement_frontier,
    judgement_sections,
    summarize,
)
from aera.lab.judging.taught import find_abroad
from aera.lab.learning.crowd import CrowdLearner, learn_votes
from aera.lab.learning.learner import Learner
from aera.lab.learning.paper import PaperLearner, PaperTable
from aera.lab.learning.votes import VoteLearner
from aera.lab.open import need_truths
from aera.lab.replay.columns import table_columns
from aera.lab.replay.frontier import Frontier, Kind, Point, fixed_points
from aera.lab.replay.money import Prices, Terms, explain_prices, tell_saving, tell_unknown
from aera.lab.replay.replay import ReplaySettings
from aera.lab.replay.scored import ScoredReplay
from aera.lab.truths import Truths
from aera.paper.encoder import load_encoder
from aera.policies.gate import Live
from aera.policies.labels import name_policies
from aera.policies.rules import Fixed, Policy
from aera.pools.pool import Records
from aera.reading.task import Readability
from aera.solving.controller import Controller
from aera.voting.rules import RULES, gives_weights
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
    prices: Prices | None = None
    """Of tokens; with them every policy's cost is told in money."""
    scoring: Scoring | None = None
    """Best-of-n; None where answers are voted on."""
    without_truths: bool = False
    """Whether to learn and calibrate as where there are no truths; those there are still judge."""

    def __post_init__(self) -> None:
        LossLimit(self.max_loss, self.alpha)  # refuses what makes no sense
        if self.rule not in RULES:
            raise UsageError(f'--rule is one of {", ".join(RULES)}, but got "{self.rule}"')
        if self.without_truths and (self.by_paper or self.scoring is not None):
            raise UsageError(
                "--without-truths goes without --paper, --scorer and --protocol crossfit"
            )
        if self.scoring is not None:
            self._check_scored()

    def _check_scored(self) -> None:
        """Refuse what best-of-n does not have."""
        taken = {
            "--paper": self.paper,
            "--protocol crossfit": self.protocol == CROSSFIT,
            "--certify": self.alpha is not None,
            "--rule": self.rule != "vote",
        }
        for option in (name for name, given in taken.items() if given):
            raise UsageError(
                f"--scorer goes without {option}: best-of-n counts no votes, has a gate of its own "
                "and a price in the place of an allowed loss"
            )

    @property
    def terms(self) -> Terms:
        """What spending is counted in."""
        return Terms(self.prices, None if self.scoring is None else self.scoring.price)

    @property
    def by_paper(self) -> bool:
        """Whether the paper's gate is learned, which cannot do without truths."""
        return self.paper or self.protocol == CROSSFIT

    def learner(self, truths: Truths | None) -> Learner[Any]:
        """What crossfit, nested and holdout learn."""
        if self.by_paper:
            once = self.protocol == CROSSFIT
            return PaperLearner(load_encoder(self.encoder), one_shot=once, rule=RULES[self.rule])
        found = learn_votes(None if self.without_truths else truths, None)
        if self.rule == "vote":
            return found
        if not isinstance(found, VoteLearner):
            raise UsageError(f"--rule {self.rule} is learned from truths, and none are used here")
        return replace(found, rule=RULES[self.rule])


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
        settings = self.settings
        return summarize(
            self.frontier,
            self.records,
            protocol=settings.protocol,
            seed=settings.seed,
            sections=self.sections,
            max_loss=settings.max_loss,
            terms=settings.terms,
        )

    @cached_property
    def headline(self) -> Headline | None:
        """What it shows, in words: the same in the summary, on a terminal and on a page.

        Best-of-n compares utilities, and has sentences of its own.
        """
        if self.settings.scoring is not None:
            return None
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
            {name: value for name, value in row.items() if name != "stops"}
            for row in (point.as_json(self.settings.terms) for point in self.frontier.points)
        ]

    def __repr__(self) -> str:
        columns = table_columns(self.frontier.trajectories, self.settings.terms)
        head, points = [*columns], self.frontier.without_sweeps().points
        cells = [[cell(point) for cell in columns.values()] for point in points]
        widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
        lines = [
            "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(pairs))
            for pairs in (zip(row, widths, strict=True) for row in [head, *cells])
        ]
        said = [self.left_out]
        if self.readability.responses:
            said += [self.readability.summary(), self.readability.warning(self.records.task)]
        told = [each for each in said if each is not None]
        return "\n".join([self.title, *lines, *told, *self.remarks])

    @property
    def title(self) -> str:
        """What tables are headed with."""
        merged = ", equal expressions together" if self.records.task.equivalence else ""
        scored = ", best-of-n" if self.settings.scoring else ""
        questions = len(self.frontier.trajectories.question_ids)
        protocol = self.settings.protocol
        return f"{self.records.name}: {questions} questions, {protocol}{scored}{merged}"

    @property
    def remarks(self) -> list[str]:
        """What a table cannot say: how far its claims reach."""
        told = [self.sections["status"]] if "status" in self.sections else []
        told += self.headline.lines if self.headline else self.sections.get("outcome", ())
        if "controller" in self.sections:
            known = self.sections["controller"]
            told.append(f"{known['policy']}: {known['status']}")
            told += [f"{known['policy']}: {known['abroad']}"] if known["abroad"] else []
        if self.settings.scoring is not None:
            told.append(self.settings.scoring.told(self.truths))
        return [*told, *self._tell_money()]

    def _tell_money(self) -> list[str]:
        """What the policy to speak of saves in money, and what the figures leave out."""
        prices, point = self.settings.prices, _spoken(self.frontier)
        if prices is None:
            return []
        full = fixed_points(point.trajectories, weighted=point.weighted)[-1]
        fixed = point.kind is Kind.FIXED
        said = [explain_prices(prices), None if fixed else tell_saving(point, full, prices)]
        return [each for each in (*said, tell_unknown(point, prices)) if each is not None]


DEFAULT = "asc-0.95"
"""What is spoken of where nothing was learned: what the gateway does without a controller."""


def _spoken(frontier: Frontier) -> Point:
    """The policy to speak of: calibrated, deployed or the default, never the best one seen."""
    points = frontier.points
    chosen = [p for kind in (Kind.CALIBRATED, Kind.CONTROLLER) for p in points if p.kind is kind]
    chosen += [point for point in points if point.policy == DEFAULT]
    chosen += [point for point in points if point.kind is Kind.BASELINE]
    return (*chosen, *points)[0]


def evaluate_pool(
    records: Records,
    policies: Asked | Sequence[Policy],
    *,
    truths: Truths | None,
    settings: EvaluationSettings,
    controller: Controller | None = None,
    workers: Workers = SERIAL,
    track: Track = quiet,
) -> Evaluation:
    """Replay the policies; then add a controller, or learn and judge as the protocol says."""
    asked = policies if isinstance(policies, Asked) else Asked((*policies,))
    checkpoints = settings.schedule
    if checkpoints is None:
        checkpoints = records.schedule if controller is None else controller.schedule
    replayed: ReplaySettings | ScoredReplay
    replayed = ReplaySettings(records.task, checkpoints, truths, RULES[settings.rule])
    if settings.scoring is not None:
        replayed = settings.scoring.learner(records, truths).replaying(records.task, checkpoints)
    seen = _find_seen(controller, records, settings) if controller else []
    frontier = replayed.evaluate(records, asked.plain, workers=workers)
    made = Evaluation(
        records, settings, asked.plain, truths, frontier, controller=controller, workers=workers
    )
    if settings.scoring is not None:
        sections = {"best_of_n": settings.scoring.as_json(truths)}
        best = with_oracle(frontier, settings.scoring.price)
        made = replace(made, frontier=best, sections=sections)
    if controller is not None:
        made = _with_controller(made, controller, replayed, own=asked.own, seen=seen)
    elif settings.protocol != REPLAY:
        made = _with_protocol(made, checkpoints, workers=workers, track=track)
    return made


def _with_scoring(
    made: Evaluation, scoring: Scoring, schedule: Schedule, known: dict[str, Any]
) -> Evaluation:
    """Learn best-of-n and judge it: nested or holdout."""
    settings, seed = made.settings, made.settings.seed
    learner = scoring.learner(made.records, made.truths)
    table = learner.prepare(made.records, schedule=schedule, **known)
    if settings.protocol == NESTED:
        [judged] = nested(learner, table, [scoring.goal], seed=seed, **known)
    else:
        judged = holdout(learner, table, scoring.goal, seed=seed)
    frontier = with_oracle(judgement_frontier(judged, made.frontier.points), scoring.price)
    sections = scored_sections(judged, price=scoring.price, seed=seed)
    return replace(
        made,
        frontier=replace(frontier, readability=made.readability),
        sections={**made.sections, **sections},
        done=judged,
    )


def _with_protocol(
    made: Evaluation, schedule: Schedule, *, workers: Workers, track: Track
) -> Evaluation:
    """Learn and judge."""
    known: dict[str, Any] = {"workers": workers, "track": track}
    if made.settings.scoring is not None:
        return _with_scoring(made, made.settings.scoring, schedule, known)
    settings, truths = made.settings, made.truths
    if settings.by_paper:
        truths = need_truths(made.records, truths)
    learner = settings.learner(truths)
    table = learner.prepare(made.records, truths, schedule=schedule, **known)
    seed, given = settings.seed, made.frontier.points
    if settings.protocol == CROSSFIT:
        done = crossfit(learner, table, seed=seed, clean=settings.clean, **known)
        assert isinstance(table, PaperTable)
        frontier = crossfit_frontier(done, table, given, seed=seed)
        frontier = replace(frontier, readability=made.readability)
        sections = crossfit_sections(done, frontier, seed=seed)
        return replace(made, frontier=frontier, sections=sections, done=done)
    by_agreement = isinstance(learner, CrowdLearner)
    limit = limit_for(learner, settings.max_loss, settings.alpha, by_agreement=by_agreement)
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
    replayed: ReplaySettings | ScoredReplay,
    *,
    own: Sequence[Policy],
    seen: Sequence[str],
) -> Evaluation:
    """A controller's row, its own full budget and policies on its votes, beside plain votes."""
    policy: Policy = controller.policy
    [name] = name_policies([policy], weighted=gives_weights(controller.weigher))
    if isinstance(replayed, ReplaySettings):
        replayed = replace(replayed, weigher=controller.weigher)
        policy = Live.of(policy)  # as it answers people
    policies = [policy, Fixed(replayed.schedule.last), *own]
    judged = replayed.evaluate(made.records, policies, workers=made.workers).points
    point = replace(
        judged[0],
        policy=name.label,
        family=name.family,
        setting=name.setting,
        kind=Kind.CONTROLLER,
        in_sample=bool(seen),
    )
    frontier = made.frontier.with_point(judged[1]).with_point(point)
    for other in judged[2 : len(policies)]:
        if other.policy != point.policy:
            frontier = frontier.with_point(replace(other, in_sample=bool(seen)))
    status = f"in-sample: {len(seen)} questions were seen in training" if seen else "unseen"
    told: dict[str, Any] = {"policy": point.policy, "seen": len(seen), "status": status}
    told |= {"task": controller.task.name, "calibration": dict(controller.calibration)}
    told["abroad"] = find_abroad(controller, made.records)
    sections: dict[str, Any] = {**made.sections, "controller": told}
    scoring = made.settings.scoring
    if scoring is not None:
        seed = made.settings.seed
        sections["outcome"] = compare_utility(point, (), price=scoring.price, seed=seed)
    return replace(made, frontier=frontier, sections=sections)
