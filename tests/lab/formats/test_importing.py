"""A file comes in whole, with what was found out about it."""

import gzip
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from commands import refusal, said
from foreign import DATA, brought
from pyarrow import parquet
from streams import row_of

from aera import Pool, Question, Record, Response, Task, get_task
from aera.errors import AeraError, UsageError
from aera.lab import Truths, evaluate, export_pool, import_file
from aera.lab.formats.pools import merge_pools
from aera.lab.formats.rows import read_exam, read_questions
from aera.policies.rules import Fixed
from aera.pools import parquet as stored
from aera.pools.pool import Plan, write_pool


def test_every_field_of_a_response_is_kept_and_a_text_may_be_null(tmp_path: Path) -> None:
    full = Response("\\boxed{1} é cut \ud83d", 9, -1.5, "stop", 4, 12.5, None, "m")
    failed = replace(full, text="", error="boom")
    names = ["text", "tokens", "logprob", "finish_reason", "seed", "latency_ms", "error", "model"]
    told = [{name: getattr(each, name) for name in names} for each in (full, failed)]
    row = {**row_of("a", ["1"]), "id": 7, "responses": [*told, {"text": None, "tokens": 3}]}
    [record] = brought(tmp_path, [row]).pool
    assert (record.question.id, record.responses) == ("7", (full, failed, Response("", 3)))


def test_two_imports_give_the_same_bytes_and_truths_are_kept_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row_of("a", ["1", "1", None, "2"], "1"), row_of("b", ["3"] * 4, "4")]
    one = brought(tmp_path, rows, "rows.jsonl.gz").pool.path
    monkeypatch.setattr("time.time", lambda: 1e9)
    other = import_file(tmp_path / "rows.jsonl.gz", tmp_path / "other").pool.path
    names = sorted(path.name for path in one.iterdir())
    assert [(one / n).read_bytes() for n in names] == [(other / n).read_bytes() for n in names]
    [segment] = one.glob("responses-*")
    for data in (gzip.decompress(segment.read_bytes()), (one / "questions.jsonl").read_bytes()):
        assert b'"answer"' not in data
    assert b'"answer"' in (one / "truths.jsonl").read_bytes()


def test_a_file_without_answers_becomes_a_dry_run(tmp_path: Path) -> None:
    rows = [row_of("a", ["1"] * 4, None), {**row_of("b", ["1"] * 4), "answer": None, "truest": 1}]
    done = brought(tmp_path, rows)
    pool, said = done.pool, " ".join(done.lines)
    assert "columns without a use: truest; --map answer=NAME" in said
    frontier = evaluate(pool, [Fixed(4)], truths=Truths.open(pool.path))
    assert Truths.open(pool.path) is None
    assert (frontier["fixed-4"].accuracy, frontier["fixed-4"].agreement) == (None, 100)


def test_truths_that_are_missing_or_cannot_be_read_are_told(tmp_path: Path) -> None:
    truths = ["1", None, "many", ["1", "2"], "so \\boxed{2}", "x #### 3", "['5']", []]
    named = zip("abcdefgh", truths, strict=True)
    found = brought(tmp_path, [{**row_of(n, ["1"] * 4), "answer": truth} for n, truth in named])
    assert Truths.open(found.pool.path) == Truths({"a": "1", "e": "2", "f": "3", "g": "5"})
    assert found.lines[1] == (
        "without a truth: 4 questions: b (none is given), c ('many' is no numeric answer), "
        'd (\'["1","2"]\' is several answers, where one must be kept), …'
    )
    row = {"question": "?", "options": ["tea", "milk"], "answer": "milk", "responses": ["B"]}
    pool = brought(tmp_path, [row], task="choice").pool
    assert Truths.open(pool.path) == Truths({"0": "B"})


def test_what_was_found_out_is_told_in_sentences(tmp_path: Path) -> None:
    rows = [row_of("a", ["1", None], "1"), row_of("b", [None, None], None)]
    rows[0]["responses"][0] = "\\boxed{1}"
    found = brought(tmp_path, rows, task="gsm8k", columns=["answer=answer"])
    assert found.lines[:5] == [
        f"{tmp_path / 'pool'}: 2 questions, 4 responses, task gsm8k, checkpoints 2",
        "without a truth: 1 question: b (none is given)",
        "tokens are estimated from the length of the texts: the file does not count them",
        "readable: 25.0 % of 4 responses read, 75.0 % without an answer that could be found",
        "  not read: a: hm",
    ]
    assert "ONLY 25 %" in (found.warning or "")


