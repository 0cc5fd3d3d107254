"""Log: responses as they come back, appended; a pool in the making that survives any kill.

plan.json       what is wanted: task, sampler settings, seed, how many responses if anybody knows
questions.jsonl the questions, as in a pool
open-*.jsonl    what has come back, a response a line; a kill loses at most the line being written
audits.jsonl    in a log of a gateway: an audit a line, with its question and all its responses
failures.jsonl  what failed, and will be asked for again
lock            held by whoever writes: who that is, and since when
growing/        the same for what is added to a pool that is sealed already

When every wanted response is there, `seal` writes the segments of a pool and, last, its manifest.
What grows is written whole in its folder first, and its manifest decides: from then on its files
move into place, and whoever finds them half moved goes on moving. In between there is no manifest,
so that nobody takes the mixture for a pool. A log without an end is never sealed, only read.
"""

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO

from aera.core import Question, Response
from aera.errors import PoolError, UsageError
from aera.files import naming, problem, replacing, to_line, write_whole
from aera.pools.pool import (
    AUDITS,
    DROPPED,
    GROWING,
    MANIFEST,
    OPEN,
    PARTS,
    PLAN,
    QUESTIONS,
    RECORDING,
    Drawn,
    Dropped,
    Plan,
    Pool,
    Record,
    begun_in_parts,
    open_questions,
    open_records,
    parse_line,
    question_line,
    read_audits,
    read_plan,
    read_questions,
    response_line,
    write_pool,
)

FAILURES, LOCK, LINE_END = "failures.jsonl", "lock", b"\n"


