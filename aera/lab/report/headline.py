"""Headline: what an evaluation shows, in words, and how far that reaches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aera.lab.calibrating.calibration import Choice
from aera.lab.calibrating.families import GATE_FAMILY
from aera.lab.judging.bootstrap import Interval, Saving, bootstrap_ratio, paired_bootstrap
from aera.lab.judging.summary import SHOWN_THRESHOLD
from aera.lab.replay.frontier import Frontier, Kind, Point
from aera.solving.controller import Controller

DEFAULT = "asc-0.95"
"""Shown where nothing was learned: what the gateway does without a controller."""


@dataclass(frozen=True)
class Headline:
    """One policy, named before its result was seen, against the full budget."""

    policy: str
    claim: str
    grounds: str
    """The figures behind the claim."""
    status: str
    """Whether these questions test the policy or only describe it."""
    certified: bool
    certificate: str
    """Certified how, or why not."""


def headline_point(frontier: Frontier) -> Point:
    """The policy to speak of: calibrated, deployed or the default, never the best one seen."""
    points = frontier.points
    for kind in (Kind.CALIBRATED, Kind.CONTROLLER):
        chosen = [point for point in points if point.kind is kind]
        if chosen:
            return chosen[0]
    known = {point.policy: point for point in points}
    for label in (GATE_FAMILY.label(SHOWN_THRESHOLD), DEFAULT):
        if label in known:
            return known[label]
    plain = (Kind.FIXED, Kind.HINDSIGHT)
    return next((point for point in points if point.kind not in plain), points[0])


def make_headline(
    frontier: Frontier,
    evaluation: Mapping[str, Any],
    *,
    choices: Sequence[Choice] = (),
    controller: Controller | None = None,
    max_loss: float,
) -> Headline:
    """`choices` are those of the headline's policy, once per fold."""
    point = headline_point(frontier)
    full, seed = frontier.full_budget(), int(evaluation["seed"])
    saving = _saving(point, full, seed=seed)
    price = f"{100 - saving.percent:.0f} % of the {'tokens' if full.tokens else 'responses'}"
    spent = (
        f"{price}, 95 % [{100 - saving.high:.1f}, {100 - saving.low:.1f}], "
        f"{point.responses:.1f} responses per question"
    )
    if not point.graded:
        same = f"{point.agreement:.1f} % of the answers equal those of {full.policy}"
        why = "Not certified, because there are no right answers to measure a loss with."
        told = f"{point.policy}: {spent}."
        return Headline(point.policy, f"{same}, for {price}", told, "dry run", False, why)
    gap = paired_bootstrap(100 * point.scores, 100 * full.scores, seed=seed)
    grounds = (
        f"{point.policy}: {point.accuracy:.2f} % right, {full.policy}: {full.accuracy:.2f} %; "
        f"difference {gap.difference:+.2f} points, 95 % [{gap.low:+.2f}, {gap.high:+.2f}]; {spent}."
    )
    certified, certificate = _certificate(evaluation, choices, controller)
    kept = not np.any(point.columns != full.columns)
    claim = (
        "The full budget is kept, so nothing is saved"
        if kept
        else f"{_compare(gap, 100 * max_loss)} for {price}"
    )
    status = _status(point)
    return Headline(point.policy, claim, grounds, status, certified, certificate)


def _status(point: Point) -> str:
    if point.kind is Kind.CONTROLLER:
        return "in-sample" if point.in_sample else "a test on unseen questions"
    return "a test on questions kept apart" if point.kind is Kind.CALIBRATED else "descriptive"


def _saving(point: Point, full: Point, *, seed: int) -> Saving:
    """In tokens; in responses where the pool does not know its tokens."""
    if full.tokens:
        return bootstrap_ratio(point.spent, full.spent, seed=seed)
    return bootstrap_ratio(point.counts, full.counts, seed=seed)


def _compare(gap: Interval, allowed: float) -> str:
    """The difference as far as its interval lets one speak of it."""
    if gap.low > 0:
        return f"{gap.difference:.1f} points more accuracy"
    if gap.low >= -allowed and gap.high >= 0:
        return f"The same accuracy, within {allowed:g} points,"
    if gap.low >= -allowed:
        return f"{-gap.difference:.1f} points less accuracy, within the {allowed:g} allowed,"
    if gap.high < 0:
        return f"{-gap.difference:.1f} points less accuracy"
    lower = f"{-gap.difference:.1f} points lower" if gap.difference < 0 else "No lower"
    return f"{lower} on these questions, with up to {-gap.low:.1f} points less not ruled out,"


def _certificate(
    evaluation: Mapping[str, Any],
    choices: Sequence[Choice],
    controller: Controller | None,
) -> tuple[bool, str]:
    """Whether a bound was proved on questions apart from those judged, and if not, why."""
    if choices:
        return _certify_choices(choices)
    if controller is not None:
        return _certify_controller(controller, evaluation)
    if evaluation["protocol"] == "crossfit":
        return False, (
            "Not certified, because crossfit is descriptive: the gate never saw the question it "
            "judges, but its threshold was not chosen on other questions."
        )
    return False, (
        "Not certified, because nothing was calibrated: policies were replayed as given, and "
        "picking the best of them afterwards is descriptive only."
    )


def _certify_choices(choices: Sequence[Choice]) -> tuple[bool, str]:
    failed = [choice for choice in choices if not choice.feasible]
    first, folds = choices[0], len(choices)
    where = f" in {len(failed)} of {folds} folds" if folds > 1 else ""
    if failed:
        return False, f"Not certified, because{where} {_lower(failed[0].summary)}."
    limit = f"{100 * first.max_loss:g} points"
    if first.alpha is None:
        return False, (
            f"Not certified, because no certificate was asked for (--certify 0.1): the setting is "
            f"the cheapest that lost at most {limit} on {first.questions} calibration "
            f"questions{first.safely}."
        )
    each = " in each fold" if folds > 1 else ""
    return True, (
        f"Certified: P(loss ≤ {limit}) ≥ {100 * (1 - first.alpha):g} %, proved on "
        f"{first.questions} calibration questions{each} that are not judged here."
    )


def _certify_controller(controller: Controller, evaluation: Mapping[str, Any]) -> tuple[bool, str]:
    """A finished controller brings its certificate along, for questions like its own."""
    known, calibration = evaluation["controller"], controller.calibration
    said = calibration.get("summary") or calibration.get("verdict")  # as older versions called it
    summary = str(said or "its calibration left no summary")
    own, here = controller.task.name, evaluation["pool"]["task"]
    if known["seen"]:
        return False, f"Not certified, because this is {known['status']}: {summary}."
    if own != here:
        return False, f"Not certified, because it was calibrated for {own}, and this is {here}."
    if not calibration.get("feasible") or calibration.get("alpha") is None:
        return False, f"Calibrated, not certified: {_lower(summary)}."
    return True, (
        f"Certified when it was calibrated, for questions and a reasoner like those: {summary}."
    )


def _lower(summary: str) -> str:
    return summary.replace("NOT FEASIBLE: ", "")
