"""An evaluation as a file: points, comparisons, and what else a protocol has to say."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from math import isfinite
from types import MappingProxyType
from typing import Any

import numpy as np

from aera.arrays import Columns
from aera.lab.calibrating.families import ASC_FAMILY, GATE_FAMILY
from aera.lab.judging.bootstrap import (
    bootstrap_ratios,
    compare_pairs,
    matched_random,
    paired_bootstrap,
)
from aera.lab.judging.diagnostics import (
    collapsing,
    counter_examples,
    loss_by_difficulty,
    on_subset,
    residual_opportunity,
    worst_group,
)
from aera.lab.judging.difference import paired_gaps
from aera.lab.judging.headline import SHOWN_THRESHOLD, changed_gap, make_headline
from aera.lab.judging.protocols import CrossFit, Judgement
from aera.lab.learning.paper import PaperTable
from aera.lab.replay.frontier import Frontier, Kind, Point, hindsight_point
from aera.lab.replay.hindsight import oracle, shuffle
from aera.lab.replay.money import PLAIN, Terms
from aera.lab.replay.trajectory import Trajectories
from aera.policies.rules import ASC
from aera.pools.pool import Records


def summarize(
    frontier: Frontier,
    records: Records,
    *,
    protocol: str,
    seed: int,
    sections: Mapping[str, Any] = MappingProxyType({}),
    max_loss: float = 0.02,
    terms: Terms = PLAIN,
) -> dict[str, Any]:
    """The evaluation JSON. Accuracies, savings and differences are in percent, rewards are not.

    With prices in the terms, every point has its money for a thousand questions.
    """
    trajectories = frontier.trajectories
    graded = trajectories.grades is not None
    right = graded and not trajectories.rewarded
    task = records.task.name
    said: dict[str, Any] = {}
    if terms.price is None:  # best-of-n compares utilities, and has sentences of its own
        headline = make_headline(
            frontier, protocol=protocol, task=task, sections=sections, max_loss=max_loss
        )
        said["headline"] = headline.as_json()
    made = {
        "pool": {
            "name": records.name,
            "task": task,
            "equivalence": records.task.equivalence,
            "questions": len(trajectories.question_ids),
            "schedule": list(trajectories.schedule),
        },
        "readability": frontier.readability.as_json(),
        "protocol": protocol,
        "seed": seed,
        **({} if terms.prices is None else {"prices": terms.prices.as_json()}),
        **said,
        "points": [point.as_json(terms) for point in frontier.points],
        "comparisons": comparisons(frontier, seed=seed) if graded else [],
        "trajectories": _shapes(trajectories) if right else None,
        **sections,
    }
    return {name: _strict(section) for name, section in made.items()}


def _strict(value: Any) -> Any:
    """Null for the mean of nothing, for which JSON has no number."""
    if isinstance(value, dict):
        return {name: _strict(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_strict(part) for part in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def comparisons(frontier: Frontier, *, seed: int, resamples: int = 20_000) -> list[dict[str, Any]]:
    """Every point against fixed budgets and its own; the gate's points against every baseline.

    Intervals are those of the headline, so that two of the same pair are one.
    """
    points = frontier.points
    plain = {i for i, p in enumerate(points) if p.kind is Kind.FIXED and not p.weighted}
    learned = {i for i, point in enumerate(points) if point.family == GATE_FAMILY.name}
    own = {weighted: frontier.full_budget(weighted=weighted).policy for weighted in (False, True)}
    pairs = [
        (i, j)
        for i in range(len(points))
        for j in range(len(points))
        if i != j
        and (
            j in plain
            or points[j].policy == own[points[i].weighted]
            or (i in learned and j not in learned)
        )
    ]
    if not pairs:
        return []
    rewarded = frontier.trajectories.rewarded
    scores = np.array([(1 if rewarded else 100) * point.scores for point in points])
    found = compare_pairs(scores, pairs, resamples=resamples, seed=seed)
    told = [
        {"policy": points[i].policy, "reference": points[j].policy, **asdict(interval)}
        for (i, j), interval in zip(pairs, found, strict=True)
    ]
    if rewarded:  # rewards are no shares of questions
        return told
    gaps = paired_gaps(np.array([points[i].scores - points[j].scores for i, j in pairs]))
    return [{**row, "low": gap.low, "high": gap.high} for row, gap in zip(told, gaps, strict=True)]


def _shapes(trajectories: Trajectories) -> dict[str, Any]:
    return {
        "shapes": trajectories.shapes(),
        "transitions": [asdict(row) for row in trajectories.transitions()],
        "counter_examples": [asdict(row) for row in counter_examples(trajectories)],
    }


# --- what crossfit, nested and holdout add --------------------------------------------------------


def crossfit_frontier(
    done: CrossFit, table: PaperTable, points: Sequence[Point], *, seed: int
) -> Frontier:
    """Given policies, the gate's whole sweep, one-shot, and every other sweep, post hoc."""
    trajectories, one_shot = done.trajectories, done.one_shot()
    given = [point for point in points if point.kind is not Kind.HINDSIGHT]
    sweeps = [point for name in table.families for point in table.sweep(name)]
    dealt = shuffle(done.at(SHOWN_THRESHOLD).columns, done.folds, seed=seed)
    learned = [
        *done.sweep(),
        *([] if one_shot is None else [one_shot]),
        hindsight_point("matched-random", dealt, trajectories),
        hindsight_point("oracle", oracle(trajectories), trajectories),
    ]
    return Frontier(_distinct([*given, *sweeps, *learned]), trajectories)