def test_an_empty_directory_is_filled_and_too_short_questions_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = {"a": 8, "b": 8, "c": 3, "d": 0}
    rows = [row_of(name, ["1"] * count) for name, count in counts.items()]
    (tmp_path / "rows").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "pool").mkdir()
    monkeypatch.chdir(tmp_path)
    assert len(import_file("rows", "pool").pool) == len(Pool.open("pool")) == 2
    assert [*Pool.open("pool").left_out] == ["c", "d"]
    assert [*import_file("rows", "more", responses=3).pool.left_out] == ["d"]
    assert [path.name for path in tmp_path.glob(".*")] == []


# --- merging --------------------------------------------------------------------------------------

NUMERIC = get_task("numeric")


def record(name: str, count: int, *, begin: int = 0, text: str = "", **fields: Any) -> Record:
    """A question whose responses box their numbers, with these as their seeds."""
    responses = [Response(f"\\boxed{{{i}}}", 1, seed=i) for i in range(begin, begin + count)]
    return Record(Question(name, text or f"what is {name}?", **fields), tuple(responses))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pools are told by their names."""
    monkeypatch.chdir(tmp_path)


def pool(
    name: str,
    *records: Record,
    task: Task = NUMERIC,
    truths: dict[str, str] | None = None,
    seed: int | None = None,
    **sampler: Any,
) -> Path:
    write_pool(Path(name), records, Plan(task, sampler=sampler, seed=seed))
    if truths:
        Truths(truths).save(Path(name))
    return Path(name)


def counts(pool: Pool) -> dict[str, int]:
    return {each.question.id: len(each.responses) for each in pool.everything()}


def test_a_question_in_several_pools_has_its_responses_one_pool_after_the_other() -> None:
    one = pool("one", record("a", 4), record("b", 4))
    two = pool("two", record("b", 4, begin=10), record("a", 4, begin=10))
    merged = merge_pools([one, two], Path("out"))
    seeds = [0, 1, 2, 3, 10, 11, 12, 13]
    assert [[r.seed for r in each.responses] for each in merged] == [seeds, seeds]
    assert ([*merged.questions], merged.manifest.each) == (["a", "b"], 8)


def test_short_questions_are_left_out_and_may_count_in_the_end() -> None:
    one = pool("one", record("a", 8), record("b", 8), record("c", 2))
    two = pool("two", record("d", 8), record("c", 3, begin=10))
    merged = merge_pools([one, two], Path("out"))
    assert counts(merged) == {"a": 8, "b": 8, "c": 5, "d": 8}
    assert merged.left_out == {"c": "has 5 responses, fewer than 8"}
    assert len(merge_pools([one, two], Path("five"), responses=5)) == 4
    merged = merge_pools([one, pool("three", record("c", 6, begin=2))], Path("whole"))
    assert (counts(merged), merged.left_out) == ({"a": 8, "b": 8, "c": 8}, {})


def test_truths_and_groups_go_along_also_from_exports() -> None:
    one = pool("one", record("a", 4), truths={"a": "1,000"})
    alone = merge_pools([one], Path("alone"))
    assert [*alone] == [*Pool.open(one)]
    assert Truths.open(alone.path) == Truths({"a": "1,000"})
    again = record("a", 4, begin=4, group="g")
    two = pool("two", again, record("b", 8), truths={"a": "1000", "b": "2"})
    export_pool(Pool.open(two), Path("export"))
    pools = [one, Path("export"), pool("none", record("c", 8))]
    merged = merge_pools(pools, Path("out"))
    assert counts(merged) == {"a": 8, "b": 8, "c": 8}
    assert merged.questions["a"].group == "g"
    assert Truths.open(merged.path) == Truths({"a": "1,000", "b": "2"})


def test_settings_that_differ_are_told_of_each_pool() -> None:
    one = pool("one", record("a", 4), seed=0, model="m", temperature=0.6)
    two = pool("two", record("b", 4), seed=9, model="m", temperature=1.0)
    manifest = merge_pools([one, two], Path("out")).manifest
    assert manifest.seed is None
    assert manifest.sampler == {
        "model": "m",
        "merged_from": [{"pool": "one", "temperature": 0.6}, {"pool": "two", "temperature": 1.0}],
    }


ANOTHER = 'question a in "two" has another text'


@pytest.mark.parametrize(
    ("other", "made", "sentence"),
    [
        (record("b", 4), {"task": get_task("expression")}, '"one" and "two" cannot .* differs'),
        (record("b", 4), {"task": replace(NUMERIC, template="{question}!")}, "prompt differs: "),
        (record("b", 4), {"task": replace(NUMERIC, loose=True)}, "loose differs: False and True"),
        (record("b", 4), {"system": "think"}, "their system differs: nothing and 'think'"),
        (record("a", 4, begin=4, text="else?"), {}, ANOTHER),
        (record("a", 4, begin=4, choices=("x", "y")), {}, ANOTHER),
        (record("a", 4, begin=4, system="s"), {}, ANOTHER),
        (record("a", 4, begin=4), {"truths": {"a": "2"}}, 'truth "2" in "two" and "1" before'),
        (record("a", 4, begin=3), {}, 'a with seed 3 in "two" is in an earlier pool too'),
    ],
)
def test_what_does_not_go_together_is_refused(
    other: Record, made: dict[str, Any], sentence: str
) -> None:
    one, two = pool("one", record("a", 4), truths={"a": "1"}), pool("two", other, **made)
    assert re.search(sentence, refusal(UsageError, merge_pools, [one, two], Path("out")))
    assert not Path("out").exists()


def test_a_pool_and_its_export_are_one_also_without_seeds() -> None:
    bare = replace(record("a", 4), responses=tuple(Response(f"so {i}") for i in range(4)))
    export_pool(Pool.open(pool("one", bare)), Path("export"))
    with pytest.raises(UsageError, match='to question a in "export" are those of an earlier pool'):
        merge_pools(["one", "export"], Path("out"))
    answered = replace(bare, responses=(Response("", answer="7"),) * 4)
    merged = merge_pools([pool("two", answered), pool("three", answered)], Path("more"))
    assert counts(merged) == {"a": 8}, "answers alone may well be the same"


def test_the_command_says_what_became_of_it() -> None:
    one = pool("one", record("a", 8), record("b", 8), record("c", 1))
    words = ("merge", one, pool("two", record("d", 8)), "--out", "out")
    told = said(*words)
    assert "3 questions, 24 responses, task numeric, checkpoints 4, 8" in told
    assert "left out: 1 question: c (has 1 response, fewer than 8)" in told
    with pytest.raises(UsageError, match="exists already"):
        said(*words)


# --- what cannot be used is refused ---------------------------------------------------------------

Row = dict[str, Any]


def refused(file: Path, out: Path, **options: Any) -> str:
    """The one sentence with which an import is refused, having left nothing behind."""
    there = {*out.parent.iterdir()}
    said = refusal(AeraError, import_file, file, out, **{"task": "numeric", **options})
    assert {*out.parent.iterdir()} == there
    return said


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
        ("wide", {"id": 1.5}, 'the field "id" is 1.5'),
        ("wide", {"id": "a"}, "the question a comes a second time, as in rows, line 1; --map"),
        ("wide", {"question": 3}, 'the field "question" is 3'),
        ("wide", {"question": " "}, 'the column "question" is empty, and each row'),
        ("wide", {"messages": [{"content": "?"}]}, 'the field "messages" is'),
        ("wide", {"choices": 5}, 'the field "choices" is 5'),
        ("wide", {"responses": [True]}, "response 0: a text or an object is needed, but it is Tr"),
        ("wide", {"responses": [{"said": "x"}]}, "response 0: there is no response; its column is"),
        ("wide", {"responses": [{"text": 1}]}, 'response 0, "text": a text is needed, but it is 1'),
        ("wide", {"responses": [{**TEXT, "tokens": -1}]}, 'the field "tokens" is -1'),
        ("wide", {"responses": [{**TEXT, "logprob": "x"}]}, 'the field "logprob"'),
        ("single", {"index": "first"}, "the field \"index\" is 'first'"),
        ("single", {"id": "0", "index": 0}, "the question 0 has response 0 twice"),
        ("single", {"id": "0", "answer": "8"}, "the question 0 has another answer than before"),
        ("single", {"id": "0", "question": "!"}, "1; give each an id of its own, or --map id=qu"),
        ("table", {"id": ""}, "the field \"id\" is ''"),
        ("lm-eval", {"doc_id": None}, 'the field "doc_id" is None'),
        ("lm-eval", {"resps": [[[-1.5, False]], [[-2.5, True]]]}, '"resps" holds no generated'),
        ("lm-eval", {"doc": {}, "arguments": {}}, 'the field "gen_args_0" is missing'),
        ("inspect", {"epoch": "one"}, 'the field "epoch" is'),
        ("inspect", {"target": "8"}, "the question apples has another answer than before"),
        ("inspect", {"output": {"choices": ["x"]}}, "a choice that is no object"),
        ("openai-batch", {"response": {"body": {"object": "list"}}}, "the reply has no choices"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, kind: str, change: Row, message: str) -> None:
    write, good, other, place = KINDS[kind]
    file = tmp_path / ("rows.parquet" if kind == "table" else "rows")
    write(file, [good, {**other, **change}])
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
        ("f.csv", b'question,text\n"1\n\n2",3\n\xe9,2\n', "f.csv, line 5: cannot be read"),
        ("f.tsv", b'id\tquestion\ttext\n1\t"a\tb\n2\tc"\td\n', "f.tsv, line 2: a stray quote"),
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
        ([{**WIDE, "answer": ["1", "one"]}], {"task": "text"}, "is '.*', several answers, where"),
        ([{**SINGLE, "index": None, "sample": n} for n in (0, 1, 0)], {}, "response 0 twice"),
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
    assert "holds no Parquet, Arrow or JSON: name a file" in refused(
        tmp_path / "empty", tmp_path / "pool"
    )
    (tmp_path / "empty" / "manifest.json").write_text("{}")
    assert "is a pool already: aera evaluate" in refused(tmp_path / "empty", tmp_path / "pool")
    in_lines(tmp_path / "rows", [WIDE])
    for taken in (tmp_path / "empty", tmp_path / "rows"):
        assert "exists already" in refused(tmp_path / "rows", taken)


def test_a_folder_of_json_is_read_file_by_file(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    for name in "ab":
        (tmp_path / "runs" / f"{name}.json").write_text(json.dumps({**WIDE, "id": name}, indent=1))
    assert [*import_file(tmp_path / "runs", "pool", task="numeric").pool.questions] == ["a", "b"]


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
    assert "there is no question" in said({"custom_id": "apples", "body": {}})
    twice = tmp_path / "twice.jsonl"
    twice.write_text(2 * (DATA / "batch_output.jsonl").read_text("utf-8"), "utf-8")
    again = "twice.jsonl, line 4: the reply to pens comes a second time"
    assert refused(twice, tmp_path / "pool") == again
    swapped = refused(DATA / "batch_input.jsonl", tmp_path / "pool")
    assert "line 1: this is what the batch was asked; import its output, and give this" in swapped


# --- questions alone ------------------------------------------------------------------------------

COLOURS = {"question": "?", "choices": ["red", "blue", "green"]}
STRANGE = [{**COLOURS, "answer": answer} for answer in ("purple", "D")]
TALK = [{"role": role, "content": "hm"} for role in ("user", "assistant", "user")]


@pytest.mark.parametrize(
    ("task", "line", "message"),
    [
        ("numeric", {"id": "a", "question": "again?"}, "the question a comes a second time"),
        ("numeric", {"question": "?", "answer": "no number"}, ".* cannot be read as numeric"),
        ("text", {"question": "?", "answer": ["Rome", "Roma"]}, "the answer .* is several answers"),
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


@pytest.mark.parametrize(
    ("golds", "letters"),
    [
        *(([0, 3, 1], "ADB"), ([1, 4, 2], "ADB"), (["0.0", "2", "2"], "ACC")),
        *((["1", "B", "5"], "AAA"), (["A", "A", "D"], "AAD")),  # words, and letters
    ],
)
def test_a_label_may_be_a_place_among_the_choices(
    tmp_path: Path, golds: list[Any], letters: str
) -> None:
    options = [["1", "4", "0", "5"], ["B", "A", "D", "C"], ["5", "6", "2", "3"]]
    rows = [
        {"question": f"which {words}?", "options": words, "gold": gold, "responses": ["(A)", "(B)"]}
        for words, gold in zip(options, golds, strict=True)
    ]
    made = brought(tmp_path, rows, task="choice")
    truths = Truths.open(made.pool.path)
    assert truths is not None
    assert "".join(truths.answers.values()) == letters
    assert any("places among" in each for each in made.lines) == (golds[0] not in ("1", "A"))
