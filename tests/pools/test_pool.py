import gzip
import json
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aera import Pool, Question, Record, Response, Schedule, Task
from aera.errors import PoolError, UsageError
from aera.pools.pool import PoolWriter, response_line, write_pool

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
    answer=st.none() | st.text(),
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


def test_a_writer_seals_what_it_is_given_and_the_manifest_comes_last(
    tmp_path: Path, numeric: Task, record_of: RecordOf
) -> None:
    first, second = [record_of("a", "12"), record_of("b", "1.")], [record_of("c", "22")]
    writer = PoolWriter(tmp_path, task=numeric, sampler={"top_p": 1}, seed=3)
    writer.add(first)
    writer.add(second)
    assert sorted(path.name for path in tmp_path.iterdir()) == [SEALED, f"{OPEN}.gz"]
    pool = writer.finish()
    assert list(Pool.open(tmp_path)) == [*first, *second]
    assert [list(part) for part in pool.parts()] == [first, second]
    assert (pool.manifest.sampler, pool.manifest.seed) == ({"top_p": 1}, 3)
    assert set(pool.manifest.hashes) == {"questions.jsonl", SEALED, f"{OPEN}.gz"}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.lists(responses, min_size=1, max_size=3), min_size=1, max_size=4))
def test_what_is_written_is_read_back(
    tmp_path: Path, numeric: Task, columns: list[list[Response]]
) -> None:
    records = [
        Record(
            Question(f"q{i}", "é\n?", ("x", "y")[: i % 3], ("", None)[i % 2], (None, "g")[i % 2]),
            tuple(column),
        )
        for i, column in enumerate(columns)
    ]
    written = write_pool(tmp_path, records, task=numeric, sampler={}, responses=1)
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


@pytest.mark.parametrize(
    ("counts", "each"),
    [
        ([300, 1], 300),
        ([300, 200], 200),
        ([128] * 149 + [10], 128),
        ([4, 2], 2),  # as many responses either way, and more questions
        ([5, 5, 5, 3], 5),
        ([5, 5, 3, 3, 3], 3),
        ([3, 0], 3),
    ],
)
def test_the_pool_is_as_long_as_keeps_most_responses(
    tmp_path: Path, numeric: Task, record_of: RecordOf, counts: list[int], each: int
) -> None:
    records = [record_of(f"q{i}", "1" * count) for i, count in enumerate(counts)]
    write_pool(tmp_path, records, task=numeric, sampler={})
    pool = Pool.open(tmp_path)
    assert (pool.manifest.each, pool.schedule) == (each, Schedule.doubling(each))
    assert list(pool) == [record for record in records if len(record.responses) >= each]


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


# --- questions left out ---------------------------------------------------------------------------


@pytest.fixture
def uneven(tmp_path: Path, numeric: Task, record_of: RecordOf) -> Pool:
    """Three questions with eight responses, one with two, one with none and one with ten."""
    counts = {"a": 8, "short": 2, "b": 8, "empty": 0, "long": 10, "c": 8}
    records = [record_of(name, "1" * count) for name, count in counts.items()]
    (tmp_path / "uneven").mkdir()
    return write_pool(tmp_path / "uneven", records, task=numeric, sampler={})


@pytest.mark.parametrize("sealed", [True, False])
def test_a_question_with_too_few_responses_is_there_and_passed_over(
    uneven: Pool, sealed: bool
) -> None:
    if not sealed:
        (uneven.path / OPEN).touch()
    pool = Pool.open(uneven.path)
    why = {
        "short": "has 2 responses, fewer than 8",
        "empty": "has 0 responses, fewer than 8",
    }
    assert pool.left_out == why
    assert json.loads((pool.path / "manifest.json").read_text())["left_out"] == why
    counting = ["a", "b", "long", "c"]
    assert [record.question.id for record in pool] == counting
    assert [record.question.id for part in pool.parts() for record in part] == counting
    assert (list(pool.questions), len(pool), pool.manifest.responses) == (counting, 4, 34)
    pool.check_whole(counting)
    everything = [(record.question.id, len(record.responses)) for record in pool.everything()]
    assert everything == [("a", 8), ("short", 2), ("b", 8), ("long", 10), ("c", 8)]


def test_a_pool_can_be_opened_for_another_number_of_responses(uneven: Pool) -> None:
    two = Pool.open(uneven.path).with_responses(2)
    assert (len(two), two.manifest.responses, two.schedule) == (5, 36, Schedule((2,)))
    assert two.left_out == {"empty": "has 0 responses, fewer than 2"}
    ten = two.with_responses(10)
    assert ([record.question.id for record in ten], len(ten.left_out)) == (["long"], 5)
    assert ten.left_out["a"] == "has 8 responses, fewer than 10"
    assert ten.with_responses(8).manifest == uneven.manifest
    with pytest.raises(PoolError, match="no question has 11 responses, the most are 10"):
        two.with_responses(11)
    with pytest.raises(UsageError, match="from 1 up"):
        two.with_responses(0)


def test_the_number_of_responses_can_be_given(tmp_path: Path, uneven: Pool) -> None:
    records = [*uneven.everything()]
    (tmp_path / "ten").mkdir()
    ten = write_pool(tmp_path / "ten", records, task=uneven.task, sampler={}, responses=10)
    assert [record.question.id for record in Pool.open(ten.path)] == ["long"]
    with pytest.raises(PoolError, match="no question has 11 responses"):
        write_pool(tmp_path / "ten", records, task=uneven.task, sampler={}, responses=11)


def test_responses_to_nothing_are_refused(
    tmp_path: Path, numeric: Task, record_of: RecordOf
) -> None:
    with pytest.raises(PoolError, match="at least one response"):
        write_pool(tmp_path, [record_of("a", "")], task=numeric, sampler={})


# --- older formats --------------------------------------------------------------------------------


def as_format_1(pool: Pool) -> Pool:
    """The pool as version 0.1 wrote it."""
    file = pool.path / "manifest.json"
    newer = ("responses_each", "other_counts", "left_out", "written_by")
    fields = {k: v for k, v in json.loads(file.read_text()).items() if k not in newer}
    file.write_text(json.dumps({**fields, "format": 1}))
    return Pool.open(pool.path)


def test_a_pool_of_format_1_opens(pool: Pool) -> None:
    old = as_format_1(pool)
    assert list(old) == list(pool)
    assert (len(old), old.left_out, old.schedule) == (3, {}, pool.schedule)
    assert old.manifest.written_by is None
    assert [len(record.responses) for record in old.with_responses(4)] == [4, 4, 4]
    with pytest.raises(PoolError, match="the most are 4"):
        old.with_responses(5)


def test_the_manifest_says_who_wrote_it(pool: Pool) -> None:
    fields = json.loads((pool.path / "manifest.json").read_text())
    assert (fields["format"], fields["written_by"]) == (4, metadata.version("aera"))


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
        ({"format": 5, "written_by": "9.1"}, "format 5, which aera 9.1 wrote.*; update aera"),
        ({"format": 5, "written_by": None}, "format 5, which a newer aera wrote"),
        ({"format": "new"}, "the field \"format\" is 'new'"),
        ({"format": 0}, 'the field "format" is 0'),
        ({"other_counts": {"a": "x"}}, "cannot be understood"),
        ({"other_counts": []}, "cannot be understood"),
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
