import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aera import Pool, Question, Record, Response, Schedule, Task
from aera.errors import PoolError
from aera.pools.pool import response_line, write_pool

RecordOf = Callable[[str, str], Record]
SEALED = "responses-00000.jsonl.gz"
OPEN = "responses-00001.jsonl"
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
)


@pytest.fixture
def pool(tmp_path: Path, numeric: Task, record_of: RecordOf) -> Pool:
    """Three questions with four responses each."""
    records = [record_of(name, "12.1") for name in ("a", "b", "c")]
    return write_pool(tmp_path, records, task=numeric, sampler={"temperature": 0.6})


def lines_of(pool: Pool) -> list[str]:
    with gzip.open(pool.path / SEALED, "rt", encoding="utf-8") as file:
        return list(file)


def reseal(pool: Pool, lines: list[str]) -> Pool:
    """The same pool with these lines as its only segment."""
    data = "".join(lines).encode("utf-8", "surrogatepass")
    (pool.path / SEALED).write_bytes(gzip.compress(data))
    return Pool.open(pool.path)


def edited(line: str, **changes: Any) -> str:
    return json.dumps({**json.loads(line), **changes}) + "\n"


def trouble(pool: Pool) -> str:
    with pytest.raises(PoolError) as caught:
        list(pool)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- reading what was written ---------------------------------------------------------------------


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.lists(responses, min_size=1, max_size=3), min_size=1, max_size=4))
def test_what_is_written_is_read_back(
    tmp_path: Path, numeric: Task, columns: list[list[Response]]
) -> None:
    records = [
        Record(Question(f"q{i}", "é\n?", ("x", "y")[: i % 3]), tuple(column))
        for i, column in enumerate(columns)
    ]
    written = write_pool(tmp_path, records, task=numeric, sampler={})
    assert list(written) == list(Pool.open(tmp_path)) == records


def test_half_a_surrogate_pair_survives(tmp_path: Path, numeric: Task) -> None:
    record = Record(Question("q", "\ud83d"), (Response("cut \ude00 short", 3),))
    write_pool(tmp_path, [record], task=numeric, sampler={})
    assert list(Pool.open(tmp_path)) == [record]


def test_the_manifest_says_what_is_inside(pool: Pool, numeric: Task) -> None:
    opened = Pool.open(pool.path)
    assert (len(opened), opened.manifest.responses, opened.task) == (3, 12, numeric)
    fields = json.loads((pool.path / "manifest.json").read_text())
    assert fields["counts"] == {"questions": 3, "responses": 12}
    assert fields["sampler"] == {"temperature": 0.6}
    assert {"task", "prompt_template", "schedule", "seed", "hashes"} <= set(fields)


@pytest.mark.parametrize(("fewest", "last"), [(1, 1), (4, 4), (20, 20), (128, 128), (200, 128)])
def test_the_schedule_ends_where_the_shortest_question_does(
    tmp_path: Path, numeric: Task, record_of: RecordOf, fewest: int, last: int
) -> None:
    records = [record_of("long", "1" * 300), record_of("short", "1" * fewest)]
    write_pool(tmp_path, records, task=numeric, sampler={})
    assert Pool.open(tmp_path).schedule == Schedule().upto(fewest)
    assert Pool.open(tmp_path).schedule.last == last


def test_segments_hold_exactly_the_documented_fields(pool: Pool) -> None:
    names = "question_id index text tokens logprob finish_reason seed latency_ms error model"
    assert all(list(json.loads(line)) == names.split() for line in lines_of(pool))


def test_large_pools_are_cut_into_segments_of_whole_questions(
    tmp_path: Path, numeric: Task, record_of: RecordOf
) -> None:
    records = [record_of(f"q{i}", "1" * 6_000) for i in range(7)]
    pool = write_pool(tmp_path, records, task=numeric, sampler={})
    assert len(pool.segments) == 3
    assert list(pool) == records