class Log:
    """A folder that is being filled, held by whoever opened it until `close`.

    with Log.open(path, Plan(task, 128), questions) as log:
        log.add(question, 0, responses)
        pool = log.seal()
    """

    def __init__(self, path: Path, plan: Plan, questions: Sequence[Question], lock: BinaryIO):
        self.path, self.plan, self.questions = path, plan, [*questions]
        self.paid: list[Response] = []
        """What was there already; texts only where it can be recalled."""
        self.requests: dict[str, str] = {}
        """What was asked for each question, as a digest, where the plan has requests."""
        self.damaged: list[str] = []
        """Half-written lines found and dropped, each by segment and line."""
        self.done = self.failures = 0
        self.trouble = ""
        """What the last failure said."""
        self.dropped = Dropped.read(path)
        self.resumed = 0
        """Responses that were there already."""
        self._turn = Lock()
        self._lock = lock
        self._base: Pool | None = None
        """The finished pool that is being grown."""
        self._missing: dict[str, set[int]] = {}
        self._known: dict[str, dict[int, Response]] = {}

    @classmethod
    def open(
        cls,
        path: str | Path,
        plan: Plan,
        questions: Sequence[Question] = (),
        *,
        command: str = "aera sample",
        private: bool = False,
    ) -> "Log":
        """Create a folder, or take up what is there; refused while somebody else writes to it.

        A private one holds what others have said: nobody but its owner may read it.
        """
        path = Path(path)
        path.mkdir(parents=True, exist_ok=True, mode=0o700 if private else 0o777)
        if private and path.stat().st_mode & 0o077:
            raise UsageError(
                f'others can read "{path}", and what is recorded there is nobody\'s business; '
                f"chmod go= {path}, or record into another place"
            )
        log = cls(path, plan, questions, hold(path, command))
        try:
            log._begin()
            for file in path.iterdir() if private else ():
                file.chmod(0o600)
        except BaseException:
            release(path, log._lock)
            raise
        return log

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others write; everything added is on disk already, and what was dropped goes."""
        try:
            if not self._lock.closed:
                erase(self.path)
        finally:
            release(self.path, self._lock)

    # --- what is there ----------------------------------------------------------------------------

    @property
    def wanted(self) -> int:
        """Responses in all, 0 where nobody can say."""
        return (self.plan.responses or 0) * len(self.questions)

    @property
    def folder(self) -> Path:
        """Where what comes back is kept: the log's own, or the one for what is added to a pool."""
        return self.path if self._base is None else self.path / GROWING

    @property
    def complete(self) -> bool:
        """Whether the manifest declares the pool whole."""
        return self.plan.responses is not None and (self.folder / MANIFEST).exists()

    def _begin(self) -> None:
        path, wanted = self.path, self.plan.responses
        move_in(path)
        erase(path)
        self.questions = [each for each in self.questions if each.id not in self.dropped.ids]
        self._base = self._find_base() if wanted is not None else None
        self.folder.mkdir(exist_ok=True)
        self._check_plan()
        if wanted is None:
            self._merge_questions()
            journal = path.with_suffix(".journal")
            if path.suffix == ".pool" and journal.is_file():  # an older version's
                journal.replace(path / _next_segment(path))
        else:
            self._check_questions()
        if self.complete:
            _sweep(self.folder, OPEN, FAILURES)
            self.done = self.resumed = self.wanted
            return
        _sweep(self.folder, "*.partial", *(["*.gz"] if wanted is not None else []))
        self._take_stock()

    def _find_base(self) -> Pool | None:
        """The finished pool that the plan would make larger; None where there is nothing to grow.

        A plan that goes another way than the pool's is refused later, but for one with fewer
        responses, which nobody could tell from a slip.
        """
        path, plan = self.path, self.plan
        there = read_plan(path) if (path / MANIFEST).is_file() else None
        if there is None or there.responses is None or plan.responses is None:
            return None
        if not there.same(replace(plan, responses=there.responses, schedule=there.schedule)):
            return None
        if plan.responses < there.responses:
            raise UsageError(
                f'the pool at "{path}" was sampled with other settings: it has {there.responses} '
                f"responses for each question, and {plan.responses} are fewer; ask for as many or "
                "more, or sample into another place"
            )
        known = {question.id: question for question in read_questions(path / QUESTIONS)}
        asked = {question.id: question for question in self.questions}
        if any(asked.get(name) != question for name, question in known.items()):
            return None
        larger = plan.responses > there.responses or len(asked) > len(known)
        return Pool.open(path) if larger else None

    def _check_plan(self) -> None:
        # A kill may leave the plan half-written, and then nothing else.
        free = {f"{PLAN}.partial", LOCK, DROPPED}
        there, file = {each.name for each in self.folder.iterdir()} - free, self.folder / PLAN
        if PARTS in there and PLAN not in there:
            raise begun_in_parts(self.path)
        if there and not {PLAN, RECORDING} & there:
            raise UsageError(f'"{self.path}" exists and is no pool begun by sampling')
        if not there:
            write_whole(file, json.dumps(self.plan.as_json(), indent=2, sort_keys=True) + "\n")
        known = read_plan(self.folder)
        if known is not None and self.plan.responses is None and known.responses is None:
            if self.plan.request is None and known.task != self.plan.task:
                raise UsageError(
                    f'the audits in "{self.path}" are of another task, {known.task.name}; record '
                    "into another place"
                )
        elif known is None or not known.same(self.plan):
            raise UsageError(
                f'the pool at "{self.path}" was begun with other settings; continue with those in '
                f"{file.relative_to(self.path)}, or sample into another place"
            )

    def _check_questions(self) -> None:
        file, text = self.folder / QUESTIONS, "".join(map(question_line, self.questions))
        if not file.exists():
            write_whole(file, text)
        elif file.read_text("utf-8") != text:
            raise UsageError(
                f'the pool at "{self.path}" was begun with other questions; continue with those in '
                f"{file.relative_to(self.path)}, or sample into another place"
            )

    def _merge_questions(self) -> None:
        """A log without an end takes further questions whenever it is taken up."""
        file = self.path / QUESTIONS
        known = {each.id: each for each in read_questions(file)} if file.exists() else {}
        merged = known | {each.id: each for each in self.questions}
        if merged != known:
            write_whole(file, "".join(map(question_line, merged.values())))

    def _take_stock(self) -> None:
        """Read what was there before; what is not there is missing."""
        known = self._base.stored_counts if self._base else {}
        for question in self.questions:
            there = known.get(question.id, 0)
            self._missing[question.id] = set(range(there, self.plan.responses or 0))
            self.done += there
        for segment in (*sorted(self.folder.glob(OPEN)), *self.folder.glob(AUDITS)):
            if (cut := mend(segment)) is not None:
                self.damaged.append(cut)
            if segment.name != AUDITS:
                with segment.open(encoding="utf-8", newline="\n") as lines:
                    for number, text in enumerate(lines, start=1):
                        self._take_line(text, f"{segment.name}, line {number}")
        self.resumed = self.done
        for question in self.questions if self.plan.request else ():
            if self.requests.get(question.id, digest := self._digest(question)) != digest:
                raise UsageError(
                    f'"{self.path}" was begun with another request for question {question.id}: '
                    "go on with the same model, task, settings and text, or write elsewhere"
                )

    def _take_line(self, text: str, where: str) -> None:
        try:
            line = parse_line(text)
        except (ValueError, KeyError, TypeError) as error:
            raise PoolError(
                f"{where}: damaged ({problem(error)}); remove the line and run again"
            ) from None
        name, response = line.question_id, line.response
        if self.plan.responses is not None:
            response = replace(response, text="")
            self._missing.get(name, set()).discard(line.index)
        else:
            self._known.setdefault(name, {})[line.index] = response
        if line.request is not None:
            self.requests[name] = line.request
        self.paid.append(response)
        self.done += 1

    def missing(self, question: Question, *, block: int) -> list[range]:
        """The stretches of responses still to be asked for, none longer than `block`."""
        stretches: list[range] = []
        for index in sorted(self._missing.get(question.id, ())):
            if stretches and index == stretches[-1].stop and len(stretches[-1]) < block:
                stretches[-1] = range(stretches[-1].start, index + 1)
            else:
                stretches.append(range(index, index + 1))
        return stretches

    def recall(self, question: Question, start: int, want: int) -> list[Response]:
        """The responses known from `start` on, without a gap and at most `want`."""
        known = self._known.get(question.id, {})
        found: list[Response] = []
        while len(found) < want and start + len(found) in known:
            found.append(known[start + len(found)])
        return found

    def gap(self, question: Question, start: int, want: int) -> int:
        """How many of the wanted responses are missing before the next that is known."""
        known = self._known.get(question.id, {})
        return next((i for i in range(want) if start + i in known), want)

    # --- what comes -------------------------------------------------------------------------------

    def add(self, question: Question, start: int, responses: Sequence[Response]) -> None:
        """Write what a call brought. What failed is noted elsewhere, and asked for again later."""
        self.dropped = Dropped.read(self.path)  # perhaps just now, by another process
        if question.id in self.dropped.ids:
            self._missing[question.id] = set()
            return
        kept: dict[int, str] = {}
        failed: list[str] = []
        request = None if self.plan.request is None else self._digest(question)
        for index, response in enumerate(responses, start=start):
            if response.error is None:
                kept[index] = response_line(question.id, index, response=response, request=request)
            else:
                row = {"question_id": question.id, "index": index, "error": response.error}
                self.trouble = response.error
                failed.append(to_line(row))
        segments = sorted(self.folder.glob(OPEN))
        append(
            segments[-1] if segments else self.folder / _next_segment(self.folder), [*kept.values()]
        )
        append(self.folder / FAILURES, failed)
        self._missing.get(question.id, set()).difference_update(kept)
        self.done += len(kept)
        self.failures += len(failed)

    def add_audit(
        self,
        question: Question,
        responses: Iterable[Response],
        about: Mapping[str, Any],
        *,
        most: int | None = None,
    ) -> bool:
        """Append an audit with what is known of it; False where `most` bytes leave no room.

        `about` should have the time at which the request came, its id as "request", and what came
        of it as "outcome" with the "limit" of the alarm. One that was dropped is not written. May
        be called from any thread.
        """
        good = [response for response in responses if response.error is None]
        row = {"id": question.id, "time": time.time(), **about}
        row["question"] = json.loads(question_line(question))
        row["responses"] = [
            json.loads(response_line("", index, response=each)) for index, each in enumerate(good)
        ]
        text, file = to_line(row), self.path / AUDITS
        with self._turn:
            before, self.dropped = self.dropped, Dropped.read(self.path)
            if self.dropped != before:
                erase(self.path)
            there = file.stat().st_size if file.exists() else 0
            if most is not None and there + len(text.encode()) > most:
                return False
            append(file, [text] if row not in self.dropped else [])
        return True

    def _digest(self, question: Question) -> str:
        assert self.plan.request is not None
        body = json.dumps(self.plan.request(question), sort_keys=True, default=str)
        return hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    # --- the end ----------------------------------------------------------------------------------

    def seal(self) -> Pool | None:
        """The pool, sealed if it can be; None while something that is wanted is missing.

        What was dropped is erased. A log without an end stays open, and is a pool as it is.
        """
        if self.complete or self.plan.responses is None:
            erase(self.path)
            return Pool.open(self.path) if self.complete or self.done else None
        if any(self._missing.values()):
            return None
        self.dropped = Dropped.read(self.path)
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
        if self._base is None:
            _sweep(self.folder, OPEN, FAILURES)
            return pool
        move_in(self.path)
        self._base = None
        return Pool(self.path, pool.manifest)

    def _records(self) -> Iterator[Record]:
        """Everything recorded, in the order of the questions."""
        asked = {each.id: each for each in self.questions if each.id not in self.dropped.ids}
        came = {each.question.id: each for each in open_records(self.folder, asked, self.dropped)}
        base = Drawn(self._base.everything() if self._base else ())
        known = self._base.stored_questions if self._base else {}
        for name, question in asked.items():
            before = base.take(name) if name in known else None
            parts = [each.responses for each in (before, came.pop(name, None)) if each]
            yield Record(question, tuple(response for part in parts for response in part))


