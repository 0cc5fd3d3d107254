"""Where the truth may be known: grading, training, calibration. Imports aera, never the reverse."""

from aera.lab.bootstrap import Interval, Saving, bootstrap_ratio, compare_all, paired_bootstrap
from aera.lab.evaluation import Ballot, evaluate, read_ballots, replay
from aera.lab.folds import Foldwise, fold_numbers
from aera.lab.frontier import Frontier, Mixture, Point
from aera.lab.hindsight import oracle, shuffled
from aera.lab.importing import import_jsonl
from aera.lab.priors import crossfit_bayes, learn_prior
from aera.lab.summary import summarize
from aera.lab.trajectory import Trajectories, Transition
from aera.lab.truths import Truths, grade

__all__ = [
    "Ballot",
    "Foldwise",
    "Frontier",
    "Interval",
    "Mixture",
    "Point",
    "Saving",
    "Trajectories",
    "Transition",
    "Truths",
    "bootstrap_ratio",
    "compare_all",
    "crossfit_bayes",
    "evaluate",
    "fold_numbers",
    "grade",
    "import_jsonl",
    "learn_prior",
    "oracle",
    "paired_bootstrap",
    "read_ballots",
    "replay",
    "shuffled",
    "summarize",
]
