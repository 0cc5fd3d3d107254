"""Evaluate a pool, and train a controller on it: one call each, which the commands make too."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from aera.core import Schedule
from aera.errors import ProtocolError, UsageError
from aera.lab.asked import ask_policies, check_label, choose_schedule
from aera.lab.build import BUILD_SHARES, Built, build, build_stated
from aera.lab.calibrating.calibration import Goal, LossLimit, MostUtility
from aera.lab.frontier import Kind, Prices
from aera.lab.judging import Learner, crossfit, holdout, limit_for, nested
from aera.lab.label import fit_labels, open_graded, read_labels
from aera.lab.learning.paper import PaperLearner
from aera.lab.learning.votes import LABELS, MAJORITY, VoteLearner
from aera.lab.replay import ReplaySettings
from aera.lab.summary import (
    CROSSFIT,
    HOLDOUT,
    NESTED,
    REPLAY,
    Evaluation,
    scoring_for,
    tell_rewards,
    with_judgement,
    with_oracle,
)
from aera.lab.truths import Truths, need_truths
from aera.paper.encoder import load_encoder
from aera.policies.gate import Live
from aera.policies.rules import Fixed, Policy, family_of, setting_of
from aera.pools.parquet import open_pool
from aera.pools.pool import Pool, Records, hold
from aera.solving.controller import Controller
from aera.voting.rules import RULES, Scorer
from aera.voting.weigher import Weigher
from aera.workers import SERIAL, Workers, parse_workers

LOSS = 0.02
"""The accuracy that may be lost where nobody says otherwise."""
HELD = 64 * 2**20
"""Bytes of a pool on disk whose votes, read once, are held in memory: some 500,000 responses."""


def evaluate(
    pool: Records | str | Path,
    policies: Sequence[Policy] | str | None = None,
    *,
    controller: Controller | None = None,
    protocol: str = REPLAY,
    paper: bool = False,
    max_loss: float | None = None,
    certify: float | None = None,
    schedule: Schedule | str | None = None,
    max_samples: int | None = None,
    rule: str = "vote",
    scorer: Scorer | None = None,
    price: float | None = None,
    judge: str | None = None,
    prices: tuple[float, float] | None = None,
    without_truths: bool = False,
    clean: bool = False,
    encoder: str | None = None,
    equivalence: bool = False,
    seed: int = 0,
    workers: int | str = 1,
) -> Evaluation:
    """What each policy would have spent and lost on recorded responses.

    `policies` are values or labels ("fixed-32,asc-0.95"), or the standard ones; the `rule` that
    selects the answer is "vote" or "re2-vote". With a `scorer` it is best-of-n. `prices` are of a
    million prompt and completion tokens. `max_loss` is 0.02 where it is not given.

    result = aera.evaluate(aera.open_pool("pools/gsm8k"))
    pandas.DataFrame(result.rows())     # or polars; print(result) shows a table
    """
    scoring = scoring_for(scorer, price=price, judge=judge, controller=controller)
    by_paper = paper or protocol == CROSSFIT
    beside = {
        "--paper": paper,
        "--protocol crossfit": protocol == CROSSFIT,
        "--rule": rule != "vote",
    }
    limit = _limit(scoring, max_loss, certify, beside)
    if rule not in RULES:
        raise UsageError(f'--rule is one of {", ".join(RULES)}, but got "{rule}"')
    if without_truths and (by_paper or scoring is not None):
        raise UsageError("--without-truths goes without --paper, --scorer and --protocol crossfit")
    money = None if prices is None else Prices(*prices)
    crew = parse_workers(str(workers))
    equal = controller.task.equivalence if controller else equivalence
    records, truths, left_out = _open(pool, equivalence=equal, workers=crew)
    crew = replace(crew, shown=True)
    own, recorded = (controller or records).schedule, records.schedule.last
    checkpoints = choose_schedule(own, schedule, most=max_samples, recorded=recorded)
    plain, weighted = ask_policies(
        policies, checkpoints, controller=controller, scored=scoring is not None, encoder=encoder
    )
    seen = _find_seen(controller, records, protocol) if controller else []
    replayed = (scoring or VoteLearner(rule=RULES[rule])).replaying(records, truths, checkpoints)
    frontier = replayed.evaluate(records, plain, workers=crew)
    if scoring is not None:
        frontier = with_oracle(frontier, scoring.price)
    made = Evaluation(
        records,
        protocol,
        plain,
        truths,
        frontier,
        rule=rule,
        max_loss=limit.max_loss,
        seed=seed,
        prices=money,
        scoring=scoring,
        controller=controller,
        workers=crew,
        left_out=left_out,
    )
    if controller is not None:
        return _with_controller(made, controller, replayed, weighted, seen)
    if protocol == REPLAY:
        return made
    learner: Learner
    if scoring is not None:
        learner = scoring
    elif by_paper:
        need_truths(records, truths)
        once = protocol == CROSSFIT
        learner = PaperLearner(load_encoder(encoder), one_shot=once, rule=RULES[rule])
    else:
        teacher = MAJORITY if truths is None or without_truths else LABELS
        if rule != "vote" and teacher == MAJORITY:
            raise UsageError(f"--rule {rule} is learned from truths, and none are used here")
        learner = VoteLearner(teacher, rule=RULES[rule])
    return _learn_and_judge(made, learner, _goal(learner, scoring, limit), checkpoints, clean=clean)


def train(
    pool: Records | str | Path,
    *,
    max_loss: float | None = None,
    certify: float | None = None,
    policy: str | None = None,
    schedule: Schedule | str | None = None,
    max_samples: int | None = None,
    scorer: Scorer | None = None,
    price: float | None = None,
    judge: str | None = None,
    without_truths: bool = False,
    labels: Mapping[str, str] | str | Path | None = None,
    weigher: Controller | None = None,
    paper: bool = False,
    baselines: Sequence[str] = (),
    encoder: str | None = None,
    equivalence: bool = False,
    seed: int = 0,
    workers: int | str = 1,
    tell: Callable[[Built], None] | None = None,
) -> Controller:
    """Learn how votes weigh and when to stop, calibrated to the accuracy you allow to lose.

    With a `scorer` it is best-of-n, at a `price`. A `policy` by its label runs as it stands. A pool
    without truths is learned from by its clear votes, and `max_loss` is then the share of answers
    that may differ from the full budget's; `labels`, right answers by question or a file as `aera
    label` writes it, decide on weights there. A `weigher` brings its weights from elsewhere. The
    `baselines` ("asc") are used with `paper` where they save more. `tell` is told how it was made.

    controller = aera.train("pools/gsm8k", max_loss=0.02)
    controller.save("controllers/gsm8k")
    """
    scoring = scoring_for(scorer, price=price, judge=judge)
    limit = _limit(scoring, max_loss, certify, {"--paper": paper})
    if not paper and (baselines or encoder):
        raise UsageError("--baseline and --encoder go with --paper")
    if (paper or scoring is not None) and (without_truths or weigher):
        raise UsageError("--without-truths and --weigher go without --paper and --scorer")
    if policy is not None and (max_loss is not None or certify is not None or baselines):
        raise UsageError(
            "--policy states what runs, so there is nothing to choose: leave out --max-loss, "
            "--certify and --baseline"
        )
    known = None
    if labels is not None:
        known = Truths(labels) if isinstance(labels, Mapping) else read_labels(Path(labels))
    crew = parse_workers(str(workers))
    records, truths, left_out = _open(pool, equivalence=equivalence, workers=crew)
    truths = None if without_truths else truths
    own, shown = records.schedule, replace(crew, shown=True)
    checkpoints = choose_schedule(own, schedule, most=max_samples, recorded=own.last)
    if policy is not None:
        check_label(policy, checkpoints, scored=scoring is not None, paper=paper)
    if known is not None:
        if truths is not None:
            raise UsageError(
                "a pool with truths needs no --labels; --without-truths leaves them out"
            )
        known = fit_labels(known, records)
    learner: Learner
    if scoring is not None:
        learner = scoring
    elif paper:
        learner = PaperLearner(load_encoder(encoder), shares=BUILD_SHARES)
    else:
        teacher = MAJORITY if truths is None else LABELS
        given = _weights_of(weigher)
        learner = VoteLearner(teacher, given=given, labels=known, workers=shown)
    if scoring is None and (paper or policy is not None):
        need_truths(records, truths)
    told: dict[str, Any] = {"encoder_name": encoder, "seed": seed}
    if policy is not None:
        built = build_stated(
            policy, learner, records, truths, schedule=checkpoints, workers=shown, **told
        )
    else:
        table = learner.prepare(records, truths, schedule=checkpoints, workers=shown)
        table.readability.check(records.task, records.name)
        families = getattr(table, "families", {})
        for strange in sorted({*baselines} - {*families}):
            named = ", ".join(families)
            raise UsageError(f'--baseline is one of {named}, but got "{strange}"')
        goal = _goal(learner, scoring, limit)
        built = build(learner, table, goal, baselines=baselines, teacher=weigher, **told)
    if tell is not None:
        rewards = tell_rewards(scoring, truths) if scoring else None
        tell(replace(built, left_out=left_out, rewards=rewards))
    return built.controller


def _limit(
    scoring: VoteLearner | None,
    max_loss: float | None,
    certify: float | None,
    beside: Mapping[str, bool],
) -> LossLimit:
    """The loss that is allowed; with a scorer none is, nor anything else that is for votes."""
    taken = {**beside, "--max-loss": max_loss is not None, "--certify": certify is not None}
    for option in (name for name, given in taken.items() if given and scoring is not None):
        raise UsageError(
            f"--scorer goes without {option}: best-of-n counts no votes, has a gate of its own "
            "and a price in the place of an allowed loss"
        )
    return LossLimit(LOSS if max_loss is None else max_loss, certify)


def _open(
    pool: Records | str | Path, *, equivalence: bool, workers: Workers
) -> tuple[Records, Truths | None, str | None]:
    """What `open_graded` tells of a pool; a small one is read once and held in memory."""
    if isinstance(pool, str | Path):
        pool = open_pool(pool, equivalence=equivalence)
    records, truths, left_out = open_graded(pool, workers=workers)
    if isinstance(pool, Pool) and (pool.is_open or pool.size <= HELD) and workers == SERIAL:
        records = hold(records)
    return records, truths, left_out


def _goal(learner: Learner, scoring: VoteLearner | None, limit: LossLimit) -> Goal:
    """What a setting is chosen for: the best worth, or the cheapest within a limit."""
    if scoring is not None:
        return MostUtility(scoring.price)
    by_agreement = getattr(learner, "teacher", None) == MAJORITY
    return limit_for(learner, limit.max_loss, limit.alpha, by_agreement=by_agreement)


def _weights_of(teacher: Controller | None) -> Weigher | None:
    """The weights that a controller brings along."""
    if teacher is None:
        return None
    if isinstance(teacher.weigher, Weigher):
        return teacher.weigher
    raise UsageError(
        f"the controller {teacher.label}, which should bring its weights along, has none: its "
        "votes are plain"
    )


def _learn_and_judge(
    made: Evaluation, learner: Learner, goal: Goal, schedule: Schedule, *, clean: bool
) -> Evaluation:
    """Learn from some questions and judge others, as the protocol says."""
    seed, workers = made.seed, made.workers
    table = learner.prepare(made.records, made.truths, schedule=schedule, workers=workers)
    if made.protocol == CROSSFIT:
        done = crossfit(learner, table, seed=seed, clean=clean, workers=workers)
    elif made.protocol == NESTED:
        [done] = nested(learner, table, [goal], seed=seed, workers=workers)
    else:
        done = holdout(learner, table, goal, seed=seed)
    return with_judgement(made, done, table)


def _find_seen(controller: Controller, records: Records, protocol: str) -> list[str]:
    """The questions a controller has seen; none are allowed in a holdout test."""
    if protocol in (CROSSFIT, NESTED):
        raise UsageError(f"--controller goes with replay or holdout, not with {protocol}")
    seen = controller.find_seen(records.questions.values())
    if protocol == HOLDOUT and seen:
        raise ProtocolError(
            f"the controller was fitted or calibrated on {len(seen)} of these questions, the "
            f"first is {seen[0]}; a holdout test needs questions it has never seen"
        )
    return seen


def _with_controller(
    made: Evaluation,
    controller: Controller,
    replayed: ReplaySettings,
    own: Sequence[Policy],
    seen: Sequence[str],
) -> Evaluation:
    """A controller's row, its own full budget and policies on its votes, beside plain votes."""
    policy: Policy = controller.policy
    if not replayed.scored:
        replayed = replace(replayed, weigher=controller.weigher)
        policy = Live.of(policy)  # as it answers people
    policies = [policy, Fixed(replayed.schedule.last), *own]
    judged = replayed.evaluate(made.records, policies, workers=made.workers).points
    point = replace(
        judged[0],
        policy=controller.label,
        family=family_of(controller.policy),
        setting=setting_of(controller.policy),
        kind=Kind.CONTROLLER,
        in_sample=bool(seen),
    )
    frontier = made.frontier.with_point(judged[1]).with_point(point)
    for other in judged[2 : len(policies)]:
        if other.policy != point.policy:
            frontier = frontier.with_point(replace(other, in_sample=bool(seen)))
    abroad = _find_abroad(controller, made.records)
    return replace(made, frontier=frontier, seen=len(seen), abroad=abroad)


def _find_abroad(controller: Controller, records: Records) -> str | None:
    """What a controller would say that was brought to a pool it does not know; None at home."""
    lookout = controller.make_lookout()
    for question in records.questions.values():
        lookout.see(question)
        if lookout.abroad:
            break
    if not lookout.doubt:
        return None
    return (
        "these questions are not like those it was taught on: they are "
        f"{lookout.reason}; aera solve and aera serve would let plain votes decide, and here it is "
        "shown as it stands"
    )
