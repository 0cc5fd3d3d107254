"""Evaluate a pool, and train a controller on it: one call each, which the commands make too."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aera.core import Schedule
from aera.errors import ProtocolError, UsageError
from aera.lab.asked import Asked, ask_policies, choose_schedule
from aera.lab.build import BUILD_SHARES, Built, build, build_stated, check_label
from aera.lab.calibrating.calibration import Goal, LossLimit
from aera.lab.judging.protocols import crossfit, holdout, limit_for, nested
from aera.lab.learning.learner import Learner
from aera.lab.learning.paper import PaperLearner, PaperTable
from aera.lab.learning.votes import MAJORITY, learn_votes
from aera.lab.replay.frontier import Kind
from aera.lab.replay.money import Prices
from aera.lab.replay.replay import ReplaySettings
from aera.lab.replay.scored import ScoredReplay
from aera.lab.summary import (
    CROSSFIT,
    HOLDOUT,
    NESTED,
    REPLAY,
    Evaluation,
    EvaluationSettings,
    Scoring,
    compare_utility,
    crossfit_frontier,
    crossfit_sections,
    judgement_frontier,
    judgement_sections,
    scored_sections,
    scoring_for,
    with_oracle,
)
from aera.lab.truths import Graded, Truths, check_labels, need_truths, open_graded, read_labels
from aera.paper.encoder import load_encoder
from aera.policies.gate import Live
from aera.policies.rules import Fixed, Policy, family_of, setting_of
from aera.pools.parquet import open_pool
from aera.pools.pool import Pool, Records, hold
from aera.solving.controller import Controller
from aera.voting.rules import RULES, Scorer
from aera.voting.weigher import Weigher
from aera.workers import SERIAL, Shown, Workers, parse_workers

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
) -> "Evaluation":
    """What each policy would have spent and lost on recorded responses.

    `policies` are values or labels ("fixed-32,asc-0.95"), or the standard ones; the `rule` that
    selects the answer is "vote" or "re2-vote". With a `scorer` it is best-of-n. `prices` are of a
    million prompt and completion tokens. `max_loss` is 0.02 where it is not given.

    result = aera.evaluate(aera.open_pool("pools/gsm8k"))
    pandas.DataFrame(result.rows())     # or polars; print(result) shows a table
    """
    scoring = scoring_for(scorer, price=price, judge=judge, controller=controller)
    if scoring is not None and max_loss is not None:
        raise UsageError("--max-loss is for votes, and --scorer has a --price for that")
    settings = EvaluationSettings(
        protocol=protocol,
        rule=rule,
        paper=paper,
        clean=clean,
        encoder=encoder,
        max_loss=LOSS if max_loss is None else max_loss,
        alpha=certify,
        seed=seed,
        prices=None if prices is None else Prices(*prices),
        scoring=scoring,
        without_truths=without_truths,
    )
    working = parse_workers(str(workers))
    equal = controller.task.equivalence if controller else equivalence
    graded = _open(pool, equivalence=equal, workers=working)
    own, last = (controller or graded.records).schedule, graded.records.schedule.last
    chosen = choose_schedule(own, schedule, most=max_samples, recorded=last)
    asked = ask_policies(
        policies, chosen, controller=controller, scored=scoring is not None, encoder=encoder
    )
    made = evaluate_pool(
        graded.records,
        asked,
        truths=graded.truths,
        settings=replace(settings, schedule=chosen),
        controller=controller,
        workers=Shown(working),
    )
    return replace(made, left_out=graded.remark)


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
    tell: Callable[[Built, Graded], None] | None = None,
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
    if max_loss is not None and (scorer or policy):
        why = "--policy states one" if policy else "--scorer has a --price for that"
        raise UsageError(f"--max-loss chooses a setting, and {why}")
    settings = TrainSettings(
        max_loss=LOSS if max_loss is None else max_loss,
        alpha=certify,
        policy=policy,
        scoring=scoring_for(scorer, price=price, judge=judge),
        paper=paper,
        baselines=tuple(baselines),
        encoder=encoder,
        seed=seed,
        without_truths=without_truths,
        labels=_labels(labels),
        teacher=weigher,
    )
    working = parse_workers(str(workers))
    graded = _open(pool, equivalence=equivalence, workers=working)
    own = graded.records.schedule
    chosen = choose_schedule(own, schedule, most=max_samples, recorded=own.last)
    built = train_pool(
        graded.records,
        graded.truths,
        replace(settings, schedule=chosen),
        workers=Shown(working),
    )
    if tell is not None:
        tell(built, graded)
    return built.controller


def _open(pool: Records | str | Path, *, equivalence: bool, workers: Workers) -> Graded:
    """Recorded responses that can be judged; small pools are read once and held in memory."""
    records = pool
    if isinstance(records, str | Path):
        records = open_pool(records, equivalence=equivalence)
    graded = open_graded(records, workers=workers)
    small = isinstance(records, Pool) and (records.is_open or records.size <= HELD)
    return replace(graded, records=hold(graded.records)) if small and workers == SERIAL else graded


def _labels(given: Mapping[str, str] | str | Path | None) -> Truths | None:
    if given is None or isinstance(given, Mapping):
        return None if given is None else Truths(given)
    return read_labels(Path(given))


# --- evaluation -----------------------------------------------------------------------------------


def evaluate_pool(
    records: Records,
    policies: Asked | Sequence[Policy],
    *,
    truths: Truths | None,
    settings: EvaluationSettings,
    controller: Controller | None = None,
    workers: Workers = SERIAL,
) -> Evaluation:
    """Replay the policies; then add a controller, or learn and judge as the protocol says."""
    asked = policies if isinstance(policies, Asked) else Asked((*policies,))
    checkpoints = settings.schedule
    if checkpoints is None:
        checkpoints = records.schedule if controller is None else controller.schedule
    replayed: ReplaySettings | ScoredReplay
    replayed = ReplaySettings(records.task, checkpoints, truths, RULES[settings.rule])
    if settings.scoring is not None:
        known = settings.scoring.learner(records, truths)
        assert known.best_of_n is not None
        replayed = ScoredReplay(records.task, checkpoints, known.best_of_n, known.judge)
    seen = _find_seen(controller, records, settings) if controller else []
    frontier = replayed.evaluate(records, asked.plain, workers=workers)
    made = Evaluation(
        records, settings, asked.plain, truths, frontier, controller=controller, workers=workers
    )
    if settings.scoring is not None:
        sections = {"best_of_n": settings.scoring.as_json(truths)}
        best = with_oracle(frontier, settings.scoring.price)
        made = replace(made, frontier=best, sections=sections)
    if controller is not None:
        made = _with_controller(made, controller, replayed, own=asked.own, seen=seen)
    elif settings.protocol != REPLAY:
        made = _with_protocol(made, checkpoints, workers)
    return made


def _with_scoring(
    made: Evaluation, scoring: Scoring, schedule: Schedule, workers: Workers
) -> Evaluation:
    """Learn best-of-n and judge it: nested or holdout."""
    settings, seed = made.settings, made.settings.seed
    learner = scoring.learner(made.records, made.truths)
    table = learner.prepare(made.records, schedule=schedule, workers=workers)
    if settings.protocol == NESTED:
        [judged] = nested(learner, table, [scoring.goal], seed=seed, workers=workers)
    else:
        judged = holdout(learner, table, scoring.goal, seed=seed)
    frontier = with_oracle(judgement_frontier(judged, made.frontier.points), scoring.price)
    sections = scored_sections(judged, price=scoring.price, seed=seed)
    return replace(
        made,
        frontier=replace(frontier, readability=made.readability),
        sections={**made.sections, **sections},
        done=judged,
    )


def _with_protocol(made: Evaluation, schedule: Schedule, workers: Workers) -> Evaluation:
    """Learn and judge."""
    if made.settings.scoring is not None:
        return _with_scoring(made, made.settings.scoring, schedule, workers)
    settings, truths = made.settings, made.truths
    if settings.by_paper:
        truths = need_truths(made.records, truths)
    learner = settings.learner(truths)
    table = learner.prepare(made.records, truths, schedule=schedule, workers=workers)
    seed, given = settings.seed, made.frontier.points
    if settings.protocol == CROSSFIT:
        done = crossfit(learner, table, seed=seed, clean=settings.clean, workers=workers)
        assert isinstance(table, PaperTable)
        frontier = crossfit_frontier(done, table, given, seed=seed)
        frontier = replace(frontier, readability=made.readability)
        sections = crossfit_sections(done, frontier, seed=seed)
        return replace(made, frontier=frontier, sections=sections, done=done)
    by_agreement = getattr(learner, "teacher", None) == MAJORITY
    limit = limit_for(learner, settings.max_loss, settings.alpha, by_agreement=by_agreement)
    if settings.protocol == NESTED:
        [judged] = nested(learner, table, [limit], seed=seed, workers=workers)
    else:
        judged = holdout(learner, table, limit, seed=seed)
    frontier = replace(judgement_frontier(judged, given), readability=made.readability)
    sections = judgement_sections(judged, frontier, seed=seed)
    return replace(made, frontier=frontier, sections=sections, done=judged)


def _find_seen(controller: Controller, records: Records, settings: EvaluationSettings) -> list[str]:
    """The questions a controller has seen; none are allowed in a holdout test."""
    if settings.protocol in (CROSSFIT, NESTED):
        raise UsageError(f"--controller goes with replay or holdout, not with {settings.protocol}")
    seen = controller.find_seen(records.questions.values())
    if settings.protocol == HOLDOUT and seen:
        raise ProtocolError(
            f"the controller was fitted or calibrated on {len(seen)} of these questions, the "
            f"first is {seen[0]}; a holdout test needs questions it has never seen"
        )
    return seen


def _with_controller(
    made: Evaluation,
    controller: Controller,
    replayed: ReplaySettings | ScoredReplay,
    *,
    own: Sequence[Policy],
    seen: Sequence[str],
) -> Evaluation:
    """A controller's row, its own full budget and policies on its votes, beside plain votes."""
    policy: Policy = controller.policy
    if isinstance(replayed, ReplaySettings):
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
    status = f"in-sample: {len(seen)} questions were seen in training" if seen else "unseen"
    told: dict[str, Any] = {"policy": point.policy, "seen": len(seen), "status": status}
    told |= {"task": controller.task.name, "calibration": dict(controller.calibration)}
    told["abroad"] = _find_abroad(controller, made.records)
    sections: dict[str, Any] = {**made.sections, "controller": told}
    scoring = made.settings.scoring
    if scoring is not None:
        seed = made.settings.seed
        sections["outcome"] = compare_utility(point, (), price=scoring.price, seed=seed)
    return replace(made, frontier=frontier, sections=sections)


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


