"""Build a controller: learn, calibrate, write the model card. One way for every learner."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from aera.arrays import Columns
from aera.core import Question
from aera.lab.calibrating.calibration import Choice, Goal, LossLimit
from aera.lab.calibrating.families import Family
from aera.lab.judging.certified import LOSSES, certify_card
from aera.lab.judging.figures import Stated
from aera.lab.judging.protocols import learn_and_tune
from aera.lab.judging.taught import find_home
from aera.lab.learning.learner import Learner, Measured, Split, T, check_enough, policy_of
from aera.lab.learning.rewards import UtilityChoice
from aera.lab.replay.frontier import Point, replayed_points
from aera.lab.replay.trajectory import Trajectories
from aera.reading.task import NOTHING, Readability
from aera.solving.controller import Controller, question_hashes
from aera.voting.rules import BestOfN, gives_weights

BUILD_SHARES = (0.55, 0.15, 0.3)
"""The paper's gate in a controller: questions to fit, to end the fit in time, to calibrate."""


@dataclass(frozen=True, eq=False)
class Built:
    """A controller with what is worth telling about how it came to be."""

    controller: Controller
    choice: Choice | Stated
    """What calibration chose; what was measured of a policy that somebody stated."""
    learned: str
    """How it was learned, in one sentence."""
    point: Point
    """The policy on the questions that its figures come from."""
    readability: Readability = NOTHING
    """Which share of the pool's responses could be read."""
    allows: float | None = None
    """Where nothing was feasible, the smallest allowed loss for which something is."""

    @property
    def card(self) -> str:
        """Its model card."""
        return self.controller.card


def build(
    learner: Learner[T],
    table: T,
    goal: Goal,
    *,
    baselines: Sequence[str] = (),
    encoder_name: str | None = None,
    seed: int = 0,
    teacher: Controller | None = None,
) -> Built:
    """Learn from a pool and calibrate; where nothing meets the goal the full budget is kept.

    With `baselines` (families such as "asc") the model steps aside to whichever meets the goal
    most cheaply; a certificate is then shared out between them, so that it still holds.
    """
    check_enough(table)
    rows = np.arange(len(table))
    split = learner.split(table, rows, certified=goal.certified, seed=seed)
    model, tuning = learn_and_tune(learner, table, rows, certified=goal.certified, seed=seed)
    own = next(iter(model.families.values()))
    tried = [own, *(model.families[name] for name in baselines)]
    shared = _share(goal, len(tried))
    choices = [tuning.choose(family, shared, seed=seed) for family in tried]
    best = max(range(len(choices)), key=lambda i: (choices[i].feasible, choices[i].token_saving))
    choice = choices[best]
    policy = policy_of(model, choice, tried[best], table.schedule)
    columns = choice.stops(tried[best], tuning.values[tried[best].name])
    lent = teacher if model.weigher else None
    fitted, calibrated = hash_split(table.questions, split)
    controller = Controller(
        task=table.task,
        schedule=table.schedule,
        policy=policy,
        gate=model.gate,
        weigher=model.weigher,
        encoder_name=encoder_name,
        calibration={
            **_calibration(choice, tried, choices, learned=model.learned, seed=seed),
            "out_of_fold": not len(split.tune) and not (lent and lent.fitted & calibrated),
            "tokens_per_response": _usual_tokens(tuning.trajectories),
            **({"weights_from": _describe_teacher(lent, calibrated)} if lent else {}),
        },
        fitted=fitted | lent.fitted if lent else fitted,
        calibrated=calibrated,
        home=find_home(table, model.weigher, split.calibrating),
    )
    carded = replace(controller, card=_card(controller, choice, model.learned, split))
    [point] = replayed_points(
        [policy], columns[:, None], tuning.trajectories, weighted=gives_weights(model.weigher)
    )
    allows = None if choice.feasible else _allowed_loss(tuning, tried, shared, seed=seed)
    return Built(carded, choice, model.learned, point, table.readability, allows)


def _describe_teacher(teacher: Controller, calibrated: frozenset[str]) -> str:
    """Where weights come from that were brought along, and whether they know these questions."""
    home, both = teacher.home, len(teacher.fitted & calibrated)
    of = f" of {', '.join(home.models)}" if home is not None and home.models else ""
    seen = f", {both} of which calibrate here too" if both else ""
    return f"{teacher.label}, taught on {len(teacher.fitted)} questions{of}{seen}"


def _allowed_loss(
    tuning: Measured, tried: Sequence[Family], goal: Goal, *, seed: int
) -> float | None:
    """The smallest loss, of some round ones, for which a setting can be found here."""
    if not isinstance(goal, LossLimit):
        return None
    for loss in LOSSES:
        wider = replace(goal, max_loss=loss)
        if loss > goal.max_loss and any(
            tuning.choose(family, wider, seed=seed).feasible for family in tried
        ):
            return loss
    return None


