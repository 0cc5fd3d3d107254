"""A pool as partitioned Parquet, on disk and on object storage, gives what the pool gives."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from buckets import SECRET, Address, served_bucket
from pyarrow import parquet
from small_study import Bench, Letters
from typer.testing import CliRunner

from aera import ASC, ESC, Fixed, Pool, Question, Record, Response
from aera.cli import app
from aera.errors import AeraError, PoolError, RecordError, UsageError
from aera.files import file_hash
from aera.lab import (
    PaperLearner,
    Truths,
    VoteLearner,
    evaluate,
    export_pool,
    import_file,
    open_truths,
)
from aera.lab.learning.states import recorded_encoder
from aera.pools.parquet import METADATA
from aera.pools.places import Place, locate
from aera.pools.pool import write_pool
from aera.pools.record import hold
from aera.pools.shards import Shards
from aera.workers import SERIAL, Processes, Workers

PLACES = ["path", "file", "s3"]


@pytest.fixture(scope="module")
def bucket() -> Iterator[Address]:
    with served_bucket() as address:
        yield address


@pytest.fixture
def pool(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pool:
    """Thirty questions in three segments."""
    monkeypatch.setattr("aera.pools.record.SEGMENT_RESPONSES", 320)
    (tmp_path / "pool").mkdir()
    records = islice(bench.pool, 30)
    made = write_pool(tmp_path / "pool", records, task=bench.pool.task, sampler={"top_p": 0.9})
    Truths({name: bench.truths[name] for name in made.questions}).save(made.path)
    return made


@pytest.fixture
def truths(pool: Pool) -> Truths:
    found = Truths.open(pool.path)
    assert found is not None
    return found


@pytest.fixture
def address(kind: str, bucket: Address, tmp_path: Path) -> str:
    """Where shards go, in each of the ways to say it."""
    folder = tmp_path / "my shards"
    if kind == "s3":
        return bucket(f"{tmp_path.name}/my%20shards")
    return folder.as_uri() if kind == "file" else str(folder)


@pytest.fixture
def folder(pool: Pool, tmp_path: Path) -> Path:
    """Shards on disk, to be damaged."""
    export_pool(pool, tmp_path / "shards")
    return tmp_path / "shards"


# --- the same as the pool -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PLACES)
def test_shards_say_and_hold_what_the_pool_does(pool: Pool, truths: Truths, address: str) -> None:
    export_pool(pool, address)
    shards = Shards.open(address)
    assert (shards.task, shards.schedule, len(shards)) == (pool.task, pool.schedule, len(pool))
    assert (shards.manifest.responses, shards.path.name) == (960, "my shards")
    assert [len([*part]) for part in shards.parts()] == [10, 10, 10]
    assert [*shards] == [*pool]
    assert open_truths(shards) == open_truths(pool) == truths
    assert shards.questions == pool.questions


@pytest.mark.parametrize("workers", [SERIAL, Processes(2)])
@pytest.mark.parametrize("kind", ["path", "s3"])
def test_results_are_the_same_numbers(
    pool: Pool, truths: Truths, address: str, workers: Workers
) -> None:
    export_pool(pool, address)
    shards = Shards.open(address)
    policies = [Fixed(4), ASC(0.95), ESC(5)]
    ours = evaluate(shards, policies, truths=truths, workers=workers).points
    theirs = evaluate(pool, policies, truths=truths).points
    assert [point.as_json() for point in ours] == [point.as_json() for point in theirs]
    assert list(hold(shards, workers=workers)) == list(hold(pool))
    paper, voting = PaperLearner(Letters()), VoteLearner()
    seen, known = paper.prepare(shards, truths, workers=workers), paper.prepare(pool, truths)
    np.testing.assert_array_equal(seen.states.scalars, known.states.scalars)
    np.testing.assert_array_equal(seen.states.centroids, known.states.centroids)
    read, other = voting.prepare(shards, truths, workers=workers), voting.prepare(pool, truths)
    np.testing.assert_array_equal(read.responses.traits, other.responses.traits)
    np.testing.assert_array_equal(read.responses.grades, other.responses.grades)
    assert read.records == other.records


@pytest.mark.parametrize("kind", ["path", "s3"])
def test_embeddings_are_kept_beside_the_parts(pool: Pool, truths: Truths, address: str) -> None:
    export_pool(pool, address)
    shards = Shards.open(address)
    first = PaperLearner(Letters()).prepare(shards, truths)
    again = Letters()
    second = PaperLearner(again).prepare(Shards.open(address), truths)
    PaperLearner(again).prepare(hold(shards), truths)
    for part in hold(shards).parts():
        recorded_encoder(part, encoder=again, folder=shards.folder)
    assert again.asked == []
    np.testing.assert_array_equal(first.states.centroids, second.states.centroids)
    assert len(names(locate(address))) == 6


def names(place: Path | Place) -> list[str]:
    """The files in a folder."""
    files = place.files() if isinstance(place, Place) else place.iterdir()
    return sorted(file.name for file in files)


def test_shards_that_cannot_be_written_to_are_worked_on_all_the_same(
    pool: Pool, truths: Truths, bucket: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(place: Place, content: bytes) -> None:
        raise OSError("read only")

    export_pool(pool, bucket("locked"))
    monkeypatch.setattr(Place, "write_bytes", refuse)
    table = PaperLearner(Letters()).prepare(Shards.open(bucket("locked")), truths)
    assert len(table) == 30


def test_a_pool_without_truths_has_none_as_shards(pool: Pool, tmp_path: Path) -> None:
    (pool.path / "truths.jsonl").unlink()
    export_pool(pool, tmp_path / "shards")
    assert open_truths(Shards.open(tmp_path / "shards")) is None


# --- in and out -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["shards", "one.parquet"])
def test_importing_from_a_uri_gives_what_the_local_copy_gives(
    name: str, pool: Pool, bucket: Address, tmp_path: Path
) -> None:
    for place in (tmp_path / name, bucket(f"in-out/{name}")):
        export_pool(pool, place)
    local = import_file(tmp_path / name, tmp_path / "local")
    away = import_file(bucket(f"in-out/{name}"), tmp_path / "away")
    files = names(local.path)
    assert files == names(away.path)
    assert [file_hash(local.path / f) for f in files] == [file_hash(away.path / f) for f in files]
    assert [*away] == [*pool]


def test_the_commands_take_uris_and_keep_keys_to_themselves(
    pool: Pool, bucket: Address, tmp_path: Path
) -> None:
    uri, again = bucket("commands"), tmp_path / "again"
    for words in (["export", pool.path, "--out", uri], ["import", uri, "--out", again]):
        done = CliRunner().invoke(app, [str(word) for word in words])
        assert done.exit_code == 0, done.output
        assert SECRET not in done.output
    assert [*Pool.open(again)] == [*pool]


@pytest.mark.parametrize("kind", ["s3"])
def test_a_place_in_use_is_refused_and_left_alone(pool: Pool, address: str) -> None:
    export_pool(pool, address)
    with pytest.raises(UsageError, match=r'^"s3://bucket/.*my shards" exists already'):
        export_pool(pool, address)
    assert [*Shards.open(address)] == [*pool]


@pytest.mark.parametrize("removable", [True, False])
@pytest.mark.parametrize("kind", ["s3"])
def test_an_export_that_is_cut_off_leaves_nothing_or_is_noticed(
    removable: bool, pool: Pool, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed removes nothing."""
    upload, unlink = Place.upload, Place.unlink

    def breaking(place: Place, file: Path) -> None:
        if place.name == "part-00002.parquet":
            raise OSError("broken pipe")
        upload(place, file)

    def remove(place: Place) -> None:
        if not removable:
            raise OSError("gone")
        unlink(place)

    monkeypatch.setattr(Place, "upload", breaking)
    monkeypatch.setattr(Place, "unlink", remove)
    with pytest.raises(UsageError, match="cannot be reached: broken pipe"):
        export_pool(pool, address)
    told = "there are no shards" if removable else "was cut off: 20 of 30 questions are there"
    with pytest.raises(PoolError, match=told):
        Shards.open(address)


