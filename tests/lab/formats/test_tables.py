from pathlib import Path
from typing import Any

import pytest
from foreign import DATA, FORMATS, imported

from aera import Pool, Question, Record, Response, get_task
from aera.errors import UsageError
from aera.lab import Truths, import_file
from aera.lab.formats.pools import export_pool
from aera.pools.pool import write_pool


def content(pool: Pool) -> Any:
    """Everything a pool says."""
    manifest = pool.manifest
    told = (pool.task, pool.schedule, manifest.sampler, manifest.seed)
    return list(pool), Truths.open(pool.path), told


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    """A pool with a field of every kind, sampled with settings."""
    full = Response("\\boxed{B} é", 9, -1.5, "stop", 4, 12.5, None, "m")
    failed, answered = Response("", 3, error="boom"), Response("", 5, answer="A")
    question = Question("a", "which?", ("tea", "milk"), "be brief", "drinks")
    others = (failed, answered, failed)
    records = [Record(question, (full, failed)), Record(Question("b", "ü?"), others)]
    settings, task = {"temperature": 0.6}, get_task("gpqa")
    return write_pool(tmp_path / "sampled", records, task=task, sampler=settings, seed=3)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_comes_back_from_parquet_as_it_was(tmp_path: Path, name: str) -> None:
    before = imported(DATA / name, tmp_path / "pool")
    for place in ("out.parquet", "out"):
        export_pool(before, tmp_path / place)
        again = import_file(tmp_path / place, tmp_path / f"again-{place}").pool
        assert content(again) == content(before)


def test_a_pool_comes_back_with_task_settings_and_seed_and_by_the_same_bytes(
    tmp_path: Path, pool: Pool
) -> None:
    Truths({"a": "B", "b": "A"}).save(pool.path)
    out, other = tmp_path / "out.parquet", tmp_path / "other.parquet"
    export_pool(pool, out)
    assert content(import_file(out, tmp_path / "again").pool) == content(pool)
    export_pool(pool, other)
    assert out.read_bytes() == other.read_bytes()


def test_a_place_in_use_is_refused_and_left_alone(tmp_path: Path, pool: Pool) -> None:
    (tmp_path / "out.parquet").write_text("mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    for name in ("out.parquet", "out"):
        with pytest.raises(UsageError, match="exists already"):
            export_pool(pool, tmp_path / name)
    assert {path.name for path in tmp_path.iterdir()} == {"sampled", "out.parquet", "out"}
