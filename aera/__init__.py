"""AERA decides, after every block of sampled responses, whether another block is worth it."""

from aera.aggregation import Aggregate, plain_vote, re2_vote
from aera.allocator import Allocator, Budget, solve, solve_blocking
from aera.baselines import ASC, ESC, Consensus, EmpiricalBayes, Prior
from aera.batch import solve_batch
from aera.catalog import parse_policy, standard_policies
from aera.controller import Controller, default_controller
from aera.embedding import Encoder, StaticEncoder
from aera.encoders import HTTPEncoder, SentenceEncoder, load_encoder
from aera.errors import AeraError, UpstreamError
from aera.evidence import FEATURES, Feature, Projection, characterize
from aera.fake import FakeUpstream, Fault, RecordedUpstream
from aera.gate import Gate, Gated, OneShot, PaperGate, VoteGate
from aera.policy import (
    Bounded,
    Decision,
    Entropy,
    FirstValid,
    Fixed,
    Lead,
    Majority,
    Policy,
)
from aera.pool import Pool, Record
from aera.response import Prefix, Question, Response, unfold
from aera.reward import BestOfN, ChanceRight, Scorer
from aera.run import Allocation, Run, Step
from aera.sampler import Chat, OpenAISampler, RecordedSampler, Sampler
from aera.schedule import Schedule
from aera.tally import Tally, Vote
from aera.task import Task, get_task
from aera.upstream import Endpoint, Upstream
from aera.weigher import Weigher

__version__ = "0.1.0"

__all__ = [
    "ASC",
    "ESC",
    "FEATURES",
    "AeraError",
    "Aggregate",
    "Allocation",
    "Allocator",
    "BestOfN",
    "Bounded",
    "Budget",
    "ChanceRight",
    "Chat",
    "Consensus",
    "Controller",
    "Decision",
    "EmpiricalBayes",
    "Encoder",
    "Endpoint",
    "Entropy",
    "FakeUpstream",
    "Fault",
    "Feature",
    "FirstValid",
    "Fixed",
    "Gate",
    "Gated",
    "HTTPEncoder",
    "Lead",
    "Majority",
    "OneShot",
    "OpenAISampler",
    "PaperGate",
    "Policy",
    "Pool",
    "Prefix",
    "Prior",
    "Projection",
    "Question",
    "Record",
    "RecordedSampler",
    "RecordedUpstream",
    "Response",
    "Run",
    "Sampler",
    "Schedule",
    "Scorer",
    "SentenceEncoder",
    "StaticEncoder",
    "Step",
    "Tally",
    "Task",
    "Upstream",
    "UpstreamError",
    "Vote",
    "VoteGate",
    "Weigher",
    "characterize",
    "default_controller",
    "get_task",
    "load_encoder",
    "parse_policy",
    "plain_vote",
    "re2_vote",
    "solve",
    "solve_batch",
    "solve_blocking",
    "standard_policies",
    "unfold",
]
