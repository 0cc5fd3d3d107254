"""Pools on disk: what is written is read back, in parts too, and damage is one sentence."""

import gzip
import json
import pickle
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from commands import refusal
from foreign import DATA
from hypothesis import given
from hypothesis import strategies as st
from lab_fixtures import Bench
from streams import NUMERIC, edit, record_of

from aera import Pool, Question, Record, Response, Schedule, open_pool
from aera.errors import AeraError, PoolError
from aera.lab import HeldRecords, export_pool, hold
from aera.pools.pool import Plan, read_votes, write_pool
from aera.pools.stats import name_few, tell_pool
from aera.trace import UNKNOWN

SEALED = "responses-00000.jsonl.gz"
FIELDS = "question_id index text tokens logprob finish_reason seed latency_ms error model"
optional_number = st.none() | st.floats(-1e6, 1e6)
responses = st.builds(
    Response,
    text=st.text(),
    tokens=st.integers(0, 10**6),
    logprob=optional_number,
    finish_reason=st.none() | st.sampled_from(["stop", "length"]),
    seed=st.none() | st.integers(0, 2**63),
    latency_ms=optional_number,
    error=st.none() | st.text(),
    model=st.none() | st.text(),
    answer=st.none() | st.text(),
    trace=st.none() | st.just((-1.5, *UNKNOWN[1:])),
)


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    """Three questions with four responses each."""
    records = [record_of(name, "12.1") for name in ("a", "b", "c")]
    return write_pool(tmp_path, records, Plan(NUMERIC, sampler={"temperature": 0.6}))


def lines_of(pool: Pool) -> list[str]:
    with gzip.open(pool.path / SEALED, "rt", encoding="utf-8") as file:
        return list(file)


def trouble(pool: Pool) -> str:
    return refusal(PoolError, list, pool)


# --- reading what was written ---------------------------------------------------------------------


@given(st.lists(st.lists(responses, min_size=1, max_size=3), min_size=1, max_size=4))
def test_what_is_written_is_read_back(tmp_path: Path, columns: list[list[Response]]) -> None:
    own = [((), "", None), (("x",), None, "g"), (("x", "y"), "", None), ((), None, "g")]
    records = [
        Record(Question(f"q{i}", "é\ud83d?", *own[i]), (*column, Response("cut \ude00 short", 3)))
        for i, column in enumerate(columns)
    ]
    written = write_pool(tmp_path, records, Plan(NUMERIC, 1))
    assert list(written) == list(Pool.open(tmp_path)) == records


def test_files_are_as_documented_and_of_equal_records_equal(pool: Pool, tmp_path: Path) -> None:
    opened = Pool.open(pool.path)
    assert (len(opened), opened.manifest.responses, opened.task) == (3, 12, NUMERIC)
    fields = json.loads((pool.path / "manifest.json").read_text())
    assert fields["counts"] == {"questions": 3, "responses": 12}
    assert (fields["format"], fields["written_by"]) == (4, metadata.version("aera"))
    assert fields["sampler"] == {"temperature": 0.6}
    assert {"task", "prompt_template", "schedule", "seed", "hashes"} <= set(fields)
    assert all(list(json.loads(line)) == FIELDS.split() for line in lines_of(pool))
    again = write_pool(tmp_path / "again", list(pool), Plan(NUMERIC, sampler={"temperature": 0.6}))
    for file in (SEALED, "questions.jsonl", "manifest.json"):
        assert (again.path / file).read_bytes() == (pool.path / file).read_bytes()


@pytest.mark.parametrize(
    ("counts", "each"),
    [
        ([300, 1], 300),
        ([300, 200], 200),
        ([4, 2], 2),  # as many responses either way, and more questions
        ([5, 5, 3, 3, 3], 3),
        ([3, 0], 3),
    ],
)
def test_a_pool_is_cut_where_it_keeps_most(tmp_path: Path, counts: list[int], each: int) -> None:
    records = [record_of(f"q{i}", "1" * count) for i, count in enumerate(counts)]
    write_pool(tmp_path, records, Plan(NUMERIC))
    pool = Pool.open(tmp_path)
    assert (pool.manifest.each, pool.schedule) == (each, Schedule.doubling(each))
    assert list(pool) == [record for record in records if len(record.responses) >= each]


