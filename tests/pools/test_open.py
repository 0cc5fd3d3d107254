"""An address is opened as whatever is stored there."""

from collections.abc import Callable
from pathlib import Path

import pytest
from small_study import Bench

from aera import Pool, Record, get_task
from aera.errors import PoolError, UsageError
from aera.lab import export_pool
from aera.pools.parquet import open_pool
from aera.pools.pool import write_pool


def test_a_directory_with_a_manifest_is_a_pool(bench: Bench) -> None:
    path = bench.pool.path
    for address in (path, str(path), path.as_uri()):
        opened = open_pool(address)
        assert isinstance(opened, Pool)
        assert (opened.path, opened.manifest) == (path, bench.pool.manifest)


def test_a_pool_beside_whose_files_lie_tables_is_a_pool(pool_copy: Path) -> None:
    export_pool(Pool.open(pool_copy), pool_copy / "one.parquet")
    assert isinstance(open_pool(pool_copy), Pool)


def test_equivalence_is_a_matter_of_the_task_alone(
    record_of: Callable[[str, str], Record], tmp_path: Path
) -> None:
    (tmp_path / "pool").mkdir()
    records = [record_of("a", "xxyy"), record_of("b", "zzzz")]
    pool = write_pool(tmp_path / "pool", records, task=get_task("expression"), sampler={})
    export_pool(pool, tmp_path / "export")
    for address in (tmp_path / "pool", tmp_path / "export"):
        plain, merging = open_pool(address), open_pool(address, equivalence=True)
        assert (plain.task.equivalence, merging.task.equivalence) == (False, True)
        assert (merging.schedule, [*merging]) == (plain.schedule, records)


def test_what_is_neither_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("{}\n")
    (tmp_path / "empty").mkdir()
    for name in ("nowhere", "empty", "rows.jsonl"):
        with pytest.raises(PoolError, match="there is no pool at"):
            open_pool(tmp_path / name)


def test_a_pool_that_several_workers_began_says_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "parts" / "00000").mkdir(parents=True)
    with pytest.raises(PoolError, match=r"begun with several workers; .*/parts/\* --out POOL"):
        open_pool(tmp_path)


def test_tables_of_others_are_to_be_imported(tmp_path: Path) -> None:
    data = Path(__file__).parents[1] / "data" / "wide.parquet"
    (tmp_path / "wide.parquet").write_bytes(data.read_bytes())
    with pytest.raises(UsageError, match="make a pool of it with aera import"):
        open_pool(tmp_path)
