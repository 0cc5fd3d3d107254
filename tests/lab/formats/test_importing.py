import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aera import Pool, Response, get_task
from aera.errors import AeraError, RecordError, UsageError
from aera.lab import Truths, evaluate, import_file, import_jsonl
from aera.lab.formats.importing import bring_in
from aera.policies.rules import Fixed

RowOf = Callable[..., dict[str, Any]]
WriteRows = Callable[..., Path]


@pytest.fixture
def rows(row_of: RowOf) -> list[dict[str, Any]]:
    """Two good lines of four responses."""
    return [row_of("a", ["1", "1", None, "2"], "1"), row_of("b", ["3"] * 4, "4")]


def refused(file: Path, out: Path, **options: Any) -> str:
    """The one sentence with which an import is refused, having left nothing behind."""
    with pytest.raises(AeraError) as caught:
        import_jsonl(file, out, **options)
    assert not out.exists()
    assert [path for path in out.parent.iterdir() if path != file] == []
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
def test_plain_and_gzipped_files_come_in_whole(
    tmp_path: Path, rows: list[dict[str, Any]], write_rows: WriteRows, name: str
) -> None:
    pool = import_jsonl(write_rows(tmp_path / name, rows), tmp_path / "pool")
    first, second = list(pool)
    assert (first.question.id, second.question.id) == ("a", "b")
    assert first.responses[2] == Response("hm", tokens=7)
    assert (pool.task.name, pool.schedule.checkpoints) == ("numeric", (4,))
    assert Truths.open(pool.path) == Truths({"a": "1", "b": "4"})


def test_every_field_of_a_response_is_kept(
    tmp_path: Path, row_of: RowOf, write_rows: WriteRows
) -> None:
    full = Response("\\boxed{1} é", 9, -1.5, "stop", 4, 12.5, None, "m")
    failed = replace(full, text="", error="boom")
    row = row_of("a", ["1"])
    names = ["text", "tokens", "logprob", "finish_reason", "seed", "latency_ms", "error", "model"]
    row["responses"] = [{name: getattr(each, name) for name in names} for each in (full, failed)]
    pool = import_jsonl(write_rows(tmp_path / "rows", [row]), tmp_path / "pool")
    assert next(iter(pool)).responses == (full, failed)


