"""Headline: what an evaluation shows, in words, and how far that reaches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aera.controller import Controller
from aera.lab.bootstrap import Interval, Saving, bootstrap_ratio, paired_bootstrap
from aera.lab.calibration import Choice
from aera.lab.dials import GATE
from aera.lab.frontier import Frontier, Point
from aera.lab.summary import SHOWN_THRESHOLD

DEFAULT = "asc-0.95"
"""Shown where nothing was learned: what the gateway does without a controller."""


@dataclass(frozen=True)
class Headline:
    """One policy, named before its result was seen, against the full budget."""

    policy: str
    claim: str
    grounds: str
    """The figures behind the claim."""
    standing: str
    """Whether these questions test the policy or only describe it."""
    certified: bool
    certificate: str
    """Certified how, or why not."""


def headline_policy(frontier: Frontier, evaluation: Mapping[str, Any]) -> str:
    """The policy to speak of: calibrated, deployed or the default, never the best one seen."""
    labels = [point.policy for point in frontier.points]
    if "calibration" in evaluation:
        return f"{next(iter(evaluation['calibration']))}-calibrated"
    if "controller" in evaluation:
        return str(evaluation["controller"]["policy"])
    adaptive = [label for label in labels if not label.startswith(("fixed-", "oracle"))]
    wanted = (GATE.label(SHOWN_THRESHOLD), DEFAULT, *adaptive, *labels)
    return next(label for label in wanted if label in labels)


def full_budget(frontier: Frontier) -> Point:
    """Every question at the last checkpoint, whether or not that policy was asked for.

    Where votes have learned weights, the plain full budget is the one that people know.
    """
    trajectories = frontier.trajectories
    label = f"fixed-{trajectories.schedule.last}"
    for point in frontier.points:
        if point.policy == label:
            return point
    columns = np.full(len(trajectories.question_ids), len(trajectories.schedule) - 1)
    return Point(label, columns, trajectories)


def make_headline(
    frontier: Frontier,
    evaluation: Mapping[str, Any],
    *,
    choices: Sequence[Choice] = (),
    controller: Controller | None = None,
    max_loss: float,
) -> Headline:
    """`choices` are the headline dial's, once per fold."""
    point = frontier[headline_policy(frontier, evaluation)]
    full, seed = full_budget(frontier), int(evaluation["seed"])
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
        else f"{_compared(gap, 100 * max_loss)} for {price}"
    )
    standing = _standing(point, evaluation)
    return Headline(point.policy, claim, grounds, standing, certified, certificate)


def _standing(point: Point, evaluation: Mapping[str, Any]) -> str:
    controller = evaluation.get("controller")
    if controller is not None and point.policy == controller["policy"]:
        return "in-sample" if controller["seen"] else "a test on unseen questions"
    if point.status == "calibrated":
        return "a test on questions kept apart"
    return "descriptive"


def _saving(point: Point, full: Point, *, seed: int) -> Saving:
    """In tokens; in responses where the pool does not know its tokens."""
    if full.tokens:
        return bootstrap_ratio(point.spent, full.spent, seed=seed)
    return bootstrap_ratio(point.counts, full.counts, seed=seed)


def _compared(gap: Interval, allowed: float) -> str:
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
        return _chosen(choices)
    if controller is not None:
        return _deployed(controller, evaluation)
    if evaluation["protocol"] == "crossfit":
        return False, (
            "Not certified, because crossfit is descriptive: the gate never saw the question it "
            "judges, but its threshold was not chosen on other questions."
        )
    return False, (
        "Not certified, because nothing was calibrated: policies were replayed as given, and "
        "picking the best of them afterwards is descriptive only."
    )


def _chosen(choices: Sequence[Choice]) -> tuple[bool, str]:
    failed = [choice for choice in choices if not choice.feasible]
    first, folds = choices[0], len(choices)
    where = f" in {len(failed)} of {folds} folds" if folds > 1 else ""
    if failed:
        return False, f"Not certified, because{where} {_lowered(failed[0].verdict)}."
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


def _deployed(controller: Controller, evaluation: Mapping[str, Any]) -> tuple[bool, str]:
    """A finished controller brings its certificate along, for questions like its own."""
    known, calibration = evaluation["controller"], controller.calibration
    verdict = str(calibration.get("verdict") or "its calibration left no verdict")
    own, here = controller.task.name, evaluation["pool"]["task"]
    if known["seen"]:
        return False, f"Not certified, because this is {known['status']}: {verdict}."
    if own != here:
        return False, f"Not certified, because it was calibrated for {own}, and this is {here}."
    if not calibration.get("feasible") or calibration.get("alpha") is None:
        return False, f"Calibrated, not certified: {_lowered(verdict)}."
    return True, (
        f"Certified when it was calibrated, for questions and a reasoner like those: {verdict}."
    )


def _lowered(verdict: str) -> str:
    return verdict.replace("NOT FEASIBLE: ", "")
