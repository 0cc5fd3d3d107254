"""Families: policies that differ in one threshold only, seen alike, so that tables compare fairly.

A family measures each prefix once; where it stops for any setting then follows without replay.
Settings are listed beforehand, from the safest to the boldest.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from aera.arrays import Columns, Flags, Floats
from aera.paper.encoder import Encoder
from aera.policies import rules as measures
from aera.policies.rules import ASC, ESC, Consensus, Entropy, Lead, Majority, Measure, Policy

Ready = Callable[[Floats, float], Flags]


def _at_least(values: Floats, setting: float) -> Flags:
    ready: Flags = values >= setting
    return ready


def _at_most(values: Floats, setting: float) -> Flags:
    ready: Flags = values <= setting
    return ready


def _below(values: Floats, setting: float) -> Flags:
    ready: Flags = values < setting
    return ready


@dataclass(frozen=True)
class Family:
    """A family of policies with one setting."""

    name: str
    settings: tuple[float, ...]
    """The sweep that is shown, and what the paper's rule chooses from."""
    fine: tuple[float, ...]
    """What certification tests one after the other."""
    ready: Ready
    measure: Measure | None = None
    """None where the measure is learned, as the gate's is."""
    make: Callable[[float], Policy] | None = None
    digits: str = "g"

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
GATE_FAMILY = Family("aera", _grid(0.1, 0.9, 0.1), _FINE, _below, digits=".2f")

_ASC_SETTINGS = (0.999, 0.99, 0.98, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6)


_ASC_FINE = (0.9999, 0.999, *_grid(0.6, 0.99, 0.01)[::-1])
ONE_SHOT_FAMILY = Family("one-shot", (1.0,), (1.0,), _at_least)
"""A checkpoint named once, at the first one: the value is 1 from there on."""
ASC_FAMILY = Family("asc", _ASC_SETTINGS, _ASC_FINE, _at_least, measures.confidence, ASC)


def _esc(window: float) -> Policy:
    return ESC(int(window))


def answer_families() -> list[Family]:
    """The families that need only answers: ASC, ESC, lead, majority and entropy."""
    shares = _grid(0.3, 1.0, 0.05)[::-1]
    windows = (16.0, 12.0, 10.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0)
    leads = (32.0, 24.0, 16.0, 12.0, 10.0, 8.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0)
    ceilings = _grid(0.0, 1.0, 0.05)
    return [
        ASC_FAMILY,
        Family("esc", windows, windows, _at_least, measures.unanimous_tail, _esc),
        Family("lead", leads, leads, _at_least, measures.lead, Lead),
        Family(
            "majority", shares, _grid(0.3, 1.0, 0.02)[::-1], _at_least, measures.majority, Majority
        ),
        Family("entropy", ceilings, _grid(0.0, 1.0, 0.02), _at_most, measures.entropy, Entropy),
    ]


def consensus_family(encoder: Encoder) -> Family:
    """The threshold on semantic consensus."""
    measure, make = partial(measures.consensus, encoder), partial(Consensus, encoder)
    shares = _grid(0.6, 0.98, 0.02)[::-1]
    fine = _grid(0.6, 0.99, 0.01)[::-1]
    return Family("consensus", shares, fine, _at_least, measure, make)
