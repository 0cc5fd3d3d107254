"""Traces where nothing was taught: ASC(0.95) on votes that weigh by their confidence.

POOLS has the folder `traces`. The rule that is shipped, exp(mean confidence / 2) over its mean so
far, needs no learning; beside it stand weights learned from the sixteen numbers of the other
benchmarks. Both against ASC(0.95) on plain votes. A fixed budget of 128 votes has two more rules,
`cisc-128` and `deepconf-128`. Intervals over questions.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from pools import SEEDS, interval, pools_argument, publish, table
from traced import LEARNER, NAMES, traced, traced_table

from aera import Fixed
from aera.lab import (
    ASC_FAMILY,
    CONFIDENT,
    TRACE_NAMES,
    TRAIT_NAMES,
    Confident,
    Floats,
    ReplayedVotes,
    Responses,
    TraceWeights,
    VoteTable,
    bootstrap_ratio,
    evaluate,
    paired_bootstrap,
    pick,
)

MEAN_OF = ("gsm8k", "csqa", "math500")
BENCHMARK = {"gsm8k-half": "gsm8k"}
Stopped = tuple[Floats, Floats]


def by_confidence(known: VoteTable) -> Floats:
    """What is shipped."""
    weighed = [record.weigh(TraceWeights()) for record in known.records]
    return np.array([[vote.weight for vote in record.votes] for record in weighed])


def of_traces(known: VoteTable) -> Responses:
    """The responses with nothing but the numbers of their traces."""
    kept = [name in TRACE_NAMES for name in TRAIT_NAMES]
    own = known.responses
    return replace(own, traits=np.where(kept, own.traits, np.nan))


def learned(pools: Mapping[str, VoteTable], name: str, seed: int) -> Floats:
    """Weights of the other benchmarks, over their mean so far as those that are shipped."""
    own = BENCHMARK.get(name, name)
    parts = [of_traces(pools[other]) for other in MEAN_OF if other != own]
    taught = Responses(
        np.concatenate([part.traits for part in parts]),
        np.concatenate([part.voted for part in parts]),
        np.concatenate([part.grades for part in parts]),
    )
    here = of_traces(pools[name])
    raw = LEARNER.weigher.fit(taught, seed=seed).weights(here.traits)
    voted = here.voted
    counts = np.maximum(1, np.cumsum(voted, axis=1))
    means = np.cumsum(np.where(voted, raw, 0), axis=1) / counts
    return np.where(voted, raw / np.maximum(means, 1e-12), 1.0)


def stopped(votes: ReplayedVotes) -> Stopped:
    """Grades and tokens where ASC(0.95) stops."""
    stops = ASC_FAMILY.stops(votes.confidence, 0.95)
    return pick(votes.states.grades, stops), pick(votes.states.tokens, stops)


def rows_of(pools: Mapping[str, VoteTable], name: str) -> list[list[str]]:
    known = pools[name]
    rows = np.arange(len(known))
    plain = known.replay(rows, None)
    scores, spent = stopped(plain)
    tried: dict[str, Callable[[], list[Floats]]] = {
        "exp(mean confidence / 2)": lambda: [by_confidence(known)],
        "learned on the other benchmarks": lambda: [learned(pools, name, s) for s in SEEDS],
    }
    shown = [[f"{name} plain votes", f"{100 * scores.mean():.2f}", "", "100.0", ""]]
    for label, weights in tried.items():
        seen = [known.replay(rows, own) for own in weights()]
        ends = [stopped(each) for each in seen]
        own_scores, own_spent = (np.mean(each, axis=0) for each in zip(*ends, strict=True))
        gain = paired_bootstrap(100 * own_scores, 100 * scores, seed=0)
        share = bootstrap_ratio(own_spent, spent, seed=0)
        last = np.mean([each.states.grades[:, -1] for each in seen], axis=0)
        full = paired_bootstrap(100 * last, 100 * plain.states.grades[:, -1], seed=0)
        shown.append(
            [
                f"{name} {label}",
                f"{100 * own_scores.mean():.2f}",
                f"{gain.difference:+.2f} {interval(gain.low, gain.high)}",
                f"{100 - share.percent:.1f} [{100 - share.high:.1f}, {100 - share.low:.1f}]",
                f"{full.difference:+.2f} {interval(full.low, full.high)}",
            ]
        )
    return shown


def confident_rows(folder: Path, name: str) -> list[list[str]]:
    """All 128 votes by the two rules of aera/voting/confident.py."""
    records, truths = traced(folder, name)
    tried = [Confident(128, rule) for rule in CONFIDENT]
    plain, *own = evaluate(records, [Fixed(128), *tried], truths=truths).points[: 1 + len(tried)]
    gains = [paired_bootstrap(100 * each.scores, 100 * plain.scores, seed=0) for each in own]
    told = [f"{gain.difference:+.2f} {interval(gain.low, gain.high)}" for gain in gains]
    return [[f"{name} {rule}", "", "", "", text] for rule, text in zip(tried, told, strict=True)]


HEADER = ["pool and weights", "ASC(0.95) %", "against plain votes", "tokens, % of plain votes'"]
HEADER += ["128 votes, against plain"]


def main(folder: Path) -> None:
    traces = folder / "traces"
    pools = {name: traced_table(traces, name) for name in NAMES}
    rows = [[*rows_of(pools, name), *confident_rows(traces, name)] for name in pools]
    publish("traces-cold", table(HEADER, [row for own in rows for row in own]))


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
