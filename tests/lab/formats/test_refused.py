"""What cannot be used is refused in one sentence that names its place, and nothing is left."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from foreign import DATA
from pyarrow import parquet

from aera import get_task
from aera.errors import AeraError, UsageError
from aera.lab import import_file
from aera.lab.formats.rows import read_exam, read_questions
from aera.pools import parquet as stored

Row = dict[str, Any]


def refused(file: Path, out: Path, **options: Any) -> str:
    """The one sentence with which an import is refused, having left nothing behind."""
    there = {*out.parent.iterdir()}
    with pytest.raises(AeraError) as caught:
        import_file(file, out, **{"task": "numeric", **options})
    assert {*out.parent.iterdir()} == there
    assert "\n" not in str(caught.value)
    return str(caught.value)


def in_lines(path: Path, rows: list[Any]) -> None:
    path.write_text("".join(f"{r if isinstance(r, str) else json.dumps(r)}\n" for r in rows))


def in_table(path: Path, rows: list[Any]) -> None:
    parquet.write_table(pa.Table.from_pylist(rows), path)


def in_log(path: Path, rows: list[Any]) -> None:
    log = json.loads((DATA / "inspect.json").read_text("utf-8"))
    path.write_text(json.dumps({**log, "samples": rows}))


def first_of(name: str) -> Row:
    row: Row = json.loads((DATA / name).read_text("utf-8").splitlines()[0])
    return row


SAMPLES = json.loads((DATA / "inspect.json").read_text("utf-8"))["samples"]
WIDE = {"id": "a", "question": "?", "answer": "1", "responses": ["1"]}
SINGLE = {"id": "0", "question": "?", "text": "x", "answer": "7", "index": 0}
LM_EVAL, BATCH = first_of("samples_tiny.jsonl"), first_of("batch_output.jsonl")
KINDS: dict[str, tuple[Callable[[Path, list[Any]], None], Row, Row, str]] = {
    "wide": (in_lines, WIDE, {**WIDE, "id": "b"}, "line 2"),
    "single": (in_lines, SINGLE, {**SINGLE, "id": "1", "index": 1}, "line 2"),
    "table": (in_table, WIDE, {**WIDE, "id": "b"}, "row 2"),
    "lm-eval": (in_lines, LM_EVAL, {**LM_EVAL, "doc_id": 1}, "line 2"),
    "inspect": (in_log, SAMPLES[0], SAMPLES[2], "sample 1"),
    "openai-batch": (in_lines, BATCH, {**BATCH, "custom_id": "b"}, "line 2"),
}
"""How a file is written, a good row of it, another, and the place of that."""
TEXT = {"text": "", "tokens": 1}


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("wide", "{", "not JSON"),
        ("wide", "[1]", "a JSON object is needed, but got list"),
        ("wide", {"id": 1.5}, 'the field "id" is 1.5'),
        ("wide", {"id": "a"}, "the question a comes a second time"),
        ("wide", {"question": 3}, 'the field "question" is 3'),
        ("wide", {"question": " "}, "there is no question; its column is one of question, prob"),
        ("wide", {"messages": [{"content": "?"}]}, 'the field "messages" is'),
        ("wide", {"choices": 5}, 'the field "choices" is 5'),
        ("wide", {"responses": "many"}, 'the field "responses" is'),
        ("wide", {"responses": [True]}, "response 0: a text or an object is needed, but it is Tr"),
        ("wide", {"responses": [{"said": "x"}]}, "response 0: there is no response; its column is"),
        ("wide", {"responses": [{"text": 1}]}, 'response 0, "text": a text is needed, but it is 1'),
        ("wide", {"responses": [{**TEXT, "tokens": -1}]}, 'the field "tokens" is -1'),
        ("wide", {"responses": [{**TEXT, "logprob": "x"}]}, 'the field "logprob"'),
        ("single", {"index": "first"}, "the field \"index\" is 'first'"),
        ("single", {"id": "0", "index": 0}, "the question 0 has response 0 twice"),
        ("single", {"id": "0", "answer": "8"}, "the question 0 has another answer than before"),
        ("table", {"id": ""}, "the field \"id\" is ''"),
        ("lm-eval", {"doc_id": None}, 'the field "doc_id" is None'),
        ("lm-eval", {"resps": [[[-1.5, False]], [[-2.5, True]]]}, '"resps" holds no generated'),
        ("lm-eval", {"doc": {}, "arguments": {}}, 'the field "gen_args_0" is missing'),
        ("inspect", {"epoch": "one"}, 'the field "epoch" is'),
        ("inspect", {"target": "8"}, "the question apples has another answer than before"),
        ("inspect", {"output": {"choices": ["x"]}}, "a choice that is no object"),
        ("openai-batch", {"custom_id": 5}, 'the field "custom_id" is 5'),
        ("openai-batch", {"response": {"body": {"object": "list"}}}, "no list of choices"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, kind: str, change: Any, message: str) -> None:
    write, good, other, place = KINDS[kind]
    file = tmp_path / ("rows.parquet" if kind == "table" else "rows")
    write(file, [good, change if isinstance(change, str) else {**other, **change}])
    named = {"format_name": kind} if kind in ("lm-eval", "inspect") else {}
    said = refused(file, tmp_path / "pool", **named)
    assert said.startswith(f"{file.name}, {place}")
    assert message in said


HALF = gzip.compress(json.dumps(WIDE).encode() * 99, mtime=0)[:-30]  # the same in every worker
EVAL = (DATA / "inspect.eval").read_bytes()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("f", b"", "f holds no question"),
        ("f", b"\xff\xfe\x00", "f, line 1"),
        ("f.gz", HALF, "f.gz, line "),
        ("f.json", b"[]x", "f.json: not JSON (Extra data"),
        ("f.json", b'[{"a": "b', "f.json: not JSON (Unterminated string"),
        ("f.json", b"[" * 99_999, "f.json: not JSON ("),
        ("f.json", b'[{"a,b": "\xe9"}]', "f.json, line 1: cannot be read"),
        ("f.csv", b"question,text\n1,2\n1,2,3\n", "f.csv, line 3: it has 3 cells, but the first"),
        ("f.csv", b'question,text\n1,2\n"1,2\n', "f.csv, line 3: no CSV (unexpected end of"),
        ("f.csv", b'question,text\n"1"x,2\n', "f.csv, line 2: no CSV ("),
        ("f.csv", b'question,text\n"1\n\n2",3\n\xe9,2\n', "f.csv, line 5: cannot be read"),
        ("f.csv", b'\n\nquestion,text\n"1\n2",3\n4\n', "f.csv, line 6: it has 1 cells"),
        ("f.json", b'{\n "eval": {}\n}', 'f.json: the field "samples" is missing'),
        ("f.json", b'{\n "eval": {}, "samples": [1]\n}', "f.json, sample 0: a JSON object is need"),
        ("f.eval", EVAL[:900] + bytes(300) + EVAL[1200:], "f.eval, samples/"),
        ("f.eval", EVAL[:2000], "f.eval cannot be read"),
        ("f.parquet", (DATA / "wide.parquet").read_bytes()[:-40], "f.parquet, row 1: cannot be r"),
    ],
)
def test_a_broken_file_is_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    told = {"format_name": "inspect"} if b'"eval"' in content else {}
    assert refused(tmp_path / name, tmp_path / "pool", **told).startswith(message)


HM = {**WIDE, "responses": ["hm", "hm"]}
FAILED = {**WIDE, "responses": [{"error": "gone"}, {"answer": None}, ""]}


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([{**WIDE, "answer": "F"}], {"task": "gpqa"}, "nothing could be read in rows: .* choice"),
        ([{**WIDE, "answer": "F", "responses": ["A"]}], {"task": "gpqa"}, "not one truth .* 'F'"),
        ([HM], {}, "the last box; .*a: hm.*--task"),
        ([FAILED], {}, "rows holds nothing to read: every response failed or is empty"),
        ([{**WIDE, "task": "cookery"}], {"task": None}, "the task 'cookery' is unknown; give --ta"),
        ([WIDE], {"task": None}, "no task is named; give --task"),
        ([WIDE], {"responses": 9}, "no question has 9 responses"),
        ([WIDE], {"format_name": "xml"}, '--format is one of jsonl, json, csv, .* got "xml"'),
        ([WIDE], {"questions": "none"}, "--questions goes with openai-batch"),
    ],
)
def test_what_nobody_could_use_is_refused(
    tmp_path: Path, rows: list[Row], options: Row, message: str
) -> None:
    in_lines(tmp_path / "rows", rows)
    assert re.search(message, refused(tmp_path / "rows", tmp_path / "pool", **options))


def test_a_missing_file_an_empty_folder_and_a_place_in_use_are_refused(tmp_path: Path) -> None:
    assert "there is no file" in refused(tmp_path / "none", tmp_path / "pool")
    (tmp_path / "empty").mkdir()
    assert "holds no Parquet or Arrow" in refused(tmp_path / "empty", tmp_path / "pool")
    (tmp_path / "empty" / "manifest.json").write_text("{}")
    assert "is a pool already: aera evaluate" in refused(tmp_path / "empty", tmp_path / "pool")
    in_lines(tmp_path / "rows", [WIDE])
    for taken in (tmp_path / "empty", tmp_path / "rows"):
        assert "exists already" in refused(tmp_path / "rows", taken)


def test_a_named_format_is_believed(tmp_path: Path) -> None:
    said = refused(DATA / "samples_tiny.jsonl", tmp_path / "pool", format_name="jsonl")
    assert said.startswith("samples_tiny.jsonl, line 1: there is no question; its column is one of")
    assert said.endswith("target_hash, exact_match")


@pytest.mark.parametrize("name", ["wide.parquet", "inspect.eval"])
def test_without_pyarrow_one_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(stored, "import_module", absent)
    said = refused(DATA / name, tmp_path / "pool")
    assert said == 'this needs pyarrow: pip install "aera[data]"'


def test_questions_of_a_batch_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    def said(*rows: Row) -> str:
        in_lines(tmp_path / "asked.jsonl", [*rows])
        asked = tmp_path / "asked.jsonl"
        return refused(DATA / "batch_output.jsonl", tmp_path / "pool", questions=asked)

    asked = {"id": "apples", "question": "?"}
    assert said(asked) == "batch_output.jsonl, line 1: asked.jsonl has no question pens"
    assert said(asked, asked) == "asked.jsonl, line 2: the question apples comes a second time"
    assert said() == "asked.jsonl holds no question"
    assert "no message of a user" in said({"custom_id": "apples", "body": {}})
    twice = tmp_path / "twice.jsonl"
    twice.write_text(2 * (DATA / "batch_output.jsonl").read_text("utf-8"), "utf-8")
    again = "twice.jsonl, line 4: the reply to pens comes a second time"
    assert refused(twice, tmp_path / "pool") == again
    swapped = refused(DATA / "batch_input.jsonl", tmp_path / "pool")
    assert swapped == (
        "batch_input.jsonl, line 1: this is what the batch was asked; import its output, and give "
        "this as --questions"
    )


# --- questions alone ------------------------------------------------------------------------------

COLOURS = {"question": "?", "choices": ["red", "blue", "green"]}
STRANGE = [{**COLOURS, "answer": answer} for answer in ("purple", "D")]
TALK = [{"role": role, "content": "hm"} for role in ("user", "assistant", "user")]


@pytest.mark.parametrize(
    ("task", "line", "message"),
    [
        ("numeric", {"id": "a", "question": "again?"}, "the question a comes a second time"),
        ("numeric", {"question": "?", "answer": "no number"}, ".* cannot be read as numeric"),
        ("numeric", {"question": "?", "choices": list("abcdefghijk")}, ".* more than 10"),
        ("numeric", {"messages": TALK}, ".* several turns"),
        *(("gpqa", line, "the answer") for line in STRANGE),
        *(("commonsense", line, "the answer") for line in STRANGE),
    ],
)
def test_a_bad_question_is_named(tmp_path: Path, task: str, line: Row, message: str) -> None:
    in_lines(tmp_path / "q.jsonl", [{**COLOURS, "id": "a"}, line])
    with pytest.raises(AeraError, match=rf"q\.jsonl, line 2: {message}"):
        read_exam(tmp_path / "q.jsonl", get_task(task))


def test_a_missing_exam_is_a_wrong_call_and_a_log_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        read_exam(tmp_path / "none.jsonl", get_task("numeric"))
    with pytest.raises(AeraError, match="is a log, not a file of questions"):
        read_questions(DATA / "inspect.json")
