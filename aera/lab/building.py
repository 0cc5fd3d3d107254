"""Build a controller from a study: fit, calibrate, write the model card."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from aera.controller import Controller, question_hash
from aera.gate import Gated
from aera.lab.calibration import Choice, calibrate
from aera.lab.dials import GATE
from aera.lab.protocols import Demand, chances, check_enough, fit_study, split_rows
from aera.lab.study import Study
from aera.lab.training import Fit
from aera.policy import Fixed, Policy
from aera.pool import Pool

SHARES = (0.55, 0.15, 0.3)
"""Questions for fitting, for ending the fit in time, and for calibration."""


@dataclass(frozen=True, eq=False)
class Built:
    """A controller with what is worth telling about how it came to be."""

    controller: Controller
    choice: Choice
    fit: Fit
    card: str


def build_controller(
    study: Study,
    pool: Pool,
    *,
    demand: Demand,
    rivals: Sequence[str] = (),
    encoder_name: str | None = None,
    seed: int = 0,
) -> Built:
    """Fit and calibrate on disjoint questions of one pool; infeasible keeps the full budget.

    With `rivals` (dials such as "asc") the gate steps aside to whichever meets the demand most
    cheaply; a certificate is then shared out between them, so that it still holds.
    """
    check_enough(study)
    fit, stop, tune = split_rows(np.arange(len(study)), SHARES, seed=seed)
    fitted = fit_study(study, fit, stop, seed=seed)
    measured = [(GATE, chances(study, fitted.gate, tune))]
    measured += [(study.dials[name], study.values[name][tune]) for name in rivals]
    alpha = None if demand.alpha is None else demand.alpha / len(measured)
    tuning = study.trajectories.subset(tune)
    choices = [
        calibrate(dial, values, tuning, max_loss=demand.max_loss, alpha=alpha, fine=True, seed=seed)
        for dial, values in measured
    ]
    best = max(range(len(choices)), key=lambda i: (choices[i].feasible, choices[i].token_saving))
    choice, schedule = choices[best], study.trajectories.schedule
    policy: Policy = Fixed(schedule.last)
    if choice.setting is not None:
        make = measured[best][0].make
        policy = make(choice.setting) if make else Gated(fitted.gate, choice.setting)
    questions = [pool.questions[key] for key in study.trajectories.question_ids]
    hashes = np.array([question_hash(question) for question in questions])
    controller = Controller(
        task=pool.task,
        schedule=schedule,
        policy=policy,
        gate=fitted.gate,
        encoder_name=encoder_name,
        calibration={
            **asdict(choice),
            "feasible": choice.feasible,
            "verdict": choice.verdict,
            "seed": seed,
            "tried": {each.dial: each.verdict for each in choices},
        },
        fitted=frozenset(map(str, hashes[np.concatenate([fit, stop])])),
        calibrated=frozenset(map(str, hashes[tune])),
    )
    return Built(controller, choice, fitted, _card(controller, choice, study))


def _card(controller: Controller, choice: Choice, study: Study) -> str:
    """A model card with the front matter model hubs read."""
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
- **Fitted on** {len(controller.fitted)} and **calibrated on** {len(controller.calibrated)} other
  questions of `{study.name}`; their hashes are in `config.json`, so that a test on them is noticed.
- **Inputs**: 55 features of the responses seen so far, listed in `config.json`.
- **Limits**: one reasoner, one benchmark, one sampling setting. Calibrate again when any of them
  changes; a calibration figure is no test result.

    aera solve --controller PATH --base-url URL --model M "a question"
"""