def test_two_imports_at_different_times_give_the_same_bytes(
    tmp_path: Path,
    rows: list[dict[str, Any]],
    write_rows: WriteRows,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = write_rows(tmp_path / "rows.jsonl", rows)
    one = import_jsonl(file, tmp_path / "one").path
    monkeypatch.setattr("time.time", lambda: 1e9)
    other = import_jsonl(file, tmp_path / "other").path
    names = sorted(path.name for path in one.iterdir())
    assert [(one / n).read_bytes() for n in names] == [(other / n).read_bytes() for n in names]


def test_truths_are_kept_apart(
    tmp_path: Path, rows: list[dict[str, Any]], write_rows: WriteRows
) -> None:
    path = import_jsonl(write_rows(tmp_path / "rows", rows), tmp_path / "pool").path
    segments = [gzip.decompress(file.read_bytes()) for file in path.glob("responses-*")]
    assert segments
    for data in (*segments, (path / "questions.jsonl").read_bytes()):
        assert b'"answer"' not in data
    assert b'"answer"' in (path / "truths.jsonl").read_bytes()


def test_a_file_without_answers_becomes_a_dry_run(
    tmp_path: Path, row_of: RowOf, write_rows: WriteRows
) -> None:
    rows = [row_of("a", ["1"] * 4, None), {**row_of("b", ["1"] * 4), "answer": None}]
    pool = import_jsonl(write_rows(tmp_path / "rows", rows), tmp_path / "pool")
    truths = Truths.open(pool.path)
    frontier = evaluate(pool, [Fixed(4)], truths=truths)
    assert truths is None
    assert (frontier["fixed-4"].accuracy, frontier["fixed-4"].agreement) == (None, 100)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "a JSON object is needed, but got list"),
        ("[" * 9_999, "not JSON"),
        ({"id": 1.5}, 'the field "id" is 1.5'),
        ({"question": 3}, 'the field "question" is 3'),
        ({"choices": 5}, 'the field "choices" is 5'),
        ({"choices": "abc"}, 'the field "choices" is'),
        ({"responses": "many"}, 'the field "responses" is'),
        ({"responses": [True]}, "response 0: a text or an object is needed, but it is True"),
        ({"responses": [{"said": "x"}]}, "response 0: there is no response; its column is one of"),
        ({"responses": [{"text": 1}]}, 'response 0, "text": a text is needed, but it is 1'),
        ({"responses": [{"text": "", "tokens": True}]}, 'the field "tokens" is True'),
        ({"responses": [{"text": "", "tokens": -1}]}, 'the field "tokens" is -1'),
        ({"responses": [{"text": "", "tokens": 1e99}]}, 'the field "tokens" is 1e+99'),
        ({"responses": [{"text": "", "tokens": 1, "logprob": "x"}]}, 'the field "logprob"'),
        ({"responses": [{"text": "", "tokens": 1, "error": 5}]}, 'the field "error" is 5'),
        ({"responses": [{"text": "", "tokens": 1, "finish_reason": 5}]}, '"finish_reason" is 5'),
        ({"messages": [{"content": "?"}]}, 'the field "messages" is'),
        ({"id": "a"}, "the question a comes a second time"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_left(
    tmp_path: Path, rows: list[dict[str, Any]], write_rows: WriteRows, line: Any, message: str
) -> None:
    bad = line if isinstance(line, str) else {**rows[1], **line}
    said = refused(write_rows(tmp_path / "rows.jsonl", [rows[0], bad]), tmp_path / "pool")
    assert said.startswith("rows.jsonl, line 2")
    assert message in said


@pytest.mark.parametrize(
    ("name", "what", "known"),
    [("question", "question", "question, problem"), ("responses", "response", "text, response")],
)
def test_a_missing_column_is_named_with_those_there_are(
    tmp_path: Path,
    rows: list[dict[str, Any]],
    write_rows: WriteRows,
    name: str,
    what: str,
    known: str,
) -> None:
    del rows[1][name]
    said = refused(write_rows(tmp_path / "rows.jsonl", rows), tmp_path / "pool")
    assert said.startswith(f"rows.jsonl, line 2: there is no {what}; its column is one of {known}")
    assert said.endswith(f"there are {', '.join(rows[1])}")


def test_a_file_of_which_no_truth_can_be_read_is_refused_with_an_example(
    tmp_path: Path, row_of: RowOf, write_rows: WriteRows
) -> None:
    rows = [row_of("a", ["A"], None), row_of("b", ["A"], "F")]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    said = refused(file, tmp_path / "pool", task=get_task("gpqa"))
    assert said.startswith("rows.jsonl, line 2: not one truth can be read as choice")
    assert "'F'" in said
    assert "--task" in said


def test_truths_that_are_missing_or_cannot_be_read_leave_their_questions_without_one(
    tmp_path: Path, row_of: RowOf, write_rows: WriteRows
) -> None:
    truths = {
        "a": "1",
        "b": None,
        "c": "many",
        "d": ["1", "2"],
        "e": "so \\boxed{2}",
        "f": "x #### 3",
    }
    rows = [{**row_of(name, ["1"] * 4), "answer": truth} for name, truth in truths.items()]
    found = bring_in(write_rows(tmp_path / "rows.jsonl", rows), tmp_path / "pool")
    assert Truths.open(found.pool.path) == Truths({"a": "1", "e": "2", "f": "3"})
    assert found.truths == 3
    assert found.truthless == {
        "b": "none is given",
        "c": "'many' is no numeric answer",
        "d": '\'["1","2"]\' is no numeric answer',
    }


def test_gibberish_is_refused_with_what_was_looked_for_and_leaves_nothing(
    tmp_path: Path, row_of: RowOf, write_rows: WriteRows
) -> None:
    rows = [row_of(name, [None] * 4) for name in "abc"]
    said = refused(write_rows(tmp_path / "rows.jsonl", rows), tmp_path / "pool")
    assert get_task("numeric").describe() in said
    assert "a: hm" in said
    assert "--task" in said


def test_a_file_in_which_everything_failed_is_refused(
    tmp_path: Path, row_of: RowOf, write_rows: WriteRows
) -> None:
    row = {**row_of("a", []), "responses": [{"error": "gone"}, {"answer": None}, ""]}
    said = refused(write_rows(tmp_path / "rows.jsonl", [row]), tmp_path / "pool")
    assert said == "rows.jsonl holds nothing to read: every response failed or is empty"


def test_what_was_read_is_counted_and_what_was_not_is_shown(
    tmp_path: Path, row_of: RowOf, write_rows: WriteRows
) -> None:
    rows = [row_of("a", ["1", "1", None]), row_of("b", [None, "2", "2"])]
    rows[1]["responses"][1] = {"text": "so", "finish_reason": "length"}
    found = bring_in(write_rows(tmp_path / "rows.jsonl", rows), tmp_path / "pool").readability
    assert (found.responses, found.read, found.unread, found.truncated) == (6, 3, 2, 1)
    assert found.examples == ("a: hm", "b: hm")


def test_what_was_found_out_is_told_in_sentences(
    tmp_path: Path, row_of: RowOf, write_rows: WriteRows
) -> None:
    rows = [row_of("a", ["1", None], "1"), row_of("b", [None, None], None)]
    rows[0]["responses"][0] = "\\boxed{1}"
    file, out = write_rows(tmp_path / "rows.jsonl", rows), tmp_path / "pool"
    found = bring_in(file, out, task="gsm8k", columns=["answer=answer"])
    assert found.lines == [
        f"{out}: 2 questions, 4 responses, task gsm8k, checkpoints 2",
        "without a truth: 1 question: b (none is given)",
        "tokens are estimated from the length of the texts: the file does not count them",
        "readable: 25.0 % of 4 responses read, 75.0 % without an answer that could be found",
        "  not read: a: hm",
        "  not read: b: hm",
        "  not read: b: hm",
    ]
    assert "ONLY 25 %" in (found.warning or "")
    assert found.pool.path == out


def test_segments_are_as_large_as_said_and_each_question_is_in_one(
    tmp_path: Path, row_of: RowOf, write_rows: WriteRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aera.pools.pool.SEGMENT_RESPONSES", 4)
    rows = [row_of(name, ["1"] * 3, "1") for name in "abcde"]
    found = bring_in(write_rows(tmp_path / "rows.jsonl", rows), tmp_path / "pool")
    parts = [[record.question.id for record in part] for part in found.pool.parts()]
    assert parts == [["a", "b"], ["c", "d"], ["e"]]
    assert (found.truths, found.readability.read) == (5, 15)


def test_questions_with_too_few_responses_are_left_out_and_named(
    tmp_path: Path, row_of: RowOf, write_rows: WriteRows
) -> None:
    counts = {"a": 8, "b": 8, "c": 3, "d": 0}
    rows = [row_of(name, ["1"] * count) for name, count in counts.items()]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    pool = import_file(file, tmp_path / "pool")
    assert ([*pool.questions], [*pool.left_out]) == (["a", "b"], ["c", "d"])
    assert "3" in pool.left_out["c"]
    assert [*import_file(file, tmp_path / "more", responses=3).left_out] == ["d"]
    with pytest.raises(AeraError, match="no question has 9 responses"):
        import_file(file, tmp_path / "none", responses=9)
    assert not (tmp_path / "none").exists()


def test_a_number_may_be_a_truth(tmp_path: Path, row_of: RowOf, write_rows: WriteRows) -> None:
    row = {**row_of("a", ["1"]), "answer": 2.5}
    pool = import_jsonl(write_rows(tmp_path / "rows", [row]), tmp_path / "pool")
    assert Truths.open(pool.path) == Truths({"a": "2.5"})


def test_a_whole_number_may_be_an_id_and_text_may_be_null(
    tmp_path: Path, row_of: RowOf, write_rows: WriteRows
) -> None:
    row = {**row_of("a", ["1"]), "id": 7}
    row["responses"] = [{"text": None, "tokens": 3}, {"text": "1", "tokens": 3}]
    pool = import_jsonl(write_rows(tmp_path / "rows", [row]), tmp_path / "pool")
    assert next(iter(pool)).question.id == "7"
    assert next(iter(pool)).responses == (Response("", 3), Response("1", 3))


def test_blank_lines_are_passed_over(
    tmp_path: Path, rows: list[dict[str, Any]], write_rows: WriteRows
) -> None:
    file = write_rows(tmp_path / "rows", ["", rows[0], "  ", rows[1]])
    assert len(import_jsonl(file, tmp_path / "pool")) == 2


def test_a_truncated_gzip_is_refused(
    tmp_path: Path, rows: list[dict[str, Any]], write_rows: WriteRows
) -> None:
    file = write_rows(tmp_path / "rows.gz", rows)
    file.write_bytes(file.read_bytes()[:-30])
    assert refused(file, tmp_path / "pool").startswith("rows.gz, line ")


def test_a_file_of_other_bytes_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    file.write_bytes(b"\xff\xfe\x00")
    assert refused(file, tmp_path / "pool").startswith("rows, line 1")


def test_an_empty_file_and_a_missing_one_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rows").touch()
    assert refused(tmp_path / "rows", tmp_path / "pool") == "rows holds no question"
    with pytest.raises(UsageError, match="there is no file"):
        import_jsonl(tmp_path / "none", tmp_path / "pool")


def test_a_place_in_use_is_refused_and_left_alone(
    tmp_path: Path, rows: list[dict[str, Any]], write_rows: WriteRows
) -> None:
    file = write_rows(tmp_path / "rows", rows)
    kept = tmp_path / "pool" / "mine.txt"
    kept.parent.mkdir()
    kept.write_text("mine")
    for taken in (kept.parent, kept):
        with pytest.raises(UsageError, match="exists already"):
            import_jsonl(file, taken)
    assert kept.read_text() == "mine"
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["mine.txt", "pool", "rows"]


def test_an_empty_directory_is_filled(
    tmp_path: Path,
    rows: list[dict[str, Any]],
    write_rows: WriteRows,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = write_rows(tmp_path / "rows", rows)
    (tmp_path / "pool").mkdir()
    monkeypatch.chdir(tmp_path)
    assert len(import_jsonl(file, "pool")) == len(Pool.open("pool")) == 2
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_the_task_may_be_given_and_must_be_known(
    tmp_path: Path, rows: list[dict[str, Any]], write_rows: WriteRows
) -> None:
    for row in rows:
        row["task"] = "cookery"
    file = write_rows(tmp_path / "rows", rows)
    assert "cookery" in refused(file, tmp_path / "pool")
    pool = import_jsonl(file, tmp_path / "pool", task=get_task("expression"))
    assert pool.task == get_task("expression")


def test_more_responses_than_the_full_budget_are_kept(
    tmp_path: Path, row_of: RowOf, write_rows: WriteRows
) -> None:
    pool = import_jsonl(
        write_rows(tmp_path / "rows", [row_of("a", ["1"] * 200)]), tmp_path / "pool"
    )
    assert len(next(iter(pool)).responses) == 200


def test_half_a_surrogate_pair_comes_in(
    tmp_path: Path, row_of: RowOf, write_rows: WriteRows
) -> None:
    row = row_of("a", ["1", "1"])
    row["responses"][0]["text"] = "cut \ud83d"
    assert "\\ud83d" in json.dumps(row)
    pool = import_jsonl(write_rows(tmp_path / "rows", [row]), tmp_path / "pool")
    assert next(iter(pool)).responses[0].text == "cut \ud83d"


def test_the_error_for_a_line_is_a_record_error(tmp_path: Path, write_rows: WriteRows) -> None:
    with pytest.raises(RecordError):
        import_jsonl(write_rows(tmp_path / "rows", ["{"]), tmp_path / "pool")
