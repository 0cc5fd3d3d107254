"""Gather a pool with many workers: each records a part of the questions, then the parts are joined.

A part is a recording of its own, in a folder below the pool, with as many questions as fill one
segment. A worker that dies is replaced, and its successor resumes the recording: what is on disk
is neither lost nor asked for again. The joined pool is byte for byte what one worker would write.
"""

import asyncio
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from aera.errors import UsageError
from aera.files import file_hash, replacing, write_json, write_whole
from aera.pools.pool import Pool, question_line
from aera.pools.record import SEGMENT_RESPONSES
from aera.response import Question
from aera.sampling.growing import find_base
from aera.sampling.plan import PLAN, Plan
from aera.sampling.recording import PARTS, Recording, record
from aera.sampling.sampler import Sampler
from aera.workers import SERIAL, Workers

Connect = Callable[[], AbstractAsyncContextManager[Sampler]]
"""Makes the sampler of one worker, as `partial(OpenAISampler, endpoint, chat)`."""


@dataclass(frozen=True)
class QuestionPart:
    """The questions of one part, and the folder its recording is in."""

    path: Path
    questions: tuple[Question, ...]


def gather(
    path: Path,
    plan: Plan,
    questions: Sequence[Question],
    *,
    connect: Connect,
    workers: Workers = SERIAL,
    concurrency: int = 64,
    block: int = 16,
) -> Pool | None:
    """Sample everything that is missing; returns the pool, or None if some of it failed.

    Call it again to go on. Each worker has its own connections and its own `concurrency`.
    """
    path = path.absolute()  # whoever works on a part may be somewhere else
    if (path / "manifest.json").exists():
        _clear(path)
        if find_base(path, plan, questions):
            raise UsageError(
                f'the pool at "{path}" is whole, and is grown by one worker; run it without '
                "--workers, with a larger --concurrency where the server can take it"
            )
        Recording(path, plan, questions).begin()  # refuses other settings and other questions
        return Pool.open(path)
    if (path / PLAN).exists():
        raise UsageError(f'"{path}" was begun by one worker; continue it without --workers')
    if path.exists() and any(path.iterdir()) and not (path / PARTS).exists():
        raise UsageError(f'"{path}" exists and is no pool begun by sampling')
    parts = list(_split(path, plan, questions))
    _check_parts(path, parts)
    work = partial(_record, plan=plan, connect=connect, concurrency=concurrency, block=block)
    finished = [*workers.map(work, parts)]
    return _join(path, plan, parts) if all(finished) else None


def _split(path: Path, plan: Plan, questions: Sequence[Question]) -> Iterator[QuestionPart]:
    """Whole segments of questions, so that a part becomes a segment of the pool."""
    size = -(-SEGMENT_RESPONSES // plan.responses)
    for start in range(0, len(questions), size):
        part = path / PARTS / f"{start // size:05}"
        yield QuestionPart(part, tuple(questions[start : start + size]))


def _check_parts(path: Path, parts: Sequence[QuestionPart]) -> None:
    """Parts nobody asked for are of other questions; those asked for check themselves."""
    there = {part.name for part in (path / PARTS).glob("*")}
    if there - {part.path.name for part in parts}:
        raise UsageError(
            f'the pool at "{path}" was begun with more questions; continue with those, or sample '
            "into another place"
        )


def _record(
    part: QuestionPart, *, plan: Plan, connect: Connect, concurrency: int, block: int
) -> bool:
    """Record one part as far as possible; whether it is whole."""

    async def work() -> Pool | None:
        recording = Recording(part.path, plan, part.questions, grows=False)
        recording.begin()
        if recording.complete:
            return recording.finish()
        async with connect() as sampler:
            return await record(recording, sampler, concurrency=concurrency, block=block)

    return asyncio.run(work()) is not None


def _join(path: Path, plan: Plan, parts: Sequence[QuestionPart]) -> Pool:
    """Make the sealed parts one pool; interrupted, it can be done again."""
    pools = [Pool.open(part.path) for part in parts]
    files = ["questions.jsonl"]
    for pool in pools:
        for segment in pool.segments:
            files.append(f"responses-{len(files) - 1:05}.jsonl.gz")
            with replacing(path / files[-1]) as partial:
                shutil.copyfile(segment, partial)
    text = "".join(question_line(question) for part in parts for question in part.questions)
    write_whole(path / "questions.jsonl", text)
    manifest = replace(
        pools[0].manifest,
        questions=sum(pool.manifest.questions for pool in pools),
        responses=sum(pool.manifest.responses for pool in pools),
        hashes={name: file_hash(path / name) for name in files},
    )
    write_json(path / "manifest.json", manifest.as_json())
    _clear(path)
    return Pool(path, manifest)


def _clear(path: Path) -> None:
    """Keep the plan of the parts, and nothing else of them."""
    for plan in sorted((path / PARTS).glob(f"*/{PLAN}"))[:1]:
        write_whole(path / PLAN, plan.read_text("utf-8"))
    shutil.rmtree(path / PARTS, ignore_errors=True)
