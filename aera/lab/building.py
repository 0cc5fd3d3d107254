"""Build a controller: learn, calibrate, write the model card."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from aera.controller import Controller, question_hash
from aera.gate import Gate, Gated
from aera.lab.calibration import Choice, calibrate
from aera.lab.dials import ASC_DIAL, GATE, Dial
from aera.lab.learning import SHARES, Course, Learned, learn
from aera.lab.protocols import Demand, chances, check_enough, fit_study, split_rows
from aera.lab.study import Study
from aera.lab.trajectory import Columns
from aera.policy import Fixed, Policy
from aera.pool import Pool
from aera.response import Question
from aera.schedule import Schedule

PAPER_SHARES = (0.55, 0.15, 0.3)
"""The paper's gate: questions for fitting, for ending the fit in time, and for calibration."""


@dataclass(frozen=True, eq=False)
class Built:
    """A controller with what is worth telling about how it came to be."""

    controller: Controller
    choice: Choice
    story: str
    """How it was learned, in one sentence."""
    card: str


def build_controller(course: Course, *, demand: Demand, seed: int = 0) -> Built:
    """Learn from a pool and calibrate; infeasible keeps the full budget.

    The weigher is left out where it does not gain, and the gate steps aside to ASC where that
    saves more. A certificate comes from questions that nothing was learned from; without one the
    threshold is chosen out of fold, and every question teaches.
    """
    rows = np.arange(len(course.marked))
    fit, tune = rows, rows[:0]
    if demand.alpha is not None:
        fit, tune = split_rows(rows, SHARES, seed=seed)
    learned = learn(course, fit, seed=seed)
    votes = learned.votes(course, tune) if len(tune) else learned.own
    choice = votes.calibrated(learned.dial, demand, seed=seed)
    story = _story(learned)
    questions = [ballot.record.question for ballot in course.marked.ballots]
    controller = Controller(
        task=course.task,
        schedule=course.schedule,
        policy=_policy(choice, learned.dial, learned.gate, course.schedule),
        gate=learned.gate,
        weigher=learned.weigher,
        calibration={**_calibration(choice, seed), "learned": story},
        fitted=_hashes(questions, fit),
        calibrated=_hashes(questions, tune),
    )
    return Built(controller, choice, story, _card(controller, choice, story))


def _story(learned: Learned) -> str:
    """What was kept, what was left out, and why; all of it measured out of fold."""
    gate, asc = learned.own.saving(GATE), learned.own.saving(ASC_DIAL)
    votes = (
        f"learned weights gain {learned.gain:+.1f} points and are used"
        if learned.weigher
        else f"learned weights ({learned.gain:+.1f} points) do not clearly gain, so votes are plain"
    )
    chosen = "the gate is used" if learned.dial is GATE else "ASC is used"
    both = f"at equal losses the gate saves {gate:.0%} of the tokens and ASC {asc:.0%}"
    return f"{votes}; {both}, so {chosen}"


def build_paper_controller(
    study: Study,
    pool: Pool,
    *,
    demand: Demand,
    rivals: Sequence[str] = (),
    encoder_name: str | None = None,
    seed: int = 0,
) -> Built:
    """The paper's gate on plain votes, fitted and calibrated on disjoint questions of one pool.

    With `rivals` (dials such as "asc") the gate steps aside to whichever meets the demand most
    cheaply; a certificate is then shared out between them, so that it still holds.
    """
    check_enough(study.name, len(study), study.trajectories.schedule)
    fit, stop, tune = split_rows(np.arange(len(study)), PAPER_SHARES, seed=seed)
    fitted = fit_study(study, fit, stop, seed=seed)
    measured = [(GATE, chances(study, fitted.gate, tune))]
    measured += [(study.dials[name], study.values[name][tune]) for name in rivals]
    alpha = None if demand.alpha is None else demand.alpha / len(measured)
    tuning = study.trajectories.subset(tune)
    choices = [
        calibrate(
            dial, values, tuning, max_loss=demand.max_loss, alpha=alpha, margin=0.0, seed=seed
        )
        for dial, values in measured
    ]
    best = max(range(len(choices)), key=lambda i: (choices[i].feasible, choices[i].token_saving))
    choice, schedule = choices[best], study.trajectories.schedule
    questions = [pool.questions[key] for key in study.trajectories.question_ids]
    story = f"the paper's gate, fitted in {fitted.epochs} epochs"
    controller = Controller(
        task=pool.task,
        schedule=schedule,
        policy=_policy(choice, measured[best][0], fitted.gate, schedule),
        gate=fitted.gate,
        encoder_name=encoder_name,
        calibration={
            **_calibration(choice, seed),
            "tried": {each.dial: each.verdict for each in choices},
        },
        fitted=_hashes(questions, np.concatenate([fit, stop])),
        calibrated=_hashes(questions, tune),
    )
    return Built(controller, choice, story, _card(controller, choice, story))


def _policy(choice: Choice, dial: Dial, gate: Gate, schedule: Schedule) -> Policy:
    """The calibrated policy; the full budget where nothing met the demand."""
    if choice.setting is None:
        return Fixed(schedule.last)
    return dial.make(choice.setting) if dial.make else Gated(gate, choice.setting)


def _calibration(choice: Choice, seed: int) -> Mapping[str, Any]:
    return {
        **asdict(choice),
        "feasible": choice.feasible,
        "verdict": choice.verdict,
        "seed": seed,
    }


def _hashes(questions: Sequence[Question], rows: Columns) -> frozenset[str]:
    return frozenset(question_hash(questions[row]) for row in rows)


def _card(controller: Controller, choice: Choice, story: str) -> str:
    """A model card with the front matter model hubs read."""
    gate = len(controller.gate.features) if controller.gate else 0
    calibrated = (
        f"{len(controller.calibrated)} others"
        if controller.calibrated
        else ("the same, out of fold")
    )
    return f"""---
library_name: aera
license: apache-2.0
tags: [adaptive-inference, self-consistency, early-stopping]
---

# AERA controller for {controller.task.name}

After each checkpoint ({controller.schedule}) it decides whether another block of responses is worth
paying for. Policy: `{controller.policy}`.

- **Calibration**: {choice.verdict}.
- **Accuracy there**: {100 * choice.accuracy:.2f} %, full budget {100 * choice.reference:.2f} %.
- **Learned**: {story}.
- **Learned from** {len(controller.fitted)} questions, **calibrated on** {calibrated};
  their hashes are in `config.json`, so that a test on them is noticed.
- **Inputs**: {gate} features of the responses seen so far, listed in `config.json`.
- **Limits**: one reasoner, one benchmark, one sampling setting. Calibrate again when any of them
  changes; a calibration figure is no test result.

    aera solve --controller PATH --base-url URL --model M "a question"
"""
