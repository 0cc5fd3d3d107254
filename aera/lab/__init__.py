"""Where the truth may be known: grading, training, calibration. Imports aera, never the reverse."""

from aera.arrays import Columns, Floats
from aera.files import file_hash, palette, write_whole
from aera.lab.build import BUILD_SHARES, Built, build
from aera.lab.calibrating.calibration import Choice, Goal, LossLimit, MostUtility
from aera.lab.calibrating.certificate import betting_p_values, fixed_sequence
from aera.lab.calibrating.families import ASC_FAMILY, GATE_FAMILY, Family, answer_families
from aera.lab.diagnostics import (
    collapsing,
    counter_examples,
    loss_by_difficulty,
    residual_opportunity,
    worst_group,
)
from aera.lab.formats.pools import export_pool, import_file
from aera.lab.judging.protocols import (
    Judgement,
    crossfit,
    holdout,
    learn_and_tune,
    limit_for,
    nested,
)
from aera.lab.leaks import PROVENANCE
from aera.lab.learning.dataset import Dataset
from aera.lab.learning.folds import deal, split_rows
from aera.lab.learning.learner import Learner, Model, policy_of
from aera.lab.learning.paper import GROUPS, PaperLearner, PaperModel, PaperTable, without_group
from aera.lab.learning.states import States
from aera.lab.learning.vote_gate import fit_gate
from aera.lab.learning.votes import VoteLearner, VoteModel, winners
from aera.lab.live import LiveTest, live_test
from aera.lab.replay.frontier import (
    Frontier,
    Kind,
    Point,
    fixed_points,
    point_in_orders,
    point_of,
    sweep,
)
from aera.lab.replay.replay import evaluate
from aera.lab.replay.trajectory import SHAPES, Trajectories, pick
from aera.lab.report import figures as figures
from aera.lab.report.demo import BUNDLED
from aera.lab.report.page import COLOUR, export_svg, write_report
from aera.lab.stats import Estimate, bootstrap_ratio, matched_random, paired_bootstrap
from aera.lab.summary import Evaluation, EvaluationSettings, log_evaluation
from aera.lab.truths import Grader, Truths, TruthScorer, grade, open_truths
from aera.paper.encoder import Encoder, StaticEncoder
from aera.paper.features import FEATURES, SCALARS, PaperGate, semantics
from aera.policies.features import VOTE_FEATURES
from aera.policies.gate import Gate
from aera.policies.rules import DESCRIPTIONS, LIMITS
from aera.pools.pool import HeldRecords, hold, read_votes
from aera.pools.stats import ALPHA
from aera.reading.find import last_boxed
from aera.reading.task import KEYS, REDO_PHRASE, REDO_TAIL, TASKS, question_reader, with_redo
from aera.solving.controller import question_hashes
from aera.trace import TRACES, Feature
from aera.voting.rules import re2_vote
from aera.voting.traits import COUNTS, TRAITS, describe_question
from aera.workers import SERIAL, Workers, parse_workers

__all__ = [
    "ALPHA",
    "ASC_FAMILY",
    "BUILD_SHARES",
    "BUNDLED",
    "COLOUR",
    "COUNTS",
    "DESCRIPTIONS",
    "FEATURES",
    "GATE_FAMILY",
    "GROUPS",
    "KEYS",
    "LIMITS",
    "PROVENANCE",
    "REDO_PHRASE",
    "REDO_TAIL",
    "SCALARS",
    "SERIAL",
    "SHAPES",
    "TASKS",
    "TRACES",
    "TRAITS",
    "VOTE_FEATURES",
    "Built",
    "Choice",
    "Columns",
    "Dataset",
    "Encoder",
    "Estimate",
    "Evaluation",
    "EvaluationSettings",
    "Family",
    "Feature",
    "Floats",
    "Frontier",
    "Gate",
    "Goal",
    "Grader",
    "HeldRecords",
    "Judgement",
    "Kind",
    "Learner",
    "LiveTest",
    "LossLimit",
    "Model",
    "MostUtility",
    "PaperGate",
    "PaperLearner",
    "PaperModel",
    "PaperTable",
    "Point",
    "States",
    "StaticEncoder",
    "Trajectories",
    "TruthScorer",
    "Truths",
    "VoteLearner",
    "VoteModel",
    "Workers",
    "answer_families",
    "betting_p_values",
    "bootstrap_ratio",
    "build",
    "collapsing",
    "counter_examples",
    "crossfit",
    "deal",
    "describe_question",
    "evaluate",
    "export_pool",
    "export_svg",
    "file_hash",
    "fit_gate",
    "fixed_points",
    "fixed_sequence",
    "grade",
    "hold",
    "holdout",
    "import_file",
    "last_boxed",
    "learn_and_tune",
    "limit_for",
    "live_test",
    "log_evaluation",
    "loss_by_difficulty",
    "matched_random",
    "nested",
    "open_truths",
    "paired_bootstrap",
    "palette",
    "parse_workers",
    "pick",
    "point_in_orders",
    "point_of",
    "policy_of",
    "question_hashes",
    "question_reader",
    "re2_vote",
    "read_votes",
    "residual_opportunity",
    "semantics",
    "split_rows",
    "sweep",
    "winners",
    "with_redo",
    "without_group",
    "worst_group",
    "write_report",
    "write_whole",
]
