"""Evaluation: how it was asked for, what came out, and how files and tables show it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import permutations
from math import isfinite
from typing import Any

import numpy as np

from aera.arrays import Columns
from aera.errors import UsageError
from aera.files import Json
from aera.lab.calibrating.calibration import MostUtility
from aera.lab.calibrating.families import ASC_FAMILY, GATE_FAMILY, answer_families
from aera.lab.diagnostics import (
    collapsing,
    counter_examples,
    loss_by_difficulty,
    residual_opportunity,
    worst_group,
)
from aera.lab.frontier import (
    Frontier,
    Kind,
    Point,
    Prices,
    Trajectories,
    fixed_points,
    hindsight_point,
    oracle_point,
    shuffle,
)
from aera.lab.judging import Judgement
from aera.lab.learning.votes import SCORE, SCORES, VoteLearner
from aera.lab.replay import Dataset
from aera.lab.stats import (
    matched_random,
    paired_bootstrap,
    paired_bootstraps,
    paired_gaps,
    saved_share,
)
from aera.lab.truths import Truths
from aera.lab.words import (
    CAREFUL,
    NONE_RIGHT,
    SHOWN_THRESHOLD,
    Headline,
    certify,
    certify_controller,
    changed_gap,
    headline_point,
    remark,
    shown_points,
    table_columns,
    tell_money,
    uncertified,
)
from aera.policies.rules import Policy, standard_policies
from aera.pools.pool import Records
from aera.reading.task import Readability
from aera.solving.controller import Controller
from aera.voting.rules import BestOfN, Scorer
from aera.workers import SERIAL, Workers

REPLAY, CROSSFIT, NESTED, HOLDOUT = "replay", "crossfit", "nested", "holdout"
MOST_STOPS = 8
"""Checkpoints up to which a table has a column for each."""


def scoring_for(
    scorer: Scorer | None,
    *,
    price: float | None = None,
    judge: str | None = None,
    controller: Controller | None = None,
) -> VoteLearner | None:
    """Who learns from scores, where there is a scorer or a controller brings one; else None."""
    own = controller.weigher if controller else None
    if controller and scorer is not None and not isinstance(own, BestOfN):
        raise UsageError("the controller was made for votes and takes no scorer")
    if controller and isinstance(own, BestOfN):
        scorer = own.scorer
        price = controller.calibration.get("price") if price is None else price
    if scorer is None:
        if price is not None or judge is not None:
            raise UsageError("--price and --judge go with --scorer: votes have no reward")
        return None
    asked = VoteLearner(SCORES, best_of_n=BestOfN(scorer), judge=judge)
    return asked if price is None else replace(asked, price=price)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What came out."""

    records: Records
    protocol: str
    policies: Sequence[Policy]
    """Those that were replayed as given."""
    truths: Truths | None
    frontier: Frontier
    rule: str = "vote"
    max_loss: float = 0.02
    seed: int = 0
    prices: Prices | None = None
    """Of tokens; with them every policy's cost is told in money."""
    scoring: VoteLearner | None = None
    """Best-of-n; None where answers are voted on."""
    done: Judgement | None = None
    """What crossfit, nested or holdout learned, and how it judged."""
    controller: Controller | None = None
    seen: int = 0
    """How many of the questions the controller was trained on."""
    abroad: str | None = None
    """What a controller would say that was brought to a pool it does not know."""
    workers: Workers = SERIAL
    left_out: str | None = None
    """Which questions could not be judged, and why."""

    @property
    def readability(self) -> Readability:
        """Which share of the responses could be read."""
        return self.frontier.readability

    @property
    def terms(self) -> Json:
        """What spending is counted in besides tokens."""
        return {"prices": self.prices, "price": self.scoring and self.scoring.price}

    @cached_property
    def summary(self) -> Json:
        """The evaluation JSON. Accuracies, savings and differences are in percent, rewards are not.

        With prices every point has its money for a thousand questions.
        """
        trajectories, task = self.frontier.trajectories, self.records.task
        graded = trajectories.grades is not None
        made = {
            "pool": {
                "name": self.records.name,
                "task": task.name,
                "equivalence": task.equivalence,
                "questions": len(trajectories.question_ids),
                "schedule": list(trajectories.schedule),
            },
            "readability": self.readability.as_json(),
            "protocol": self.protocol,
            "seed": self.seed,
            "prices": self.prices and asdict(self.prices),
            "headline": self.headline,
            "points": [point.as_json(**self.terms) for point in self.frontier.points],
            "comparisons": comparisons(self.frontier, seed=self.seed) if graded else [],
            "trajectories": {
                "shapes": trajectories.shapes(),
                "transitions": trajectories.transitions(),
                "counter_examples": counter_examples(trajectories),
            }
            if graded and not trajectories.rewarded
            else None,
            "best_of_n": self.scoring and about_scoring(self.scoring, self.truths),
            "outcome": self.outcome,
            "controller": self.controller and about_controller(self, self.controller),
            **(about_judgement(self, self.done) if self.done else {}),
        }
        # What was not asked for is not there; trajectories are null without truths.
        known = {n: each for n, each in made.items() if each is not None or n == "trajectories"}
        return {name: _strict(section) for name, section in known.items()}

    @cached_property
    def headline(self) -> Json | None:
        """What it shows, in words: the same in the summary, on a terminal and on a page.

        Best-of-n compares utilities, and has sentences of its own.
        """
        if self.scoring is not None:
            return None
        choices = next(iter(self.done.choices.values()), ()) if self.done else ()
        if choices:
            told = certify(choices, " and that are not judged here")
        elif self.controller is not None:
            task = self.records.task.name
            told = certify_controller(self.controller, seen=self.seen, task=task)
        else:
            graded = self.frontier.trajectories.grades is not None
            told = uncertified(self.protocol, graded=graded)
        by_agreement = any(choice.by_agreement for choice in choices)
        return Headline(self.frontier, *told, self.allowed, by_agreement).as_json()

    @property
    def allowed(self) -> float:
        """Points that may be lost: what a controller was calibrated for, else what is asked."""
        known = self.controller.calibration if self.controller else {}
        return 100 * float(known.get("max_loss", self.max_loss))

    @cached_property
    def outcome(self) -> list[str] | None:
        """What best-of-n was worth, where something was calibrated or a controller judged."""
        point = headline_point(self.frontier)
        if self.scoring is None or point.kind not in (Kind.CALIBRATED, Kind.CONTROLLER):
            return None
        others = self.done.points()[1:] if self.done else ()
        return compare_utility(point, others, price=self.scoring.price, seed=self.seed)

    def rows(self) -> list[Json]:
        """One row per policy, as pandas and polars take them."""
        return [
            {name: value for name, value in row.items() if name != "stops"}
            for row in (point.as_json(**self.terms) for point in self.frontier.points)
        ]

    @property
    def spoken(self) -> str:
        """The policy that is spoken of."""
        return headline_point(self.frontier).policy

    @property
    def shown(self) -> list[Point]:
        """The rows of a table: at most five, and whatever else somebody asked for."""
        schedule = self.frontier.trajectories.schedule
        usual = {str(policy) for policy in standard_policies(schedule)}
        given = {str(policy) for policy in self.policies}
        asked = set() if given == usual else given
        if self.controller is not None:
            full = self.frontier.full_budget(weighted=True).policy
            asked |= {p.policy for p in self.frontier.points if p.weighted} - {full}
        return shown_points(self.frontier, asked)

    def table(self, *, whole: bool = False) -> list[list[str]]:
        """Rows of cells, headings first: some policies with remarks, or all of them with more.

        That is the paper's score, and how many questions stopped where.
        """
        means = whole and self.prices is None
        columns = table_columns(self.frontier.trajectories, means=means, **self.terms)
        points = self.frontier.without_sweeps().points if whole else self.shown
        if whole:
            stops = list(points[0].stops)
            columns |= {f"@{s}": partial(_stopped, s) for s in stops if len(stops) <= MOST_STOPS}
        else:
            columns["what it is"] = remark
        return [[*columns], *([cell(point) for cell in columns.values()] for point in points)]

    def __repr__(self) -> str:
        names, *numbers, notes = zip(*self.table(), strict=True)
        aligned = [[name.ljust(max(map(len, names))) for name in names]]
        aligned += [[cell.rjust(max(map(len, column))) for cell in column] for column in numbers]
        lines = map("  ".join, zip(*aligned, notes, strict=True))
        first, *others = self.remarks
        return "\n".join([first, "", *map(str.rstrip, lines), "", *others])

    @property
    def title(self) -> str:
        """What was judged how."""
        merged = ", equal expressions together" if self.records.task.equivalence else ""
        scored = ", best-of-n" if self.scoring else ""
        truths = "" if self.frontier.trajectories.grades is not None else ", no truths"
        questions = len(self.frontier.trajectories.question_ids)
        protocol = self.protocol
        return f"{self.records.name}: {questions} questions, {protocol}{scored}{merged}{truths}"

    @property
    def remarks(self) -> list[str]:
        """The headline, and what else a table cannot say: how far its claims reach."""
        task = self.records.task
        told = [*(self.headline["lines"] if self.headline else self.outcome or ())]
        told += [f"{self.title}.", *([self.left_out] if self.left_out else ())]
        if self.readability.responses:
            warning = self.readability.warning(task)
            told += [f"{self.readability.summary(task)}.", *([warning] if warning else ())]
        if self.truths is not None and not any(point.accuracy for point in self.frontier.points):
            told.append(NONE_RIGHT)
        if self.abroad:
            told.append(f"{self.spoken}: {self.abroad}")
        if self.scoring is not None:
            told.append(tell_rewards(self.scoring, self.truths))
        if self.prices is not None:
            told += tell_money(headline_point(self.frontier), self.prices)
        return told


