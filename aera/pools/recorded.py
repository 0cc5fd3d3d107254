"""AuditFolder: audited questions of a gateway with all their responses, a pool when asked for.

recording.json   the task, written once
audits.jsonl     a line for each audit, appended whole; a kill loses at most the line being written
lock             held by whoever writes
manifest.json, questions.jsonl, responses-*.jsonl.gz
                 the pool, made of the lines when somebody opens it and there are others than before

Only audited questions are here: those that were stopped early are no sample of full budgets.
"""

import fcntl
import json
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aera.errors import PoolError, UsageError
from aera.files import replacing, to_line, write_json
from aera.pools.pool import parse_line, question_line, response_line, write_pool
from aera.pools.record import Record
from aera.reading.task import Task, task_from_json
from aera.response import Question, Response

ABOUT, LINES, LOCK = "recording.json", "audits.jsonl", "lock"
SEALED = ("manifest.json", "questions.jsonl", "responses-*")


@dataclass(frozen=True)
class AuditFolder:
    """Where audits are recorded, and how many bytes at most."""

    path: Path
    most: int = 2**30

    def begin(self, task: Task) -> None:
        """Make the folder, or take up what is there; nobody else may read it."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            about = self.path / ABOUT
            if not about.exists():
                if any(self.path.iterdir()):
                    raise UsageError(f'"{self.path}" exists and holds no recorded audits')
                write_json(about, {"task": task.as_json()})
        except OSError as error:
            raise UsageError(f'"{self.path}" cannot be written: {error.strerror}') from None
        if self.task != task:
            raise UsageError(
                f'the audits in "{self.path}" are of another task, {self.task.name}; record into '
                "another place"
            )

    @property
    def task(self) -> Task:
        """The task its responses answer."""
        try:
            return task_from_json(json.loads((self.path / ABOUT).read_text("utf-8"))["task"])
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise PoolError(f'"{self.path / ABOUT}" cannot be understood: {error}') from None

    def add(self, record: Record, **about: Any) -> bool:
        """Append an audit; False where there is no room for it."""
        kept = [response for response in record.responses if response.error is None]
        made = (response_line("", index, response=each) for index, each in enumerate(kept))
        row = {
            "id": record.question.id,
            "time": time.time(),
            **about,
            "question": json.loads(question_line(record.question)),
            "responses": [json.loads(line) for line in made],
        }
        content = to_line(row).encode()
        with self._locked(), (self.path / LINES).open("ab") as file:
            end = file.tell()
            if end + len(content) > self.most:
                return False
            if end and not _ends_whole(self.path / LINES):
                content = b"\n" + content  # somebody was killed here
            file.write(content)
        return True

    def forget(self, ids: Collection[str], older: float | None) -> tuple[int, int]:
        """Remove audits by id, or from before a time; returns how many went and how many stay."""
        gone = kept = 0
        with self._locked():
            if not (self.path / LINES).exists():
                return 0, 0
            with replacing(self.path / LINES) as partial, partial.open("wb") as file:
                for text, row in self._rows():
                    named = row["id"] in ids or row.get("request") in ids
                    if named or (older is not None and row["time"] < older):
                        gone += 1
                    else:
                        kept += 1
                        file.write(text)
            self._unseal()
        return gone, kept

    def seal(self) -> None:
        """Make a pool of the lines, unless it has been made of the same ones."""
        with self._locked():
            lines = self.path / LINES
            size = lines.stat().st_size if lines.exists() else 0
            if not size:
                raise PoolError(f'"{self.path}" has no audits yet')
            manifest = self.path / "manifest.json"
            made_of = {"recorded_bytes": size}
            if manifest.exists():
                told = json.loads(manifest.read_text("utf-8")).get("sampler", {})
                if told.get("recorded_bytes") == size:
                    return
            self._unseal()
            write_pool(self.path, self._records(), task=self.task, sampler=made_of)

    def _records(self) -> Iterator[Record]:
        for _, row in self._rows():
            asked = row["question"]
            question = Question(row["id"], asked["question"], system=asked.get("system"))
            lines = (parse_line(json.dumps(each)) for each in row["responses"])
            responses: tuple[Response, ...] = tuple(line.response for line in lines)
            yield Record(question, responses)

    def _rows(self) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """The whole lines; one that was cut by a kill is passed over, for its audit never ended."""
        with (self.path / LINES).open("rb") as file:
            for text in file:
                try:
                    row = json.loads(text)
                except ValueError:
                    continue
                yield text if text.endswith(b"\n") else text + b"\n", row

    def _unseal(self) -> None:
        for pattern in SEALED:
            for file in self.path.glob(pattern):
                file.unlink()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.path / LOCK).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) == b"\n"


def is_recorded(path: Path) -> bool:
    """Whether a folder holds recorded audits."""
    return (path / ABOUT).is_file()
