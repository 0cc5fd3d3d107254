"""AERA decides, after every block of sampled responses, whether another block is worth it."""

from aera.errors import AeraError, UpstreamError
from aera.evidence.encoders import load_encoder
from aera.policies.baselines import ASC, ESC
from aera.policies.labels import parse_policy, standard_policies
from aera.policies.policy import (
    Bounded,
    Decision,
    Entropy,
    FirstValid,
    Fixed,
    Lead,
    Majority,
    Policy,
)
from aera.pools.open import open_records
from aera.pools.pool import Pool
from aera.pools.record import Record
from aera.reading.task import Task, get_task
from aera.response import Prefix, Question, Response, unfold
from aera.sampling.fake import FakeUpstream, Fault, RecordedUpstream
from aera.sampling.sampler import Chat, OpenAISampler, RecordedSampler, Sampler
from aera.sampling.upstream import Endpoint
from aera.schedule import Schedule
from aera.solving.budget import Budget
from aera.solving.controller import Controller, default_controller
from aera.solving.run import Allocation, Run
from aera.solving.shared_budget import solve_shared
from aera.solving.solve import Allocator, solve, solve_blocking
from aera.tally import Tally, Vote
from aera.voting.best_of_n import BestOfN, ChanceRight, Scorer
from aera.voting.weigher import Weigher

__version__ = "0.1.0"

__all__ = [
    "ASC",
    "ESC",
    "AeraError",
    "Allocation",
    "Allocator",
    "BestOfN",
    "Bounded",
    "Budget",
    "ChanceRight",
    "Chat",
    "Controller",
    "Decision",
    "Endpoint",
    "Entropy",
    "FakeUpstream",
    "Fault",
    "FirstValid",
    "Fixed",
    "Lead",
    "Majority",
    "OpenAISampler",
    "Policy",
    "Pool",
    "Prefix",
    "Question",
    "Record",
    "RecordedSampler",
    "RecordedUpstream",
    "Response",
    "Run",
    "Sampler",
    "Schedule",
    "Scorer",
    "Tally",
    "Task",
    "UpstreamError",
    "Vote",
    "Weigher",
    "default_controller",
    "get_task",
    "load_encoder",
    "open_records",
    "parse_policy",
    "solve",
    "solve_blocking",
    "solve_shared",
    "standard_policies",
    "unfold",
]
