"""Learned votes and the gate on them, nested, beside everything else: four pools, five seeds."""

from pathlib import Path

import numpy as np
from judged import FULL, LOSSES, judged
from pools import SEEDS, TASKS, held, paper_table, pools_argument, publish, table
from rivals import (
    NAMES,
    PLAINLY,
    SAME,
    UNWEIGHTED,
    Outcome,
    against_table,
    gap,
    policies_table,
    share,
)

from aera import ASC, ESC, Fixed, Lead, Policy
from aera.lab import (
    Frontier,
    LossLimit,
    PaperLearner,
    Point,
    bootstrap_ratio,
    evaluate,
    nested,
    point_of,
)


def plain(folder: Path, name: str) -> Frontier:
    """Everything that needs no calibration, on plain votes."""
    records, truths = held(folder, name)
    policies: list[Policy] = [ASC(0.95), ESC(5), Lead(3)]
    return evaluate(records, policies, truths=truths)


def full(frontier: Frontier, column: int = -1) -> Point:
    """A fixed budget on plain votes."""
    questions, checkpoints = frontier.trajectories.tokens.shape
    place = range(checkpoints)[column]
    budget = Fixed(frontier.trajectories.schedule.checkpoints[place])
    return point_of(budget, np.full(questions, place), frontier.trajectories)


def operating_rows(folder: Path, name: str) -> list[list[str]]:
    """The calibrated points, and ASC with the same weights calibrated by the same rule."""
    found, fixed = judged(folder, name), judged(folder, name).at("plain", FULL)
    asc, own = Outcome.of(plain(folder, name)["asc-0.95"]), found.at("weighted", FULL)
    rows = []
    for loss in LOSSES:
        ours, theirs = (found.at("weighted", rule, loss) for rule in ("aera", "asc"))
        for label, done in (("AERA", ours), (f"ASC, {SAME}", theirs)):
            beside = [" ".join(gap(ours, theirs)), " ".join(share(ours, theirs))]
            rows.append(
                [
                    f"{name} {label}, {100 * loss:g} allowed",
                    f"{100 * done.scores.mean():.2f}",
                    share(done, fixed)[0],
                    " ".join(gap(done, fixed)),
                    " ".join(gap(done, own)),
                    share(done, asc)[0],
                    " ".join(gap(done, asc)),
                    *(beside if done is ours else ["", ""]),
                ]
            )
    return rows


def summary_row(folder: Path, name: str) -> list[str]:
    """Learned votes at the full budget, and how often the gate was kept."""
    found = judged(folder, name)
    fixed, learned = (found.at(votes, FULL) for votes in ("plain", "weighted"))
    means = [f"{100 * each.scores.mean():.2f}" for each in (fixed, learned)]
    return [name, *means, *gap(learned, fixed), found.gates(0.0)]


def rivals_of(folder: Path, name: str) -> dict[str, Outcome]:
    """Every rival with two points allowed, means over the split seeds, by its label."""
    found = judged(folder, name)
    return {
        **{f"{word}, {SAME}": found.at("weighted", rule) for rule, word in NAMES.items()},
        UNWEIGHTED: found.at("plain", "aera"),
        **{f"{word}, {PLAINLY}": found.at("plain", rule) for rule, word in NAMES.items()},
        f"ASC(0.95), {PLAINLY}, untrained": Outcome.of(plain(folder, name)["asc-0.95"]),
    }


def seed_rows(folder: Path, name: str) -> list[list[str]]:
    """Split by split: how much of the difference is how the questions were dealt."""
    found = judged(folder, name)
    parts = [found.seeds("weighted", rule) for rule in ("aera", "asc")]
    fixed, own = found.at("plain", FULL), found.seeds("weighted", FULL)
    return [
        [
            f"{name}, {seed}",
            " ".join(gap(ours, fixed)),
            " ".join(gap(ours, weighted)),
            share(ours, fixed)[0],
            " ".join(gap(ours, theirs)),
            " ".join(share(ours, theirs)),
        ]
        for seed, ours, theirs, weighted in zip(SEEDS, *parts, own, strict=True)
    ]


def beside_rows(folder: Path, name: str) -> list[list[str]]:
    """Every policy with its share of what hindsight could gain and save on plain votes."""
    frontier, found = plain(folder, name), judged(folder, name)
    fixed, oracle = Outcome.of(full(frontier)), Outcome.of(frontier["oracle"])
    learner, known = PaperLearner(), paper_table(folder, name, redo=False)
    runs = [nested(learner, known, [LossLimit(0.02)], seed=seed)[0] for seed in SEEDS]
    shown = {
        "AERA, 2 points allowed": found.at("weighted", "aera", 0.02),
        "AERA, 1 point allowed": found.at("weighted", "aera", 0.01),
        "paper's AERA, 2 points allowed": Outcome.mean([Outcome.of(r.point("aera")) for r in runs]),
        **{label: Outcome.of(frontier[label]) for label in ("asc-0.95", "esc-5", "lead-3")},
        "fixed-4": Outcome.of(full(frontier, 0)),
        "fixed-16": Outcome.of(full(frontier, 2)),
        "fixed-128": fixed,
        "oracle": oracle,
    }
    gain, saving = (oracle.scores - fixed.scores).mean(), (fixed.spent - oracle.spent).sum()
    rows = []
    for label, done in shown.items():
        saved = bootstrap_ratio(done.spent, fixed.spent, seed=0)
        rows.append(
            [
                f"{name} {label}",
                f"{100 * done.scores.mean():.2f}",
                *gap(done, fixed),
                f"{done.spent.mean():,.0f}",
                f"{saved.value:.1f} [{saved.low:.1f}, {saved.high:.1f}]",
                f"{100 * (done.scores - fixed.scores).mean() / gain:+.0f}",
                f"{100 * (fixed.spent - done.spent).sum() / saving:.0f}",
            ]
        )
    return rows


def main() -> None:
    folder = pools_argument(__doc__ or "")
    header = ["pool", "plain votes, full budget %", "learned votes %", "difference", "95 %"]
    publish("beyond", table([*header, "gate kept"], [summary_row(folder, name) for name in TASKS]))
    found, rivals = judged(folder, "gsm8k"), rivals_of(folder, "gsm8k")
    ours = found.at("weighted", "aera")
    whole = {votes: found.at(votes, FULL) for votes in ("plain", "weighted")}
    publish("beyond-rivals", policies_table(ours, rivals, **whole))
    publish("beyond-against", *against_table(ours, rivals))
    columns = ["pool, split seed", "against 128 plain votes", "against 128 of its own votes"]
    columns += ["tokens, % of 128's", "against ASC, same votes", "tokens, % of ASC's"]
    publish("beyond-seeds", table(columns, seed_rows(folder, "gsm8k")))
    columns = ["policy", "accuracy %", "tokens, % of Fixed-128", "against Fixed-128"]
    columns += ["against its own full budget", "tokens, % of ASC(0.95)", "against ASC(0.95)"]
    columns += ["against ASC, same votes", "tokens, % of ASC's, same votes"]
    rows = [row for name in TASKS for row in operating_rows(folder, name)]
    publish("beyond-points", table(columns, rows))
    columns = ["policy", "accuracy %", "against Fixed-128", "95 %", "tokens", "saved %"]
    columns += ["of the oracle's gain %", "of the oracle's saving %"]
    rows = [row for name in TASKS for row in beside_rows(folder, name)]
    publish("side-by-side", table(columns, rows))


if __name__ == "__main__":
    main()
