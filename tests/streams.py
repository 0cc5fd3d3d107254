"""Short ways to write responses and votes: "aab" or ["a", None]; a dot is one that says nothing."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aera import Prefix, Question, Record, Response, Schedule, Vote, get_task, unfold

Answers = Sequence[str | None]
QUESTION = Question("q", "how many?")
NUMERIC = get_task("numeric")


def responses_of(answers: Answers) -> list[Response]:
    """Responses that box these answers."""
    silent = (None, ".")
    texts = ["no idea" if a in silent else f"so it is \\boxed{{{a}}}" for a in answers]
    return [Response(text, tokens=10 + place) for place, text in enumerate(texts)]


def record_of(name: str, answers: Answers) -> Record:
    """A question with responses that box these answers."""
    return Record(Question(name, f"what is {name}?"), (*responses_of(answers),))


def votes_of(answers: Sequence[Vote | str | None]) -> list[Vote]:
    return [a if isinstance(a, Vote) else Vote(None if a in (None, ".") else a) for a in answers]


def prefixes_of(answers: Answers, schedule: Schedule | None = None) -> list[Prefix]:
    """Every prefix of a stream, by default at the paper's checkpoints."""
    responses = [Response("", tokens=1)] * len(answers)
    schedule = schedule or Schedule().upto(len(answers))
    return list(unfold(QUESTION, responses, votes=votes_of(answers), schedule=schedule))


def prefix_of(answers: Sequence[Vote | str | None]) -> Prefix:
    """One prefix, whole, with more to come after it."""
    empty = Prefix(QUESTION, Schedule(tuple(range(1, len(answers) + 2))))
    return empty.extend([Response("", tokens=1)] * len(answers), votes_of(answers))


def row_of(name: str, answers: Answers, truth: str | None = "1") -> dict[str, Any]:
    """One line of a file to import; a truth of None leaves the answer out."""
    responses = [{"text": f"\\boxed{{{a}}}" if a else "hm", "tokens": 7} for a in answers]
    told = {} if truth is None else {"answer": truth}
    return {"id": name, "question": "?", "task": "numeric", **told, "responses": responses}


def edit(file: Path, *less: str, **more: Any) -> None:
    """Let a JSON file, or the configuration in a folder, say more, or less."""
    file = file / "config.json" if file.is_dir() else file
    known = {**json.loads(file.read_text("utf-8")), **more}
    file.write_text(json.dumps({name: known[name] for name in known if name not in less}), "utf-8")


def write_rows(path: Path, rows: Sequence[dict[str, Any] | str]) -> Path:
    """Write rows, or raw text for damaged ones, as a file to import."""
    text = "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows)
    data = text.encode("utf-8")
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path
