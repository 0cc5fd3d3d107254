"""Without truths, everywhere else: is anything worse than plain votes for the same tokens?

Nested, five split seeds; truths judge and do nothing else. The setting may change 2 % of the
answers, one standard error to spare; a table beside it, of one seed, says what can be certified.
Plain votes spend as many tokens: fixed budgets, or ASC, between the two settings next to that spend. POOLS has the four pools, traces/ and
others/; traced pools are read with their traces. Each pool and seed is kept in out/crowd once it
is done.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from models import TAUGHT_LARGE
from pools import ROOT, SEEDS, interval, pools_argument, publish, table
from small import TASKS, prepared
from traced import traced_table

from aera.arrays import Columns, Floats
from aera.lab import Judgement, LossLimit, Point, bootstrap_ratio, nested, paired_bootstrap
from aera.lab.calibrating.families import ASC_FAMILY
from aera.lab.learning.crowd import CrowdLearner, graded_by_crowd
from aera.lab.learning.paper import sweep
from aera.lab.learning.votes import ReplayedVotes, VoteTable
from aera.lab.learning.weigher import WeigherFit
from aera.lab.replay.frontier import fixed_points
from aera.lab.replay.trajectory import pick

DONE = ROOT / "out" / "crowd"
NAMES = tuple(name for name in TASKS if name != "gsm8k")
TRIED = LossLimit(0.02, margin=CrowdLearner().margin, by_agreement=True)
CERTIFIED = tuple(LossLimit(loss, 0.1, by_agreement=True) for loss in (0.02, 0.05, 0.1))
LARGE, SMALL = "1.5B, questions 400 to 799", "0.5B, questions 0 to 299"

Kept = Mapping[str, Floats]


@cache
def labelled(folder: Path, name: str) -> VoteTable:
    """A pool as its truths grade it, with its traces where it has them."""
    where, _, own = name.rpartition("/")
    return traced_table(folder / where, own) if where == "traces" else prepared(folder, name)


@dataclass(frozen=True, eq=False)
class Study:
    """One pool that is judged, and who learns on it."""

    name: str
    known: VoteTable
    learners: Sequence[CrowdLearner] = tuple(CrowdLearner() for _ in SEEDS)
    """One per seed."""

    def run(self, seed: int) -> Kept:
        """One nested run without a certificate, kept once it is done."""
        path = DONE / f"{self.name.replace('/', '-')}-{seed}.npz"
        if not path.exists():
            crowd = graded_by_crowd(self.known)
            [found] = nested(self.learners[seed], crowd, [TRIED], seed=seed)
            stops, judged = found.stops["aera"], found.trajectories
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(
                path,
                scores=pick(judged.known_grades, stops),
                spent=pick(judged.tokens, stops),
                changed=1 - pick(judged.agreement, stops),
                own=judged.known_grades[:, -1],
                used=weights_used(found),
            )
            print(f"{self.name}, seed {seed}", flush=True)
        with np.load(path) as kept:
            return dict(kept)

    def certify(self, seed: int) -> Kept:
        """One nested run with certificates at several limits."""
        path = DONE / f"{self.name.replace('/', '-')}-certified-{seed}.npz"
        if not path.exists():
            crowd = graded_by_crowd(self.known)
            found = nested(self.learners[seed], crowd, CERTIFIED, seed=seed)
            choices = [each.choices["aera"] for each in found]
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(
                path,
                certified=[[choice.feasible for choice in each] for each in choices],
                needed=[[choice.needed or 0 for choice in each] for each in choices],
                questions=[[choice.questions for choice in each] for each in choices],
                spent=[pick(each.trajectories.tokens, each.stops["aera"]) for each in found],
                scores=[pick(each.trajectories.known_grades, each.stops["aera"]) for each in found],
            )
            print(f"{self.name} certified, seed {seed}", flush=True)
        with np.load(path) as kept:
            return dict(kept)

    @property
    def plain(self) -> ReplayedVotes:
        """The table of plain votes."""
        return self.known.replay(np.arange(len(self.known)), None)

    def row(self) -> list[str]:
        """The mean over the seeds of every question; intervals over questions."""
        runs = [self.run(seed) for seed in SEEDS]
        mean = {key: np.mean([run[key] for run in runs], axis=0) for key in runs[0]}
        scores, spent, plain = mean["scores"], mean["spent"], self.plain
        votes = plain.trajectories
        gain = paired_bootstrap(100 * mean["own"], 100 * votes.known_grades[:, -1], seed=0)
        saved = bootstrap_ratio(spent, votes.tokens[:, -1], seed=0)
        cells = [self.name, f"{len(scores)}", f"{100 * votes.known_grades[:, -1].mean():.2f}"]
        cells += [f"{sum(run['used'].sum() for run in runs):.0f} of {5 * len(runs)}"]
        cells += [f"{gain.difference:+.2f} {interval(gain.low, gain.high)}"]
        cells += [f"{100 * scores.mean():.2f}"]
        cells += [f"{100 - saved.percent:.1f} [{100 - saved.high:.1f}, {100 - saved.low:.1f}]"]
        cells += [f"{100 * mean['changed'].mean():.2f}"]
        for rival in rivals(plain):
            mixed = at_spend(rival, float(spent.mean()))
            gap = paired_bootstrap(100 * scores, 100 * mixed, seed=0)
            cells += [f"{gap.difference:+.2f} {interval(gap.low, gap.high)}"]
        return cells

    def certified_row(self) -> list[str]:
        """How many certificates each limit got, and what the failed ones would take."""
        runs = [self.certify(seed) for seed in SEEDS[:1]]
        full = self.plain.trajectories
        cells = [self.name, f"{np.mean([run['questions'] for run in runs]):.0f}"]
        for place in range(len(CERTIFIED)):
            got = np.array([run["certified"][place] for run in runs])
            needed = np.array([run["needed"][place] for run in runs])[got == 0]
            more = f", {np.median(needed[needed > 0]):.0f} needed" if (needed > 0).any() else ""
            spent = np.mean([run["spent"][place] for run in runs], axis=0)
            scores = np.mean([run["scores"][place] for run in runs])
            ahead = 100 * (scores - full.known_grades[:, -1].mean())
            share = 100 * spent.sum() / full.tokens[:, -1].sum()
            cells += [f"{got.sum():.0f} of {got.size}{more}", f"{ahead:+.2f} for {share:.1f}"]
        return cells


def weights_used(found: Judgement) -> Floats:
    """1 for every outer fold whose votes were weighted."""
    used = np.zeros(5)
    for fold, record in zip(found.folds, found.measured.records, strict=True):
        used[fold] = max(used[fold], any(vote.weight != 1 for vote in record.votes))
    return used


def rivals(plain: ReplayedVotes) -> tuple[list[Point], list[Point]]:
    """Fixed budgets and all settings of ASC, on plain votes."""
    votes, fine = plain.trajectories, replace(ASC_FAMILY, settings=ASC_FAMILY.fine)
    return fixed_points(votes), sweep(fine, plain.confidence, votes)


def at_spend(points: Sequence[Point], tokens: float) -> Floats:
    """The grades of a policy for so many tokens, between its two settings next to them."""
    ordered = sorted(points, key=lambda point: point.tokens)
    place = int(np.clip(np.searchsorted([each.tokens for each in ordered], tokens), 1, None))
    if place >= len(ordered):
        return ordered[-1].scores
    low, high = ordered[place - 1], ordered[place]
    share = np.clip((tokens - low.tokens) / max(1e-9, high.tokens - low.tokens), 0, 1)
    mixed: Floats = (1 - share) * low.scores + share * high.scores
    return mixed


def borrowed(folder: Path) -> list[Study]:
    """Weights taught with labels on one model, brought to the other; and the crowd's own beside."""
    small, whole = prepared(folder, "traces/gsm8k-half"), prepared(folder, "gsm8k")
    later = np.flatnonzero([int(each.id[-5:]) in TAUGHT_LARGE for each in whole.questions])
    large = part_of(whole, later)
    studies = []
    for title, judged, teacher in ((SMALL, small, large), (LARGE, large, small)):
        weighers = [WeigherFit().fit_tiers(teacher.responses, seed=seed) for seed in SEEDS]
        brought = [CrowdLearner(given=each) for each in weighers]
        studies += [Study(f"{title}: its own crowd's", judged)]
        studies += [Study(f"{title}: brought from the other", judged, brought)]
    return studies


def part_of(known: VoteTable, rows: Columns) -> VoteTable:
    """Some of the questions as a table of their own."""
    records = tuple(known.records[row] for row in rows)
    return replace(known, records=records, responses=known.responses.subset(rows))


HEADER = [
    "pool",
    "questions",
    "128 plain votes %",
    "weights used",
    "full budget against plain votes",
]
HEADER += ["accuracy %", "tokens, % of all votes", "changed, %"]
HEADER += ["against fixed plain votes for the same tokens", "against plain ASC for the same tokens"]
LIMITED = ["pool", "questions that certify"]
for limit in CERTIFIED:
    LIMITED += [f"{100 * limit.max_loss:g} %: certified", "against all plain votes, for % tokens"]


def main(folder: Path) -> None:
    pools = (Study(name, labelled(folder, name)) for name in NAMES)
    rows = [(each.row(), each.certified_row()) for each in pools]
    publish("crowd-pools", table(HEADER, [row for row, _ in rows]))
    publish("crowd-certified", table(LIMITED, [row for _, row in rows]))
    publish("crowd-borrowed", table(HEADER, [each.row() for each in borrowed(folder)]))


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
