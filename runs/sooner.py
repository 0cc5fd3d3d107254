"""How long it takes: what questions wait with AERA, at every hurry, beside budgets asked at once.

Nested on gsm8k's 800 questions, 2 points allowed, split seed 0. Time is simulated from the tokens
of the recorded responses, and told as a ratio to that of Fixed-128, so that the speed of a server
does not matter. The chance that a later block is wanted is learned on the inner questions of each
outer fold, as everything else. Then the same at 64 slots, as questions arrive.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from pools import pools_argument, publish, table, vote_table

from aera import Schedule
from aera.arrays import Columns, Floats
from aera.lab import Judgement, VoteLearner, limit_for, nested
from aera.lab.calibrating.families import ASC_FAMILY
from aera.lab.judging.waiting import Seen
from aera.lab.learning.votes import ReplayedVotes, VoteTable
from aera.lab.learning.weigher import Responses, WeigherFit
from aera.lab.replay.server import Server
from aera.lab.replay.trajectory import pick
from aera.lab.replay.waiting import Course, Waited, courses, simulate
from aera.policies.ahead import Ahead
from aera.pools.record import VotedRecord
from aera.voting.weigher import Weigher

SEED, ALLOWED = 0, 0.02
HURRIES = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.82, 0.85, 0.9, 1.0)
COARSE = tuple(
    map(
        Schedule,
        (
            (8, 16, 32, 64, 128),
            (16, 32, 64, 128),
            (32, 64, 128),
            (16, 64, 128),
            (8, 32, 128),
            (32, 128),
        ),
    )
)
IDLE = Server(1.0)
SLOTS = 64
LOADS = (0.3, 0.5, 0.7, 0.9, 1.1)
ORDERS = range(5)
"""Orders and times of arrival, by their seed."""
RESAMPLES = 2_000


# --- learned --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Remembered(WeigherFit):
    """The same fits, once: a weigher does not depend on the checkpoints."""

    def fit(self, learned: Responses, *, seed: int, without: Any = ()) -> Weigher:
        """From the same responses with the same seed comes the same weigher."""
        known = np.nan_to_num(learned.traits, nan=-1e9).tobytes()
        key = blake2b(known).digest(), seed, (*without,)
        if key not in _FITTED:
            _FITTED[key] = super().fit(learned, seed=seed, without=without)
        return _FITTED[key]


_FITTED: dict[tuple[bytes, int, tuple[str, ...]], Weigher] = {}
LEARNER = VoteLearner(weigher=Remembered())


def judge(ready: VoteTable, schedule: Schedule) -> Judgement:
    """Nested, on some checkpoints."""
    limit = limit_for(LEARNER, ALLOWED)
    [judged] = nested(LEARNER, replace(ready, schedule=schedule), [limit], seed=SEED)
    return judged


# --- timed ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Timed:
    """A policy's grades, and what its questions waited."""

    label: str
    scores: Floats
    waited: Waited
    """A block is one call."""
    singly: Waited
    """Every response is a call."""


def time_policy(label: str, scores: Floats, made: Sequence[Course], hurry: float = 0.0) -> Timed:
    waited = simulate(made, IDLE, hurry=hurry)
    if not hurry:  # blocks one after the other take as long in either way
        return Timed(label, scores, waited, waited)
    return Timed(label, scores, waited, simulate(made, replace(IDLE, singly=True), hurry=hurry))


def fixed(records: Sequence[VotedRecord], responses: int) -> list[Course]:
    """A budget asked at once."""
    return courses(records, np.zeros(len(records), np.int64), Schedule((responses,)))


def aera(judged: Judgement) -> list[Course]:
    """AERA's questions with what foresees their stops."""
    seen = Seen.judged(judged)
    known: Sequence[Ahead | None] = seen.aheads
    schedule = judged.trajectories.schedule
    return courses(seen.records, judged.stops["aera"], schedule, known)


