"""Where the truth may be known: grading, training, calibration. Imports aera, never the reverse."""

from aera.lab.bootstrap import (
    Interval,
    MatchedRandom,
    Saving,
    bootstrap_ratio,
    compare_all,
    matched_random,
    paired_bootstrap,
)
from aera.lab.building import Built, build_controller
from aera.lab.calibration import Choice, calibrate
from aera.lab.columns import export_pool
from aera.lab.dials import Dial
from aera.lab.evaluation import Ballot, evaluate, read_ballots, replay
from aera.lab.folds import Foldwise, fold_numbers
from aera.lab.frontier import Frontier, Mixture, Point
from aera.lab.hindsight import oracle, shuffled
from aera.lab.importing import import_file, import_jsonl
from aera.lab.labels import continuation_labels, utility_gains
from aera.lab.learning import open_course
from aera.lab.live import LiveTest, live_test
from aera.lab.priors import crossfit_bayes, learn_prior
from aera.lab.protocols import CrossFit, Demand, Verdict, crossfit, holdout, nested
from aera.lab.report.page import Report, export_svg, write_report
from aera.lab.rewards import Gold, Rewards, measure_rewards
from aera.lab.shards import Shards, read_truths
from aera.lab.study import Study, open_study
from aera.lab.summary import summarize
from aera.lab.trajectory import Trajectories, Transition
from aera.lab.truths import Truths, grade

__all__ = [
    "Ballot",
    "Built",
    "Choice",
    "CrossFit",
    "Demand",
    "Dial",
    "Foldwise",
    "Frontier",
    "Gold",
    "Interval",
    "LiveTest",
    "MatchedRandom",
    "Mixture",
    "Point",
    "Report",
    "Rewards",
    "Saving",
    "Shards",
    "Study",
    "Trajectories",
    "Transition",
    "Truths",
    "Verdict",
    "bootstrap_ratio",
    "build_controller",
    "calibrate",
    "compare_all",
    "continuation_labels",
    "crossfit",
    "crossfit_bayes",
    "evaluate",
    "export_pool",
    "export_svg",
    "fold_numbers",
    "grade",
    "holdout",
    "import_file",
    "import_jsonl",
    "learn_prior",
    "live_test",
    "matched_random",
    "measure_rewards",
    "nested",
    "open_course",
    "open_study",
    "oracle",
    "paired_bootstrap",
    "read_ballots",
    "read_truths",
    "replay",
    "shuffled",
    "summarize",
    "utility_gains",
    "write_report",
]
