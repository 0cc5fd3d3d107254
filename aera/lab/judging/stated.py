"""A controller that runs the policy that somebody stated; what that needs is learned first."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from aera.core import Schedule
from aera.errors import ProtocolError, UsageError, check_share
from aera.lab.calibrating.families import GATE_FAMILY
from aera.lab.judging.asked import check_fixed, gate_threshold, needs_controller
from aera.lab.judging.build import Built, hash_questions, make_card
from aera.lab.judging.figures import Stated
from aera.lab.judging.protocols import learn_and_tune
from aera.lab.judging.taught import find_home
from aera.lab.learning.learner import Learner, Measured, Model, check_enough
from aera.lab.learning.rewards import RewardLearner
from aera.lab.learning.votes import VoteLearner, VoteTable
from aera.lab.replay.frontier import Point, replayed_points
from aera.lab.replay.replay import ReplaySettings
from aera.lab.truths import Truths
from aera.policies.gate import Gated
from aera.policies.labels import FIXED, GATED, check_runs_live, parse_policy, strip_weighted
from aera.policies.rules import Policy
from aera.pools.pool import HeldRecords, Records
from aera.reading.task import Readability
from aera.solving.controller import Controller
from aera.voting.rules import gives_weights
from aera.workers import SERIAL, Track, Workers, quiet

CALIBRATED = "-calibrated"


def check_label(label: str, schedule: Schedule, *, scored: bool, paper: bool) -> None:
    """Refuse what no controller can run, before anything is learned."""
    check_runs_live(label)
    if CALIBRATED in label:
        raise UsageError(
            f'--policy "{label}" was chosen fold by fold, so no controller can run it; aera train '
            "without --policy chooses one setting"
        )
    if label.startswith(GATED):
        return check_share("aera", gate_threshold(label))
    if scored and not label.startswith(FIXED):
        raise UsageError(
            f'--policy "{label}" counts votes, and best-of-n has none: a scorer goes with fixed-N '
            "and aera-T"
        )
    if paper and needs_controller(label):
        raise UsageError(f'--policy "{label}" needs learned weights, and --paper learns none')
    return check_fixed(label, parse_policy(strip_weighted(label)), schedule)


@dataclass(frozen=True)
class Statement:
    """A stated policy, and how what it needs is learned."""

    label: str
    learner: Learner[Any]
    schedule: Schedule
    encoder_name: str | None = None
    seed: int = 0

    def build(
        self,
        records: Records,
        truths: Truths,
        *,
        workers: Workers = SERIAL,
        track: Track = quiet,
    ) -> Built:
        """The controller, with what its policy kept, lost and saved on these questions."""
        if not needs_controller(self.label):
            return self._build_plain(records, truths, workers)
        known: dict[str, Any] = {"workers": workers, "track": track}
        table = self.learner.prepare(records, truths, schedule=self.schedule, **known)
        table.readability.check(records.task, records.name)
        return self._build_learned(table)

    def _build_plain(self, records: Records, truths: Truths, workers: Workers) -> Built:
        """A policy on plain votes, or on scores, that needs nothing learned."""
        policy, learner = parse_policy(self.label), self.learner
        scored = learner if isinstance(learner, RewardLearner) else None
        replayed = (
            scored.replaying(records.task, self.schedule)
            if scored
            else ReplaySettings(records.task, self.schedule, truths)
        )
        done = replayed.evaluate(records, [policy], workers=workers)
        weigher = scored.best_of_n if scored else None
        controller = Controller(records.task, self.schedule, policy, weigher=weigher)
        return self._finish(controller, done.points[0], "nothing was learned", done.readability)

    def _build_learned(self, table: Any) -> Built:
        """A gate at the stated threshold, or a policy on learned weights."""
        check_enough(table)
        rows, seed = np.arange(len(table)), self.seed
        split = self.learner.split(table, rows, certified=False, seed=seed)
        model, tuning = learn_and_tune(self.learner, table, rows, certified=False, seed=seed)
        point, policy = (
            self._gated(model, tuning)
            if self.label.startswith(GATED)
            else self._weighted(model, table)
        )
        controller = Controller(
            task=table.task,
            schedule=table.schedule,
            policy=policy,
            gate=model.gate,
            weigher=model.weigher,
            encoder_name=self.encoder_name,
            fitted=hash_questions(table.questions, np.concatenate([split.fit, split.held])),
            home=find_home(table, model.weigher, split.fit),
        )
        return self._finish(controller, point, model.learned, table.readability)

    def _gated(self, model: Model[Any], tuning: Measured) -> tuple[Point, Policy]:
        """The gate at the stated threshold, on questions that it was not fitted on."""
        threshold = gate_threshold(self.label)
        assert model.gate is not None, "every learner of a command has a gate"
        policy = Gated(model.gate, threshold)
        columns = GATE_FAMILY.stops(tuning.values[GATE_FAMILY.name], threshold)
        weighted = gives_weights(model.weigher)
        [point] = replayed_points(
            [policy], columns[:, None], tuning.trajectories, weighted=weighted
        )
        return point, policy

    def _weighted(self, model: Model[Any], table: VoteTable) -> tuple[Point, Policy]:
        """A policy on learned weights, every question weighed by what others taught."""
        plain = strip_weighted(self.label)
        if model.weigher is None:
            raise ProtocolError(
                f'learned weights do not clearly gain on "{table.name}", so there are none for '
                f'"{self.label}"; the policy without them is "{plain}"'
            )
        assert isinstance(self.learner, VoteLearner)
        policy, rows = parse_policy(plain), np.arange(len(table))
        weights = self.learner.weigher.out_of_fold(
            table.responses, groups=table.groups, seed=self.seed, workers=self.learner.workers
        )
        records = HeldRecords(table.weigh(rows, weights), table.task, table.schedule)
        settings = ReplaySettings(table.task, table.schedule, table.truths)
        done = settings.replay(records, [policy])
        [point] = replayed_points([policy], done.columns, done.trajectories, weighted=True)
        return point, policy

    def _finish(
        self, controller: Controller, point: Point, learned: str, readability: Readability
    ) -> Built:
        """With its calibration file and its card."""
        taught = bool(controller.fitted)
        stated = Stated.of(point, learned=taught, seed=self.seed)
        told = {**asdict(stated), "stated": True, "summary": stated.summary}
        told |= {"learned": learned, "feasible": stated.feasible, "seed": self.seed}
        if isinstance(self.learner, RewardLearner):
            told["price"] = self.learner.price
        lines = [f"**Calibration**: {stated.summary}.", f"**There**: {stated.kept}."]
        lines.append(f"**Learned**: {learned}.")
        if taught:
            lines.append(
                f"**Learned from** {len(controller.fitted)} questions; their hashes are in\n"
                "  `config.json`, so that a test on them is noticed."
            )
        whole = replace(controller, calibration=told)
        carded = replace(whole, card=make_card(whole, lines))
        return Built(carded, stated, learned, point, readability)
