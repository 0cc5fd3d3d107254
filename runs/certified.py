"""Ten certified splits of gsm8k: learn, certify on other questions, test on yet others."""

import numpy as np
from pools import interval, pools_argument, publish, table, vote_table

from aera.lab import VoteLearner, holdout, limit_for, paired_bootstrap

TEST = 0.25


def main() -> None:
    ready = vote_table(pools_argument(__doc__ or ""), "gsm8k")
    learner = VoteLearner()
    limit = limit_for(learner, 0.02, 0.1)
    rows, savings, losses = [], [], []
    for seed in range(10):
        judged = holdout(learner, ready, limit, seed=seed, test=TEST)
        point, full = judged.point("aera"), judged.fixed()[-1]
        choice = judged.choices["aera"][0]
        pair = paired_bootstrap(100 * point.scores, 100 * full.scores, seed=seed)
        savings.append(point.token_saving)
        losses.append(pair.value)
        rows.append(
            [
                f"{seed}",
                "yes" if choice.feasible else "no",
                f"{choice.family} {choice.setting}",
                f"{100 * choice.token_saving:.1f}",
                f"{point.token_saving:.1f}",
                f"{pair.value:+.2f}",
                interval(pair.low, pair.high),
            ]
        )
    rows.append(["mean", "", "", "", f"{np.mean(savings):.1f}", f"{np.mean(losses):+.2f}", ""])
    header = ["split", "certified", "setting", "saved in calibration %", "saved in test %"]
    header += ["against the full budget of learned votes", "95 %"]
    publish("certified", table(header, rows))


if __name__ == "__main__":
    main()
