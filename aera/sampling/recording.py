"""Record a pool by sampling: append-only, resumable, and whole only when it says so.

While it grows, `plan.json` says what is being sampled and open segments hold what has come back. A
kill at any moment loses at most the line being written. When every response is there, segments are
sealed, and the manifest, written last, declares the pool whole. One that is asked for more later
grows (growing.py).
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO

from aera.errors import PoolError, UpstreamError, UsageError
from aera.files import to_line, write_whole
from aera.pools.pool import (
    GROWING,
    PARTS,
    Pool,
    begun_in_parts,
    parse_line,
    question_line,
    read_segment,
    response_line,
    write_pool,
)
from aera.pools.record import Drawn, Record
from aera.response import Question, Response
from aera.sampling.budget import Budget, Ledger
from aera.sampling.growing import find_base, move_in
from aera.sampling.plan import PLAN, Plan, keep_plan
from aera.sampling.sampler import Sampler, bound_of, sample_held
from aera.trace import ServedTokens

HOPELESS = 64
"""Failures without a single response after which a server is taken for dead."""
FAILURES, OPEN = "failures.jsonl", "open-*.jsonl"


@dataclass
class Progress:
    """How far a recording is."""

    wanted: int
    done: int = 0
    failures: int = 0
    trouble: str = ""
    """What the last failure said."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    resumed: int = 0
    """Responses that were there already."""
    damaged: list[str] = field(default_factory=list)
    """Half-written lines found and dropped, each by segment and line."""