# --- what is refused ------------------------------------------------------------------------------


def rewritten(file: Path, table: pa.Table, **part: int) -> None:
    """Put a table in the place of a part, which says other things of itself."""
    metadata = parquet.read_schema(file).metadata
    origin = json.loads(metadata[METADATA])
    origin["part"] |= {"responses": table.num_rows, **part}
    parquet.write_table(table.replace_schema_metadata({METADATA: json.dumps(origin)}), file)


def break_off_the_first(folder: Path) -> None:
    file = folder / "part-00000.parquet"
    file.write_bytes(file.read_bytes()[:-50])


def lose(folder: Path) -> None:
    (folder / "part-00001.parquet").unlink()


def lose_the_last(folder: Path) -> None:
    (folder / "part-00002.parquet").unlink()


def break_off(folder: Path) -> None:
    file = folder / "part-00001.parquet"
    file.write_bytes(file.read_bytes()[:-50])


def repeat(folder: Path) -> None:
    content = (folder / "part-00000.parquet").read_bytes()
    (folder / "part-00001.parquet").write_bytes(content)


def split_a_question(folder: Path) -> None:
    """The second part begins with a question of the first, as if it had been sampled again."""
    first, second = (folder / f"part-0000{number}.parquet" for number in range(2))
    whole = pa.concat_tables([parquet.read_table(first).slice(0, 32), parquet.read_table(second)])
    rewritten(second, whole)