def _stopped(checkpoint: str, point: Point) -> str:
    return str(point.stops[checkpoint] or "·")


def _strict(value: Any) -> Any:
    """Null for the mean of nothing, for which JSON has no number."""
    if isinstance(value, dict):
        return {name: _strict(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_strict(part) for part in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def comparisons(frontier: Frontier, *, seed: int) -> list[Json]:
    """Every point against fixed budgets and its own; the gate's points against every baseline.

    Intervals are those of the headline, so that two of the same pair are one.
    """
    own = {weighted: frontier.full_budget(weighted=weighted).policy for weighted in (False, True)}

    def compared(point: Point, other: Point) -> bool:
        plain = other.kind is Kind.FIXED and not other.weighted
        learned = point.family == GATE_FAMILY.name != other.family
        return plain or learned or other.policy == own[point.weighted]

    pairs = [pair for pair in permutations(frontier.points, 2) if compared(*pair)]
    if not pairs:
        return []
    apart = np.array([point.scores - other.scores for point, other in pairs])
    # Rewards are no shares of questions.
    rewarded = frontier.trajectories.rewarded
    found = paired_bootstraps(apart, seed=seed) if rewarded else paired_gaps(apart)
    return [
        {"policy": point.policy, "reference": other.policy, **gap.as_json("difference")}
        for (point, other), gap in zip(pairs, found, strict=True)
    ]


# --- what a controller, and crossfit, nested and holdout add --------------------------------------


def about_controller(made: Evaluation, controller: Controller) -> Json:
    """What is known of a controller that was finished before."""
    seen = f"in-sample: {made.seen} questions were seen in training"
    return {
        "policy": made.spoken,
        "seen": made.seen,
        "status": seen if made.seen else "unseen",
        "task": controller.task.name,
        "calibration": dict(controller.calibration),
        "abroad": made.abroad,
    }


def with_judgement(made: Evaluation, done: Judgement, table: Any) -> Evaluation:
    """The same with what a protocol learned, beside the given policies on the judged questions.

    After crossfit that is the gate's whole sweep, one-shot, and every other sweep, post hoc;
    otherwise every calibrated family at the setting that calibration chose.
    """
    known, points = done.trajectories, list[Point]()
    for point in (p for p in made.frontier.points if p.kind is not Kind.HINDSIGHT):
        seen = point.trajectories.take(done.rows)
        points.append(replace(point, ends=point.columns[done.rows], seen=seen))
    if isinstance(table, Dataset) and made.scoring is None:
        plain = table.replay(done.rows)
        points = [_in_orders(point, plain) for point in points]
    if made.protocol == CROSSFIT:
        once = done.one_shot()
        dealt = shuffle(done.at(SHOWN_THRESHOLD).columns, done.folds, seed=made.seed)
        points += [point for name in table.families for point in table.sweep(name)]
        points += [*done.sweep(), *([once] if once else ())]
        points.append(hindsight_point("matched-random", dealt, known))
    else:
        points = [*done.fixed(), *points, *done.points(), *done.sweep()]
    if known.grades is not None:
        points.append(oracle_point(done.measured))
    distinct = dict[str, Point]()  # sweeps and the standard list overlap
    for point in points:
        distinct.setdefault(point.policy, point)
    frontier = Frontier(tuple(distinct.values()), known, made.readability)
    if made.scoring is not None:
        frontier = with_oracle(frontier, made.scoring.price)
    return replace(made, frontier=frontier, done=done)


def about_judgement(made: Evaluation, done: Judgement) -> Json:
    """What calibration chose and saved, and whether the routing is real."""
    seed, graded = made.seed, done.trajectories.grades is not None
    if made.protocol == CROSSFIT:
        status = "descriptive: thresholds and sweeps are shown, picking from them is post hoc"
        tested, told = done.sweep(), Json(status=status)
        told["diagnostics"] = diagnostics(done.at(SHOWN_THRESHOLD), made.frontier, seed=seed)
        mixed = tested
    else:
        judged, full = done.points(), done.fixed()[-1].spent
        told = {
            "status": "confirmatory for the calibrated rows only; sweeps are post hoc",
            "calibration": {
                name: [choice.as_json() for choice in choices]
                for name, choices in done.choices.items()
            },
            "savings": [
                {
                    "policy": point.policy,
                    "family": point.family,
                    **saved_share(point.spent, full).as_json("percent"),
                }
                for point in judged
            ],
        }
        if made.scoring is not None:
            return told
        told["changed"] = [
            {"policy": point.policy, **changed_gap(point).as_json("difference")} for point in judged
        ]
        tested = judged if graded else []
        mixed = tested[:1]
    told["mixtures"] = [_mixture_row(point, made.frontier, seed=seed) for point in mixed]
    told["matched_random"] = [_matched_row(point, done.folds, seed=seed) for point in tested]
    return told


def _in_orders(point: Point, seen: Trajectories) -> Point:
    """A policy on plain votes in every order of the responses, as those beside it are judged.

    One that is more than a setting of a family keeps the stored order.
    """
    family = {each.name: each for each in answer_families()}.get(point.family)
    if point.kind is Kind.FIXED:
        ends = np.broadcast_to(point.columns[:, None], seen.tokens.shape[:2])
    elif family is not None and point.setting is not None:
        ends = family.stops(seen.values[family.name], point.setting)
    else:
        return point
    alike = np.array_equal(ends[:, 0], point.columns)
    return replace(point, ends=ends, seen=seen) if alike else point


def _mixture_row(point: Point, frontier: Frontier, *, seed: int) -> Json:
    """The gate against the best mixture of ASC settings that costs no more."""
    mixture = frontier.only(ASC_FAMILY.name).mixture(point.responses)
    told = {"policy": point.policy, "responses": point.responses, "accuracy": None}
    if mixture is None:
        return told
    pair = paired_bootstrap(100 * point.scores, 100 * mixture.scores, seed=seed)
    parts = [part.policy for part in mixture.parts]
    return {**told, "accuracy": mixture.accuracy, "parts": parts, **pair.as_json("difference")}


def _matched_row(point: Point, folds: Columns, *, seed: int) -> Json:
    """The gate against its own stops, dealt to other questions."""
    grades = 100 * point.trajectories.known_grades
    return {
        "policy": point.policy,
        **matched_random(grades, point.columns, folds=folds, seed=seed),
    }


def diagnostics(point: Point, frontier: Frontier, *, seed: int) -> Json:
    """When the gate helps: residual opportunity, the collapse subset, loss by difficulty."""
    scores = point.trajectories.known_grades
    members = collapsing(point.trajectories)
    difficulty, subset = loss_by_difficulty(point), None
    for asc in (p for p in frontier.points if p.policy == CAREFUL and members.any()):
        ours, theirs = (100 * each.scores[members] for each in (point, asc))
        subset = paired_bootstrap(ours, theirs, seed=seed).as_json("difference")
    return {
        "policy": point.policy,
        "residual_opportunity": residual_opportunity(point, scores),
        "collapse_subset": {"questions": int(members.sum()), "against_asc": subset},
        "loss_by_difficulty": difficulty,
        "worst_group": worst_group(difficulty)["group"],
    }


def log_evaluation(
    evaluation: Mapping[str, Any], log: Callable[[dict[str, float]], object], *, prefix: str = ""
) -> dict[str, float]:
    """Log every figure of every point as one flat dictionary, and return it.

    `log` is `wandb.log`, `mlflow.log_metrics`, `trackio.log` or any other function that takes
    names and numbers; names are `policy/figure`.
    """
    figures = {
        f"{prefix}{point['policy']}/{name}": float(value)
        for point in evaluation["points"]
        for name, value in point.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    log(figures)
    return figures


# --- best-of-n ------------------------------------------------------------------------------------


def about_scoring(learner: VoteLearner, truths: Truths | None) -> Json:
    """Best-of-n as it was asked for."""
    assert learner.best_of_n is not None
    scorer = type(learner.best_of_n.scorer).__name__
    return {"scorer": scorer, "judge": learner.judged_by(truths), "price": learner.price}


def tell_rewards(learner: VoteLearner, truths: Truths | None) -> str:
    """How rewards came about, in one sentence."""
    asked = about_scoring(learner, truths)
    worth = (
        "the reward is its score"
        if asked["judge"] == SCORE
        else "the truth is the judge: 1 where it is right, else 0"
    )
    return (
        f"best-of-n: {asked['scorer']} picks the response, and {worth}; utility is the reward "
        f"minus {learner.price:g} times the share of the full budget's tokens"
    )


def with_oracle(frontier: Frontier, price: float) -> Frontier:
    """With what hindsight could have had: the checkpoint worth most, question by question."""
    worth = MostUtility(price).utility(frontier.trajectories)
    columns: Columns = np.argmax(worth, axis=1)
    return frontier.with_point(hindsight_point("oracle", columns, frontier.trajectories))


def compare_utility(point: Point, others: Sequence[Point], *, price: float, seed: int) -> list[str]:
    """What a policy is worth over the full budget, the best fixed one in hindsight, and others."""
    fixed = fixed_points(point.trajectories)
    best = max(fixed, key=lambda each: each.utility(price))
    named = {other.policy: (other, "") for other in (fixed[-1], *others)}
    named[best.policy] = (best, ", the best fixed budget in hindsight")
    lines = []
    for other, why in named.values():
        gap = paired_bootstrap(point.worth(price), other.worth(price), seed=seed)
        lines.append(
            f"{point.policy}: utility {gap.value:+.3f} against {other.policy}{why}, 95 % "
            f"[{gap.low:+.3f}, {gap.high:+.3f}]"
        )
    return lines
