"""Build a controller: learn, then calibrate or take the policy that was stated; write its card."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aera.arrays import Columns, Flags
from aera.core import Question, Schedule, Weighting
from aera.errors import ProtocolError
from aera.files import Json
from aera.lab.asked import gate_threshold, needs_controller
from aera.lab.calibrating.calibration import Choice, Goal, LossLimit
from aera.lab.calibrating.families import GATE_FAMILY, Family
from aera.lab.frontier import Point, Trajectories, fixed_points, point_of
from aera.lab.judging import Learner, Model, choose, learn_and_tune, policy_of
from aera.lab.learning.votes import VoteLearner
from aera.lab.replay import Dataset, ReplaySettings
from aera.lab.stats import paired_bootstrap, paired_gap, saved_share
from aera.lab.truths import Truths
from aera.lab.words import (
    LOSSES,
    advise,
    describe_choice,
    make_card,
    tell_choice,
    tell_stated,
)
from aera.policies.domain import Home
from aera.policies.gate import Gated
from aera.policies.rules import (
    GATED,
    Policy,
    parse_policy,
    strip_weighted,
)
from aera.pools.pool import HeldRecords, Records
from aera.reading.task import NOTHING, Readability
from aera.solving.controller import Controller, question_hashes
from aera.voting.rules import BestOfN, gives_weights
from aera.voting.traits import COUNTS, LOGPROBS, TEXT, TRACE
from aera.voting.weigher import Weigher
from aera.workers import SERIAL, Workers

BUILD_SHARES = (0.55, 0.15, 0.3)
"""The paper's gate in a controller: questions to fit, to end the fit in time, to calibrate."""
TIERS = {
    TRACE: "traces, logprobs and text",
    LOGPROBS: "logprobs and text",
    TEXT: "text",
    COUNTS: "counts",
}
"""What a weigher looks at, by the most that it needs."""


@dataclass(frozen=True, eq=False)
class Built:
    """A controller with what is worth telling about how it came to be."""

    controller: Controller
    point: Point
    """The policy on the questions that its figures come from."""
    lines: Sequence[str]
    """What it does and what that promises, one sentence each."""
    choice: Choice | None = None
    """What calibration chose; None where somebody stated the policy."""
    readability: Readability = NOTHING
    """Which share of the pool's responses could be read."""
    advice: Sequence[str] = ()
    """What would do better than too few questions."""
    left_out: str | None = None
    """Which questions of the pool could not be used, and why."""
    rewards: str | None = None
    """How rewards came about, where it is best-of-n."""