# --- training -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainSettings:
    """What a controller is made for."""

    max_loss: float = 0.02
    alpha: float | None = None
    policy: str | None = None
    """The label of a policy to run as it stands; None chooses one."""
    scoring: Scoring | None = None
    """Best-of-n; None where answers are voted on."""
    paper: bool = False
    baselines: tuple[str, ...] = ()
    encoder: str | None = None
    schedule: Schedule | None = None
    """Other checkpoints than the pool's own."""
    seed: int = 0
    without_truths: bool = False
    """Whether to look at no truth, as where there are none."""
    labels: Truths | None = None
    """The right answers to a few questions, which decide on weights where there are no others."""
    teacher: Controller | None = None
    """A controller whose weights are used in the place of new ones."""

    def __post_init__(self) -> None:
        LossLimit(self.max_loss, self.alpha)  # refuses what makes no sense
        if not self.paper and (self.baselines or self.encoder):
            raise UsageError("--baseline and --encoder go with --paper")
        if self.scoring is not None and (self.paper or self.alpha is not None):
            raise UsageError(
                "--scorer goes without --paper and --certify: best-of-n has a gate of its own, "
                "and a price in the place of an allowed loss"
            )
        if (self.paper or self.scoring is not None) and (self.without_truths or self.teacher):
            raise UsageError("--without-truths and --weigher go without --paper and --scorer")
        if self.policy is not None and (self.alpha is not None or self.baselines):
            raise UsageError(
                "--policy states what runs, so there is nothing to choose: leave out --certify "
                "and --baseline"
            )

    def learner(self, records: Records, truths: Truths | None, workers: Workers) -> Learner:
        """What learns: best-of-n, the paper's gate or ours."""
        if self.scoring is not None:
            return self.scoring.learner(records, truths)
        if self.paper:
            return PaperLearner(load_encoder(self.encoder), shares=BUILD_SHARES)
        return learn_votes(truths, self._weigher, labels=self.labels, workers=workers)

    @property
    def _weigher(self) -> Weigher | None:
        """The weights that are brought along."""
        if self.teacher is None:
            return None
        if not isinstance(self.teacher.weigher, Weigher):
            raise UsageError(
                f"the controller {self.teacher.label}, which should bring its weights along, has "
                "none: its votes are plain"
            )
        return self.teacher.weigher


