"""A pool as Parquet, at whatever address, gives what the pool gives, or is refused."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lab_fixtures import Bench, Letters
from pyarrow import parquet

from aera import Pool, Question, Record, Response, evaluate, open_pool
from aera.errors import AeraError, PoolError, UsageError
from aera.lab import PaperLearner, Truths, VoteLearner, export_pool, import_file, open_truths
from aera.pools.parquet import METADATA, ParquetPool, show_address
from aera.pools.pool import Plan, hold, read_votes, write_pool
from aera.trace import UNKNOWN
from aera.workers import Processes


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aera.pools.pool.SEGMENT_RESPONSES", 320)


@pytest.fixture
def folder(parted: Pool, tmp_path: Path) -> Path:
    """A folder of three files, to be damaged."""
    export_pool(parted, tmp_path / "export")
    return tmp_path / "export"


# --- the same as the pool -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["path", "file", "memory"])
@pytest.mark.parametrize("name", ["my export", "one.parquet"])
def test_it_says_and_holds_the_same(parted: Pool, kind: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    known = {"path": str(path), "file": path.as_uri(), "memory": f"memory:/{path}"}
    address = known[kind]
    export_pool(parted, address)
    found = open_pool(address)
    assert isinstance(found, ParquetPool)
    assert (found.task, found.schedule, len(found)) == (parted.task, parted.schedule, len(parted))
    assert (found.manifest.responses, found.name) == (960, name)
    assert found.folder == (path if kind != "memory" and path.is_dir() else None)
    assert [len([*part]) for part in found.parts()] == [10, 10, 10]
    assert [*found] == [*parted]
    assert found.questions == parted.questions
    assert open_truths(found) == open_truths(parted)
    again = import_file(address, tmp_path / "again").pool
    assert ([*again], again.manifest.plan) == ([*parted], parted.manifest.plan)
    with pytest.raises(UsageError, match="exists already"):
        export_pool(parted, address)


def test_a_relative_address_is_meant_from_where_one_is(
    parted: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = write_pool(tmp_path / "few", [*parted][:3], Plan(parted.task))
    for name, pool in (("one", parted), ("other", few)):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        export_pool(pool, "export")
        assert [*open_pool("export")] == [*pool]


def test_its_parts_travel_to_other_processes(parted: Pool, folder: Path) -> None:
    parts = Processes(2).map(partial(read_votes, task=parted.task), open_pool(folder).parts())
    assert [record for part in parts for record in part] == list(hold(parted))


def test_bare_answers_systems_groups_and_some_truths_go_along(tmp_path: Path, bench: Bench) -> None:
    asked = Question("a", "?", system="be brief", group="g")
    odd = Question("q\ud800", "cut \ud83d")
    said = (Response("", 1, answer="9"), Response("", 1, error="no", prompt_tokens=4))
    seeded = Response("\\boxed{8}", 2, seed=2**64 - 1, trace=(-1.5, *UNKNOWN[1:]))
    records = [Record(asked, (said[0], seeded)), Record(odd, said)]
    made = write_pool(tmp_path / "pool", records, Plan(bench.pool.task))
    export_pool(made, tmp_path / "bare")
    Truths({"a": "3"}).save(made.path)
    export_pool(made, tmp_path / "export")
    records[0] = replace(records[0], responses=(said[0], replace(seeded, seed=None)))
    records[1] = replace(records[1], question=Question("q\ufffd", "cut \ufffd"))
    found = open_pool(tmp_path / "export")
    assert [*found] == records
    assert [*found.questions.values()] == [record.question for record in records]
    assert open_truths(found) == Truths({"a": "3"})
    assert open_truths(open_pool(tmp_path / "bare")) is None


def test_what_is_left_out_is_not_exported(parted: Pool, tmp_path: Path) -> None:
    short, *records = parted
    short = replace(short, responses=short.responses[:4])
    made = write_pool(tmp_path / "uneven", [short, *records], Plan(parted.task, 32))
    export_pool(made, tmp_path / "export")
    found = open_pool(tmp_path / "export")
    assert [*found] == records == [*made]
    assert (len(found), found.manifest.each) == (29, 32)


# --- what older versions wrote --------------------------------------------------------------------


Change = Callable[[pa.Table], pa.Table]


def rewrite(file: Path, *less: str, change: Change = lambda table: table, **more: Any) -> None:
    """Put another table in the place of a file, which says more or less of itself."""
    table = parquet.read_table(file)
    origin = {**json.loads(table.schema.metadata[METADATA]), **more}
    told = {METADATA: json.dumps({k: v for k, v in origin.items() if k not in less})}
    parquet.write_table(change(table).replace_schema_metadata(told), file)


def test_a_folder_that_an_older_version_exported_opens(folder: Path, parted: Pool) -> None:
    newer = ["system", "group", "response_answer", "prompt_tokens", "trace"]
    for number, file in enumerate(sorted(folder.iterdir())):
        part = {"number": number, "ends": 10 * number + 10, "responses": 320}
        less = ("each", "written_by", "format")
        rewrite(file, *less, change=lambda table: table.drop_columns(newer), part=part)
    assert [*open_pool(folder)] == [*parted]
    assert open_pool(folder).questions == parted.questions


def test_an_export_that_says_too_little_or_too_much_of_itself_is_refused(
    folder: Path, parted: Pool, tmp_path: Path
) -> None:
    for file in folder.iterdir():
        rewrite(file, "schedule", "questions", "responses")
    with pytest.raises(UsageError, match="make a pool of it with aera import"):
        open_pool(folder)
    assert [*import_file(folder, tmp_path / "again").pool] == [*parted]
    for file in folder.iterdir():
        rewrite(file, format=5, colour="red")
    for work in (open_pool, lambda path: import_file(path, tmp_path / "more").pool):
        with pytest.raises(UsageError, match=r"format 5, .* update aera"):
            work(folder)


# --- what is refused ------------------------------------------------------------------------------


def second(change: Change) -> Callable[[Path], None]:
    return lambda folder: rewrite(folder / "part-00001.parquet", change=change)


def lose(folder: Path) -> None:
    (folder / "part-00002.parquet").unlink()


def break_off(folder: Path) -> None:
    file = folder / "part-00001.parquet"
    file.write_bytes(file.read_bytes()[:-50])


def repeat(folder: Path) -> None:
    content = (folder / "part-00000.parquet").read_bytes()
    (folder / "part-00001.parquet").write_bytes(content)


def say_another_pool(folder: Path) -> None:
    rewrite(folder / "part-00001.parquet", pool="another")


def without_a_text(table: pa.Table) -> pa.Table:
    texts = pa.array([None, *table.column("text").to_pylist()[1:]], pa.string())
    return table.set_column(table.schema.get_field_index("text"), "text", texts)


def cut_a_question(folder: Path) -> None:
    """The first file ends inside a question, the second begins with the rest of it."""
    first, next_one = (folder / f"part-0000{number}.parquet" for number in range(2))
    one = parquet.read_table(first)
    rewrite(first, change=lambda table: table.slice(0, 310))
    rewrite(next_one, change=lambda table: pa.concat_tables([one.slice(310), table]))


def again(*stretches: tuple[int, int]) -> Change:
    """A table put together from stretches of it."""
    return lambda table: pa.concat_tables([table.slice(a, b - a) for a, b in stretches])


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lose, "holds 640 of the 960 responses it was exported with; export the pool again"),
        (second(again((1, 320))), "holds 959 of the 960 responses"),
        (break_off, "part-00001.parquet"),
        (say_another_pool, "are of different pools"),
        (repeat, "the parts of .* split question"),
        (second(without_a_text), r"part-00001.parquet\" has a row without text"),
        (second(lambda table: table.drop_columns(["text"])), "has a row without text"),
        (cut_a_question, "has response 22 but not 0|has 22 responses, but the schedule goes to 32"),
        (second(again((5, 320), (0, 5))), "has response 5 but not 0"),
        (second(again((32, 320), (32, 64))), "has response 0 twice|split question"),
    ],
)
def test_what_is_not_whole_is_refused(
    damage: Callable[[Path], None], told: str, folder: Path, bench: Bench
) -> None:
    damage(folder)
    works: list[Callable[[Any], object]] = [list, hold, lambda found: evaluate(found, ())]
    learners = (PaperLearner(Letters()), VoteLearner())
    works += [lambda found, each=each: each.prepare(found, bench.truths) for each in learners]
    for work in works:
        with pytest.raises(PoolError, match=told):
            work(open_pool(folder))


def test_half_an_upload_is_noticed_by_who_reads_it(
    parted: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, address = parquet.ParquetWriter, f"memory:/{tmp_path}/export"

    def breaking(file: str, *known: Any, **more: Any) -> Any:
        if file.endswith("part-00002.parquet"):
            raise OSError("broken pipe")
        return make(file, *known, **more)

    monkeypatch.setattr(parquet, "ParquetWriter", breaking)
    with pytest.raises(UsageError, match="cannot be reached or read: broken pipe"):
        export_pool(parted, address)
    with pytest.raises(PoolError, match="holds 640 of the 960 responses"):
        open_pool(address)


def test_an_export_that_misses_files_is_not_imported(folder: Path, tmp_path: Path) -> None:
    lose(folder)
    with pytest.raises(PoolError, match="holds 20 of the 30 questions"):
        import_file(folder, tmp_path / "again")
    assert not (tmp_path / "again").exists()
    assert len(import_file(folder / "part-00000.parquet", tmp_path / "one").pool) == 10
    with pytest.raises(PoolError, match="holds Parquet; make a pool of it with aera import"):
        Pool.open(folder)


def test_only_parquet_is_read_from_a_uri(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="only Parquet is read from a URI, but --format is jsonl"):
        import_file("memory://none", tmp_path / "pool", format_name="jsonl")
    with pytest.raises(UsageError, match=r'"memory://none" holds no Parquet'):
        import_file("memory://none", tmp_path / "pool")


# --- addresses ------------------------------------------------------------------------------------


def test_an_address_is_shown_without_its_key() -> None:
    address = "s3://key:hush@bucket/a%20b/?endpoint_override=localhost:9&scheme=http"
    assert show_address(address) == "s3://bucket/a b"
    with pytest.raises(UsageError, match=r'^"s3://bucket/a b" cannot be reached') as caught:
        open_pool(address)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("address", ["what://hush@is/this", "s3://hush@bucket/%zz"])
def test_an_address_that_nobody_knows_is_refused_without_repeating_it(address: str) -> None:
    with pytest.raises(AeraError, match=r"this address of .* cannot be opened") as caught:
        open_pool(address)
    assert "hush" not in str(caught.value)