def _distinct(points: Sequence[Point]) -> tuple[Point, ...]:
    """Each label once; sweeps and the standard list overlap."""
    found: dict[str, Point] = {}
    for point in points:
        found.setdefault(point.policy, point)
    return tuple(found.values())


def crossfit_sections(done: CrossFit, frontier: Frontier, *, seed: int) -> dict[str, Any]:
    """Mixtures of ASC at equal compute, matched-random tests, and the hindsight diagnostics."""
    shown = done.at(SHOWN_THRESHOLD)
    return {
        "status": "descriptive: thresholds and sweeps are shown, picking from them is post hoc",
        "mixtures": [_mixture_row(point, frontier, seed=seed) for point in done.sweep()],
        "matched_random": [
            _matched_row(point, done.folds, seed=seed) for point in done.sweep()
        ],
        "diagnostics": diagnostics(shown, frontier, seed=seed),
    }  # fmt: skip


def _mixture_row(point: Point, frontier: Frontier, *, seed: int) -> dict[str, Any]:
    """The gate against the best mixture of ASC settings that costs no more."""
    mixture = frontier.only(ASC_FAMILY.name).mixture(point.responses)
    if mixture is None:
        return {"policy": point.policy, "responses": point.responses, "accuracy": None}
    pair = paired_bootstrap(100 * point.scores, 100 * mixture.scores, seed=seed)
    return {
        "policy": point.policy,
        "responses": point.responses,
        "accuracy": mixture.accuracy,
        "parts": [part.policy for part in mixture.parts],
        **asdict(pair),
    }


def _matched_row(point: Point, folds: Columns, *, seed: int) -> dict[str, Any]:
    grades = point.trajectories.known_grades
    test = matched_random(100 * grades, point.columns, folds=folds, seed=seed)
    return {"policy": point.policy, **asdict(test)}


def diagnostics(point: Point, frontier: Frontier, *, seed: int) -> dict[str, Any]:
    """When the gate helps: residual opportunity, the collapse subset, loss by difficulty."""
    scores = point.trajectories.known_grades
    members = collapsing(point.trajectories)
    asc = [other for other in frontier.points if other.policy == str(ASC(0.95))]
    subset = on_subset(point, asc[0], members, seed=seed) if asc else None
    difficulty = loss_by_difficulty(point)
    return {
        "policy": point.policy,
        "residual_opportunity": [asdict(row) for row in residual_opportunity(point, scores)],
        "collapse_subset": {
            "questions": int(members.sum()),
            "against_asc": asdict(subset) if subset else None,
        },
        "loss_by_difficulty": [asdict(row) for row in difficulty],
        "worst_group": worst_group(difficulty).group,
    }


def judgement_frontier(done: Judgement, points: Sequence[Point] = ()) -> Frontier:
    """Given policies, every calibrated family, and the gate's sweep, on the judged questions."""
    given = [
        replace(p, columns=p.columns[done.rows], trajectories=p.trajectories.subset(done.rows))
        for p in points
        if p.kind is not Kind.HINDSIGHT
    ]
    kept = [*done.fixed(), *given, *done.points(), *done.sweep()]
    if done.trajectories.grades is not None:
        kept.append(hindsight_point("oracle", oracle(done.trajectories), done.trajectories))
    return Frontier(_distinct(kept), done.trajectories)


def judgement_sections(done: Judgement, frontier: Frontier, *, seed: int) -> dict[str, Any]:
    """What calibration chose, whether routing is real, and the token savings with intervals."""
    points, graded = done.points(), done.trajectories.grades is not None
    spent = np.array([point.spent for point in points])
    savings = bootstrap_ratios(spent, done.trajectories.tokens[:, -1], seed=seed)
    return {
        "status": "confirmatory for the calibrated rows only; sweeps are post hoc",
        "calibration": {
            name: [{**asdict(choice), "summary": choice.summary} for choice in choices]
            for name, choices in done.choices.items()
        },
        "mixtures": [_mixture_row(point, frontier, seed=seed) for point in points[:graded]],
        "matched_random": [
            _matched_row(point, done.folds, seed=seed) for point in (points if graded else ())
        ],
        "changed": [{"policy": point.policy, **asdict(changed_gap(point))} for point in points],
        "savings": [
            {"policy": point.policy, "family": point.family, **asdict(saving)}
            for point, saving in zip(points, savings, strict=True)
        ],
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