def train_pool(
    records: Records,
    truths: Truths | None,
    settings: TrainSettings,
    *,
    workers: Workers = SERIAL,
) -> Built:
    """Learn and calibrate, or learn what a stated policy needs."""
    schedule, scoring = settings.schedule or records.schedule, settings.scoring
    if settings.policy is not None:
        check_label(settings.policy, schedule, scored=scoring is not None, paper=settings.paper)
    truths = None if settings.without_truths else truths
    if settings.labels is not None and truths is not None:
        raise UsageError("a pool with truths needs no --labels; --without-truths leaves them out")
    if settings.labels is not None:
        check_labels(settings.labels, records)
    learner = settings.learner(records, truths, workers)
    # Best-of-n by the score looks at no truth.
    known = truths if scoring is None else truths or Truths({})
    if settings.policy is not None or settings.paper:
        known = need_truths(records, truths) if scoring is None else known
    if settings.policy is not None:
        assert known is not None
        return build_stated(
            settings.policy,
            learner,
            records,
            known,
            schedule=schedule,
            encoder_name=settings.encoder,
            seed=settings.seed,
            workers=workers,
        )
    table = learner.prepare(records, known, schedule=schedule, workers=workers)
    table.readability.check(records.task, records.name)
    _check_baselines(settings, getattr(table, "families", {}))
    return build(
        learner,
        table,
        _goal(settings, learner),
        baselines=settings.baselines,
        encoder_name=settings.encoder,
        seed=settings.seed,
        teacher=settings.teacher,
    )


def _goal(settings: TrainSettings, learner: Learner) -> Goal:
    """What the one setting is chosen for."""
    if settings.scoring is not None:
        return settings.scoring.goal
    by_agreement = getattr(learner, "teacher", None) == MAJORITY
    return limit_for(learner, settings.max_loss, settings.alpha, by_agreement=by_agreement)


def _check_baselines(settings: TrainSettings, known: dict[str, Any]) -> None:
    unknown = sorted(set(settings.baselines) - set(known))
    if unknown:
        raise UsageError(f'--baseline is one of {", ".join(known)}, but got "{unknown[0]}"')
