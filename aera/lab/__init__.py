"""Where the truth may be known: grading, training, calibration. Imports aera, never the reverse."""

from aera.lab.calibrating.calibration import Choice, LossLimit
from aera.lab.formats.exporting import export_pool
from aera.lab.formats.importing import import_file, import_jsonl
from aera.lab.judging.bootstrap import (
    Interval,
    bootstrap_ratio,
    matched_random,
    paired_bootstrap,
)
from aera.lab.judging.build import Built, build
from aera.lab.judging.live import LiveTest, live_test
from aera.lab.judging.protocols import CrossFit, Judgement, crossfit, holdout, limit_for, nested
from aera.lab.judging.summary import log_evaluation, summarize
from aera.lab.learning.learner import Learner, Measured, Model
from aera.lab.learning.paper import PaperLearner
from aera.lab.learning.rewards import MostUtility, RewardLearner, TruthScorer
from aera.lab.learning.votes import VoteLearner
from aera.lab.open import open_truths
from aera.lab.replay.frontier import Frontier, Kind, Mixture, Point
from aera.lab.replay.replay import evaluate
from aera.lab.replay.trajectory import Trajectories
from aera.lab.report.page import Report, export_svg, write_report
from aera.lab.truths import Truths, grade

__all__ = [
    "Built",
    "Choice",
    "CrossFit",
    "Frontier",
    "Interval",
    "Judgement",
    "Kind",
    "Learner",
    "LiveTest",
    "LossLimit",
    "Measured",
    "Mixture",
    "Model",
    "MostUtility",
    "PaperLearner",
    "Point",
    "Report",
    "RewardLearner",
    "Trajectories",
    "TruthScorer",
    "Truths",
    "VoteLearner",
    "bootstrap_ratio",
    "build",
    "crossfit",
    "evaluate",
    "export_pool",
    "export_svg",
    "grade",
    "holdout",
    "import_file",
    "import_jsonl",
    "limit_for",
    "live_test",
    "log_evaluation",
    "matched_random",
    "nested",
    "open_truths",
    "paired_bootstrap",
    "summarize",
    "write_report",
]
