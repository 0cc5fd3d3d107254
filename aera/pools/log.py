"""Log: a pool that is being filled, held by one process; growing, rewriting and dropping."""

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from io import FileIO
from itertools import takewhile
from pathlib import Path
from threading import Lock
from typing import Literal

from aera.core import Question, Response
from aera.errors import PoolError, UsageError
from aera.files import Json, naming, replacing, to_line, write_json, write_whole
from aera.pools.pool import (
    AUDITS,
    DROPPED,
    GROWING,
    MANIFEST,
    OPEN,
    PLAN,
    QUESTIONS,
    RECORDING,
    Audit,
    Dropped,
    Plan,
    Pool,
    Record,
    draw_records,
    is_moving,
    line_fields,
    open_log,
    question_fields,
    read_audits,
    read_open,
    read_plan,
    read_questions,
    write_pool,
)

FAILURES, LOCK = "failures.jsonl", "lock"
BLANK = Response("")
"""In the place of a response that is there and need not be recalled."""


class Log:
    """A folder that is being filled, created or taken up, and held until `close`.

    with Log(path, Plan(task, 128), questions) as log:
        log.add(question, 0, responses)
        pool = log.seal()

    What is wanted stands in plan.json, and what has come in open-*.jsonl: a kill loses at most the
    line being written. What failed is in failures.jsonl, and will be asked for again. When every
    wanted response is there, `seal` makes a pool of them. A log without an end is never sealed,
    only read. A private one holds what others have said: nobody but its owner may read it.

    `paid` is what was there already, with texts only where it can be recalled; `requests` what was
    asked for each question, as a digest, where the plan has requests; `damaged` the half-written
    lines that were found and dropped; `resumed` the number of responses that were there already;
    `trouble` what the last failure said; `folder` where it writes.
    """

    def __init__(
        self,
        path: str | Path,
        plan: Plan,
        questions: Sequence[Question] = (),
        *,
        command: str = "aera sample",
        private: bool = False,
    ) -> None:
        self.path = self.folder = Path(path)
        self.plan = plan
        self.paid: list[Response] = []
        self.requests: dict[str, str] = {}
        self.damaged: list[str] = []
        self.done = self.failures = self.resumed = 0
        self.trouble = ""
        self._turn = Lock()
        self._sealed: Pool | None = None  # what is whole already, and perhaps becomes larger
        self._known: dict[str, dict[int, Response]] = {}
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700 if private else 0o777)
        if private and self.path.stat().st_mode & 0o077:
            raise UsageError(
                f'others can read "{path}", and what is recorded there is nobody\'s business; '
                f"chmod go= {path}, or record into another place"
            )
        with ExitStack() as held:
            held.enter_context(holding(self.path, command))
            self._begin(questions)
            for file in self.path.iterdir() if private else ():
                file.chmod(0o600)
            held.callback(erase, self.path)
            self._held = held.pop_all()

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others write; everything added is on disk already, and what was dropped goes."""
        self._held.close()

    @property
    def wanted(self) -> int:
        """Responses in all, 0 where nobody can say."""
        return (self.plan.responses or 0) * len(self.questions)

    # --- what is there

    def _begin(self, questions: Sequence[Question]) -> None:
        move_in(self.path)
        erase(self.path)
        self.dropped = Dropped.read(self.path)
        self.questions = [each for each in questions if each.id not in self.dropped.ids]
        if self._grows():
            self.folder = self.path / GROWING
            self.folder.mkdir(exist_ok=True)
        self._check_plan()
        _sweep(self.folder, "*.partial")
        self._take_stock()
        self._check_questions()

    def _grows(self) -> bool:
        """Whether the plan makes the sealed pool that is there larger.

        A plan that goes another way than the pool's is refused later, but for one with fewer
        responses, which nobody could tell from a slip.
        """
        plan, there = self.plan, read_plan(self.path)
        sealed = (self.path / MANIFEST).is_file()
        if there is None or not there.responses or not plan.responses or not sealed:
            return False
        if there.changes(replace(plan, responses=there.responses, schedule=there.schedule)):
            return False
        if plan.responses < there.responses:
            raise UsageError(
                f'the pool at "{self.path}" was sampled with other settings: it has '
                f"{there.responses} responses for each question, and {plan.responses} are fewer; "
                "ask for as many or more, or sample into another place"
            )
        known = read_questions(self.path, self.dropped)
        asked = {question.id: question for question in self.questions}
        larger = plan.responses > there.responses or len(asked) > len(known)
        return larger and known.items() <= asked.items()

    def _check_plan(self) -> None:
        # A kill may leave the plan half-written, and then nothing else.
        free = {f"{PLAN}.partial", LOCK, DROPPED}
        there, file = {each.name for each in self.folder.iterdir()} - free, self.folder / PLAN
        if there and not {PLAN, RECORDING} & there:
            raise UsageError(f'"{self.path}" exists and is no pool begun by sampling')
        kept = [f for name in (OPEN, MANIFEST, AUDITS, RECORDING) for f in self.folder.glob(name)]
        if not any(each.stat().st_size for each in kept):  # what holds no response binds nobody
            _sweep(self.folder, QUESTIONS)
            write_json(file, self.plan.as_json())
        known = read_plan(self.folder)
        if known is not None and self.plan.responses is None and known.responses is None:
            if self.plan.request is None and known.task != self.plan.task:
                raise UsageError(
                    f'the audits in "{self.path}" are of another task, {known.task.name}; record '
                    "into another place"
                )
        elif changes := ["all"] if known is None else known.changes(self.plan):
            raise self._begun_with(f"settings ({', '.join(changes)})", file)

    def _check_questions(self) -> None:
        """Questions are those it was begun with; a log without an end takes further ones."""
        for question in self.questions if self.plan.request else ():
            if self.requests.get(question.id, digest := self._digest(question)) != digest:
                raise UsageError(
                    f'"{self.path}" was begun with another request for question {question.id}: '
                    "go on with the same model, task, settings and text, or write elsewhere"
                )
        file, asked = self.folder / QUESTIONS, {each.id: each for each in self.questions}
        known = read_questions(self.folder, Dropped()) if file.is_file() else {}
        if self.plan.responses is None:
            asked = known | asked
        elif known and [*known.items()] != [*asked.items()]:
            raise self._begun_with("questions", file)
        if asked != known:
            write_whole(file, "".join(to_line(question_fields(each)) for each in asked.values()))

    def _begun_with(self, what: str, file: Path) -> UsageError:
        return UsageError(
            f'the pool at "{self.path}" was begun with other {what}; continue with those in '
            f"{file.relative_to(self.path)}, or sample into another place"
        )

    def _take_stock(self) -> None:
        """Read what was there before; texts are kept only where they can be recalled."""
        if self.plan.responses is not None and (self.path / MANIFEST).is_file():
            self._sealed = Pool.open(self.path)
        for name, count in self._sealed.stored_counts.items() if self._sealed else ():
            self._known[name] = dict.fromkeys(range(count), BLANK)
            self.done += count
        files = sorted(self.folder.glob(OPEN))
        journal = self.path.with_suffix(".journal")
        if self.plan.responses is None and self.path.suffix == ".pool" and journal.is_file():
            files.append(self.folder / f"open-{len(files):05}.jsonl")
            journal.replace(files[-1])  # an older version's
        self._segment = files[-1] if files else self.folder / "open-00000.jsonl"
        self.damaged = [cut for cut in map(mend, (*files, self.folder / AUDITS)) if cut]
        try:
            for name, place, found, asked in read_open(self.folder):
                response = found if self.plan.responses is None else replace(found, text="")
                self._known.setdefault(name, {})[place] = response
                self.paid.append(response)
                if asked is not None:
                    self.requests[name] = asked
        except PoolError as error:
            raise PoolError(f"{error}; remove the line and run again") from None
        self.done = self.resumed = self.done + len(self.paid)

    def missing(self, question: Question, *, block: int) -> list[range]:
        """The stretches of responses still to be asked for, none longer than `block`."""
        stretches: list[range] = []
        there = self._known.get(question.id, {})
        for place in range(self.plan.responses or 0):
            if place in there or question.id in self.dropped.ids:
                continue
            if stretches and place == stretches[-1].stop and len(stretches[-1]) < block:
                stretches[-1] = range(stretches[-1].start, place + 1)
            else:
                stretches.append(range(place, place + 1))
        return stretches

    def recall(self, question: Question, start: int, want: int) -> list[Response]:
        """The responses known from `start` on, without a gap and at most `want`."""
        known = self._known.get(question.id, {})
        places = takewhile(known.__contains__, range(start, start + want))
        return [known[place] for place in places]

    def gap(self, question: Question, start: int, want: int) -> int:
        """How many of the wanted responses are missing before the next that is known."""
        known = self._known.get(question.id, {})
        return next((i for i in range(want) if start + i in known), want)

    # --- what comes

    def drops(self, question: Question) -> bool:
        """Whether a question is dropped, perhaps just now and by another process."""
        self.dropped = Dropped.read(self.path)
        return question.id in self.dropped.ids

    def add(self, question: Question, start: int, responses: Sequence[Response]) -> None:
        """Write what a call brought. What failed is noted elsewhere, and asked for again later."""
        if self.drops(question):
            return
        kept: dict[int, str] = {}
        failed: list[str] = []
        request = None if self.plan.request is None else self._digest(question)
        for place, response in enumerate(responses, start=start):
            if response.error is None:
                kept[place] = to_line(line_fields(question.id, place, response, request))
            else:
                row = {"question_id": question.id, "index": place, "error": response.error}
                self.trouble = response.error
                failed.append(to_line(row))
        append(self._segment, [*kept.values()])
        append(self.folder / FAILURES, failed)
        if self.plan.responses is not None:
            self._known.setdefault(question.id, {}).update(dict.fromkeys(kept, BLANK))
        self.done += len(kept)
        self.failures += len(failed)

    def add_audit(self, audit: Audit, *, most: int | None = None) -> bool:
        """Append an audit; False where `most` bytes leave no room.

        One that was dropped is not written. May be called from any thread.
        """
        text, file = to_line(audit.as_json()), self.path / AUDITS
        with self._turn:
            before, self.dropped = self.dropped, Dropped.read(self.path)
            if self.dropped != before:
                erase(self.path)
            there = file.stat().st_size if file.exists() else 0
            if most is not None and there + len(text.encode()) > most:
                return False
            append(file, [text] if audit not in self.dropped else [])
        return True

    def _digest(self, question: Question) -> str:
        assert self.plan.request is not None
        body = json.dumps(self.plan.request(question), sort_keys=True, default=str)
        return hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def seal(self) -> Pool | None:
        """The pool, sealed if it can be; None while something that is wanted is missing.

        What was dropped is erased. A log without an end stays open, and is a pool as it is.
        """
        whole = self._sealed is not None and self.folder == self.path
        if whole or self.plan.responses is None:
            erase(self.path)
            return Pool.open(self.path) if whole or self.done else None
        self.dropped = Dropped.read(self.path)
        asked = {each.id: each for each in self.questions if each.id not in self.dropped.ids}
        if any(self.missing(question, block=1) for question in asked.values()):
            return None
        came = open_log(self.folder, self.plan, self.dropped)
        drawn = draw_records([self._sealed, came] if self._sealed else [came], asked)
        records = (
            Record(question, tuple(r for each in found if each for r in each.responses))
            for question, found in zip(asked.values(), drawn, strict=True)
        )
        self._sealed = rewrite(self.path, records, self.plan)
        self.folder = self.path
        return self._sealed


# --- who writes -----------------------------------------------------------------------------------


@contextmanager
def holding(path: Path, command: str) -> Iterator[None]:
    """Hold a folder for writing, or say who holds it and since when."""
    while True:
        file = _open(path / LOCK, "r+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with file:
                said = file.read().decode("utf-8", "replace").strip()
            raise UsageError(
                f'"{path}" is being written by {said or "another process"}; wait until it has '
                "ended, or write elsewhere"
            ) from None
        if os.fstat(file.fileno()).st_nlink:
            break
        file.close()  # whoever held it has just removed it
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    with file:
        file.truncate(0)
        file.write(f"{command} (process {os.getpid()}) since {since}\n".encode())
        try:
            yield
        finally:
            (path / LOCK).unlink(missing_ok=True)


def append(file: Path, lines: Sequence[str]) -> None:
    """Add lines in one write, which survives the death of this process; all of them or none."""
    data = memoryview("".join(lines).encode())
    if not data:
        return
    with naming(file), _open(file, "ab") as opened:
        end = opened.seek(0, os.SEEK_END)
        try:
            while data:
                data = data[opened.write(data) :]
        except OSError:
            with suppress(OSError):
                opened.truncate(end)
            raise


def _open(file: Path, mode: Literal["ab", "r+b"]) -> FileIO:
    """Open a file, made where it is not there; in a private folder it is private too."""
    rights = 0o666 if file.parent.stat().st_mode & 0o077 else 0o600

    def make(path: str, flags: int) -> int:
        return os.open(path, flags | os.O_CREAT, rights)

    return open(file, mode, buffering=0, opener=make)


def mend(file: Path) -> str | None:
    """Cut off a half-written last line, which a kill leaves behind; says where, if anywhere."""
    if not file.exists() or not file.stat().st_size:
        return None
    with file.open("rb") as opened:
        opened.seek(-1, os.SEEK_END)
        if opened.read() == b"\n":
            return None
    content = file.read_bytes()
    os.truncate(file, content.rfind(b"\n") + 1)
    return f"{file.name}, line {1 + content.count(10)}"


def _sweep(folder: Path, *patterns: str) -> None:
    for pattern in patterns:
        for file in folder.glob(pattern):
            file.unlink()


def rewrite(path: Path, records: Iterable[Record], plan: Plan) -> Pool:
    """Write a pool whole into growing/, then let it take the place of what was there."""
    pool = write_pool(path / GROWING, records, plan)
    move_in(path)
    return Pool(path, pool.manifest)


def move_in(path: Path) -> None:
    """Let the pool in growing/ take the place of what it was made of, if it is whole.

    Its manifest decides: interrupted at any moment, this can be done again, and before it is done
    there is no manifest in the folder itself, so that nobody takes the mixture for a pool.
    """
    grown = path / GROWING
    if is_moving(path):
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
    if (path / MANIFEST).is_file() and not (path / AUDITS).is_file():
        _sweep(path, OPEN, FAILURES)
    if not (grown / PLAN).exists():  # nothing was begun there, or all of it has moved
        shutil.rmtree(grown, ignore_errors=True)


# --- what is dropped ------------------------------------------------------------------------------


def drop(path: Path, ids: Sequence[str] = (), before: float | None = None) -> tuple[int, int]:
    """Have questions or audits forgotten by everybody, also those that come later.

    They are erased at once, unless somebody holds the log, who does it at the next seal. Returns
    how many stood in its files, and how many still do.
    """
    plan = read_plan(path)
    if plan is None and not is_moving(path):
        Pool.open(path)  # which says what is wrong where there is no pool
    if before is not None and ((plan and plan.responses) or any(path.glob(OPEN)) or plan is None):
        raise UsageError(f'"{path}" does not say when its responses came; drop them by --ids')
    if (there := _stored(path)) and not there - Dropped.read(path).ids - {*ids}:
        raise UsageError(f'nothing would be left of "{path}"; remove the folder instead')
    row = {"time": time.time(), "ids": [*ids]} | ({} if before is None else {"before": before})
    file = path / DROPPED
    with _open(file, "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        mend(file)
        append(file, [to_line(row)])
    found = count_dropped(path)
    with suppress(UsageError), holding(path, "aera drop"):
        move_in(path)
        erase(path)
    return found, count_dropped(path)


def count_dropped(path: Path) -> int:
    """How many questions and audits are dropped and still stand in the files of a pool."""
    dropped = Dropped.read(path)
    if dropped == Dropped():
        return 0
    audits = sum(audit in dropped for audit in read_audits(path, Dropped()))
    return audits + len((_stored(path) | _stored(path / GROWING)) & dropped.ids)


def _stored(folder: Path) -> set[str]:
    """The questions in the files of a pool or log; audits are counted by themselves."""
    audited, there = (folder / AUDITS).is_file(), (folder / QUESTIONS).is_file()
    return {*read_questions(folder, Dropped())} if there and not audited else set()


def erase(path: Path) -> None:
    """Rewrite whatever holds what is dropped; only for whoever holds the log."""
    dropped, grown = Dropped.read(path), path / GROWING
    if not count_dropped(path):
        return
    _filter(path / AUDITS, lambda row: Audit.from_json(row) not in dropped)
    for folder in (path, grown):
        for file in (*folder.glob(OPEN), folder / FAILURES):
            _filter(file, lambda row: row["question_id"] not in dropped.ids)
        if not (folder / MANIFEST).exists():
            _filter(folder / QUESTIONS, lambda row: row["id"] not in dropped.ids)
    if (path / AUDITS).is_file():
        _sweep(path, MANIFEST, QUESTIONS, "responses-*")  # an older version's copy
    elif (path / MANIFEST).is_file() and not (grown / PLAN).exists():
        pool = Pool.open(path)
        rewrite(path, pool.everything(), pool.manifest.plan)


def _filter(file: Path, keep: Callable[[Json], bool]) -> None:
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