def cut_a_question(folder: Path) -> None:
    """The first part ends inside a question, the second begins with the rest of it."""
    first, second = (folder / f"part-0000{number}.parquet" for number in range(2))
    one, other = parquet.read_table(first), parquet.read_table(second)
    rewritten(first, one.slice(0, 310))
    rewritten(second, pa.concat_tables([one.slice(310), other]))


def swap(folder: Path) -> None:
    first, second = (folder / f"part-0000{number}.parquet" for number in range(2))
    first.rename(folder / "aside")
    second.rename(first)
    (folder / "aside").rename(second)


def lose_a_text(folder: Path) -> None:
    file = folder / "part-00001.parquet"
    table = parquet.read_table(file)
    place = table.schema.get_field_index("text")
    texts = pa.array([None, *table.column("text").to_pylist()[1:]], pa.string())
    rewritten(file, table.set_column(place, "text", texts))


def drop_rows(folder: Path) -> None:
    file = folder / "part-00001.parquet"
    parquet.write_table(parquet.read_table(file).slice(0, 319), file)


def drop_an_index(folder: Path) -> None:
    file = folder / "part-00001.parquet"
    table = parquet.read_table(file)
    rewritten(file, pa.concat_tables([table.slice(0, 3), table.slice(4)]))


def interleave(folder: Path) -> None:
    file = folder / "part-00001.parquet"
    table = parquet.read_table(file)
    rewritten(file, pa.concat_tables([table.slice(5), table.slice(0, 5)]))


def drop_a_question(folder: Path) -> None:
    file = folder / "part-00001.parquet"
    rewritten(file, parquet.read_table(file).slice(32))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lose, "part-00001.parquet of .* is missing"),
        (lose_the_last, "was cut off: 20 of 30 questions are there"),
        (break_off_the_first, "part-00000.parquet of .* cannot be read"),
        (break_off, "part-00001.parquet of .* cannot be read"),
        (repeat, "part-00001.parquet of .* belongs elsewhere"),
        (swap, "part-00000.parquet of .* belongs elsewhere"),
        (lose_a_text, "part-00001.parquet of .* has a row without text"),
        (split_a_question, "the parts of .* split question"),
        (cut_a_question, "has response 22 but not 0|has 22 responses, but the schedule goes to 32"),
        (drop_rows, "part-00001.parquet of .* does not hold the responses it was exported with"),
        (drop_an_index, "in part-00001.parquet of .* has response 4 but not 3"),
        (interleave, "part-00001.parquet of .* splits question|has response 5 but not 0"),
        (drop_a_question, "holds 29 of its 30 questions"),
    ],
)
def test_shards_that_are_not_whole_are_refused(
    damage: Callable[[Path], None], told: str, folder: Path, truths: Truths
) -> None:
    damage(folder)
    works: list[Callable[[Shards], object]] = [
        list,
        hold,
        lambda shards: evaluate(shards, ()),
        lambda shards: PaperLearner(Letters()).prepare(shards, truths),
        lambda shards: VoteLearner().prepare(shards, truths),
    ]
    for work in works:
        with pytest.raises(PoolError, match=told):
            work(Shards.open(folder))


