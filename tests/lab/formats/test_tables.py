from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from foreign import DATA, FORMATS, imported, refused
from pyarrow import parquet

from aera import Pool, Question, Record, Response, Task, get_task
from aera.errors import UsageError
from aera.lab import Truths, import_file
from aera.lab.formats.exporting import export_pool
from aera.lab.formats.importing import ESTIMATED
from aera.pools import parquet as stored
from aera.pools.pool import write_pool


def content(pool: Pool) -> Any:
    """Everything a pool says."""
    manifest = pool.manifest
    told = (pool.task, pool.schedule, manifest.sampler, manifest.seed)
    return list(pool), Truths.open(pool.path), told


def table(path: Path, rows: list[dict[str, Any]]) -> Path:
    parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    """A pool with a field of every kind, sampled with settings."""
    full = Response("\\boxed{B} é", 9, -1.5, "stop", 4, 12.5, None, "m")
    failed = Response("", 3, error="boom")
    question = Question("a", "which?", ("tea", "milk"), "be brief", "drinks")
    answered = Response("", 5, answer="A")
    others = (failed, answered, failed)
    records = [Record(question, (full, failed)), Record(Question("b", "ü?"), others)]
    (tmp_path / "sampled").mkdir()
    settings = {"temperature": 0.6}
    return write_pool(
        tmp_path / "sampled", records, task=get_task("gpqa"), sampler=settings, seed=3
    )


@pytest.mark.parametrize("place", ["out.parquet", "out"])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_comes_back_from_parquet_as_it_was(
    tmp_path: Path, name: str, place: str
) -> None:
    before = imported(DATA / name, tmp_path / "pool")
    export_pool(before, tmp_path / place)
    assert content(import_file(tmp_path / place, tmp_path / "again")) == content(before)


@pytest.mark.parametrize("truths", [None, Truths({"a": "B", "b": "A"})])
def test_a_pool_comes_back_with_task_settings_and_seed(
    tmp_path: Path, pool: Pool, truths: Truths | None
) -> None:
    if truths:
        truths.save(pool.path)
    export_pool(pool, tmp_path / "out.parquet")
    assert content(import_file(tmp_path / "out.parquet", tmp_path / "again")) == content(pool)


def test_the_parts_of_a_folder_hold_whole_questions(
    tmp_path: Path, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aera.pools.pool.SEGMENT_RESPONSES", 2)
    export_pool(pool, tmp_path / "out")
    files = sorted((tmp_path / "out").iterdir())
    assert [file.name for file in files] == ["part-00000.parquet", "part-00001.parquet"]
    assert [parquet.read_metadata(file).num_rows for file in files] == [2, 3]
    assert list(import_file(tmp_path / "out", tmp_path / "again")) == list(pool)


def test_two_exports_give_the_same_bytes(tmp_path: Path, pool: Pool) -> None:
    for name in ("one.parquet", "other.parquet"):
        export_pool(pool, tmp_path / name)
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "other.parquet").read_bytes()


def test_half_a_surrogate_pair_is_replaced(tmp_path: Path, numeric: Task) -> None:
    (tmp_path / "pool").mkdir()
    record = Record(Question("a", "?"), (Response("cut \ud83d", 1), Response("7", 1)))
    pool = write_pool(tmp_path / "pool", [record], task=numeric, sampler={})
    export_pool(pool, tmp_path / "out.parquet")
    again = import_file(tmp_path / "out.parquet", tmp_path / "again")
    assert next(iter(again)).responses[0].text == "cut \ufffd"


@pytest.mark.parametrize("name", ["out.parquet", "out"])
def test_a_place_in_use_is_refused_and_left_alone(tmp_path: Path, pool: Pool, name: str) -> None:
    kept = tmp_path / name
    if kept.suffix:
        kept.write_text("mine")
    else:
        kept.mkdir()
        (kept / "mine").touch()
    with pytest.raises(UsageError, match="exists already"):
        export_pool(pool, kept)
    assert {path.name for path in tmp_path.iterdir()} == {"sampled", name}


def test_rows_of_one_response_are_put_in_the_order_of_their_index(tmp_path: Path) -> None:
    rows = [{"question": "?", "response": str(i), "index": i, "tokens": i} for i in (2, 0, 1)]
    pool = imported(table(tmp_path / "t.parquet", rows), tmp_path / "pool")
    assert [each.text for each in next(iter(pool)).responses] == ["0", "1", "2"]
    assert next(iter(pool)).question.id == "0"
    assert "tokens" not in pool.manifest.sampler


def test_a_list_may_hold_fields_and_tokens_may_be_unknown(tmp_path: Path) -> None:
    said = [{"completion": "7", "completion_tokens": 3}, {"completion": "y" * 40}]
    rows = [{"id": 7, "prompt": [{"role": "user", "content": "?"}], "completions": said}]
    pool = imported(table(tmp_path / "t.parquet", rows), tmp_path / "pool")
    record = next(iter(pool))
    assert record.question == Question("7", "?")
    assert [each.tokens for each in record.responses] == [3, 10]
    assert pool.manifest.sampler["tokens"] == ESTIMATED


def test_a_choice_may_be_told_by_its_text(tmp_path: Path) -> None:
    rows = [{"question": "?", "options": ["tea", "milk"], "answer": "milk", "responses": ["B"]}]
    file = table(tmp_path / "t.parquet", rows)
    pool = import_file(file, tmp_path / "pool", task=get_task("choice"))
    assert Truths.open(pool.path) == Truths({"0": "B"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "a"}, "the question a comes a second time"),
        ({"question": None}, "there is no question; its column is one of question, problem"),
        ({"id": ""}, "the field \"id\" is ''"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    good = {"id": "a", "question": "?", "responses": ["1"], "answer": "1"}
    file = table(tmp_path / "t.parquet", [good, {**good, "id": "b", **change}])
    said = refused(file, tmp_path / "pool")
    assert said.startswith("t.parquet, row 2: ")
    assert message in said


def test_two_rows_with_one_index_are_refused(tmp_path: Path) -> None:
    rows = [{"question": "?", "text": "x", "index": 0}] * 2
    said = refused(table(tmp_path / "t.parquet", rows), tmp_path / "pool")
    assert said == "t.parquet, row 2: the question 0 has response 0 twice"


def test_a_table_without_responses_a_broken_one_and_an_empty_folder_are_refused(
    tmp_path: Path,
) -> None:
    file = table(tmp_path / "t.parquet", [{"question": "?"}])
    assert "there is no response; its column is one of text, response" in refused(
        file, tmp_path / "pool"
    )
    file.write_bytes((DATA / "wide.parquet").read_bytes()[:-40])
    assert refused(file, tmp_path / "pool").startswith("t.parquet, row 1: cannot be read, ")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "holds no Parquet or Arrow file" in refused(empty, tmp_path / "pool")


def test_without_pyarrow_one_sentence_says_what_to_install(
    tmp_path: Path, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(stored, "import_module", absent)
    told = r'this needs pyarrow: pip install "aera\[data\]"'
    for call in (
        lambda: imported(DATA / "wide.parquet", tmp_path / "pool"),
        lambda: export_pool(pool, tmp_path / "out.parquet"),
    ):
        with pytest.raises(UsageError, match=told):
            call()
