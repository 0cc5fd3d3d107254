"""The short way in Python: evaluate a pool, and train a controller on it, in one call each."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from aera.lab.judging.build import build, choose_learner
from aera.lab.judging.evaluation import (
    Evaluation,
    EvaluationSettings,
    evaluate_pool,
    parse_policies,
)
from aera.lab.judging.protocols import limit_for
from aera.lab.open import need_truths, open_graded
from aera.policies.labels import standard_policies
from aera.policies.policy import Policy
from aera.pools.open import open_pool
from aera.pools.record import Records
from aera.progress import show_progress
from aera.schedule import Schedule
from aera.solving.controller import Controller
from aera.workers import parse_workers


def evaluate(
    pool: Records | str | Path,
    policies: Sequence[Policy] | str | None = None,
    *,
    controller: Controller | None = None,
    protocol: str = "replay",
    paper: bool = False,
    max_loss: float = 0.02,
    certify: float | None = None,
    schedule: Schedule | str | None = None,
    seed: int = 0,
    workers: int | str = 1,
) -> Evaluation:
    """What each policy would have spent and lost on recorded responses.

    `policies` are values or labels ("fixed-32,asc-0.95"); without them the standard ones. The pool
    brings its task, its checkpoints and, where it has them, its truths.

    result = aera.evaluate(aera.open_pool("pools/gsm8k"))
    print(result)                       # a table
    pandas.DataFrame(result.rows())     # or polars
    """
    records = open_pool(pool) if isinstance(pool, str | Path) else pool
    working = parse_workers(str(workers))
    chosen = Schedule.parse(schedule) if isinstance(schedule, str) else schedule
    settings = EvaluationSettings(
        protocol=protocol, paper=paper, max_loss=max_loss, alpha=certify, seed=seed, schedule=chosen
    )
    checkpoints = chosen or (controller or records).schedule
    if policies is None:
        policies = standard_policies(checkpoints)
    elif isinstance(policies, str):
        policies = parse_policies(policies, records, checkpoints, seed=seed)
    graded = open_graded(records, workers=working)
    made = evaluate_pool(
        graded.records,
        policies,
        truths=graded.truths,
        settings=settings,
        controller=controller,
        workers=working,
        track=show_progress,
    )
    return replace(made, left_out=graded.remark)


def train(
    pool: Records | str | Path,
    *,
    max_loss: float = 0.02,
    certify: float | None = None,
    paper: bool = False,
    encoder: str | None = None,
    seed: int = 0,
    workers: int | str = 1,
) -> Controller:
    """Learn how votes weigh and when to stop, calibrated to the accuracy you allow to lose.

    controller = aera.train("pools/gsm8k", max_loss=0.02)
    controller.save("controllers/gsm8k")
    """
    records = open_pool(pool) if isinstance(pool, str | Path) else pool
    working = parse_workers(str(workers))
    graded = open_graded(records, workers=working)
    truths = need_truths(records, graded.truths)
    learner = choose_learner(paper=paper, encoder=encoder, workers=working)
    table = learner.prepare(graded.records, truths, workers=working, track=show_progress)
    table.readability.check(records.task, records.name)
    limit = limit_for(learner, max_loss, certify)
    return build(learner, table, limit, encoder_name=encoder, seed=seed).controller
