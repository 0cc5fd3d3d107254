"""Once, on held-out questions: taught and certified on gsm8k without truths, judged on gsm8k-held.

Half of the 800 questions teach, refuse and choose, the other half certify that at most 2 % of the
answers change at 0.1, and also 1, 3, 4 and 5 %. The 519 of gsm8k-held are then judged, with their
truths, by one training of seed 0. Plain ASC is certified on the same half. Whatever it shows is
published.
"""

from pathlib import Path

import numpy as np
from crowd import LEARNER, LIMITS, PLAIN
from pools import held, pools_argument, publish, table
from rivals import Outcome, gap, share

from aera.lab import (
    ASC_FAMILY,
    Choice,
    Dataset,
    Family,
    Point,
    Trajectories,
    fixed_points,
    learn_and_tune,
    winners,
)

TAUGHT, JUDGED, SEED = "gsm8k", "gsm8k-held", 0
HEADER = ["at most changed, policy", "certified setting", "saved in calibration %", "accuracy %"]
HEADER += ["against Fixed-128", "tokens, % of Fixed-128's", "changed, %"]
HEADER += ["against its own full budget"]


def prepared(folder: Path, name: str) -> Dataset:
    """A pool; its truths go to whoever judges."""
    return LEARNER.prepare(*held(folder, name))


def row_of(
    title: str, choice: Choice, seen: Trajectories, family: Family, plain: Trajectories
) -> list[str]:
    """One policy on the held-out questions."""
    point = Point(title, choice.stops(family, seen.values[family.name]), seen)
    done, full, own = map(Outcome.of, (point, fixed_points(plain)[-1], fixed_points(seen)[-1]))
    return [
        f"{100 * choice.max_loss:g} % {title}",
        f"{choice.family} {choice.setting:g}" if choice.setting is not None else "no",
        f"{100 * choice.token_saving:.1f}",
        f"{100 * point.scores.mean():.2f}",
        " ".join(gap(done, full)),
        " ".join(share(done, full)),
        f"{100 - point.agreement:.2f}",
        " ".join(gap(done, own)),
    ]


def main(folder: Path) -> None:
    taught, judged = (prepared(folder, name) for name in (TAUGHT, JUDGED))
    every, everyone = np.arange(len(taught)), np.arange(len(judged))
    keys = {key for each in taught.questions for key in each.keys}
    assert keys.isdisjoint(key for each in judged.questions for key in each.keys)
    plain = judged.replay(everyone)
    model, tuning = learn_and_tune(LEARNER, taught, every, certified=True, seed=SEED)
    asc, asc_tuning = learn_and_tune(PLAIN, taught, every, certified=True, seed=SEED)
    seen, asc_seen = model.values(judged, everyone), asc.values(judged, everyone)
    rows = []
    for limit in LIMITS:
        own = model.families(limit)["aera"]
        chosen = limit.choose(own, tuning, grid=model.grid(own), seed=SEED)
        rows += [row_of("AERA: weights of clear votes", chosen, seen, own, plain)]
        chosen = limit.choose(ASC_FAMILY, asc_tuning, grid=asc.grid(ASC_FAMILY), seed=SEED)
        rows += [row_of("plain votes: ASC", chosen, asc_seen, ASC_FAMILY, plain)]
    weights = np.array([[vote.weight for vote in each.votes] for each in seen.records])
    overturned = np.mean(winners(judged.answers) != winners(judged.answers, weights))
    grades = [100 * fixed_points(each)[-1].scores.mean() for each in (plain, seen)]
    publish(
        "crowd-held",
        table(HEADER, rows),
        f"Fixed-128 {grades[0]:.2f} %, all 128 weighted votes "
        f"{grades[1]:.2f} %; the weights overturn {100 * overturned:.1f} % of the plain votes of "
        f"128. Learned: {model.learned}.",
    )


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
