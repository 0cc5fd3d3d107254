"""Dials: every policy with one setting, seen alike, so that tables compare like with like.

A dial measures each prefix once; where it stops for any setting then follows without replay.
Settings are listed beforehand, from the safest to the boldest.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from aera.baselines import ASC, ESC, Consensus, beta_confidence
from aera.embedding import Encoder
from aera.evidence import semantics
from aera.lab.trajectory import Columns, Floats
from aera.policy import Entropy, Lead, Majority, Policy
from aera.response import Prefix

Ready = Callable[[Floats, float], NDArray[np.bool_]]


def _at_least(values: Floats, setting: float) -> NDArray[np.bool_]:
    ready: NDArray[np.bool_] = values >= setting
    return ready


def _at_most(values: Floats, setting: float) -> NDArray[np.bool_]:
    ready: NDArray[np.bool_] = values <= setting
    return ready


def _below(values: Floats, setting: float) -> NDArray[np.bool_]:
    ready: NDArray[np.bool_] = values < setting
    return ready


@dataclass(frozen=True)
class Dial:
    """A family of policies with one setting."""

    name: str
    settings: tuple[float, ...]
    """The sweep that is shown, and what the paper's rule chooses from."""
    fine: tuple[float, ...]
    """What certification tests one after the other."""
    ready: Ready
    measure: Callable[[Prefix], float] | None = None
    """None where the measure is learned, as the gate's is."""
    make: Callable[[float], Policy] | None = None
    digits: str = "g"

    def value(self, prefix: Prefix) -> float:
        """How ready to stop a prefix is, in the dial's own unit."""
        assert self.measure is not None, "a learned dial is measured by its gate"
        return self.measure(prefix)

    def label(self, setting: float) -> str:
        """The canonical label of one setting."""
        return f"{self.name}-{setting:{self.digits}}"

    def stops(self, values: Floats, setting: float) -> Columns:
        """The first column ready to stop, else the last."""
        ready = self.ready(values, setting)
        ready[:, -1] = True
        columns: Columns = np.argmax(ready, axis=1)
        return columns


def _grid(start: float, stop: float, step: float) -> tuple[float, ...]:
    count = round((stop - start) / step)
    return tuple(round(start + i * step, 6) for i in range(count + 1))


# The gate's output has no fixed scale, so the fine grid is denser where small chances lie.
_FINE = (*_grid(0.01, 0.2, 0.01), *_grid(0.22, 0.98, 0.02))
GATE = Dial("aera", _grid(0.1, 0.9, 0.1), _FINE, _below, digits=".2f")

_ASC_SETTINGS = (0.999, 0.99, 0.98, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6)


def _confidence(prefix: Prefix) -> float:
    leaders = prefix.tally.leaders
    if leaders.answer is None:
        return -np.inf
    return beta_confidence(leaders.weight, leaders.runner_up)


_ASC_FINE = (0.9999, 0.999, *_grid(0.6, 0.99, 0.01)[::-1])
ASC_DIAL = Dial("asc", _ASC_SETTINGS, _ASC_FINE, _at_least, _confidence, ASC)


def _lead(prefix: Prefix) -> float:
    return prefix.tally.leaders.weight - prefix.tally.leaders.runner_up


def _unanimous_tail(prefix: Prefix) -> float:
    """How many of the latest responses agree without a gap."""
    votes = prefix.votes
    count = 0
    while count < len(votes) and votes[-1 - count].answer == votes[-1].answer is not None:
        count += 1
    return float(count)


def _majority(prefix: Prefix) -> float:
    return prefix.tally.majority if len(prefix.tally) else -np.inf


def _entropy(prefix: Prefix) -> float:
    return prefix.tally.entropy if len(prefix.tally) else np.inf


def _consensus(encoder: Encoder, prefix: Prefix) -> float:
    return semantics(prefix, encoder).consensus if len(prefix.tally) else -np.inf


def _esc(window: float) -> Policy:
    return ESC(int(window))


def answer_dials() -> list[Dial]:
    """The dials that need only answers: ASC, ESC, lead, majority and entropy."""
    shares = _grid(0.3, 1.0, 0.05)[::-1]
    windows = (16.0, 12.0, 10.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0)
    leads = (32.0, 24.0, 16.0, 12.0, 10.0, 8.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0)
    ceilings = _grid(0.0, 1.0, 0.05)
    return [
        ASC_DIAL,
        Dial("esc", windows, windows, _at_least, _unanimous_tail, _esc),
        Dial("lead", leads, leads, _at_least, _lead, Lead),
        Dial("majority", shares, _grid(0.3, 1.0, 0.02)[::-1], _at_least, _majority, Majority),
        Dial("entropy", ceilings, _grid(0.0, 1.0, 0.02), _at_most, _entropy, Entropy),
    ]


def consensus_dial(encoder: Encoder) -> Dial:
    """The threshold on semantic consensus."""
    measure, make = partial(_consensus, encoder), partial(Consensus, encoder)
    shares = _grid(0.6, 0.98, 0.02)[::-1]
    fine = _grid(0.6, 0.99, 0.01)[::-1]
    return Dial("consensus", shares, fine, _at_least, measure, make)