def test_a_question_with_too_few_responses_is_there_passed_over_and_told(tmp_path: Path) -> None:
    counts = {"a": 8, "short": 2, "b": 8, "empty": 0, "long": 10, "c": 1}
    records = [record_of(name, "1" * count) for name, count in counts.items()]
    write_pool(tmp_path, records, Plan(NUMERIC))
    pool = Pool.open(tmp_path)
    why = {name: f"has {n} responses, fewer than 8" for name, n in counts.items() if n < 8}
    why["c"] = "has 1 response, fewer than 8"
    assert pool.left_out == why
    assert json.loads((tmp_path / "manifest.json").read_text())["left_out"] == why
    counting = ["a", "b", "long"]
    assert [record.question.id for record in pool] == counting
    assert [record.question.id for part in pool.parts() for record in part] == counting
    assert (list(pool.questions), len(pool), pool.manifest.responses) == (counting, 3, 26)
    everything = {record.question.id: len(record.responses) for record in pool.everything()}
    assert everything == {name: count for name, count in counts.items() if count}
    assert tell_pool(pool.manifest, "here") == [
        "here: 3 questions, 26 responses, task numeric, checkpoints 4, 8",
        f"left out: {name_few(why)}",
        "some questions have more than the 8 responses that count; --responses raises it",
    ]
    assert name_few(dict.fromkeys("abc", "late")) == "3 questions: a (late), b (late), c (late)"
    assert name_few(dict.fromkeys("abcd", "late")).endswith("c (late), …")
    for many, names in ((10, ["long"]), (2, ["a", "short", "b", "long"])):
        write_pool(tmp_path / "ten", records, Plan(NUMERIC, many))
        assert [record.question.id for record in Pool.open(tmp_path / "ten")] == names


@pytest.mark.parametrize(
    ("counts", "responses", "message"),
    [
        ([], None, "at least one question"),
        ([0], None, "at least one response"),
        ([3], 11, "no question has 11 responses, the most are 3"),
    ],
)
def test_a_pool_of_nothing_is_refused(
    tmp_path: Path, counts: list[int], responses: int | None, message: str
) -> None:
    records = [record_of("q", "1" * count) for count in counts]
    with pytest.raises(PoolError, match=message):
        write_pool(tmp_path, records, Plan(NUMERIC, responses))


def test_a_pool_of_format_1_opens(pool: Pool) -> None:
    newer = ("responses_each", "other_counts", "left_out", "written_by")
    edit(pool.path / "manifest.json", *newer, format=1)
    old = Pool.open(pool.path)
    assert list(old) == list(pool)
    assert (len(old), old.left_out, old.schedule) == (3, {}, pool.schedule)
    assert (old.manifest.written_by, old.stored_counts) == (None, {"a": 4, "b": 4, "c": 4})


def test_parts_are_segments_that_travel_and_are_held_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aera.pools.pool.SEGMENT_RESPONSES", 16)
    records = [record_of(f"q{i}", "12345678") for i in range(5)]
    pool = write_pool(tmp_path, records, Plan(NUMERIC))
    monkeypatch.chdir(pool.path.parent)
    parts = Pool.open(pool.path.name).parts()
    monkeypatch.chdir("/")  # whoever works on it may be somewhere else
    size = len(pickle.dumps(parts[0]))
    assert [[*part] for part in parts] == [records[:2], records[2:4], records[4:]]
    assert len(pickle.dumps(parts[0])) == size  # without what has been read
    assert [*pickle.loads(pickle.dumps(parts[0]))] == records[:2]
    voted, held = read_votes(records, NUMERIC), hold(pool)
    assert [*held] == voted
    for name in ("name", "folder", "task", "schedule", "questions"):
        assert getattr(held, name) == getattr(pool, name)
    made = HeldRecords(voted, NUMERIC, pool.schedule)
    assert [read_votes(part, NUMERIC) for part in parts] == [[*part] for part in made.parts()]


# --- damage ---------------------------------------------------------------------------------------