def time_all(judged: Judgement, plain: ReplayedVotes) -> dict[str, Timed]:
    """Fixed budgets on plain and on learned votes, ASC, and AERA at every hurry, by label."""
    records, schedule = judged.measured.records, judged.trajectories.schedule
    weighted, counted = judged.trajectories.known_grades, plain.trajectories.known_grades
    found = []
    for column, budget in enumerate(schedule):
        asked = time_policy(f"fixed-{budget}", counted[:, column], fixed(records, budget))
        found += [asked, replace(asked, label=f"weighted-{budget}", scores=weighted[:, column])]
    stops: dict[str, tuple[Columns, Floats]] = {
        "ASC(0.95)": (ASC_FAMILY.stops(plain.confidence, 0.95), counted),
        "ASC, same votes, calibrated": (judged.stops["asc"], weighted),
    }
    for label, (columns, grades) in stops.items():
        made = courses(records, columns, schedule)
        found.append(time_policy(label, pick(grades, columns), made))
    own, scores = aera(judged), judged.point("aera").scores
    found += [time_policy(f"AERA, hurry {h:g}", scores, own, h) for h in HURRIES]
    ordered = sorted(found, key=lambda each: each.label.startswith("weighted"))
    return {each.label: each for each in sorted(ordered, key=lambda each: "A" in each.label[:1])}


# --- tables ---------------------------------------------------------------------------------------

Statistic = Callable[[Floats], Floats]
TIMES: dict[str, Statistic] = {
    "p50": lambda seconds: np.percentile(seconds, 50, axis=-1),
    "p95": lambda seconds: np.percentile(seconds, 95, axis=-1),
    "mean": lambda seconds: seconds.mean(axis=-1),
}


def ratios(waited: Waited, full: Waited) -> list[str]:
    """Tokens in percent of the full budget's, and times as ratios."""
    share = 100 * waited.tokens.sum() / full.tokens.sum()
    times = [f"{each(waited.seconds) / each(full.seconds):.2f}" for each in TIMES.values()]
    return [f"{share:.1f}", *times]


def frontier_table(found: dict[str, Timed]) -> str:
    """Every policy: accuracy, tokens and times."""
    full = found["fixed-128"].waited
    header = ["policy", "accuracy %", "tokens %", "p50", "p95", "mean"]
    header += ["singly: tokens %", "p50", "p95", "mean"]
    rows = []
    for label, each in found.items():
        alone = [""] * 4 if each.singly is each.waited else ratios(each.singly, full)
        rows.append([label, f"{100 * each.scores.mean():.2f}", *ratios(each.waited, full), *alone])
    return table(header, rows)


def interval_table(found: dict[str, Timed]) -> str:
    """The rows that matter most, with intervals over questions."""
    full, rows = found["fixed-128"].waited, []
    drawn = np.random.default_rng(SEED).integers(
        len(full.seconds), size=(RESAMPLES, len(full.seconds))
    )
    shown = [f"AERA, hurry {hurry:g}" for hurry in (0, 0.5, 0.7, 0.8)]
    for label in ("weighted-16", "weighted-32", *shown):
        one = found[label]
        gap = 100 * (one.scores - found["fixed-128"].scores)
        cells = [_spread(gap.mean(), gap[drawn].mean(axis=1), "+.2f")]
        for waited in (one.waited, one.singly):
            share = waited.tokens[drawn].sum(axis=1) / full.tokens[drawn].sum(axis=1)
            whole = waited.tokens.sum() / full.tokens.sum()
            cells.append(_spread(100 * whole, 100 * share, ".1f"))
            for each in TIMES.values():
                found_ratio = each(waited.seconds) / each(full.seconds)
                resampled = each(waited.seconds[drawn]) / each(full.seconds[drawn])
                cells.append(_spread(float(found_ratio), resampled, ".2f"))
        rows.append([label, *cells])
    header = ["policy", "points above Fixed-128", "tokens %", "p50", "p95", "mean"]
    return table([*header, "singly: tokens %", "p50", "p95", "mean"], rows)