class Recording:
    """A pool directory that is being filled, or a finished pool that is being grown."""

    def __init__(
        self,
        path: Path,
        plan: Plan,
        questions: Sequence[Question],
        *,
        raw: Path | None = None,
    ) -> None:
        self.path, self.plan, self.questions = path, plan, questions
        self.raw = raw
        """A file beside the pool for the logprobs of every token; None keeps none."""
        self.progress = Progress(wanted=plan.responses * len(questions))
        self.paid: list[Response] = []
        """What was recorded before under this plan, without the texts."""
        self._base: Pool | None = None
        """The finished pool that is being grown."""
        self._missing: dict[str, set[int]] = {}
        self._file: IO[str] | None = None

    @property
    def folder(self) -> Path:
        """Where what comes back is kept: the pool's own, or the one for what is added to it."""
        return self.path if self._base is None else self.path / GROWING

    @property
    def complete(self) -> bool:
        """Whether the manifest declares the pool whole."""
        return (self.folder / "manifest.json").exists()

    def begin(self) -> None:
        """Create the directory, or take up what is there."""
        self.path.mkdir(parents=True, exist_ok=True)
        move_in(self.path)
        self._base = find_base(self.path, self.plan, self.questions)
        self.folder.mkdir(exist_ok=True)
        self._check_plan()
        text = "".join(map(question_line, self.questions))
        if _write_once(self.folder / "questions.jsonl", text) != text:
            raise UsageError(
                f'the pool at "{self.path}" was begun with other questions; continue with those in '
                f"{self._inside('questions.jsonl')}, or sample into another place"
            )
        if self.complete:
            self._sweep(OPEN, FAILURES)
            self.progress.done = self.progress.resumed = self.progress.wanted
            return
        self._sweep("*.gz", "*.partial")
        self._take_stock()

    def _check_plan(self) -> None:
        # A kill may leave the plan half-written, and then nothing else.
        there = {file.name for file in self.folder.iterdir()} - {f"{PLAN}.partial"}
        if PARTS in there and PLAN not in there:
            raise begun_in_parts(self.path)
        if there and PLAN not in there:
            raise UsageError(f'"{self.path}" exists and is no pool begun by sampling')
        if not keep_plan(self.folder, self.plan):
            raise UsageError(
                f'the pool at "{self.path}" was begun with other settings; continue with those in '
                f"{self._inside(PLAN)}, or sample into another place"
            )

    def _inside(self, name: str) -> str:
        """A file of the recording as one finds it in the pool."""
        return str((self.folder / name).relative_to(self.path))

    def _take_stock(self) -> None:
        """Read the open segments; what is not there is missing."""
        known = self._base.stored_counts if self._base else {}
        for question in self.questions:
            there = known.get(question.id, 0)
            self._missing[question.id] = set(range(there, self.plan.responses))
            self.progress.done += there
        self.progress.resumed = self.progress.done
        segments = sorted(self.folder.glob(OPEN))
        for segment in segments:
            self.progress.damaged += _mend(segment)
            with segment.open(encoding="utf-8") as lines:
                for number, text in enumerate(lines, start=1):
                    self._take_line(text, f"{segment.name}, line {number}")
        name = f"open-{len(segments):05}.jsonl"
        self._file = (self.folder / name).open("a", encoding="utf-8")

    def _take_line(self, text: str, where: str) -> None:
        try:
            line = parse_line(text)
        except (ValueError, KeyError, TypeError) as error:
            raise PoolError(f"{where}: damaged ({error}); remove the line and run again") from None
        self._missing.get(line.question_id, set()).discard(line.index)
        self.paid.append(replace(line.response, text=""))
        self.progress.done += 1
        self.progress.resumed += 1

    def _sweep(self, *patterns: str) -> None:
        """Remove what an interrupted sealing left behind."""
        for pattern in patterns:
            for file in self.folder.glob(pattern):
                file.unlink()

    def missing(self, question: Question, *, block: int) -> list[range]:
        """The stretches of responses still to be asked for, none longer than `block`."""
        stretches: list[range] = []
        for index in sorted(self._missing.get(question.id, ())):
            if stretches and index == stretches[-1].stop and len(stretches[-1]) < block:
                stretches[-1] = range(stretches[-1].start, index + 1)
            else:
                stretches.append(range(index, index + 1))
        return stretches

    def add(self, question: Question, start: int, responses: Sequence[Response]) -> None:
        """Write what came back. What failed is noted elsewhere, and asked for again next time."""
        assert self._file is not None
        kept, failed = [], []
        for index, response in enumerate(responses, start=start):
            self.progress.prompt_tokens += response.prompt_tokens
            self.progress.completion_tokens += response.tokens
            if response.error is None:
                kept.append(response_line(question.id, index, response=response))
                self._missing[question.id].discard(index)
            else:
                row = {"question_id": question.id, "index": index, "error": response.error}
                self.progress.trouble = response.error
                failed.append(to_line(row))
        # One write each: what the kernel has taken survives the death of this process.
        self._file.write("".join(kept))
        self._file.flush()
        if self.raw is not None:
            with self.raw.open("a", encoding="utf-8") as file:
                file.write("".join(_raw_lines(question, start, responses)))
        if failed:
            with (self.folder / FAILURES).open("a", encoding="utf-8") as file:
                file.write("".join(failed))
        self.progress.done += len(kept)
        self.progress.failures += len(failed)

    def close(self) -> None:
        """Close the open segment; everything added is on disk already."""
        if self._file is not None:
            self._file.close()

    def check_alive(self) -> None:
        """Give up early on a server from which nothing has come at all."""
        progress = self.progress
        if progress.done == progress.resumed and progress.failures >= HOPELESS:
            raise UpstreamError(f"{progress.failures} failures and no response: {progress.trouble}")

    def finish(self) -> Pool | None:
        """Seal the pool if nothing is missing; None while something is."""
        self.close()
        if self.complete:
            return Pool.open(self.path)
        if any(self._missing.values()):
            return None
        plan = self.plan
        pool = write_pool(
            self.folder,
            self._records(),
            task=plan.task,
            sampler=plan.sampler,
            seed=plan.seed,
            responses=plan.responses,
            schedule=plan.schedule,
        )
        if self._base is not None:
            move_in(self.path)
            self._base = None
            return Pool(self.path, pool.manifest)
        self._sweep(OPEN, FAILURES)
        return pool

    def _records(self) -> Iterator[Record]:
        """Everything recorded, in the order of the questions."""
        gathered: dict[str, dict[int, Response]] = {}
        for segment in sorted(self.folder.glob(OPEN)):
            for line in read_segment(segment):
                gathered.setdefault(line.question_id, {})[line.index] = line.response
        base = Drawn(self._base.everything() if self._base else ())
        known = self._base.stored_questions if self._base else {}
        for question in self.questions:
            before = base.take(question.id) if question.id in known else None
            found = dict(enumerate(before.responses)) if before else {}
            found |= gathered.pop(question.id, {})
            yield Record(question, tuple(found[index] for index in sorted(found)))


