"""The samples that lm-eval logs, samples_*.jsonl."""

from collections.abc import Iterator
from pathlib import Path

from aera.core import Question, Response
from aera.errors import RecordError
from aera.lab.formats.entry import Entry, Row, estimated_tokens, need_field, written
from aera.lab.formats.rows import NAMES
from aera.lab.formats.sources import read_lines
from aera.pools.pool import Record
from aera.sampling.replies import Choice, read_tokens


def read_lm_eval(file: Path) -> Iterator[Entry]:
    """The samples of a log, one per question and filter; every filter saw the same responses.

    It counts no tokens, so they are estimated.
    """
    seen: dict[str, object] = {}
    for where, row in read_lines(file):
        question_id = str(need_field(row, "doc_id", int, str, where=where))
        if seen.setdefault(question_id, row.get("filter")) != row.get("filter"):
            continue
        said = _find_replies(row, where=where)
        question = Question(question_id, _find_question(row, where=where))
        responses = tuple(map(_response, said))
        truth = written(row.get("target"))
        yield Entry(where, Record(question, responses), truth, "target", estimated=True)


def _find_replies(row: Row, *, where: str) -> list[str | Row]:
    """All repeats of the one request behind a generated answer: texts, or choices with logprobs."""
    requests = need_field(row, "resps", list, where=where)
    said = requests[0] if len(requests) == 1 and isinstance(requests[0], list) else []
    if not said or not all(isinstance(each, str) or _is_choice(each) for each in said):
        raise RecordError(f'{where}: "resps" holds no generated texts, so there is nothing to vote')
    return said


def _is_choice(said: object) -> bool:
    return isinstance(said, dict) and isinstance(said.get("text"), str)


def _response(said: str | Row) -> Response:
    if isinstance(said, str):
        return Response(said, estimated_tokens(said))
    text, listed = str(said["text"]), read_tokens(said)
    if listed is None:
        return Response(text, estimated_tokens(text))
    summed, source = round(listed.total, 4), Choice.of({}, {}, listed)
    return Response(text, len(listed.ends), summed, source=source)


def _find_question(row: Row, *, where: str) -> str:
    """The question alone where the document has it, else the whole prompt with its examples."""
    document = row.get("doc")
    fields = document if isinstance(document, dict) else {}
    own = [fields[name] for name in NAMES["question"] if isinstance(fields.get(name), str)]
    if own:
        return str(own[0])
    arguments = need_field(row, "arguments", dict, where=where)
    first = need_field(arguments, "gen_args_0", dict, where=where)
    return str(need_field(first, "arg_0", str, where=where))