def test_equal_records_give_equal_bytes(pool: Pool, tmp_path: Path, numeric: Task) -> None:
    (tmp_path / "again").mkdir()
    again = write_pool(tmp_path / "again", list(pool), task=numeric, sampler={"temperature": 0.6})
    for file in (SEALED, "questions.jsonl", "manifest.json"):
        assert (again.path / file).read_bytes() == (pool.path / file).read_bytes()


def test_a_pool_of_nothing_is_refused(tmp_path: Path, numeric: Task) -> None:
    with pytest.raises(PoolError, match="at least one question"):
        write_pool(tmp_path, [], task=numeric, sampler={})


def test_open_and_sealed_segments_merge(pool: Pool) -> None:
    before = list(pool)
    lines = lines_of(pool)
    opened = reseal(pool, lines[:5])
    (pool.path / OPEN).write_text("".join(reversed(lines[5:])))
    merged = sorted(opened, key=lambda record: record.question.id)
    assert merged == before


def test_an_open_segment_may_add_to_a_sealed_question(pool: Pool) -> None:
    line = response_line("b", 4, response=Response("late", 1))
    (pool.path / OPEN).write_text(line)
    counts = {record.question.id: len(record.responses) for record in Pool.open(pool.path)}
    assert counts == {"a": 4, "b": 5, "c": 4}


# --- damage ---------------------------------------------------------------------------------------


def test_a_damaged_segment_is_found_when_read_not_when_opened(pool: Pool) -> None:
    (pool.path / SEALED).write_bytes(b"\x1f\x8bnot gzip at all")
    opened = Pool.open(pool.path)
    assert len(opened) == 3
    assert trouble(opened).startswith(f"{SEALED}, line 1: ")


def test_a_truncated_segment_is_reported_after_its_whole_questions(
    tmp_path: Path, numeric: Task, record_of: RecordOf
) -> None:
    records = [record_of(f"q{i}", "12" * 500) for i in range(8)]
    pool = write_pool(tmp_path, records, task=numeric, sampler={})
    data = (pool.path / SEALED).read_bytes()
    (pool.path / SEALED).write_bytes(data[: len(data) // 2])
    assert trouble(Pool.open(pool.path)).startswith(f"{SEALED}, line ")
    assert next(iter(Pool.open(pool.path))) == records[0]


def test_a_half_written_last_line_is_reported(pool: Pool) -> None:
    line = response_line("a", 4, response=Response("late", 1))
    (pool.path / OPEN).write_text(line + line[:20])
    assert trouble(Pool.open(pool.path)) == f"{OPEN}, line 2: half-written, no end of line"


@pytest.mark.parametrize("line", ["nonsense\n", "\n", "[1]\n", "7\n", '"a"\n', "[" * 9_999 + "\n"])
def test_a_line_that_is_no_object_is_reported(pool: Pool, line: str) -> None:
    lines = lines_of(pool)
    lines[5] = line
    assert trouble(reseal(pool, lines)).startswith(f"{SEALED}, line 6: ")


@pytest.mark.parametrize("name", ["question_id", "index", "text", "tokens", "logprob", "model"])
def test_a_missing_field_is_named(pool: Pool, name: str) -> None:
    lines = lines_of(pool)
    fields = json.loads(lines[2])
    del fields[name]
    lines[2] = json.dumps(fields) + "\n"
    assert trouble(reseal(pool, lines)) == f"{SEALED}, line 3: the field '{name}' is missing"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("question_id", 5),
        ("index", "1"),
        ("index", 1.0),
        ("index", None),
        ("index", True),
        ("text", None),
        ("tokens", None),
        ("tokens", "12"),
        ("logprob", "low"),
        ("finish_reason", 3),
        ("seed", "x"),
        ("latency_ms", []),
        ("error", {}),
        ("model", 7),
    ],
)
def test_a_field_of_the_wrong_type_is_named(pool: Pool, name: str, value: object) -> None:
    lines = lines_of(pool)
    lines[1] = edited(lines[1], **{name: value})
    assert f'{SEALED}, line 2: the field "{name}" is ' in trouble(reseal(pool, lines))