def forget(file: Path, *fields: str) -> None:
    """A part as another program or an older version writes it."""
    table = parquet.read_table(file)
    origin = json.loads(table.schema.metadata[METADATA])
    kept = {name: value for name, value in origin.items() if name not in fields}
    metadata = {METADATA: json.dumps(kept)} if fields else None
    parquet.write_table(table.replace_schema_metadata(metadata), file)


def test_a_foreign_table_is_to_be_imported(folder: Path) -> None:
    forget(folder / "part-00000.parquet")
    with pytest.raises(UsageError, match=r"is not as aera export writes it; .* with aera import"):
        Shards.open(folder)


def test_parts_of_two_pools_are_refused(folder: Path, bench: Bench, tmp_path: Path) -> None:
    export_pool(bench.pool, tmp_path / "other")
    (tmp_path / "other" / "part-00002.parquet").replace(folder / "part-00002.parquet")
    with pytest.raises(PoolError, match="are of different pools"):
        Shards.open(folder)


def test_a_part_of_another_pool_in_the_middle_is_refused(
    folder: Path, pool: Pool, tmp_path: Path
) -> None:
    (tmp_path / "twin").mkdir()
    records = [
        replace(record, responses=tuple(replace(r, text=r.text + "!") for r in record.responses))
        for record in pool
    ]
    twin = write_pool(tmp_path / "twin", records, task=pool.task, sampler=pool.manifest.sampler)
    Truths.open(pool.path).save(twin.path)  # type: ignore[union-attr]
    export_pool(twin, tmp_path / "other")
    (tmp_path / "other" / "part-00001.parquet").replace(folder / "part-00001.parquet")
    with pytest.raises(PoolError, match=r"part-00001.parquet of .* belongs elsewhere"):
        list(Shards.open(folder))


def test_a_command_that_wants_a_pool_says_how_to_make_one(folder: Path) -> None:
    with pytest.raises(PoolError, match="holds Parquet; make a pool of it with aera import"):
        Pool.open(folder)


def test_an_export_that_misses_parts_is_not_imported(folder: Path, tmp_path: Path) -> None:
    lose_the_last(folder)
    with pytest.raises(RecordError, match="holds 20 of the 30 questions"):
        import_file(folder, tmp_path / "again")
    assert not (tmp_path / "again").exists()
    assert len(import_file(folder / "part-00000.parquet", tmp_path / "one")) == 10


def test_half_a_surrogate_pair_goes_out_as_a_mark(tmp_path: Path, bench: Bench) -> None:
    record = next(iter(bench.pool))
    odd = replace(record, question=replace(record.question, id="q\ud800"))
    (tmp_path / "odd").mkdir()
    made = write_pool(tmp_path / "odd", [odd], task=bench.pool.task, sampler={})
    Truths({"q\ud800": "7\udc00"}).save(made.path)
    export_pool(made, tmp_path / "out")
    [again] = Shards.open(tmp_path / "out")
    assert again.question.id == "q\ufffd"


def test_an_address_shows_no_key_however_it_is_printed() -> None:
    place = Place("s3://key:hush@bucket/x", "bucket/x")
    assert "hush" not in f"{place} {place!r}"


def test_a_part_with_other_columns_is_to_be_imported(folder: Path) -> None:
    file = folder / "part-00001.parquet"
    rewritten(file, parquet.read_table(file).drop_columns(["model"]))
    with pytest.raises(UsageError, match=r"part-00001.parquet\" is not as aera export writes it"):
        [*Shards.open(folder)]