def test_a_damaged_or_missing_segment_is_found_when_it_is_read(tmp_path: Path) -> None:
    records = [record_of(f"q{i}", "12" * 500) for i in range(8)]
    pool = write_pool(tmp_path, records, Plan(NUMERIC))
    data = (pool.path / SEALED).read_bytes()
    for damaged in (data[: len(data) // 2], b"\x1f\x8bnot gzip", b'{"question_id": "\xff"}\n'):
        (pool.path / SEALED).write_bytes(damaged)
        opened = Pool.open(pool.path)
        assert len(opened) == 8
        assert trouble(opened).startswith(f"{SEALED}, line ")
        if damaged == data[: len(data) // 2]:
            assert next(iter(opened)) == records[0]
    (pool.path / SEALED).unlink()
    assert f'{SEALED}" is missing; bring it back' in trouble(Pool.open(pool.path))


def changed(line: str, name: str, *value: Any) -> str:
    """A line with another field, or without it."""
    fields = {k: v for k, v in json.loads(line).items() if k != name}
    return json.dumps({**fields, **dict.fromkeys([name][: len(value)], *value)}) + "\n"


Change = Callable[[list[str]], list[str]]
CHANGES: list[tuple[Change, str]] = [
    (lambda rows: [*rows[:5], rows[5][:20]], f"{SEALED}, line 6: half-written, no end of line"),
    (lambda rows: [*rows[:2], rows[1], *rows[2:]], "has response 1 twice"),
    (lambda rows: rows[:1] + rows[2:], "has response 2 but not 1"),
    (lambda rows: [*rows, changed(rows[0], "question_id", "z")], "to z, not in questions.jsonl"),
    (lambda rows: rows[:8], "no response, the first is c"),
    (lambda rows: [*rows[:3], *rows[4:], rows[3]], "has response 3 but not 0"),
    (lambda rows: [*rows, *rows[:4]], "split question a"),
]
WRONG: dict[str, tuple[Any, ...]] = {
    "question_id": (5,),
    "index": ("1", 1.0, None, True),
    "text": (None,),
    "tokens": (None, "12"),
    "logprob": ("low",),
    "latency_ms": ([],),
    "error": ({},),
    "model": (7,),
}


@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_damaged_responses_are_reported(pool: Pool, change: Change, message: str) -> None:
    data = "".join(change(lines_of(pool))).encode("utf-8", "surrogatepass")
    (pool.path / SEALED).write_bytes(gzip.compress(data))
    assert message in trouble(Pool.open(pool.path))


def test_a_damaged_line_is_named_with_its_field(pool: Pool) -> None:
    rows = lines_of(pool)
    damaged = [(f"{line}\n", "") for line in ("nonsense", "", "[1]", "7", '"a"', "[" * 9_999)]
    for name, values in WRONG.items():
        damaged.append((changed(rows[2], name), f"the field '{name}' is missing"))
        damaged += [(changed(rows[2], name, each), f'the field "{name}" is ') for each in values]
    for line, message in damaged:
        content = "".join([*rows[:2], line, *rows[3:]])
        (pool.path / SEALED).write_bytes(gzip.compress(content.encode()))
        assert f"{SEALED}, line 3: {message}" in trouble(Pool.open(pool.path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"id": "a"}\n', "line 1: the field 'question' is missing"),
        ('{"id": 4, "question": "?"}\n', 'line 1: the field "id" is 4'),
        ('{"id": "a", "question": "?", "choices": "xy"}\n', 'the field "choices" is'),
        ("[]\n", "questions.jsonl, line 1"),
        ('{"id": "a", "question": "?"}\n' * 2, "question a twice"),
        ('{"id": "a", "question": "?"}', "half-written"),
        (None, 'questions.jsonl" is missing'),
    ],
)
def test_damaged_questions_are_reported(pool: Pool, content: str | None, message: str) -> None:
    (pool.path / "questions.jsonl").unlink()
    if content is not None:
        (pool.path / "questions.jsonl").write_text(content)
    assert message in trouble(Pool.open(pool.path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 5, "written_by": "9.1"}, "format 5, which aera 9.1 wrote.*; update aera"),
        ({"format": 5, "written_by": None}, "format 5, which a newer aera wrote"),
        ({"format": "new"}, "the field \"format\" is 'new'"),
        ({"format": 0}, 'the field "format" is 0'),
        ({"schedule": [8, 4]}, "strictly increasing"),
        ({"task": {"name": "x", "kind": "poetry"}}, "poetry"),
        *(({"other_counts": counts}, "cannot be understood") for counts in ({"a": "x"}, [])),
        *(({"schedule": points}, "cannot be understood") for points in ([4.5, 8], 4)),
        *((text, "cannot be understood") for text in ("", "{", "[]", "null", "\x00")),
    ],
)
def test_a_manifest_from_elsewhere_or_damaged_is_refused(
    pool: Pool, changes: dict[str, Any] | str, message: str
) -> None:
    file = pool.path / "manifest.json"
    file.write_text(changes) if isinstance(changes, str) else edit(file, **changes)
    with pytest.raises(PoolError, match=message):
        Pool.open(pool.path)


# --- an address is opened as whatever is stored there ---------------------------------------------


def test_a_directory_with_a_manifest_is_a_pool(bench: Bench, pool_copy: Path) -> None:
    path = bench.pool.path
    for address in (path, str(path), path.as_uri()):
        opened = open_pool(address)
        assert isinstance(opened, Pool)
        assert (opened.path, opened.manifest) == (path, bench.pool.manifest)
    export_pool(Pool.open(pool_copy), pool_copy / "one.parquet")
    assert isinstance(open_pool(pool_copy), Pool)  # also where tables lie beside its files


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", r"no pool at .*manifest\.json is missing"),
        ("empty", r"no pool at .*manifest\.json is missing"),
        ("rows.jsonl", "is a file and no pool"),
        ("begun", r"plan\.json\" cannot be understood"),
        ("tables", "make a pool of it with aera import"),
    ],
)
def test_what_is_no_pool_is_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "rows.jsonl").write_text("{}\n")
    for folder in ("empty", "tables", "begun"):
        (tmp_path / folder).mkdir()
    (tmp_path / "begun" / "plan.json").write_text("{")
    (tmp_path / "tables" / "wide.parquet").write_bytes((DATA / "wide.parquet").read_bytes())
    with pytest.raises(AeraError, match=message):
        open_pool(tmp_path / name)
