"""Pools with a trace per token, as their makers keep them: NAME.jsonl.gz beside NAME.npz.

The arrays `logprob` (value / -16) and `confidence` (value / 4) run over all tokens of all responses
in the order of the file; `answer_tokens` of a response says which of its tokens the answer is.
What is made of them is kept in out/traces.
"""

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from pools import ROOT, held

from aera.lab import (
    TRACES,
    Floats,
    HeldRecords,
    TokenTrace,
    Truths,
    VoteLearner,
    VoteTable,
    measure_trace,
)

NAMES = ("gsm8k", "csqa", "math500", "gsm8k-half")
"""The pools of the folder `traces`."""
LEARNER = VoteLearner()


def read_traces(folder: Path, name: str) -> Iterator[tuple[str, list[tuple[float, ...]]]]:
    """Each question's id with the traces of its responses."""
    with np.load(folder / f"{name}.npz") as arrays:
        logprobs, confidence = arrays["logprob"] / -16.0, arrays["confidence"] / 4.0
    start = 0
    with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            row, traces = json.loads(line), []
            for response in row["responses"]:
                own = slice(start, start + response["tokens"])
                first, end = response["answer_tokens"]
                answer = slice(first, end) if first >= 0 else None
                tokens = TokenTrace(logprobs[own], confidence[own], answer)
                traces.append(measure_trace(tokens))
                start = own.stop
            yield row["id"], traces
    assert start == len(logprobs), f"{name}.npz does not belong to {name}.jsonl.gz"


def traces_of(folder: Path, name: str) -> dict[str, Floats]:
    """The same as arrays (responses, numbers) by question, measured once."""
    kept = ROOT / "out" / "traces" / f"{name}.npz"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        made: dict[str, Any] = {key: np.array(rows) for key, rows in read_traces(folder, name)}
        np.savez(kept, **made)
    with np.load(kept) as known:
        return {key: known[key].reshape(-1, len(TRACES)) for key in known.files}


@cache
def traced(folder: Path, name: str) -> tuple[HeldRecords, Truths]:
    """The votes of a pool whose responses have their traces, with its truths."""
    records, truths = held(folder.parent, f"traces/{name}")
    known = traces_of(folder, name)
    with_traces = [
        replace(
            record,
            responses=tuple(
                replace(response, trace=tuple(map(float, row)))
                for response, row in zip(record.responses, known[record.question.id], strict=True)
            ),
        )
        for record in records.records
    ]
    return replace(records, name=name, records=with_traces), truths


@cache
def traced_table(folder: Path, name: str) -> VoteTable:
    """The same with traits and grades, and with the traces among the traits."""
    print(f"{name}, traits and traces ...", flush=True)
    return LEARNER.prepare(*traced(folder, name))