def test_an_older_export_can_be_imported_but_has_to_be_exported_again(
    folder: Path, pool: Pool, tmp_path: Path
) -> None:
    for file in folder.iterdir():
        forget(file, "schedule", "questions", "responses", "part")
    with pytest.raises(UsageError, match="by an older version; export the pool again"):
        Shards.open(folder)
    again = import_file(folder, tmp_path / "again")
    assert [*again] == [*pool]
    assert again.manifest.sampler == {"top_p": 0.9}


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("nowhere", "there are no shards at"),
        ("what://is/this", r'^pyarrow cannot open this address of "what://"'),
    ],
)
def test_an_address_without_shards_is_refused_in_one_sentence(address: str, told: str) -> None:
    with pytest.raises(AeraError, match=told):
        Shards.open(address)


def test_one_file_is_no_shards(pool: Pool, tmp_path: Path) -> None:
    export_pool(pool, tmp_path / "pool.parquet")
    with pytest.raises(UsageError, match="is one file; shards are a folder"):
        Shards.open(tmp_path / "pool.parquet")


def test_only_parquet_is_read_from_a_uri(bucket: Address, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="only Parquet is read from a URI, but --format is jsonl"):
        import_file(bucket("x"), tmp_path / "pool", format_name="jsonl")
    with pytest.raises(UsageError, match=r'"s3://bucket/x" holds no Parquet'):
        import_file(bucket("x"), tmp_path / "pool")


# --- what a pool of format 2 has more -------------------------------------------------------------


def test_answers_without_text_systems_and_groups_go_along(tmp_path: Path, bench: Bench) -> None:
    asked = Question("a", "?", system="be brief", group="g")
    records = [
        Record(asked, (Response("", 1, answer="7"), Response("\\boxed{8}", 2))),
        Record(Question("b", "?"), (Response("", 1, answer="9"), Response("", 1, error="no"))),
    ]
    (tmp_path / "pool").mkdir()
    made = write_pool(tmp_path / "pool", records, task=bench.pool.task, sampler={})
    Truths({"a": "3"}).save(made.path)
    export_pool(made, tmp_path / "shards")
    shards = Shards.open(tmp_path / "shards")
    assert [*shards] == records
    assert [*shards.questions.values()] == [record.question for record in records]
    assert open_truths(shards) == Truths({"a": "3"})
    assert list(import_file(tmp_path / "shards", tmp_path / "again")) == records


def test_an_export_without_the_newer_columns_opens(folder: Path, pool: Pool) -> None:
    for file in folder.iterdir():
        table = parquet.read_table(file)
        metadata = table.schema.metadata
        origin = json.loads(metadata[METADATA])
        for name in ("each", "written_by", "format"):
            del origin[name]
        older = table.drop_columns(["system", "group", "response_answer", "prompt_tokens", "trace"])
        parquet.write_table(older.replace_schema_metadata({METADATA: json.dumps(origin)}), file)
    shards = Shards.open(folder)
    assert [*shards] == [*pool]
    assert shards.questions == pool.questions


def test_a_newer_export_is_refused_with_what_to_do(folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        table = parquet.read_table(file)
        origin = {**json.loads(table.schema.metadata[METADATA]), "format": 5, "colour": "red"}
        parquet.write_table(table.replace_schema_metadata({METADATA: json.dumps(origin)}), file)
    with pytest.raises(UsageError, match=r"format 5, .* update aera"):
        Shards.open(folder)
    with pytest.raises(UsageError, match=r"format 5, .* update aera"):
        import_file(folder, tmp_path / "again")


def test_what_is_left_out_is_not_exported(pool: Pool, tmp_path: Path) -> None:
    records = [*pool]
    short = replace(records[0], responses=records[0].responses[:4])
    (tmp_path / "uneven").mkdir()
    made = write_pool(
        tmp_path / "uneven", [short, *records[1:]], task=pool.task, sampler={}, responses=32
    )
    export_pool(made, tmp_path / "shards")
    shards = Shards.open(tmp_path / "shards")
    assert [*shards] == records[1:] == [*made]
    assert (len(shards), shards.manifest.each) == (29, 32)
