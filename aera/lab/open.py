"""Open the truths of recorded responses, wherever those lie."""

from pathlib import Path

from aera.lab.truths import Truths
from aera.pools.parquet import ANSWER
from aera.pools.record import Records
from aera.pools.shards import Shard, Shards
from aera.workers import SERIAL, Workers


def open_truths(records: Records, *, workers: Workers = SERIAL) -> Truths | None:
    """The truths of a pool, or those that were exported along; None where there are none."""
    if isinstance(records, Shards):
        return _exported_truths(records, workers)
    return Truths.open(records.folder) if isinstance(records.folder, Path) else None


def _exported_truths(shards: Shards, workers: Workers) -> Truths | None:
    answers: dict[str, str] = {}
    for told in workers.map(_answers, shards.parts()):
        if told is None:
            return None
        answers |= told
    return Truths(answers)


def _answers(part: Shard) -> dict[str, str] | None:
    """The truths of one part, whose column is read by itself and never with the responses."""
    columns = part.columns(["question_id", ANSWER])
    if ANSWER not in columns:
        return None
    pairs = zip(columns["question_id"], columns[ANSWER], strict=True)
    return {question_id: answer for question_id, answer in pairs if answer is not None}