def build(
    learner: Learner,
    table: Any,
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
    rows = np.arange(len(table))
    model, tuning = learn_and_tune(learner, table, rows, certified=goal.certified, seed=seed)
    families = model.families(goal)
    tried = [next(iter(families.values())), *(families[name] for name in baselines)]
    shared = _share(goal, len(tried))
    choices = [choose(model, tuning, family, shared, seed=seed) for family in tried]
    best = max(range(len(choices)), key=lambda i: (choices[i].feasible, choices[i].token_saving))
    choice, family = choices[best], tried[best]
    policy = policy_of(model, choice, family, table.schedule)
    learned = _controller_of(table, model, tuning, policy, encoder_name)
    lent, usual = teacher if model.weigher else None, float(tuning.stored.tokens[:, -1].mean())
    calibrating, taught = _roles(table, tuning)
    calibrated = _hash(table.questions, calibrating)
    calibration = choice.as_json() | {"feasible": choice.feasible}
    calibration |= {
        "seed": seed,
        "learned": model.learned,
        "out_of_fold": bool(calibrating.all()) and not (lent and lent.fitted & calibrated),
        "tokens_per_response": round(usual / table.schedule.last, 1),
    }
    if len(choices) > 1:
        calibration["tried"] = {each.family: each.summary for each in choices}
    if lent:
        calibration["weights_from"] = _describe_teacher(lent, calibrated)
    controller = replace(
        learned,
        calibration=calibration,
        fitted=learned.fitted | lent.fitted if lent else learned.fitted,
        calibrated=calibrated,
    )
    others = 0 if calibrating.all() else int(calibrating.sum())
    card = _card(controller, choice, taught=int(taught.sum()), others=others)
    carded = replace(controller, card=card)
    point = _point(policy, choice.stops(family, tuning.values[family.name]), tuning, model.weigher)
    if choice.price is not None:
        return Built(carded, point, [choice.summary], choice, table.readability)
    allows = None if choice.feasible else _allowed_loss(model, tuning, tried, shared, seed=seed)
    advice = advise(choice, allows)
    return Built(carded, point, tell_choice(choice), choice, table.readability, advice)


def _roles(table: Any, tuning: Trajectories) -> tuple[Flags, Flags]:
    """Which questions calibrate and which have taught: the others, or all of them, out of fold."""
    calibrating = np.isin([each.id for each in table.questions], tuning.question_ids)
    return calibrating, calibrating if calibrating.all() else ~calibrating


def _controller_of(
    table: Any, model: Model, tuning: Trajectories, policy: Policy, encoder_name: str | None
) -> Controller:
    """What was learned, and a policy on it."""
    calibrating, taught = _roles(table, tuning)
    return Controller(
        task=table.task,
        schedule=table.schedule,
        policy=policy,
        gate=model.gate,
        weigher=model.weigher,
        encoder_name=encoder_name,
        fitted=_hash(table.questions, taught),
        home=_find_home(table, model.weigher, calibrating),
    )


def _point(policy: Policy, stops: Columns, seen: Trajectories, weigher: Weighting | None) -> Point:
    return point_of(policy, stops, seen, weighted=gives_weights(weigher))


def _describe_teacher(teacher: Controller, calibrated: frozenset[str]) -> str:
    """Where weights come from that were brought along, and whether they know these questions."""
    home, both = teacher.home, len(teacher.fitted & calibrated)
    of = f" of {', '.join(home.models)}" if home is not None and home.models else ""
    seen = f", {both} of which calibrate here too" if both else ""
    return f"{teacher.label}, taught on {len(teacher.fitted)} questions{of}{seen}"


def _allowed_loss(
    model: Model, tuning: Trajectories, tried: Sequence[Family], goal: Goal, *, seed: int
) -> float | None:
    """The smallest loss, of some round ones, for which a setting can be found here."""
    if not isinstance(goal, LossLimit):
        return None
    for loss in (loss for loss in LOSSES if loss > goal.max_loss):
        wider = replace(goal, max_loss=loss)
        if any(choose(model, tuning, each, wider, seed=seed).feasible for each in tried):
            return loss
    return None


def _share(goal: Goal, between: int) -> Goal:
    """A limit for each of several families, all judged on the fine grid of settings."""
    if not isinstance(goal, LossLimit):
        return goal
    alpha = None if goal.alpha is None else goal.alpha / between
    return replace(goal, alpha=alpha, margin=goal.margin or 0.0)


def _hash(questions: Sequence[Question], kept: Flags) -> frozenset[str]:
    """What a controller remembers of those of the questions that are kept."""
    pairs = zip(questions, kept, strict=True)
    return frozenset(each for own, there in pairs if there for each in question_hashes(own))


def _card(controller: Controller, choice: Choice, *, taught: int, others: int) -> str:
    """The card of what calibration chose."""
    calibration, home = controller.calibration, controller.home
    brought = calibration.get("weights_from")
    calibrated = f"{others} others" if others else "the same, out of fold"
    chosen = [f"**Calibration**: {choice.summary}."]
    if choice.price is None:
        chosen = describe_choice(controller, choice)
    lines = [
        *chosen,
        f"**Learned**: {calibration['learned']}.",
        *([f"**Weights** of another controller: {brought}."] if brought else []),
        *([f"**Weighs by** {home.tier}."] if home and home.tier else []),
        f"**Learned from** {taught} questions, **calibrated on** {calibrated};\n"
        "  their hashes are in `config.json`, so that a test on them is noticed.",
    ]
    return make_card(controller, lines)


def _find_home(table: Any, weigher: Weighting | None, rows: Flags) -> Home | None:
    """The home that a table is; how many votes decide in effect is counted in these rows.

    Best-of-n has none: a scorer is somebody else's, and without it there is nothing to fall back
    to.
    """
    if isinstance(weigher, BestOfN):
        return None
    told: Json = {"read": round(table.readability.share, 4)}
    if isinstance(table, Dataset):
        responses = (each for record in table.records for each in record.responses)
        told["models"] = tuple(sorted({each.model for each in responses if each.model}))
        if isinstance(weigher, Weigher):
            told["tier"] = TIERS[weigher.tier]
            told["deciding"] = _deciding(table, weigher, rows)
    return Home.of(table.questions, **told)


def _deciding(table: Dataset, weigher: Weigher, rows: Flags) -> float:
    """How many equal votes would decide as surely as the weighted ones: Kish's effective size."""
    weights = np.where(table.voted[rows], weigher.weights(table.traits[rows]), 0.0)
    squares = np.maximum(1e-12, (weights**2).sum(axis=1))
    return round(float((weights.sum(axis=1) ** 2 / squares).mean()), 1)


# --- a policy that somebody stated ----------------------------------------------------------------


def build_stated(
    label: str,
    learner: Learner,
    records: Records,
    truths: Truths | None,
    *,
    schedule: Schedule,
    encoder_name: str | None = None,
    seed: int = 0,
    workers: Workers = SERIAL,
) -> Built:
    """A controller that runs a stated policy; what that needs is learned, and nothing chosen."""
    scored = learner if isinstance(learner, VoteLearner) and learner.best_of_n else None
    if needs_controller(label):
        table = learner.prepare(records, truths, schedule=schedule, workers=workers)
        table.readability.check(records.task, records.name)
        rows = np.arange(len(table))
        model, tuning = learn_and_tune(learner, table, rows, certified=False, seed=seed)
        if label.startswith(GATED):
            assert model.gate is not None, "every learner of a command has a gate"
            policy: Policy = Gated(model.gate, threshold := gate_threshold(label))
            columns = GATE_FAMILY.stops(tuning.values[GATE_FAMILY.name], threshold)
            point = _point(policy, columns, tuning, model.weigher)
        else:
            point, policy = _weighted(label, model, table)
        learned, readability = model.learned, table.readability
        controller = _controller_of(table, model, tuning, policy, encoder_name)
    else:
        policy, learned = parse_policy(label), "nothing was learned"
        replaying = ReplaySettings(records.task, schedule, truths)
        if scored:
            replaying = scored.replaying(records, truths, schedule)
        done = replaying.evaluate(records, [policy], workers=workers)
        point, readability = done.points[0], done.readability
        controller = Controller(records.task, schedule, policy, weigher=replaying.weigher)
    told, there = _figures(point, learned=bool(controller.fitted), seed=seed)
    told |= {"stated": True, "learned": learned, "feasible": True, "seed": seed}
    told |= {"price": scored.price} if scored else {}
    summary = told["summary"]
    lines = [f"**Calibration**: {summary}.", f"**There**: {there}.", f"**Learned**: {learned}."]
    if controller.fitted:
        lines.append(
            f"**Learned from** {len(controller.fitted)} questions; their hashes are in\n"
            "  `config.json`, so that a test on them is noticed."
        )
    whole = replace(controller, calibration=told)
    carded = replace(whole, card=make_card(whole, lines))
    return Built(carded, point, [summary], readability=readability)


def _weighted(label: str, model: Model, table: Dataset) -> tuple[Point, Policy]:
    """A policy on learned weights, every question weighed by what others taught."""
    plain = strip_weighted(label)
    if model.weigher is None:
        raise ProtocolError(
            f'learned weights do not clearly gain on "{table.name}", so there are none for '
            f'"{label}"; the policy without them is "{plain}"'
        )
    assert model.own is not None, "votes are judged out of fold"
    policy = parse_policy(plain)
    records = HeldRecords(model.own.records, table.task, table.schedule)
    [point] = table.settings.replay(records, [policy]).points
    return _point(policy, point.ends, point.seen, model.weigher), policy


def _figures(point: Point, *, learned: bool, seed: int) -> tuple[Json, str]:
    """What a stated policy kept, lost and saved on a pool, as fractions, and a sentence of it.

    `accuracy` is the mean reward where a scorer picks the response, and `gain` is it minus the
    `reference`, that of the policy's own full budget. `saved` says what is counted: tokens, or
    responses where a pool does not know its tokens.
    """
    full = fixed_points(point.trajectories, weighted=point.weighted)[-1]
    rewarded = point.trajectories.rewarded
    if rewarded:
        scale, gain = 1, paired_bootstrap(point.scores, full.scores, seed=seed)
    else:
        scale, gain = 100, paired_gap(point.scores, full.scores)
    unit, name = ("spent", "tokens") if full.tokens else ("counts", "responses")
    saving = saved_share(getattr(point, unit), getattr(full, unit))
    summary, there = tell_stated(point, full, gain, saving, out_of_fold=learned)
    told = {
        "policy": point.policy,
        "full_budget": full.policy,
        "questions": len(point.columns),
        "accuracy": float(point.scores.mean()),
        "reference": float(full.scores.mean()),
        "gain": gain.value / scale,
        "gain_low": gain.low / scale,
        "gain_high": gain.high / scale,
        "agreement": point.agreement / 100,
        "saved": name,
        "token_saving": saving.value / 100,
        "saving_low": saving.low / 100,
        "saving_high": saving.high / 100,
        "out_of_fold": learned,
        "rewarded": rewarded,
        "summary": summary,
    }
    return told, there