# --- who writes -----------------------------------------------------------------------------------


def hold(path: Path, command: str) -> BinaryIO:
    """Lock a folder for writing, or say who holds it and since when."""
    while True:
        place = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, _mode(path / LOCK))
        file = os.fdopen(place, "r+b", buffering=0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            said = file.read().decode("utf-8", "replace").strip()
            file.close()
            raise UsageError(
                f'"{path}" is being written by {said or "another process"}; wait until it has '
                "ended, or write elsewhere"
            ) from None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(place), (path / LOCK).stat()):
                break
        file.close()  # whoever held it has just removed it
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    file.truncate(0)
    file.write(f"{command} (process {os.getpid()}) since {since}\n".encode())
    return file


def release(path: Path, lock: BinaryIO) -> None:
    """Let go of a folder; once only."""
    if lock.closed:
        return
    with lock:
        (path / LOCK).unlink(missing_ok=True)


# --- files ----------------------------------------------------------------------------------------


def append(file: Path, lines: Sequence[str]) -> None:
    """Add lines in one write, which survives the death of this process; all of them or none."""
    data = memoryview("".join(lines).encode())
    if not data:
        return
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    with naming(file), os.fdopen(os.open(file, flags, _mode(file)), "ab", buffering=0) as opened:
        end = opened.seek(0, os.SEEK_END)
        try:
            while data:
                data = data[opened.write(data) :]
        except OSError:
            with suppress(OSError):
                opened.truncate(end)
            raise


