"""Families: policies that differ in one threshold only, seen alike, so that tables compare fairly.

A family measures each prefix once; where it stops for any setting then follows without replay.
Settings are listed beforehand, from the safest to the boldest.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, floor, log10
from operator import ge, le, lt

import numpy as np

from aera.arrays import Columns, Flags, Floats
from aera.policies.rules import ASC, ESC, Entropy, Lead, Majority, Policy

COST_SHARES = tuple(np.geomspace(1, 0.035, 45)[1:].tolist())
"""Shares of the full budget's tokens that settings are looked for at; the first, all, is kept."""
Ready = Callable[[Floats, float], Flags]


@dataclass(frozen=True)
class Family:
    """A family of policies with one setting."""

    name: str
    settings: tuple[float, ...]
    """The sweep that is shown, and what the paper's rule chooses from."""
    fine: tuple[float, ...]
    """What certification tests one after the other."""
    ready: Ready
    make: Callable[[float], Policy] | None = None
    """The policy at a setting; None where it is learned, as the gate is."""
    digits: str = "g"
    near: float = 0.0
    """Where settings lie close together."""

    def label(self, setting: float) -> str:
        """The canonical label of one setting."""
        return f"{self.name}-{setting:{self.digits}}"

    def stops(self, values: Floats, setting: float) -> Columns:
        """The first column ready to stop, else the last."""
        ready = self.ready(values, setting)
        ready[..., -1] = True
        columns: Columns = np.argmax(ready, axis=-1)
        return columns

    def settings_by_cost(self, values: Floats, tokens: Floats) -> tuple[float, ...]:
        """Settings that spend from nearly all of the tokens to few, log-spaced, the safest first.

        A row stops at the first column whose readiness reaches the setting: each saves a block
        wherever the largest readiness up to a column does.
        """
        rising = self.ready is ge
        known = np.maximum.accumulate(values if rising else -values, axis=-1)[..., :-1].ravel()
        saved = np.diff(tokens, axis=-1).ravel() / max(1e-12, float(tokens[..., -1].sum()))
        known, saved = known[np.isfinite(known)], saved[np.isfinite(known)]
        order = np.argsort(-known, kind="stable")
        left = 1 - np.cumsum(saved[order])
        found = []
        for share in COST_SHARES:
            place = min(int(np.searchsorted(-left, -share)), len(left) - 1)
            if place >= 0:
                reached = float(known[order[place]])
                found.append(self._round(reached if rising else -reached))
        return tuple(dict.fromkeys(found))

    def _round(self, setting: float) -> float:
        """To three digits of its distance from where settings lie close together, never safer."""
        far = abs(setting - self.near)
        if not far:
            return setting
        unit = 10.0 ** (floor(log10(far)) - 2)
        bolder = floor(far / unit) if self.ready is ge and not self.near else ceil(far / unit)
        return float(f"{abs(self.near - bolder * unit):.12g}")


def grid(start: float, stop: float, step: float) -> tuple[float, ...]:
    count = round((stop - start) / step)
    return tuple(round(start + i * step, 6) for i in range(count + 1))


# The gate's output has no fixed scale, so the fine grid is denser where small chances lie.
_FINE = (*grid(0.01, 0.2, 0.01), *grid(0.22, 0.98, 0.02))
GATE_FAMILY = Family("aera", grid(0.1, 0.9, 0.1), _FINE, lt, digits=".2f")

_ASC_SETTINGS = (0.999, 0.99, 0.98, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6)


_ASC_FINE = (0.9999, 0.999, *grid(0.6, 0.99, 0.01)[::-1])
ONE_SHOT_FAMILY = Family("one-shot", (1.0,), (1.0,), ge)
"""A checkpoint named once, at the first one: the value is 1 from there on."""
SCORE_FAMILY = Family("score", (), (), ge)
"""Stop once the highest score reaches a bar; its settings are the scores of a pool."""
ASC_FAMILY = Family("asc", _ASC_SETTINGS, _ASC_FINE, ge, ASC, near=1.0)


def _esc(window: float) -> Policy:
    return ESC(int(window))


def answer_families() -> list[Family]:
    """The families that need only answers: ASC, ESC, lead, majority and entropy."""
    shares = grid(0.3, 1.0, 0.05)[::-1]
    windows = (16.0, 12.0, 10.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0)
    leads = (32.0, 24.0, 16.0, 12.0, 10.0, 8.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0)
    ceilings = grid(0.0, 1.0, 0.05)
    return [
        ASC_FAMILY,
        Family("esc", windows, windows, ge, _esc),
        Family("lead", leads, leads, ge, Lead),
        Family("majority", shares, grid(0.3, 1.0, 0.02)[::-1], ge, Majority),
        Family("entropy", ceilings, grid(0.0, 1.0, 0.02), le, Entropy),
    ]
