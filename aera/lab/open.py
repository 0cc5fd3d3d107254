"""Open the truths of recorded responses, wherever those lie, and choose what can be judged."""

from collections.abc import Mapping
from dataclasses import dataclass

from aera.errors import ProtocolError
from aera.lab.truths import Truths
from aera.pools.parquet import ANSWER, ParquetPart, ParquetPool
from aera.pools.pool import ChosenRecords, Records
from aera.workers import SERIAL, Workers

SHOWN = 3
"""Questions that are named."""


def open_truths(records: Records, *, workers: Workers = SERIAL) -> Truths | None:
    """The truths of a pool, or those that were exported along; None where there are none."""
    if isinstance(records, ParquetPool):
        return _exported_truths(records, workers)
    return Truths.open(records.folder) if records.folder else None


def _exported_truths(pool: ParquetPool, workers: Workers) -> Truths | None:
    told = workers.map(_answers, pool.parts())
    answers = {name: answer for part in told for name, answer in part.items()}
    return Truths(answers) if answers else None


def _answers(part: ParquetPart) -> dict[str, str]:
    """The truths of one part, whose column is read by itself and never with the responses."""
    columns = part.columns(["question_id", ANSWER])
    pairs = zip(columns["question_id"], columns[ANSWER], strict=True)
    return {question_id: answer for question_id, answer in pairs if answer is not None}


def need_truths(records: Records, truths: Truths | None) -> Truths:
    """Refuse records that nothing can be learned from."""
    if truths is None:
        raise ProtocolError(
            f'"{records.name}" has no truths, so nothing can be learned from it; '
            "aera evaluate without --protocol shows what policies would spend"
        )
    return truths


@dataclass(frozen=True, eq=False)
class Graded:
    """Recorded responses with their truths, and the questions that had to be left out."""

    records: Records
    truths: Truths | None
    left_out: Mapping[str, str]
    """By question, why."""

    @property
    def remark(self) -> str | None:
        """Who was left out, in one sentence; None where nobody was."""
        if not self.left_out:
            return None
        first = "; ".join(f"{key} {why}" for key, why in [*self.left_out.items()][:SHOWN])
        more = ", ..." if len(self.left_out) > SHOWN else ""
        return f"{len(self.left_out)} questions are left out: {first}{more}"


def open_graded(
    records: Records, *, truths: Truths | None = None, workers: Workers = SERIAL
) -> Graded:
    """The questions that can be judged: those with enough responses and, where any has, a truth."""
    known = truths if truths is not None else open_truths(records, workers=workers)
    left = dict(getattr(records, "left_out", {}))
    if known is None:
        return Graded(records, None, left)
    missing = [key for key in records.questions if key not in known.answers]
    if len(missing) == len(records.questions):
        raise ProtocolError(f'none of the questions of "{records.name}" has a truth')
    if not missing:
        return Graded(records, known, left)
    chosen = ChosenRecords(records, frozenset(known).intersection(records.questions))
    return Graded(chosen, known, {**left, **dict.fromkeys(missing, "has no truth")})
