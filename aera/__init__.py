"""Early stopping for self-consistency and best-of-n.

AERA decides, after every block of sampled responses, whether another block is worth paying for.

    import aera

    pool = aera.open_pool("pools/gsm8k")                 # recorded responses
    print(aera.evaluate(pool))                           # what each policy would spend and lose
    controller = aera.train(pool, max_loss=0.02)         # learned and calibrated
    controller.save("controllers/gsm8k")

    async with aera.OpenAISampler(aera.Endpoint(url), aera.Chat(model, pool.task)) as sampler:
        print(await aera.solve("What is 6 x 7?", sampler, controller))

`evaluate` and `train` live in `aera.lab`, which may see right answers; it is loaded when they are
first used. Nothing else here ever sees one.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from aera.core import Prefix, Question, Response, Schedule, Tally, Vote, unfold
from aera.errors import AeraError, UpstreamError
from aera.paper.encoder import load_encoder
from aera.policies.rules import (
    ASC,
    ESC,
    Bounded,
    Decision,
    Entropy,
    FirstValid,
    Fixed,
    Lead,
    Majority,
    Policy,
    parse_policy,
    standard_policies,
)
from aera.pools.parquet import open_pool
from aera.pools.pool import Pool, Record
from aera.reading.task import Task, get_task
from aera.sampling.budget import Budget
from aera.sampling.client import Endpoint
from aera.sampling.recorded import RecordedSampler, RecordedUpstream
from aera.sampling.sampler import Chat, OpenAISampler, Sampler
from aera.solving.controller import Controller, default_controller
from aera.solving.run import Allocation, Run
from aera.solving.solve import solve, solve_blocking, solve_many
from aera.voting.rules import BestOfN, Scorer
from aera.voting.weigher import ChanceRight, Weigher

if TYPE_CHECKING:
    from aera.lab.api import evaluate, train

__version__ = "0.1.0"

__all__ = [
    "ASC",
    "ESC",
    "AeraError",
    "Allocation",
    "BestOfN",
    "Bounded",
    "Budget",
    "ChanceRight",
    "Chat",
    "Controller",
    "Decision",
    "Endpoint",
    "Entropy",
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
    "evaluate",
    "get_task",
    "load_encoder",
    "open_pool",
    "parse_policy",
    "solve",
    "solve_blocking",
    "solve_many",
    "standard_policies",
    "train",
    "unfold",
]


def __getattr__(name: str) -> Any:
    """The two functions of the lab, loaded when somebody wants them."""
    if name in ("evaluate", "train"):
        return getattr(import_module("aera.lab.api"), name)
    raise AttributeError(f"module 'aera' has no attribute {name!r}")