def _usual_tokens(trajectories: Trajectories) -> float:
    """What a response took on average, so that later spending can be estimated."""
    return round(float(trajectories.tokens[:, -1].mean()) / trajectories.schedule.last, 1)


def _share(goal: Goal, between: int) -> Goal:
    """A limit for each of several families, all judged on the fine grid of settings."""
    if not isinstance(goal, LossLimit):
        return goal
    alpha = None if goal.alpha is None else goal.alpha / between
    return replace(goal, alpha=alpha, margin=goal.margin or 0.0)


def _calibration(
    choice: Choice,
    tried: Sequence[Family],
    choices: Sequence[Choice],
    *,
    learned: str,
    seed: int,
) -> dict[str, Any]:
    told: dict[str, Any] = {
        **asdict(choice),
        "feasible": choice.feasible,
        "summary": choice.summary,
        "seed": seed,
    }
    told["learned"] = learned
    if isinstance(choice, UtilityChoice):  # a price was stated, and no loss was allowed
        told = {name: told[name] for name in told if name not in ("max_loss", "alpha", "margin")}
    if len(tried) > 1:
        told["tried"] = {each.family: each.summary for each in choices}
    return told


def hash_questions(questions: Sequence[Question], rows: Columns) -> frozenset[str]:
    """What a controller remembers of the questions in these rows."""
    return frozenset(each for row in rows for each in question_hashes(questions[row]))


def hash_split(
    questions: Sequence[Question], split: Split
) -> tuple[frozenset[str], frozenset[str]]:
    """What a controller remembers of those that teach and of those that calibrate."""
    taught = np.concatenate([split.fit, split.held])
    return hash_questions(questions, taught), hash_questions(questions, split.calibrating)


def describe_setting(choice: Choice) -> str:
    """What was chosen; what it saves is said of the questions it was chosen on only."""
    if not choice.feasible:
        return "NOT FEASIBLE, so the full budget is kept"
    saved = f"{100 * choice.token_saving:.1f} % of the tokens saved in calibration"
    return f"{choice.family} {choice.setting:g}, {saved}"


def make_card(controller: Controller, lines: Sequence[str]) -> str:
    """A model card with the front matter model hubs read."""
    gate = len(controller.gate.features) if controller.gate else 0
    scored = isinstance(controller.weigher, BestOfN)
    told = "".join(f"- {line}\n" for line in lines)
    command = f"aera solve --controller PATH{' --scorer MODULE:NAME' if scored else ''}"
    return f"""---
library_name: aera
license: apache-2.0
tags: [adaptive-inference, {"best-of-n" if scored else "self-consistency"}, early-stopping]
---

# AERA controller for {controller.task.name}

After each checkpoint ({controller.schedule}) it decides whether another block of responses is worth
paying for. Policy: `{controller.label}`.

{told}- **Inputs**: {gate} features of the responses seen so far, listed in `config.json`.
- **Limits**: one reasoner, one benchmark, one sampling setting. Calibrate again when any of them
  changes; a calibration figure is no test result.

    {command} --base-url URL --model M "a question"
"""


def _measured(choice: Choice) -> str:
    return (
        f"**Accuracy in calibration**, which is no test: {100 * choice.accuracy:.2f} %, its own "
        f"full budget\n  {100 * choice.reference:.2f} %, on {choice.questions} questions."
    )


def _agreed(controller: Controller, choice: Choice) -> list[str]:
    """What agreement says, and what it leaves open."""
    told = [
        f"**Agreement in calibration**, which is no test: {100 * choice.accuracy:.2f} % of the "
        f"answers are those of\n  its own full budget, on {choice.questions} questions.",
        "**Without truths**: accuracy lost against that full budget cannot exceed the share that "
        "differs;\n  how right the full budget is, nobody has looked.",
    ]
    home = controller.home
    if home is not None and home.deciding:
        told.append(
            f"**Weights**: {home.deciding:.0f} of the {controller.schedule.last} votes of the "
            "full budget decide in effect."
        )
    return told


def _card(controller: Controller, choice: Choice, learned: str, split: Split) -> str:
    """The card of what calibration chose."""
    brought = controller.calibration.get("weights_from")
    taught, others = len(split.fit) + len(split.held), len(split.tune)
    calibrated = f"{others} others" if others else "the same, out of fold"
    voted = [
        f"**Setting**: {describe_setting(choice)}.",
        f"**Certificate**: {certify_card(asdict(choice))}",
        *(_agreed(controller, choice) if choice.by_agreement else [_measured(choice)]),
    ]
    lines = [
        *([f"**Calibration**: {choice.summary}."] if isinstance(choice, UtilityChoice) else voted),
        f"**Learned**: {learned}.",
        *([f"**Weights** of another controller: {brought}."] if brought else []),
        *([f"**Weighs by** {home.tier}."] if (home := controller.home) and home.tier else []),
        f"**Learned from** {taught} questions, **calibrated on** {calibrated};\n"
        "  their hashes are in `config.json`, so that a test on them is noticed.",
    ]
    return make_card(controller, lines)
