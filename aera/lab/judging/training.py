"""Training: a controller from a pool as somebody asked for it, whatever it is learned by."""

from dataclasses import dataclass
from typing import Any

from aera.core import Schedule
from aera.errors import UsageError
from aera.lab.calibrating.calibration import Goal, LossLimit
from aera.lab.judging.best_of_n import Scoring
from aera.lab.judging.build import BUILD_SHARES, Built, build
from aera.lab.judging.protocols import limit_for
from aera.lab.judging.stated import Statement, check_label
from aera.lab.learning.crowd import CrowdLearner, learn_votes
from aera.lab.learning.learner import Learner
from aera.lab.learning.paper import PaperLearner
from aera.lab.open import need_truths
from aera.lab.truths import Truths
from aera.paper.encoder import load_encoder
from aera.pools.pool import Records
from aera.solving.controller import Controller
from aera.voting.weigher import Weigher
from aera.workers import SERIAL, Track, Workers, quiet


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

    def learner(self, records: Records, truths: Truths | None, workers: Workers) -> Learner[Any]:
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
    track: Track = quiet,
) -> Built:
    """Learn and calibrate, or learn what a stated policy needs."""
    schedule, scoring = settings.schedule or records.schedule, settings.scoring
    if settings.policy is not None:
        check_label(settings.policy, schedule, scored=scoring is not None, paper=settings.paper)
    truths = None if settings.without_truths else truths
    if settings.labels is not None and truths is not None:
        raise UsageError("a pool with truths needs no --labels; --without-truths leaves them out")
    learner = settings.learner(records, truths, workers)
    # Best-of-n by the score looks at no truth.
    known = truths if scoring is None else truths or Truths({})
    if settings.policy is not None or settings.paper:
        known = need_truths(records, truths) if scoring is None else known
    if settings.policy is not None:
        assert known is not None
        stated = Statement(settings.policy, learner, schedule, settings.encoder, settings.seed)
        return stated.build(records, known, workers=workers, track=track)
    table = learner.prepare(records, known, schedule=schedule, workers=workers, track=track)
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


def _goal(settings: TrainSettings, learner: Learner[Any]) -> Goal:
    """What the one setting is chosen for."""
    if settings.scoring is not None:
        return settings.scoring.goal
    by_agreement = isinstance(learner, CrowdLearner)
    return limit_for(learner, settings.max_loss, settings.alpha, by_agreement=by_agreement)


def _check_baselines(settings: TrainSettings, known: dict[str, Any]) -> None:
    unknown = sorted(set(settings.baselines) - set(known))
    if unknown:
        raise UsageError(f'--baseline is one of {", ".join(known)}, but got "{unknown[0]}"')
