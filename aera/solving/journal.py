"""Journal: what has been paid for, call by call, so that nothing is asked for a second time.

It lies beside the answers, as answers.jsonl.journal, and holds every response with the request
that it answers. A kill loses at most the calls that were under way.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from aera.errors import PoolError, UsageError
from aera.files import take_field, to_line, write_whole
from aera.pools.pool import parse_line, response_line
from aera.response import Question, Response
from aera.schedule import Schedule

Body = Callable[[Question], Mapping[str, Any]]
"""The request that a question becomes."""


class Journal:
    """The responses paid for so far, by question and place.

    with Journal(path, chat.body) as journal: ...
    """

    def __init__(self, path: Path, body: Body) -> None:
        self.path, self._body = path, body
        self.paid: list[Response] = []
        """Everything that was there when it was opened."""
        self.damaged = False
        """Whether a half-written last line was found and dropped."""
        self._known: dict[str, dict[int, Response]] = {}
        self._requests: dict[str, str] = {}
        self._file: IO[str] | None = None

    def __enter__(self) -> "Journal":
        self.damaged = mend(self.path)
        if self.path.exists():
            with self.path.open(encoding="utf-8") as lines:
                for number, text in enumerate(lines, start=1):
                    self._read(text, number)
        self._file = self.path.open("a", encoding="utf-8")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    def _read(self, text: str, number: int) -> None:
        try:
            line, request = parse_line(text), json.loads(text)["request"]
        except (ValueError, KeyError, TypeError) as error:
            raise PoolError(
                f"{self.path.name}, line {number}: damaged ({error}); remove the line"
            ) from None
        self.paid.append(line.response)
        self._known.setdefault(line.question_id, {})[line.index] = line.response
        self._requests[line.question_id] = request

    def check(self, questions: Iterable[Question], answers: "Answers") -> None:
        """Refuse to go on with requests other than those that were paid for."""
        bare = [
            name
            for name, line in answers.lines.items()
            if line.get("responses") and name not in self._requests
        ]
        if bare:
            raise UsageError(
                f'"{answers.path}" has an answer to question {bare[0]} of which "{self.path}" '
                "knows nothing, so nobody can tell what was asked; write elsewhere"
            )
        for question in questions:
            known = self._requests.get(question.id)
            if known is not None and known != self._request(question):
                raise UsageError(
                    f'"{self.path}" was begun with another request for question {question.id}: '
                    "go on with the same model, task, settings and text, or write elsewhere"
                )

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

    def add(self, question: Question, start: int, responses: Sequence[Response]) -> None:
        """Keep what a call brought; in one write, which survives the death of this process."""
        assert self._file is not None
        request = self._request(question)
        lines = [
            json.loads(response_line(question.id, index, response=response))
            for index, response in enumerate(responses, start=start)
        ]
        self._file.write("".join(to_line({**line, "request": request}) for line in lines))
        self._file.flush()

    def _request(self, question: Question) -> str:
        body = json.dumps(self._body(question), sort_keys=True, default=str)
        return hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class Answers:
    """A file of answers, one JSON line each, that can be gone on with."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: dict[str, dict[str, Any]] = {}
        """What was answered before, by question."""

    def begin(self, policies: Sequence[str], schedule: Schedule) -> None:
        """Read what is there; a question that failed or met a limit is to be gone on with."""
        mend(self.path)
        if self.path.exists():
            for number, text in enumerate(self.path.read_text("utf-8").splitlines(), start=1):
                line = self._parse(text, number)
                if line["policy"] not in policies:
                    raise UsageError(
                        f'"{self.path}" holds answers by {line["policy"]}, not by {policies[0]}; '
                        "write elsewhere, or remove it: its journal keeps what was paid for"
                    )
                points = line.get("schedule", [*schedule])
                if points != [*schedule]:
                    raise UsageError(
                        f'"{self.path}" holds answers of the schedule {points}, not {schedule}; '
                        "write elsewhere, or remove it: its journal keeps what was paid for"
                    )
                if line["error"] is None and not line["reason"].startswith("limit: "):
                    self.lines[line["question_id"]] = line
        write_whole(self.path, "".join(to_line(line) for line in self.lines.values()))

    def _parse(self, text: str, number: int) -> dict[str, Any]:
        try:
            line: dict[str, Any] = json.loads(text)
            for name in ("question_id", "policy", "reason"):
                take_field(line, name, (str,))
            take_field(line, "error", (str, type(None)))
        except (ValueError, LookupError, TypeError):
            raise UsageError(
                f'"{self.path}", line {number}, is no answer of aera solve; write elsewhere'
            ) from None
        return line

    def add(self, text: str) -> None:
        """One more answer, in one write."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text + "\n")


def mend(file: Path) -> bool:
    """Cut off a half-written last line, which a kill leaves behind; whether there was one."""
    content = file.read_bytes() if file.exists() else b""
    end = content.rfind(b"\n") + 1
    if end < len(content):
        os.truncate(file, end)
    return end < len(content)