def _mode(file: Path) -> int:
    """A file in a private folder is private too."""
    return 0o666 if file.parent.stat().st_mode & 0o077 else 0o600


def mend(file: Path) -> str | None:
    """Cut off a half-written last line, which a kill leaves behind; says where, if anywhere."""
    if not file.exists() or not file.stat().st_size:
        return None
    with file.open("rb") as opened:
        opened.seek(-1, os.SEEK_END)
        if opened.read() == b"\n":
            return None
    content = file.read_bytes()
    end = content.rfind(b"\n") + 1
    os.truncate(file, end)
    return f"{file.name}, line {1 + content.count(LINE_END)}"


def _next_segment(folder: Path) -> str:
    return f"open-{len([*folder.glob(OPEN)]):05}.jsonl"


def _sweep(folder: Path, *patterns: str) -> None:
    """Remove what an interrupted sealing left behind."""
    for pattern in patterns:
        for file in folder.glob(pattern):
            file.unlink()


def move_in(path: Path) -> None:
    """Let the larger pool take the place of the one it grew from, if it is whole.

    Interrupted at any moment, it can be done again; before it is done there is no manifest.
    """
    grown = path / GROWING
    if (grown / MANIFEST).is_file():
        names = json.loads((grown / MANIFEST).read_text("utf-8"))["hashes"]
        (path / MANIFEST).unlink(missing_ok=True)
        for file in [*path.glob("responses-*.jsonl*")]:
            if file.name not in names:
                file.unlink()
        for name in (*names, PLAN):
            if (grown / name).exists():
                (grown / name).replace(path / name)
        (grown / MANIFEST).replace(path / MANIFEST)
    elif not (path / PLAN).is_file():
        return  # no pool of ours, whatever lies there
    if not (grown / PLAN).exists():  # nothing was begun there, or all of it has moved
        shutil.rmtree(grown, ignore_errors=True)


# --- what is dropped ------------------------------------------------------------------------------


