"""Certified or not: one sentence about a calibration, the same in every place that tells it."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from aera.lab.calibrating.certificate import questions_needed
from aera.lab.judging.difference import FEW

ALPHA = 0.1
"""The chance of error of the certificate that is advised."""
LOSSES = (0.01, 0.02, 0.03, 0.05, 0.08, 0.1, 0.15, 0.2, 0.3)
"""Allowed losses that are advised; beyond them a promise is worth little."""

Calibration = Mapping[str, Any]
"""The fields of a Choice, as evaluation files and controllers hold them."""


def certify_choices(choices: Sequence[Calibration]) -> tuple[bool, str]:
    """Whether a bound was proved in every fold, and one sentence about it."""
    failed = [choice for choice in choices if choice["setting"] is None]
    first, folds = choices[0], len(choices)
    if failed:
        where = f" in {len(failed)} of {folds} folds" if folds > 1 else ""
        return False, f"Not certified: {_failure(failed[0])}{where}."
    if first["alpha"] is None:
        return False, f"Not certified: {_measured(first, folds)}."
    each = " in each fold" if folds > 1 else ""
    return True, (
        f"Certified: {_promise(first)}, proved on {first['questions']} questions{each} that "
        "nothing was learned from and that are not judged here."
    )


def certify_card(choice: Calibration) -> str:
    """The sentence of a model card, for what is yet to be asked."""
    known = {"seen": 0, "calibration": choice, "task": None}
    return certify_controller(known, None)[1]


def certify_controller(known: Mapping[str, Any], task: str | None) -> tuple[bool, str]:
    """A finished controller brings its certificate along, for questions like its own.

    `known` has its calibration, its task and how many of these questions it has seen.
    """
    calibration = known.get("calibration", {})
    proved = calibration.get("setting") is not None and calibration.get("alpha") is not None
    if known["seen"]:
        rest = f"; for new ones {_promise(calibration)} was proved" if proved else ""
        return False, (
            f"Not tested here: {known['seen']} of these questions were seen in training{rest}."
        )
    own = known.get("task")
    if task is not None and own not in (None, task):
        return False, f"Not certified here: it was calibrated for {own}, and this is {task}."
    if not {"setting", "alpha", "max_loss", "questions"} <= set(calibration):
        return False, "Not certified: its calibration left no record."
    if calibration["setting"] is None:
        return False, f"Not certified: {_failure(calibration)}."
    if not proved:
        return False, f"Not certified: {_measured(calibration, 1)}."
    return True, (
        f"Certified: {_promise(calibration)}, proved on {calibration['questions']} questions that "
        "nothing was learned from, for questions, a reasoner and sampling like those."
    )


def advise(choice: Calibration) -> str:
    """What to do where a setting rests on few questions: a way that does not end in a refusal.

    Half of the questions certify, and nothing is proved below what ties alone need.
    """
    needed, half = questions_needed(choice["max_loss"], ALPHA), choice["questions"] // 2
    if needed is not None and half >= needed:
        return f"ask for a certificate (--certify {ALPHA:g}), or record more questions"
    takes = "" if needed is None else f" takes {2 * needed} questions at least"
    possible = [loss for loss in LOSSES if (questions_needed(loss, ALPHA) or inf) <= half]
    allow = (
        f"; these allow one of {_points({**choice, 'max_loss': possible[0]})} (--max-loss "
        f"{possible[0]:g} --certify {ALPHA:g})"
        if possible
        else ""
    )
    return f"a certificate of {_points(choice)}{takes}{allow}"


def _promise(choice: Calibration) -> str:
    sure = 100 * (1 - choice["alpha"])
    if choice.get("by_agreement"):
        return f"P(answers that differ from its own full budget's ≤ {_points(choice)}) ≥ {sure:g} %"
    return f"P(loss ≤ {_points(choice)} against its own full budget) ≥ {sure:g} %"


def _points(choice: Calibration) -> str:
    return f"{100 * choice['max_loss']:g} {'%' if choice.get('by_agreement') else 'points'}"


def _failure(choice: Calibration) -> str:
    """Why the full budget is kept."""
    verb = "change" if choice.get("by_agreement") else "lose"
    shown = f"be proved to {verb}" if choice["alpha"] is not None else f"be seen to {verb}"
    needed = choice.get("needed")
    more = f" (it takes about {needed})" if needed else ""
    return (
        f"no setting could {shown} at most {_points(choice)} on {choice['questions']} "
        f"questions{more}, so the full budget is kept"
    )


def _measured(choice: Calibration, folds: int) -> str:
    """What calibration without a certificate did, which is no promise."""
    questions, margin = choice["questions"], choice.get("margin") or 0.0
    each = " in each fold" if folds > 1 else ""
    agreed = choice.get("by_agreement")
    if questions < FEW:
        far = f", too few to say what it {'changes' if agreed else 'loses'} on others"
    else:
        far = f" with {margin:g} standard error to spare, which promises nothing" if margin else ""
    verb = "changed" if agreed else "lost"
    return (
        f"the setting is the cheapest that {verb} at most {_points(choice)} on {questions} "
        f"calibration questions{each}{far}"
    )
