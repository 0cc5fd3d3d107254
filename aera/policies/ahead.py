"""Ahead: the chance that later blocks will be wanted, so that they can begin before it is known.

What is begun ahead changes when responses are asked for, never which answer is given: a checkpoint
is judged on the first responses in the order in which they were asked for, whenever they came.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from aera.arrays import Floats
from aera.errors import UsageError
from aera.evidence.votes import VOTE_FEATURE_NAMES, vote_features
from aera.network import Network, check_features, sigmoid
from aera.response import Prefix

USUAL = 1.5
"""Slowness up to which a server counts as at its best: short replies take longer by the token."""


@dataclass(frozen=True, eq=False)
class Ahead:
    """How likely a run goes on past each checkpoint, by what has arrived so far."""

    past: tuple[int, ...]
    """Numbers of responses: every checkpoint but the last."""
    start: Floats
    """The chance to go on past each of them before anything has arrived."""
    network: Network
    """The same once something has, from the vote features; one output each."""

    def chance(self, seen: Prefix, past: int) -> float:
        """That a run goes on past so many responses; `seen` is all that has arrived, or nothing.

        Between the checkpoints it was learned at, the chance falls evenly by every doubling.
        """
        known = seen.remember((Ahead, id(self)), self._chances) if len(seen) else self.start
        return float(np.interp(np.log(past), np.log(self.past), known))

    def _chances(self, seen: Prefix) -> Floats:
        told: Floats = sigmoid(self.network.outputs(vote_features(seen)[None]))[0]
        return np.minimum.accumulate(told)

    def as_json(self) -> dict[str, Any]:
        """Every number, as a controller's config holds them."""
        arrays = {name: array.tolist() for name, array in self.network.tensors().items()}
        return {
            "past": list(self.past),
            "start": self.start.tolist(),
            "features": list(VOTE_FEATURE_NAMES),
            "network": arrays,
        }


def ahead_from_json(told: Mapping[str, Any] | None) -> Ahead | None:
    """What `as_json` wrote; None where a controller has none of its own."""
    if told is None:
        return None
    check_features(tuple(told["features"]), VOTE_FEATURE_NAMES)
    arrays = {name: np.array(values, np.float64) for name, values in told["network"].items()}
    made = Ahead(
        tuple(map(int, told["past"])),
        np.array(told["start"], np.float64),
        Network.from_tensors(arrays),
    )
    outputs = (len(made.past), len(VOTE_FEATURE_NAMES))
    if made.start.shape != outputs[:1] or made.network.weight.shape != outputs:
        raise ValueError("the chances of later blocks have another shape than their checkpoints")
    return made


@cache
def default_ahead() -> Ahead:
    """Learned for ASC(0.95) on the bundled responses: for whoever has none of its own."""
    text = (files("aera.policies") / "ahead.json").read_text("utf-8")
    made = ahead_from_json(json.loads(text))
    assert made is not None
    return made


def check_hurry(hurry: float) -> None:
    """Refuse what is no hurry."""
    if not 0 <= hurry <= 1:
        raise UsageError(f"a hurry lies between 0 and 1, but got {hurry:g}")


def is_begun(chance: float, hurry: float) -> bool:
    """Whether a block with this chance of being wanted begins ahead; at 0 none does."""
    return hurry > 0 and chance >= 1 - hurry


def ease(hurry: float, *, busy: float, slowness: float = 1.0) -> float:
    """What is left of a hurry on a server in use: everybody there pays for what is begun ahead.

    `busy` is the share of its calls that are taken: up to a half nobody waits for anybody, then the
    hurry falls to nothing. `slowness` is how many times its best seconds a token takes now; a half
    more is what replies differ by anyway.
    """
    free = min(1.0, max(0.0, 2 * (1 - busy)))
    return hurry * free / max(1.0, slowness / USUAL)
