"""Once, on held-out questions: how long it takes on gsm8k-held, taught on gsm8k's 800.

One training of seed 0 on all 800, 2 points allowed, for each set of checkpoints; what foresees the
stops is learned on the 800 too. Whatever it shows is published.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
from crowd_held import held_out
from pools import pools_argument, publish, vote_table
from sooner import ALLOWED, COARSE, LEARNER, SEED, tell

from aera import Schedule
from aera.lab import Judgement, limit_for
from aera.lab.judging.protocols import foresee_stops, learn_and_tune
from aera.lab.learning.votes import VoteTable


def everyone(ready: VoteTable) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.arange(len(ready))


def teach_and_judge(taught: VoteTable, judged: VoteTable, schedule: Schedule) -> Judgement:
    """Learned and calibrated on one table, stopped on another."""
    taught, judged = (replace(each, schedule=schedule) for each in (taught, judged))
    limit, rows = limit_for(LEARNER, ALLOWED), everyone(judged)
    known = learn_and_tune(LEARNER, taught, everyone(taught), certified=False, seed=SEED)
    model, tuning = known
    choices = {n: tuning.choose(each, limit, seed=SEED) for n, each in model.families.items()}
    measured = model.values(judged, rows)
    stops = {
        name: choices[name].stops(each, measured.values[each.name])
        for name, each in model.families.items()
    }
    own = model.families["aera"]
    before = choices["aera"].stops(own, tuning.values[own.name])
    return Judgement(
        measured,
        rows,
        model.families,
        stops,
        {name: (choice,) for name, choice in choices.items()},
        0 * rows,
        LEARNER.weighted,
        (foresee_stops(tuning, before, seed=SEED),),
    )


def tell_elsewhere(taught: VoteTable, judged: VoteTable) -> str:
    """Everything that is told of an idle server, on other questions than those that taught."""
    plain = judged.replay(everyone(judged), None)
    own = teach_and_judge(taught, judged, judged.schedule)
    coarse = {schedule: teach_and_judge(taught, judged, schedule) for schedule in COARSE}
    return tell(own, plain, coarse)


def main(folder: Path) -> None:
    publish("sooner-held", tell_elsewhere(vote_table(folder, "gsm8k"), held_out(folder)))


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
