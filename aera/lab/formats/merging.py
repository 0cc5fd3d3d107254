"""Merge pools with their truths into one."""

from collections.abc import Sequence
from pathlib import Path

from aera.errors import UsageError
from aera.files import whole_folder
from aera.lab.open import open_truths
from aera.lab.truths import Truths
from aera.pools.parquet import (
    Stored,
    check_alike,
    merge_questions,
    merge_records,
    merge_sampler,
    merge_seed,
    open_pool,
)
from aera.pools.pool import Pool, write_pool


def merge_pools(
    addresses: Sequence[str | Path], out: str | Path, *, responses: int | None = None
) -> Pool:
    """Write one pool with the questions of all, which need the same task and prompt.

    A question that is in several has its responses one pool after the other. Questions with fewer
    than `responses` are left out; without it, it is the number that keeps most responses.
    """
    pools = [open_pool(address) for address in addresses]
    if not pools:
        raise UsageError("there is nothing to merge; give at least one pool")
    check_alike(pools)
    questions, truths = merge_questions(pools), merge_truths(pools)
    out = Path(out)
    with whole_folder(out) as folder:
        write_pool(
            folder,
            merge_records(pools, questions),
            task=pools[0].task,
            sampler=merge_sampler(pools),
            seed=merge_seed(pools),
            responses=responses,
        )
        if truths:
            truths.save(folder)
    return Pool.open(out)


def merge_truths(pools: Sequence[Stored]) -> Truths | None:
    """The truths of all pools, None where none has any; two truths for one question are refused."""
    merged: dict[str, str] = {}
    for pool in pools:
        truths = open_truths(pool)
        for question_id, answer in (truths.answers if truths else {}).items():
            known = merged.setdefault(question_id, answer)
            if known != answer and not pool.task.same(known, answer):
                raise UsageError(
                    f'question {question_id} has the truth "{answer:.40}" in "{pool.name}" and '
                    f'"{known:.40}" before; correct one of them in its truths.jsonl'
                )
    return Truths(merged) if merged else None
