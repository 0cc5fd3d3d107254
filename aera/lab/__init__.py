"""Where the truth may be known: grading, training, calibration. Imports aera, never the reverse."""

from aera.arrays import Columns, Flags, Floats
from aera.files import file_hash, palette, write_whole
from aera.lab.calibrating.by_mean import ByMean
from aera.lab.calibrating.calibration import Choice, Goal, LossLimit
from aera.lab.calibrating.certificate import betting_p_values, fixed_sequence
from aera.lab.calibrating.families import ASC_FAMILY, GATE_FAMILY, Family, answer_families
from aera.lab.formats.exporting import export_pool
from aera.lab.formats.importing import bring_in, import_file, import_jsonl
from aera.lab.judging.audit import PROVENANCE
from aera.lab.judging.bootstrap import (
    Interval,
    MatchedRandom,
    bootstrap_ratio,
    compare_all,
    matched_random,
    paired_bootstrap,
)
from aera.lab.judging.build import BUILD_SHARES, Built, build
from aera.lab.judging.diagnostics import (
    collapsing,
    counter_examples,
    loss_by_difficulty,
    residual_opportunity,
    worst_group,
)
from aera.lab.judging.difference import FEW, paired_gaps, spent_share
from aera.lab.judging.headline import compare_in_words
from aera.lab.judging.live import LiveTest, live_test
from aera.lab.judging.protocols import (
    CrossFit,
    Judgement,
    crossfit,
    holdout,
    learn_and_tune,
    limit_for,
    nested,
)
from aera.lab.judging.summary import log_evaluation, summarize
from aera.lab.learning.crowd import CrowdLearner, winner_of
from aera.lab.learning.folds import Fold, deal, out_of_fold, split_rows
from aera.lab.learning.learner import Learner, Measured, Model, policy_of
from aera.lab.learning.paper import (
    GROUPS,
    PaperLearner,
    PaperModel,
    PaperTable,
    sweep,
    without_group,
)
from aera.lab.learning.rewards import MostUtility, RewardLearner, TruthScorer
from aera.lab.learning.states import States, embed, recorded_encoder
from aera.lab.learning.vote_gate import VoteGateFit, VoteStates
from aera.lab.learning.votes import ReplayedVotes, VoteLearner, VoteModel, VoteTable
from aera.lab.learning.weigher import Responses, WeigherFit
from aera.lab.open import open_truths
from aera.lab.replay.frontier import Frontier, Kind, Mixture, Point, fixed_points, point_of
from aera.lab.replay.replay import evaluate
from aera.lab.replay.trajectory import SHAPES, Trajectories, pick
from aera.lab.report import figure as figure
from aera.lab.report.changes import ANSWER_COLOURS, change_figure
from aera.lab.report.demo import BUNDLED
from aera.lab.report.page import COLOUR, Report, export_svg, write_report
from aera.lab.truths import Grader, Truths, grade
from aera.paper.encoder import Encoder, StaticEncoder
from aera.paper.features import FEATURES, SCALARS, semantics
from aera.policies.domain import WINDOW, Home, Lookout
from aera.policies.features import VOTE_FEATURES, Feature
from aera.policies.gate import PaperGate, VoteGate
from aera.policies.labels import DESCRIPTIONS, LIMITS
from aera.policies.rules import Confident
from aera.pools.pool import HeldRecords, VotedRecord, hold, read_votes
from aera.pools.stats import ALPHA, RUN_LENGTH, Detector, covers, interval
from aera.reading.equivalence import question_reader
from aera.reading.find import last_boxed
from aera.reading.task import KEYS, KINDS, REDO_TAIL, TASKS, needs_redo, with_redo
from aera.sampling.replies import parse_reply
from aera.solving.controller import question_hashes
from aera.trace import TRACE_NAMES, TRACES, TokenTrace, measure_trace
from aera.voting.rules import CONFIDENT, TraceWeights
from aera.voting.traits import COUNTS, TRACE, TRAIT_NAMES, TRAITS, columns_of, describe_question
from aera.workers import SERIAL, Workers

__all__ = [
    "ALPHA",
    "ANSWER_COLOURS",
    "ASC_FAMILY",
    "BUILD_SHARES",
    "BUNDLED",
    "COLOUR",
    "CONFIDENT",
    "COUNTS",
    "DESCRIPTIONS",
    "FEATURES",
    "FEW",
    "GATE_FAMILY",
    "GROUPS",
    "KEYS",
    "KINDS",
    "LIMITS",
    "PROVENANCE",
    "REDO_TAIL",
    "RUN_LENGTH",
    "SCALARS",
    "SERIAL",
    "SHAPES",
    "TASKS",
    "TRACE",
    "TRACES",
    "TRACE_NAMES",
    "TRAITS",
    "TRAIT_NAMES",
    "VOTE_FEATURES",
    "WINDOW",
    "Built",
    "ByMean",
    "Choice",
    "Columns",
    "Confident",
    "CrossFit",
    "CrowdLearner",
    "Detector",
    "Encoder",
    "Family",
    "Feature",
    "Flags",
    "Floats",
    "Fold",
    "Frontier",
    "Goal",
    "Grader",
    "HeldRecords",
    "Home",
    "Interval",
    "Judgement",
    "Kind",
    "Learner",
    "LiveTest",
    "Lookout",
    "LossLimit",
    "MatchedRandom",
    "Measured",
    "Mixture",
    "Model",
    "MostUtility",
    "PaperGate",
    "PaperLearner",
    "PaperModel",
    "PaperTable",
    "Point",
    "ReplayedVotes",
    "Report",
    "Responses",
    "RewardLearner",
    "States",
    "StaticEncoder",
    "TokenTrace",
    "TraceWeights",
    "Trajectories",
    "TruthScorer",
    "Truths",
    "VoteGate",
    "VoteGateFit",
    "VoteLearner",
    "VoteModel",
    "VoteStates",
    "VoteTable",
    "VotedRecord",
    "WeigherFit",
    "Workers",
    "answer_families",
    "betting_p_values",
    "bootstrap_ratio",
    "bring_in",
    "build",
    "change_figure",
    "collapsing",
    "columns_of",
    "compare_all",
    "compare_in_words",
    "counter_examples",
    "covers",
    "crossfit",
    "deal",
    "describe_question",
    "embed",
    "evaluate",
    "export_pool",
    "export_svg",
    "file_hash",
    "fixed_points",
    "fixed_sequence",
    "grade",
    "hold",
    "holdout",
    "import_file",
    "import_jsonl",
    "interval",
    "last_boxed",
    "learn_and_tune",
    "limit_for",
    "live_test",
    "log_evaluation",
    "loss_by_difficulty",
    "matched_random",
    "measure_trace",
    "needs_redo",
    "nested",
    "open_truths",
    "out_of_fold",
    "paired_bootstrap",
    "paired_gaps",
    "palette",
    "parse_reply",
    "pick",
    "point_of",
    "policy_of",
    "question_hashes",
    "question_reader",
    "read_votes",
    "recorded_encoder",
    "residual_opportunity",
    "semantics",
    "spent_share",
    "split_rows",
    "summarize",
    "sweep",
    "winner_of",
    "with_redo",
    "without_group",
    "worst_group",
    "write_report",
    "write_whole",
]