def _raw_lines(question: Question, start: int, responses: Sequence[Response]) -> Iterator[str]:
    """The logprobs of the tokens as they came; a response that was asked for again comes again."""
    for index, response in enumerate(responses, start=start):
        tokens = getattr(response.source, "tokens", None)
        if isinstance(tokens, ServedTokens):
            sure = tokens.confidence
            yield to_line(
                {
                    "question_id": question.id,
                    "index": index,
                    "logprob": tokens.logprobs.round(4).tolist(),
                    "confidence": None if sure is None else sure.round(3).tolist(),
                }
            )


def _write_once(path: Path, text: str) -> str:
    """Write a file that never changes; returns what stands there."""
    if path.exists():
        return path.read_text("utf-8")
    write_whole(path, text)
    return text


def _mend(segment: Path) -> list[str]:
    """Cut off a half-written last line, which a kill leaves behind; say what was dropped."""
    content = segment.read_bytes()
    end = content.rfind(b"\n") + 1
    if end == len(content):
        return []
    os.truncate(segment, end)
    line = content.count(b"\n") + 1
    return [f"{segment.name}, line {line}"]


async def record(
    recording: Recording,
    sampler: Sampler,
    *,
    concurrency: int = 64,
    block: int = 16,
    ledger: Ledger | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
) -> Pool | None:
    """Sample everything that is missing; returns the pool, or None where some is missing.

    Nothing is asked for beyond a limit; what was recorded before counts against it.
    """
    ledger = ledger or Ledger(Budget())
    ledger.book(recording.paid)
    work = iter(
        [
            (question, stretch)
            for question in recording.questions
            for stretch in recording.missing(question, block=block)
        ]
    )

    async def worker() -> None:
        for question, stretch in work:
            rest = stretch
            while rest:
                asked = await _record(recording, sampler, question, rest, ledger=ledger)
                if not asked:
                    return
                watch(recording.progress)
                recording.check_alive()
                rest = rest[asked:]

    workers = [asyncio.create_task(worker()) for _ in range(concurrency)]
    try:
        await asyncio.gather(*workers)
    finally:
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        recording.close()
    return recording.finish()


async def _record(
    recording: Recording,
    sampler: Sampler,
    question: Question,
    stretch: range,
    *,
    ledger: Ledger,
) -> int:
    """Ask for what a limit allows of a stretch; returns how many that were, 0 at the limit.

    A question the server refuses for good does not stop the others. Every call is kept as it comes
    back, so that a kill loses only those under way.
    """
    held = await ledger.reserve(len(stretch), bound_of(sampler, question, ledger))
    if held is None:
        return 0
    held.heard = partial(recording.add, question)
    n = held.responses
    try:
        got = await sample_held(sampler, question, held, start=stretch.start)
    except UpstreamError as error:
        if error.final:
            raise  # a wrong key, model or address is wrong for every question
        got = [Response("", error=str(error)) for _ in range(n)]
    finally:
        held.close()
    for index, response in enumerate(got, start=stretch.start):
        if response.error is not None and not ledger.late:
            recording.add(question, index, [response])
    return n
