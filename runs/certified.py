"""Ten certified splits of gsm8k: learn, certify on other questions, test on yet others."""

import numpy as np
from pools import course, interval, pools_argument, publish, table

from aera.lab import paired_bootstrap
from aera.lab.learning import holdout_learned
from aera.lab.protocols import Demand

TEST = 0.25


def main() -> None:
    ready = course(pools_argument(__doc__ or ""), "gsm8k")
    demand = Demand(0.02, 0.1)
    rows, savings, losses = [], [], []
    for seed in range(10):
        verdict = holdout_learned(ready, demand=demand, seed=seed, test=TEST)
        point, full = verdict.point("aera"), verdict.fixed()[-1]
        choice = verdict.choices["aera"][0]
        pair = paired_bootstrap(100 * point.scores, 100 * full.scores, seed=seed)
        savings.append(point.token_saving)
        losses.append(pair.difference)
        rows.append(
            [
                f"{seed}",
                "yes" if choice.feasible else "no",
                f"{choice.dial} {choice.setting}",
                f"{100 * choice.token_saving:.1f}",
                f"{point.token_saving:.1f}",
                f"{pair.difference:+.2f}",
                interval(pair.low, pair.high),
            ]
        )
    rows.append(["mean", "", "", "", f"{np.mean(savings):.1f}", f"{np.mean(losses):+.2f}", ""])
    header = ["split", "certified", "setting", "saved in calibration %", "saved in test %"]
    header += ["against the full budget of learned votes", "95 %"]
    publish("certified", table(header, rows))


if __name__ == "__main__":
    main()
