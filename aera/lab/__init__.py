"""Where the truth may be known: grading, training, calibration. Imports aera, never the reverse."""

from aera.arrays import Columns, Floats
from aera.files import file_hash, palette, write_whole
from aera.lab.build import BUILD_SHARES, build
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
from aera.lab.frontier import (
    SHAPES,
    Frontier,
    Point,
    Trajectories,
    fixed_points,
    pick,
    point_of,
    sweep,
)
from aera.lab.judging import (
    Judgement,
    crossfit,
    holdout,
    learn_and_tune,
    limit_for,
    nested,
    policy_at,
    policy_of,
)
from aera.lab.label import open_truths
from aera.lab.leaks import PROVENANCE
from aera.lab.learning.fit import fit_gate
from aera.lab.learning.folds import Split, deal, split_rows
from aera.lab.learning.paper import (
    GROUPS,
    PaperLearner,
    PaperModel,
    PaperTable,
    States,
    without_group,
)
from aera.lab.learning.votes import VoteLearner, VoteModel
from aera.lab.live import BUNDLED, LiveTest, live_test
from aera.lab.replay import Dataset, evaluate, winners
from aera.lab.report import figures
from aera.lab.report.page import COLOUR, write_report
from aera.lab.stats import Estimate, bootstrap_ratio, matched_random, paired_bootstrap
from aera.lab.summary import log_evaluation
from aera.lab.truths import Truths, grade, grade_all
from aera.paper.encoder import StaticEncoder
from aera.paper.features import FEATURES, SCALARS, PaperGate
from aera.policies.gate import VOTE_FEATURES
from aera.policies.rules import DESCRIPTIONS, LIMITS
from aera.pools.pool import HeldRecords, hold
from aera.reading.find import last_boxed
from aera.reading.task import REDO_PHRASE, REDO_TAIL, TASKS, question_reader, with_redo
from aera.solving.controller import question_hashes
from aera.trace import TRACES, Feature
from aera.voting.traits import COUNTS, TRAITS, describe_question
from aera.workers import parse_workers
