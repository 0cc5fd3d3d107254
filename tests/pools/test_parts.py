import gzip
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from aera import Pool, Record, Task
from aera.pools.pool import HeldRecords, Segment, batches, hold, read_votes, write_pool

Maker = Callable[[str, Sequence[str | None]], Record]


@pytest.fixture
def records(record_of: Maker) -> list[Record]:
    return [record_of(f"q{i}", "12345678") for i in range(5)]


@pytest.fixture
def pool(
    records: list[Record], numeric: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Pool:
    monkeypatch.setattr("aera.pools.pool.SEGMENT_RESPONSES", 16)
    return write_pool(tmp_path, records, task=numeric, sampler={})


def test_the_parts_of_a_pool_are_its_segments(pool: Pool) -> None:
    parts = pool.parts()
    assert all(isinstance(part, Segment) for part in parts)
    assert [[record.question.id for record in part] for part in parts] == [
        ["q0", "q1"],
        ["q2", "q3"],
        ["q4"],
    ]


def test_whoever_works_on_a_segment_may_be_somewhere_else(
    pool: Pool, records: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(pool.path.parent)
    parts = Pool.open(pool.path.name).parts()
    monkeypatch.chdir("/")
    assert [*parts[0]] == records[:2]


def test_records_in_memory_are_cut_as_their_pool_is(pool: Pool, records: list[Record]) -> None:
    assert [list(part) for part in pool.parts()] == [*batches(records)]
    held = HeldRecords(read_votes(records, pool.task), pool.task, pool.schedule)
    assert [read_votes(part, pool.task) for part in pool.parts()] == held.parts()


def test_a_pool_with_mixed_segments_is_cut_once_it_is_read(
    pool: Pool, records: list[Record], tmp_path: Path
) -> None:
    packed = tmp_path / "responses-00000.jsonl.gz"
    (tmp_path / "responses-00000.jsonl").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    assert Pool.open(tmp_path).parts() == [records[:2], records[2:4], records[4:]]


def test_a_segment_travels_without_what_has_been_read(pool: Pool, records: list[Record]) -> None:
    part = pool.parts()[0]
    before = len(pickle.dumps(part))
    assert list(part) == records[:2]
    assert len(pickle.dumps(part)) == before
    assert list(pickle.loads(pickle.dumps(part))) == records[:2]


def test_a_pool_held_in_memory_says_of_itself_what_the_pool_says(
    pool: Pool, records: list[Record]
) -> None:
    held = hold(pool)
    assert (held.name, held.folder) == (pool.name, pool.folder)
    assert (held.task, held.schedule, len(held)) == (pool.task, pool.schedule, len(pool))
    assert held.questions == pool.questions
    assert list(held) == read_votes(records, pool.task)
