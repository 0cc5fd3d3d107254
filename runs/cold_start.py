"""What a new user gets without a labelled pool: every pool in turn is left out and met cold."""

from collections.abc import Sequence

import numpy as np
from pools import TASKS, interval, pools_argument, publish, table, vote_table

from aera.lab import (
    ASC_FAMILY,
    GATE_FAMILY,
    TRAIT_NAMES,
    Columns,
    Floats,
    ReplayedVotes,
    Responses,
    VoteGate,
    VoteGateFit,
    VoteStates,
    VoteTable,
    WeigherFit,
    bootstrap_ratio,
    paired_bootstrap,
    pick,
)

SLOPE, CENTRE = 5.0, -0.15
"""Logprob weights: twice the logistic curve, so that a usual response weighs about one."""


def everyone(ready: VoteTable) -> Columns:
    return np.arange(len(ready))


def by_logprob(ready: VoteTable) -> Floats:
    """Weights from the mean token logprob alone."""
    mean = ready.responses.traits[..., TRAIT_NAMES.index("mean_logprob")]
    weights: Floats = 2 / (1 + np.exp(-SLOPE * (mean - CENTRE)))
    return weights


def together(tables: Sequence[VoteTable]) -> Responses:
    """The responses of several pools."""
    parts = [each.responses for each in tables]
    return Responses(
        np.concatenate([each.traits for each in parts]),
        np.concatenate([each.voted for each in parts]),
        np.concatenate([each.grades for each in parts]),
    )


def foreign_gate(others: Sequence[ReplayedVotes]) -> tuple[VoteGate, float]:
    """A gate of other pools, with the boldest threshold that loses nothing there on average."""
    states = [each.states for each in others]
    gate = VoteGateFit().fit(
        VoteStates(
            np.concatenate([each.evidence for each in states]),
            np.concatenate([each.grades for each in states]),
            np.concatenate([each.tokens / each.tokens[:, -1].mean() for each in states]),
        )
    )

    def loss(setting: float) -> float:
        stops = [GATE_FAMILY.stops(gate.chances(each.evidence), setting) for each in states]
        losses = [e.grades[:, -1] - pick(e.grades, s) for e, s in zip(states, stops, strict=True)]
        return float(np.mean([each.mean() for each in losses]))

    return gate, max((s for s in GATE_FAMILY.fine if loss(s) <= 0), default=GATE_FAMILY.fine[0])


def gate_stops(gate: VoteGate, votes: ReplayedVotes, setting: float) -> Columns:
    return GATE_FAMILY.stops(gate.chances(votes.evidence), setting)


def rows_of(name: str, pools: dict[str, VoteTable]) -> list[list[str]]:
    """Every way to start cold on one pool, against its full budget on plain votes."""
    held, others = pools[name], [pool for key, pool in pools.items() if key != name]
    plain = held.replay(everyone(held), None)
    weighted = held.replay(everyone(held), by_logprob(held))
    weigher = WeigherFit().fit(together(others), seed=0)
    learned = held.replay(everyone(held), weigher.weights(held.responses.traits))
    gate, setting = foreign_gate([o.replay(everyone(o), None) for o in others])
    second, bold = foreign_gate(
        [
            o.replay(everyone(o), WeigherFit().out_of_fold(o.responses, groups=o.groups, seed=0))
            for o in others
        ]
    )
    tried = {
        "ASC(0.95), plain votes: the default": (plain, ASC_FAMILY.stops(plain.confidence, 0.95)),
        "ASC(0.95), logprob weights": (weighted, ASC_FAMILY.stops(weighted.confidence, 0.95)),
        "gate of the other pools": (plain, gate_stops(gate, plain, setting)),
        "weigher and gate of the others": (learned, gate_stops(second, learned, bold)),
    }
    full = plain.trajectories
    rows = []
    for label, (votes, stops) in tried.items():
        scores, spent = pick(votes.states.grades, stops), pick(votes.states.tokens, stops)
        pair = paired_bootstrap(100 * scores, 100 * full.known_grades[:, -1], seed=0)
        saved = bootstrap_ratio(spent, full.tokens[:, -1], seed=0)
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
    pools = {name: vote_table(folder, name) for name in TASKS}
    header = ["pool left out", "accuracy %", "against Fixed-128", "95 %", "tokens saved %"]
    publish("cold-start", table(header, [row for name in TASKS for row in rows_of(name, pools)]))


if __name__ == "__main__":
    main()
