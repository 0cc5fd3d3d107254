"""Once, on held-out questions: taught and calibrated on gsm8k with truths, judged on gsm8k-held.

All 800 questions of gsm8k teach and calibrate, as `aera train` ships it (seed 0; five seeds deal
other folds and other orders). Every rival is calibrated by the same rule on the same questions, once
on the same weighted votes and once on plain votes. The 519 questions of gsm8k-held are then judged
in 20 random orders of their responses, and in the stored one beside. Intervals are paired bootstraps
over questions. Whatever it shows is published; runs/picture.py draws it.
"""

from dataclasses import replace
from pathlib import Path

from pools import SEEDS, pools_argument, publish, table, vote_table
from published import Table
from rivals import (
    NAMES,
    PLAIN,
    PLAINLY,
    POLICY,
    SAME,
    UNWEIGHTED,
    WEIGHTED,
    Outcome,
    Taught,
    against_table,
    gap,
    policies_table,
    policy_row,
    share,
    teach,
)

from aera.lab import ASC_FAMILY, Dataset, Frontier, Point, limit_for, sweep

TAUGHT, JUDGED = "gsm8k", "gsm8k-held"
LOSSES = (0.0, 0.01, 0.02, 0.03)
ALLOWED, CERTIFIED = limit_for(WEIGHTED, 0.02), limit_for(WEIGHTED, 0.02, 0.1)
SEEDED = ["training seed", "128 weighted votes %", "AERA %", "tokens, % of 128's"]
SEEDED += ["ASC, same votes %", "tokens, % of 128's", "AERA against 128 plain votes"]
SEEDED += ["against 128 of its own votes", "against ASC", "AERA's tokens, % of ASC's"]
SEEDED += ["against 128 of its own votes, stored order"]


def untrained(plain: Taught, setting: float = 0.95) -> Outcome:
    """ASC on plain votes as people use it, without calibration."""
    stops = ASC_FAMILY.stops(plain.seen.values[ASC_FAMILY.name], setting)
    return Outcome.of(Point("asc", stops, plain.seen), f"asc {setting:g}")


def asc_sweep(taught: Taught) -> Frontier:
    """Every setting of ASC on these votes, to be mixed in hindsight: the hardest rival."""
    family, seen = replace(ASC_FAMILY, settings=ASC_FAMILY.fine), taught.seen
    return Frontier(tuple(sweep(family, seen)), seen.stored)


def rivals_of(weighted: Taught, plain: Taught) -> dict[str, Outcome]:
    """Every rival with two points allowed, by its label."""
    return {
        **{f"{word}, {SAME}": weighted.at(name, ALLOWED) for name, word in NAMES.items()},
        UNWEIGHTED: plain.at("aera", ALLOWED),
        **{f"{word}, {PLAINLY}": plain.at(name, ALLOWED) for name, word in NAMES.items()},
        f"ASC(0.95), {PLAINLY}, untrained": untrained(plain),
    }


def losses_table(weighted: Taught, plain: Taught, sure: tuple[Taught, Taught]) -> Table:
    """AERA and ASC at every allowed loss, and with a certificate."""
    rows, bare = [], plain.fixed[-1]
    tried = [(f"{100 * x:g} allowed", limit_for(WEIGHTED, x), weighted, plain) for x in LOSSES]
    for words, limit, ours, others in [*tried, ("2 certified", CERTIFIED, *sure)]:
        mine, alike, theirs = ours.at("aera", limit), ours.at("asc", limit), others.at("asc", limit)
        mixed = asc_sweep(ours).mixture(float(mine.spent.mean()), "tokens")
        best = None if mixed is None else Outcome(mixed.scores, mine.spent, mine.counts)
        beside = [" ".join(gap(mine, alike)), " ".join(share(mine, alike))]
        beside += ["none as cheap" if best is None else " ".join(gap(mine, best))]
        own, none = ours.fixed[-1], [""] * len(beside)
        rows += [
            [*policy_row(f"AERA, {words}", mine, bare, own), *beside],
            [*policy_row(f"ASC, {SAME}, {words}", alike, bare, own), *none],
            [*policy_row(f"ASC, {PLAINLY}, {words}", theirs, bare, bare), *none],
        ]
    header = ["against ASC, same votes", "tokens, % of ASC's", "against ASC's best mixture"]
    return table([*POLICY, *header], rows)


def budgets_table(weighted: Taught, plain: Taught) -> Table:
    """What weights bring at every fixed budget."""
    rows = [
        [
            f"{one.counts.mean():g}",
            f"{100 * other.scores.mean():.2f}",
            f"{100 * one.scores.mean():.2f}",
            " ".join(gap(one, other)),
            share(one, plain.fixed[-1])[0],
        ]
        for one, other in zip(weighted.fixed, plain.fixed, strict=True)
    ]
    header = ["responses", "plain votes %", "weighted votes %", "what weights bring"]
    return table([*header, "tokens, % of 128's"], rows)


def seeds_table(runs: list[Taught], plain: Outcome) -> Table:
    """The same training with other seeds: how much of it is chance, and of the stored order."""
    found = [(run.fixed[-1], run.at("aera", ALLOWED), run.at("asc", ALLOWED)) for run in runs]
    stored = [(run.stored.fixed[-1], run.stored.at("aera", ALLOWED)) for run in runs]
    full, ours, theirs = (Outcome.mean(each) for each in zip(*found, strict=True))
    alone = tuple(Outcome.mean(each) for each in zip(*stored, strict=True))
    rows = []
    labels = [*map(str, SEEDS), "mean"]
    for label, each, one in zip(
        labels, [*found, (full, ours, theirs)], [*stored, alone], strict=True
    ):
        right = [f"{100 * done.scores.mean():.2f}" for done in each]
        price = [share(done, full)[0] for done in each]
        rows.append([label, right[0], right[1], price[1], right[2], price[2]])
        rows[-1] += [" ".join(gap(each[1], other)) for other in (plain, each[0], each[2])]
        rows[-1] += [" ".join(share(each[1], each[2])), gap(one[1], one[0])[0]]
    return table(SEEDED, rows)


def judge(taught: Dataset, judged: Dataset) -> dict[str, list[Table | str]]:
    """All that is published, from one pool that teaches and one that is judged."""
    runs = [teach(WEIGHTED, taught, judged, seed=seed) for seed in SEEDS]
    weighted, plain = runs[0], teach(PLAIN, taught, judged)
    sure = [teach(learner, taught, judged, certified=True) for learner in (WEIGHTED, PLAIN)]
    ours, rivals = weighted.at("aera", ALLOWED), rivals_of(weighted, plain)
    full = {"plain": plain.fixed[-1], "weighted": weighted.fixed[-1]}
    learned = f"Learned: {weighted.model.learned}."
    return {
        "held": [policies_table(ours, rivals, **full), learned],
        "held-rivals": against_table(ours, rivals),
        "held-losses": [losses_table(weighted, plain, (sure[0], sure[1]))],
        "held-budgets": [budgets_table(weighted, plain)],
        "held-seeds": [seeds_table(runs, plain.fixed[-1])],
    }


def main(folder: Path) -> None:
    found = judge(vote_table(folder, TAUGHT), vote_table(folder, JUDGED))
    for name, parts in found.items():
        publish(name, *parts)


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
