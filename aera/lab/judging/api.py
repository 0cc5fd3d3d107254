"""The short way in Python: evaluate a pool, and train a controller on it, in one call each."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from aera.core import Schedule
from aera.lab.judging.asked import ask_policies, choose_schedule
from aera.lab.judging.best_of_n import scoring_for
from aera.lab.judging.evaluation import Evaluation, EvaluationSettings, evaluate_pool
from aera.lab.judging.labelling import read_labels
from aera.lab.judging.training import TrainSettings, train_pool
from aera.lab.open import open_graded
from aera.lab.replay.money import Prices
from aera.lab.truths import Truths
from aera.policies.rules import Policy
from aera.pools.parquet import open_pool
from aera.pools.pool import Records
from aera.solving.controller import Controller
from aera.voting.rules import Scorer
from aera.workers import parse_workers, show_progress


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
    max_samples: int | None = None,
    rule: str = "vote",
    scorer: Scorer | None = None,
    price: float | None = None,
    judge: str | None = None,
    prices: tuple[float, float] | None = None,
    without_truths: bool = False,
    clean: bool = False,
    encoder: str | None = None,
    seed: int = 0,
    workers: int | str = 1,
) -> Evaluation:
    """What each policy would have spent and lost on recorded responses.

    `policies` are values or labels ("fixed-32,asc-0.95"), or the standard ones; the `rule` that
    selects the answer is "vote" or "re2-vote". With a `scorer` it is best-of-n. `prices` are of a
    million prompt and completion tokens.

    result = aera.evaluate(aera.open_pool("pools/gsm8k"))
    pandas.DataFrame(result.rows())     # or polars; print(result) shows a table
    """
    records = open_pool(pool) if isinstance(pool, str | Path) else pool
    working = parse_workers(str(workers))
    scoring = scoring_for(scorer, price=price, judge=judge, controller=controller)
    own, last = (controller or records).schedule, records.schedule.last
    checkpoints = choose_schedule(own, _parse(schedule), most=max_samples, recorded=last)
    settings = EvaluationSettings(
        protocol=protocol,
        rule=rule,
        paper=paper,
        clean=clean,
        encoder=encoder,
        max_loss=max_loss,
        alpha=certify,
        seed=seed,
        schedule=checkpoints,
        prices=None if prices is None else Prices(*prices),
        scoring=scoring,
        without_truths=without_truths,
    )
    known: dict[str, Any] = {"controller": controller, "encoder": encoder}
    asked = ask_policies(policies, checkpoints, scored=scoring is not None, **known)
    graded = open_graded(records, workers=working)
    done: dict[str, Any] = {"controller": controller, "workers": working, "track": show_progress}
    made = evaluate_pool(graded.records, asked, truths=graded.truths, settings=settings, **done)
    return replace(made, left_out=graded.remark)


def train(
    pool: Records | str | Path,
    *,
    max_loss: float = 0.02,
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
    seed: int = 0,
    workers: int | str = 1,
) -> Controller:
    """Learn how votes weigh and when to stop, calibrated to the accuracy you allow to lose.

    With a `scorer` it is best-of-n, at a `price`. A `policy` by its label runs as it stands. A pool
    without truths is learned from by its clear votes, and `max_loss` is then the share of answers
    that may differ from the full budget's; `labels`, right answers by question or a file as `aera
    label` writes it, decide on weights there. A `weigher` brings its weights from elsewhere. The
    `baselines` ("asc") are used with `paper` where they save more.

    controller = aera.train("pools/gsm8k", max_loss=0.02)
    controller.save("controllers/gsm8k")
    """
    records = open_pool(pool) if isinstance(pool, str | Path) else pool
    working = parse_workers(str(workers))
    graded, own = open_graded(records, workers=working), records.schedule
    settings = TrainSettings(
        max_loss=max_loss,
        alpha=certify,
        policy=policy,
        scoring=scoring_for(scorer, price=price, judge=judge),
        paper=paper,
        baselines=tuple(baselines),
        encoder=encoder,
        schedule=choose_schedule(own, _parse(schedule), most=max_samples, recorded=own.last),
        seed=seed,
        without_truths=without_truths,
        labels=_labels(labels),
        teacher=weigher,
    )
    known = graded.records, graded.truths
    return train_pool(*known, settings, workers=working, track=show_progress).controller


def _labels(given: Mapping[str, str] | str | Path | None) -> Truths | None:
    if given is None or isinstance(given, Mapping):
        return None if given is None else Truths(given)
    return read_labels(Path(given))


def _parse(schedule: Schedule | str | None) -> Schedule | None:
    return Schedule.parse(schedule) if isinstance(schedule, str) else schedule
