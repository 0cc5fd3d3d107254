"""Traces: what the log-probabilities of a response's tokens say of it, from one table.

A trace is one small tuple of numbers per response, in the order of TRACES. What cannot be known is
NaN: without the other likely tokens there is no confidence, without a place no answer. The
confidence of a token is minus the mean logprob of the twenty likeliest tokens in its place.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan, nan
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from aera.arrays import Columns, Floats

Trace = tuple[float, ...]
"""One number for each of TRACES."""
TOP = 20
"""Likely tokens in every place that a confidence is the mean of."""
TOP_LOGPROBS = "top_logprobs"
FULL: Mapping[str, Any] = MappingProxyType({"logprobs": True, TOP_LOGPROBS: TOP})
"""The fields of a request for full traces."""
WINDOW, WIDE = 32, 64
"""Tokens in a row that are looked at together."""
TENTH = 0.1
UNSURE, WILD = -0.7, -2.0
"""Logprobs below which a token was a choice among several, and an unlikely one."""


@dataclass(frozen=True, eq=False)
class ServedTokens:
    """The tokens of a reply as the server listed them; their text may hold more than the reply."""

    text: str
    ends: Columns
    """Where each token ends in that text."""
    logprobs: Floats
    confidence: Floats | None = None

    @property
    def total(self) -> float:
        """The logprob of all of them."""
        return float(self.logprobs.sum())

    def trace(self, said: str, place: slice | None) -> Trace:
        """The trace of a reply that says `said`, with its answer at a place of that, if at any.

        A server may list the tokens of its reasoning too, and one for the end: what is said is
        looked for among them from behind.
        """
        start, answer = self.text.rfind(said), None
        if place is not None and start >= 0:
            first = int(np.searchsorted(self.ends, start + place.start, side="right"))
            last = int(np.searchsorted(self.ends, start + place.stop, side="left"))
            answer = slice(first, last + 1)
        return measure_trace(self.logprobs, self.confidence, answer)


@dataclass(frozen=True)
class Feature:
    """One row of a table of numbers; `neutral` is what it is where there is no predecessor."""

    name: str
    meaning: str
    group: str = "text"
    """What a response must bring for it, or which part of the evidence it is."""
    neutral: float | None = None


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else nan


def _least(values: Floats) -> float:
    return float(values.min()) if len(values) else nan


def _low_tenth(values: Floats) -> float:
    """The mean of the lowest tenth."""
    count = max(1, int(TENTH * len(values)))
    return _mean(np.partition(values, count - 1)[:count]) if len(values) else nan


def _windows(values: Floats, width: int) -> Floats:
    """The means of all windows of this width; of a shorter response, of the whole."""
    if not len(values):
        return values
    width = min(width, len(values))
    means: Floats = sliding_window_view(values, width).mean(axis=1)
    return means


TRACES = (
    Feature("trace_logprob", "mean token logprob"),
    Feature("trace_confidence", "mean confidence of its tokens"),
    Feature("trace_least", "lowest token logprob"),
    Feature("trace_low", "mean of the lowest tenth of logprobs"),
    Feature("trace_window_logprob", "lowest mean logprob of 32 tokens in a row"),
    Feature("trace_window_confidence", "lowest mean confidence of 32 tokens in a row"),
    Feature("trace_low_windows", "mean of the lowest tenth of those windows"),
    Feature("trace_wide_window", "lowest mean confidence of 64 tokens in a row"),
    Feature("trace_last_confidence", "mean confidence of the last 32 tokens"),
    Feature("trace_last_logprob", "mean logprob of the last 32 tokens"),
    Feature("trace_unsure", "share of tokens with a logprob below -0.7"),
    Feature("trace_wild", "number of tokens with a logprob below -2"),
    Feature("trace_answer_sum", "sum of the logprobs of the answer's tokens"),
    Feature("trace_answer_logprob", "mean logprob of the answer's tokens"),
    Feature("trace_answer_confidence", "mean confidence of the answer's tokens"),
    Feature("trace_answer_least", "lowest confidence of the answer's tokens"),
)
TRACE_NAMES: tuple[str, ...] = tuple(number.name for number in TRACES)
UNKNOWN: Trace = (nan,) * len(TRACES)


def measure_trace(
    logprobs: Floats, confidence: Floats | None = None, answer: slice | None = None
) -> Trace:
    """The numbers of one response, as short as a pool keeps them.

    They are of its tokens, of what the server says of the other likely ones, if anything, and of
    the tokens of the answer itself, where it was found.
    """
    sure = logprobs[:0] if confidence is None else confidence
    said, certain = (logprobs[:0], sure[:0]) if answer is None else (logprobs[answer], sure[answer])
    windows = _windows(sure, WINDOW)
    numbers = (
        _mean(logprobs),
        _mean(sure),
        _least(logprobs),
        _low_tenth(logprobs),
        _least(_windows(logprobs, WINDOW)),
        _least(windows),
        _low_tenth(windows),
        _least(_windows(sure, WIDE)),
        _mean(sure[-WINDOW:]),
        _mean(logprobs[-WINDOW:]),
        _mean((logprobs < UNSURE).astype(float)),
        float((logprobs < WILD).sum()) if len(logprobs) else nan,
        float(said.sum()) if len(said) else nan,
        _mean(said),
        _mean(certain),
        _least(certain),
    )
    return tuple(float(f"{number:.5g}") for number in numbers)


def trace_to_json(trace: Trace) -> list[float | None]:
    """A trace as JSON has it: what is not known is null."""
    return [None if isnan(number) else number for number in trace]


def trace_from_json(told: Any) -> Trace:
    """The trace that a pool holds; what cannot be one is a TypeError."""
    if not isinstance(told, list | tuple) or len(told) != len(TRACES):
        raise TypeError(f'the field "trace" is {told!r:.40}, not {len(TRACES)} numbers')
    for number in told:
        if isinstance(number, bool) or not isinstance(number, int | float | None):
            raise TypeError(f'the field "trace" holds {number!r:.40}, which is no number')
    return tuple(nan if number is None else float(number) for number in told)