def drop(path: Path, ids: Sequence[str] = (), before: float | None = None) -> tuple[int, int]:
    """Have questions or audits forgotten by everybody, also those that come later.

    They are erased at once, unless somebody holds the log, who does it at the next seal. Returns
    how many stood in its files, and how many still do.
    """
    plan = read_plan(path)
    if plan is None:
        Pool.open(path)  # which says what is wrong where there is no pool
    if before is not None and ((plan and plan.responses) or any(path.glob(OPEN)) or plan is None):
        raise UsageError(f'"{path}" does not say when its responses came; drop them by --ids')
    if {*_stored(path)} and not {*_stored(path)} - Dropped.read(path).ids - {*ids}:
        raise UsageError(f'nothing would be left of "{path}"; remove the folder instead')
    row = {"time": time.time(), "ids": [*ids]} | ({} if before is None else {"before": before})
    file = path / DROPPED
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT, _mode(file)), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        mend(file)
        append(file, [to_line(row)])
    found = count_dropped(path)
    with suppress(UsageError):
        held = hold(path, "aera drop")
        try:
            move_in(path)
            erase(path)
        finally:
            release(path, held)
    return found, count_dropped(path)


def count_dropped(path: Path) -> int:
    """How many questions and audits are dropped and still stand in the files of a pool."""
    dropped, everything = Dropped.read(path), Dropped()
    if dropped == everything:
        return 0
    found = {name for folder in (path, path / GROWING) for name in _stored(folder)}
    return sum(name in dropped.ids for name in found) + sum(
        row in dropped for row in read_audits(path, everything)
    )


def _stored(folder: Path) -> Iterator[str]:
    file = folder / QUESTIONS
    if file.is_file() and not (folder / AUDITS).is_file():
        yield from (question.id for question in read_questions(file))


def _filter(file: Path, keep: Callable[[dict[str, Any]], bool]) -> None:
    """Rewrite a file with only those of its lines."""
    if not file.is_file():
        return
    with replacing(file) as partial:
        with file.open("rb") as lines, partial.open("wb") as out:
            for text in lines:
                with suppress(ValueError):  # a line that was cut by a kill goes too
                    if keep(json.loads(text)):
                        out.write(text)
        shutil.copymode(file, partial)


def erase(path: Path) -> None:
    """Rewrite whatever holds what is dropped; only for whoever holds the log."""
    dropped = Dropped.read(path)
    if not count_dropped(path):
        return
    for folder in (path, path / GROWING):
        _filter(folder / AUDITS, lambda row: row not in dropped)
        for segment in folder.glob(OPEN):
            _filter(segment, lambda row: row["question_id"] not in dropped.ids)
        if not (folder / MANIFEST).exists():
            _filter(folder / QUESTIONS, lambda row: row["id"] not in dropped.ids)
    grown = path / GROWING
    if (path / AUDITS).is_file():
        _sweep(path, MANIFEST, QUESTIONS, "responses-*")  # an older version's copy
    elif (path / MANIFEST).is_file() and not (grown / PLAN).exists():
        pool = Pool.open(path)
        shutil.rmtree(grown, ignore_errors=True)
        grown.mkdir()
        told = pool.manifest
        write_pool(
            grown,
            pool.everything(),
            task=told.task,
            sampler=told.sampler,
            seed=told.seed,
            responses=told.each,
            schedule=told.schedule,
        )
        move_in(path)


# --- how far it is --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Progress:
    """How far a log is."""

    plan: Plan
    questions: Mapping[str, Question]
    counts: Mapping[str, int]
    """Responses that are there, by question."""
    failures: int
    """Calls for a response that failed, each as often as it did."""
    records: Sequence[Record]
    """What has come back."""


def read_log(path: Path) -> Progress | None:
    """What a log holds in whole lines, or what is being added to a pool, without touching it.

    None where nothing was begun, or everything is sealed.
    """
    base = Pool.open(path) if (path / MANIFEST).is_file() else None
    folder = path if base is None else path / GROWING
    plan = read_plan(folder)
    if plan is None:
        return None
    dropped, failed = Dropped.read(path), folder / FAILURES
    questions = open_questions(folder, dropped)
    records = [*open_records(folder, questions, dropped)]
    counts = {name: (base.stored_counts.get(name, 0) if base else 0) for name in questions}
    for record in records:
        counts[record.question.id] += len(record.responses)
    failures = failed.read_bytes().count(b"\n") if failed.is_file() else 0
    return Progress(plan, questions, counts, failures, records)
