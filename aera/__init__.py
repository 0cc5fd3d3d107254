"""AERA decides, after every block of sampled responses, whether another block is worth it."""

from aera.aggregation import Aggregate, plain_vote, re2_vote
from aera.baselines import ASC, ESC, EmpiricalBayes, Prior
from aera.catalog import parse_policy, standard_policies
from aera.errors import AeraError
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
from aera.run import Allocation, Run, Step
from aera.schedule import Schedule
from aera.tally import Tally, Vote
from aera.task import Task, get_task

__version__ = "0.1.0"

__all__ = [
    "ASC",
    "ESC",
    "AeraError",
    "Aggregate",
    "Allocation",
    "Bounded",
    "Decision",
    "EmpiricalBayes",
    "Entropy",
    "FirstValid",
    "Fixed",
    "Lead",
    "Majority",
    "Policy",
    "Pool",
    "Prefix",
    "Prior",
    "Question",
    "Record",
    "Response",
    "Run",
    "Schedule",
    "Step",
    "Tally",
    "Task",
    "Vote",
    "get_task",
    "parse_policy",
    "plain_vote",
    "re2_vote",
    "standard_policies",
    "unfold",
]