def _spread(value: float, resampled: Floats, digits: str) -> str:
    low, high = np.percentile(resampled, [2.5, 97.5])
    return f"{value:{digits}} [{low:{digits}}, {high:{digits}}]"


def coarse_table(found: dict[str, Timed], coarse: dict[Schedule, Judgement]) -> str:
    """Coarser checkpoints without hurry, and AERA hurried to the same tokens beside them."""
    full = found["fixed-128"].waited
    hurried = [found[f"AERA, hurry {hurry:g}"] for hurry in HURRIES]
    rows = []
    for schedule, judged in coarse.items():
        each = time_policy("", judged.point("aera").scores, aera(judged))
        share, *times = ratios(each.waited, full)
        beside = [
            _at(each.waited.tokens.mean(), [getattr(one, which) for one in hurried], full)
            for which in ("waited", "singly")
        ]
        accuracy = f"{100 * each.scores.mean():.2f}"
        rows.append([str(schedule), accuracy, share, *times, *beside[0], *beside[1]])
    header = ["checkpoints, no hurry", "accuracy %", "tokens %", "p50", "p95", "mean"]
    header += ["hurried to these tokens: p50", "p95", "mean"]
    header += ["hurried, singly: p50", "p95", "mean"]
    return table(header, rows)


def _at(tokens: float, hurried: Sequence[Waited], full: Waited) -> list[str]:
    """Times at so many tokens, between two hurries."""
    spent = [float(each.tokens.mean()) for each in hurried]
    return [
        f"{np.interp(tokens, spent, [float(told(w.seconds)) for w in hurried]) / told(full.seconds):.2f}"
        for told in TIMES.values()
    ]


# --- under load -----------------------------------------------------------------------------------


def load_table(judged: Judgement) -> str:
    """Mean and p95 at 64 slots, as ratios to those of weighted-32 on an idle server."""
    records = judged.measured.records
    budgets = {budget: fixed(records, budget) for budget in (16, 32)}
    own = aera(judged)
    shown = {
        "weighted-32": (budgets[32], 0.0),
        "weighted-16": (budgets[16], 0.0),
        **{f"AERA, hurry {hurry:g}": (own, hurry) for hurry in (0.0, 0.5, 0.8)},
    }
    idle = simulate(budgets[32], IDLE)
    carried = SLOTS / idle.tokens.mean()
    rows = []
    for label, (made, hurry) in shown.items():
        for name in ("mean", "p95"):
            rows.append([f"{label}, {name}"])
        for load in LOADS:
            server = replace(IDLE, slots=SLOTS, load=load * carried)
            runs = [_arrive(made, server, hurry, seed).figures for seed in ORDERS]
            for place, name in enumerate(("mean", "p95")):
                each = [getattr(run, name) / getattr(idle.figures, name) for run in runs]
                spread = f"{np.mean(each):.2f} [{min(each):.2f}, {max(each):.2f}]"
                rows[place - 2].append(spread)
    header = ["policy", *(f"{100 * load:.0f} % of the load" for load in LOADS)]
    return table(header, rows)


def _arrive(made: Sequence[Course], server: Server, hurry: float, seed: int) -> Waited:
    """In an order, and at times, of their own."""
    order = np.random.default_rng(seed).permutation(len(made))
    return simulate([made[place] for place in order], server, hurry=hurry, seed=seed)


def tell(judged: Judgement, plain: ReplayedVotes, coarse: dict[Schedule, Judgement]) -> str:
    """The tables of an idle server."""
    found = time_all(judged, plain)
    tables = (frontier_table(found), interval_table(found), coarse_table(found, coarse))
    return "\n\n".join(tables)


def main(folder: Path) -> None:
    ready = vote_table(folder, "gsm8k")
    plain = ready.replay(np.arange(len(ready)), None)
    judged = judge(ready, ready.schedule)
    publish("sooner-load", load_table(judged))
    coarse = {schedule: judge(ready, schedule) for schedule in COARSE}
    publish("sooner", tell(judged, plain, coarse))


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
