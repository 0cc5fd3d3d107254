"""What a new user gets without a labelled pool: every pool in turn is left out and met cold."""

from collections.abc import Sequence

import numpy as np
from pools import TASKS, course, interval, pools_argument, publish, table

from aera.gate import VoteGate
from aera.lab import bootstrap_ratio, paired_bootstrap
from aera.lab.dials import ASC_DIAL, GATE
from aera.lab.learning import Course, Measured
from aera.lab.trajectory import Columns, Floats, pick
from aera.lab.votegate import fit_vote_gate
from aera.lab.weighing import Marked, crossfit_weights, fit_weigher
from aera.traits import TRAIT_NAMES

SLOPE, CENTRE = 5.0, -0.15
"""Logprob weights: twice the logistic curve, so that a usual response weighs about one."""


def everyone(ready: Course) -> Columns:
    return np.arange(len(ready.marked))


def by_logprob(ready: Course) -> Floats:
    """Weights from the mean token logprob alone."""
    mean = ready.marked.traits[..., TRAIT_NAMES.index("mean_logprob")]
    weights: Floats = 2 / (1 + np.exp(-SLOPE * (mean - CENTRE)))
    return weights


def together(parts: Sequence[Course]) -> Marked:
    """The responses of several pools."""
    marked = [part.marked for part in parts]
    return Marked(
        tuple(ballot for each in marked for ballot in each.ballots),
        np.concatenate([each.traits for each in marked]),
        np.concatenate([each.voted for each in marked]),
        np.concatenate([each.grades for each in marked]),
    )


def foreign_gate(others: Sequence[Measured]) -> tuple[VoteGate, float]:
    """A gate of other pools, with the boldest threshold that loses nothing there on average."""
    tokens = [m.trajectories.tokens for m in others]
    gate = fit_vote_gate(
        np.concatenate([m.evidence for m in others]),
        np.concatenate([m.grades for m in others]),
        np.concatenate([t / t[:, -1].mean() for t in tokens]),
    )

    def loss(setting: float) -> float:
        stops = [GATE.stops(m.chances(gate), setting) for m in others]
        losses = [m.grades[:, -1] - pick(m.grades, s) for m, s in zip(others, stops, strict=True)]
        return float(np.mean([each.mean() for each in losses]))

    return gate, max((s for s in GATE.fine if loss(s) <= 0), default=GATE.fine[0])


def rows_of(name: str, pools: dict[str, Course]) -> list[list[str]]:
    """Every way to start cold on one pool, against its full budget on plain votes."""
    held, others = pools[name], [pool for key, pool in pools.items() if key != name]
    plain = held.measured(everyone(held), None)
    weighed = held.measured(everyone(held), by_logprob(held))
    foreign = together(others)
    weigher = fit_weigher(foreign, np.arange(len(foreign)), seed=0)
    learned = held.measured(everyone(held), weigher.weights(held.marked.traits))
    gate, setting = foreign_gate([o.measured(everyone(o), None) for o in others])
    second, bold = foreign_gate(
        [o.measured(everyone(o), crossfit_weights(o.marked, everyone(o), seed=0)) for o in others]
    )
    tried = {
        "ASC(0.95), plain votes: the default": (plain, ASC_DIAL.stops(plain.confidence, 0.95)),
        "ASC(0.95), logprob weights": (weighed, ASC_DIAL.stops(weighed.confidence, 0.95)),
        "gate of the other pools": (plain, GATE.stops(plain.chances(gate), setting)),
        "weigher and gate of the others": (learned, GATE.stops(learned.chances(second), bold)),
    }
    rows = []
    for label, (measured, stops) in tried.items():
        scores, spent = pick(measured.grades, stops), pick(measured.trajectories.tokens, stops)
        pair = paired_bootstrap(100 * scores, 100 * plain.grades[:, -1], seed=0)
        saved = bootstrap_ratio(spent, plain.trajectories.tokens[:, -1], seed=0)
        rows.append(
            [
                f"{name} {label}",
                f"{100 * scores.mean():.2f}",
                f"{pair.difference:+.2f}",
                interval(pair.low, pair.high),
                f"{saved.percent:.1f} [{saved.low:.1f}, {saved.high:.1f}]",
            ]
        )
    return rows


def main() -> None:
    folder = pools_argument(__doc__ or "")
    pools = {name: course(folder, name) for name in TASKS}
    header = ["pool left out", "accuracy %", "against Fixed-128", "95 %", "tokens saved %"]
    publish("cold-start", table(header, [row for name in TASKS for row in rows_of(name, pools)]))


if __name__ == "__main__":
    main()