def test_a_response_held_twice_is_reported(pool: Pool) -> None:
    lines = lines_of(pool)
    assert "question a" in trouble(reseal(pool, [*lines[:2], lines[1], *lines[2:]]))
    assert "has response 1 twice" in trouble(reseal(pool, [*lines[:2], lines[1], *lines[2:]]))


def test_a_gap_is_reported(pool: Pool) -> None:
    lines = lines_of(pool)
    assert "question a" in trouble(reseal(pool, lines[:1] + lines[2:]))
    assert "has response 2 but not 1" in trouble(reseal(pool, lines[:1] + lines[2:]))


def test_responses_to_an_unknown_question_are_reported(pool: Pool) -> None:
    lines = [*lines_of(pool), response_line("z", 0, response=Response("", 1))]
    assert "responses to z, not in questions.jsonl" in trouble(reseal(pool, lines))


@pytest.mark.parametrize("open_too", [False, True])
def test_a_question_without_responses_is_reported(pool: Pool, open_too: bool) -> None:
    if open_too:
        (pool.path / OPEN).touch()
    message = trouble(reseal(pool, lines_of(pool)[:8]))
    assert "1 of 3 questions" in message
    assert message.endswith("the first is c")


def test_a_question_split_over_sealed_places_is_reported(pool: Pool) -> None:
    lines = lines_of(pool)
    assert "split question a" in trouble(reseal(pool, lines[:3] + lines[4:] + [lines[3]]))


def test_bytes_that_are_no_text_are_reported(pool: Pool) -> None:
    (pool.path / OPEN).write_bytes(b'{"question_id": "\xff"}\n')
    assert f"{OPEN}, line 1" in trouble(Pool.open(pool.path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"id": "a"}\n', "line 1: the field 'question' is missing"),
        ('{"id": 4, "question": "?"}\n', 'line 1: the field "id" is 4'),
        ('{"id": "a", "question": "?", "choices": "xy"}\n', 'the field "choices" is'),
        ("[]\n", "questions.jsonl, line 1"),
        ('{"id": "a", "question": "?"}\n' * 2, "question a twice"),
        ('{"id": "a", "question": "?"}', "half-written"),
    ],
)
def test_damaged_questions_are_reported(pool: Pool, content: str, message: str) -> None:
    (pool.path / "questions.jsonl").write_text(content)
    assert message in trouble(Pool.open(pool.path))


def test_missing_questions_are_reported(pool: Pool) -> None:
    (pool.path / "questions.jsonl").unlink()
    assert 'questions.jsonl" is missing' in trouble(Pool.open(pool.path))


def test_a_place_without_a_manifest_is_no_pool(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(PoolError, match=r"no pool at .*manifest\.json is missing"):
            Pool.open(place)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "format 2, this version reads format 1"),
        ({"schedule": [8, 4]}, "strictly increasing"),
        ({"schedule": [4.5, 8]}, "cannot be understood"),
        ({"schedule": 4}, "cannot be understood"),
        ({"task": {"name": "x", "kind": "poetry"}}, "poetry"),
        ({"task": {}}, "cannot be understood"),
        ({"counts": None}, "cannot be understood"),
    ],
)
def test_a_manifest_from_elsewhere_is_refused(
    pool: Pool, changes: dict[str, Any], message: str
) -> None:
    file = pool.path / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    with pytest.raises(PoolError, match=message):
        Pool.open(pool.path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\x00"])
def test_a_damaged_manifest_is_refused(pool: Pool, text: str) -> None:
    (pool.path / "manifest.json").write_text(text)
    with pytest.raises(PoolError, match="cannot be understood"):
        Pool.open(pool.path)
