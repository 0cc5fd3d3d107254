"""A file comes in whole, with what was found out about it."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import said
from foreign import brought
from streams import row_of

from aera import Pool, Question, Record, Response, Task, get_task
from aera.errors import UsageError
from aera.lab import Truths, evaluate, export_pool, import_file
from aera.lab.formats.pools import merge_pools
from aera.policies.rules import Fixed
from aera.pools.pool import Plan, write_pool


def test_every_field_of_a_response_is_kept_and_a_text_may_be_null(tmp_path: Path) -> None:
    full = Response("\\boxed{1} é cut \ud83d", 9, -1.5, "stop", 4, 12.5, None, "m")
    failed = replace(full, text="", error="boom")
    names = ["text", "tokens", "logprob", "finish_reason", "seed", "latency_ms", "error", "model"]
    told = [{name: getattr(each, name) for name in names} for each in (full, failed)]
    row = {**row_of("a", ["1"]), "id": 7, "responses": [*told, {"text": None, "tokens": 3}]}
    [record] = brought(tmp_path, [row]).pool
    assert (record.question.id, record.responses) == ("7", (full, failed, Response("", 3)))


def test_two_imports_give_the_same_bytes_and_truths_are_kept_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row_of("a", ["1", "1", None, "2"], "1"), row_of("b", ["3"] * 4, "4")]
    one = brought(tmp_path, rows, "rows.jsonl.gz").pool.path
    monkeypatch.setattr("time.time", lambda: 1e9)
    other = import_file(tmp_path / "rows.jsonl.gz", tmp_path / "other").pool.path
    names = sorted(path.name for path in one.iterdir())
    assert [(one / n).read_bytes() for n in names] == [(other / n).read_bytes() for n in names]
    [segment] = one.glob("responses-*")
    for data in (gzip.decompress(segment.read_bytes()), (one / "questions.jsonl").read_bytes()):
        assert b'"answer"' not in data
    assert b'"answer"' in (one / "truths.jsonl").read_bytes()


def test_a_file_without_answers_becomes_a_dry_run(tmp_path: Path) -> None:
    rows = [row_of("a", ["1"] * 4, None), {**row_of("b", ["1"] * 4), "answer": None, "truest": 1}]
    done = brought(tmp_path, rows)
    pool, said = done.pool, " ".join(done.lines)
    assert "columns without a use: truest; --map answer=NAME" in said
    frontier = evaluate(pool, [Fixed(4)], truths=Truths.open(pool.path))
    assert Truths.open(pool.path) is None
    assert (frontier["fixed-4"].accuracy, frontier["fixed-4"].agreement) == (None, 100)


def test_truths_that_are_missing_or_cannot_be_read_leave_their_questions_without_one(
    tmp_path: Path,
) -> None:
    truths = ["1", None, "many", ["1", "2"], "so \\boxed{2}", "x #### 3"]
    named = zip("abcdef", truths, strict=True)
    found = brought(tmp_path, [{**row_of(n, ["1"] * 4), "answer": truth} for n, truth in named])
    assert Truths.open(found.pool.path) == Truths({"a": "1", "e": "2", "f": "3"})
    assert found.lines[1] == (
        "without a truth: 3 questions: b (none is given), c ('many' is no numeric answer), "
        'd (\'["1","2"]\' is no numeric answer)'
    )
    row = {"question": "?", "options": ["tea", "milk"], "answer": "milk", "responses": ["B"]}
    (tmp_path / "pool").rename(tmp_path / "first")
    pool = brought(tmp_path, [row], task="choice").pool
    assert Truths.open(pool.path) == Truths({"0": "B"})


def test_what_was_found_out_is_told_in_sentences(tmp_path: Path) -> None:
    rows = [row_of("a", ["1", None], "1"), row_of("b", [None, None], None)]
    rows[0]["responses"][0] = "\\boxed{1}"
    found = brought(tmp_path, rows, task="gsm8k", columns=["answer=answer"])
    assert found.lines == [
        f"{tmp_path / 'pool'}: 2 questions, 4 responses, task gsm8k, checkpoints 2",
        "without a truth: 1 question: b (none is given)",
        "tokens are estimated from the length of the texts: the file does not count them",
        "readable: 25.0 % of 4 responses read, 75.0 % without an answer that could be found",
        "  not read: a: hm",
        "  not read: b: hm",
        "  not read: b: hm",
    ]
    assert "ONLY 25 %" in (found.warning or "")


def test_an_empty_directory_is_filled_and_too_short_questions_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = {"a": 8, "b": 8, "c": 3, "d": 0}
    rows = [row_of(name, ["1"] * count) for name, count in counts.items()]
    (tmp_path / "rows").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "pool").mkdir()
    monkeypatch.chdir(tmp_path)
    assert len(import_file("rows", "pool").pool) == len(Pool.open("pool")) == 2
    assert [*Pool.open("pool").left_out] == ["c", "d"]
    assert [*import_file("rows", "more", responses=3).pool.left_out] == ["d"]
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_an_export_comes_back_as_the_pool_and_by_the_same_bytes(tmp_path: Path) -> None:
    full = Response("\\boxed{B} é", 9, -1.5, "stop", 4, 12.5, None, "m")
    failed, answered = Response("", 3, error="boom"), Response("", 5, answer="A")
    question = Question("a", "which?", ("tea", "milk"), "be brief", "drinks")
    others = (failed, answered, failed)
    records = [Record(question, (full, failed)), Record(Question("b", "ü?"), others)]
    plan = Plan(get_task("gpqa"), sampler={"temperature": 0.6}, seed=3)
    pool = write_pool(tmp_path / "pool", records, plan)
    Truths({"a": "B", "b": "A"}).save(pool.path)
    for name in ("one.parquet", "other.parquet"):
        export_pool(pool, tmp_path / name)
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "other.parquet").read_bytes()
    again = import_file(tmp_path / "one.parquet", tmp_path / "again").pool
    assert [*again] == records
    assert Truths.open(again.path) == Truths.open(pool.path)
    assert (again.schedule, again.manifest.plan) == (pool.schedule, pool.manifest.plan)


# --- merging --------------------------------------------------------------------------------------

NUMERIC = get_task("numeric")


def record(name: str, count: int, *, begin: int = 0, text: str = "", **fields: Any) -> Record:
    """A question whose responses box their numbers, with these as their seeds."""
    responses = [Response(f"\\boxed{{{i}}}", 1, seed=i) for i in range(begin, begin + count)]
    return Record(Question(name, text or f"what is {name}?", **fields), tuple(responses))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pools are told by their names."""
    monkeypatch.chdir(tmp_path)


def pool(
    name: str,
    *records: Record,
    task: Task = NUMERIC,
    truths: dict[str, str] | None = None,
    seed: int | None = None,
    **sampler: Any,
) -> Path:
    write_pool(Path(name), records, Plan(task, sampler=sampler, seed=seed))
    if truths:
        Truths(truths).save(Path(name))
    return Path(name)


def counts(pool: Pool) -> dict[str, int]:
    return {each.question.id: len(each.responses) for each in pool.everything()}


def test_a_question_in_several_pools_has_its_responses_one_pool_after_the_other() -> None:
    one = pool("one", record("a", 4), record("b", 4))
    two = pool("two", record("b", 4, begin=10), record("a", 4, begin=10))
    merged = merge_pools([one, two], Path("out"))
    seeds = [0, 1, 2, 3, 10, 11, 12, 13]
    assert [[r.seed for r in each.responses] for each in merged] == [seeds, seeds]
    assert ([*merged.questions], merged.manifest.each) == (["a", "b"], 8)


def test_short_questions_are_left_out_and_may_count_in_the_end() -> None:
    one = pool("one", record("a", 8), record("b", 8), record("c", 2))
    two = pool("two", record("d", 8), record("c", 3, begin=10))
    merged = merge_pools([one, two], Path("out"))
    assert counts(merged) == {"a": 8, "b": 8, "c": 5, "d": 8}
    assert merged.left_out == {"c": "has 5 responses, fewer than 8"}
    assert len(merge_pools([one, two], Path("five"), responses=5)) == 4
    merged = merge_pools([one, pool("three", record("c", 6, begin=2))], Path("whole"))
    assert (counts(merged), merged.left_out) == ({"a": 8, "b": 8, "c": 8}, {})


def test_truths_and_groups_go_along_also_from_exports() -> None:
    one = pool("one", record("a", 4), truths={"a": "1,000"})
    alone = merge_pools([one], Path("alone"))
    assert [*alone] == [*Pool.open(one)]
    assert Truths.open(alone.path) == Truths({"a": "1,000"})
    again = record("a", 4, begin=4, group="g")
    two = pool("two", again, record("b", 8), truths={"a": "1000", "b": "2"})
    export_pool(Pool.open(two), Path("export"))
    pools = [one, Path("export"), pool("none", record("c", 8))]
    merged = merge_pools(pools, Path("out"))
    assert counts(merged) == {"a": 8, "b": 8, "c": 8}
    assert merged.questions["a"].group == "g"
    assert Truths.open(merged.path) == Truths({"a": "1,000", "b": "2"})


def test_settings_that_differ_are_told_of_each_pool() -> None:
    one = pool("one", record("a", 4), seed=0, model="m", temperature=0.6)
    two = pool("two", record("b", 4), seed=9, model="m", temperature=1.0)
    manifest = merge_pools([one, two], Path("out")).manifest
    assert manifest.seed is None
    assert manifest.sampler == {
        "model": "m",
        "merged_from": [{"pool": "one", "temperature": 0.6}, {"pool": "two", "temperature": 1.0}],
    }


ANOTHER = 'question a in "two" has another text'


@pytest.mark.parametrize(
    ("other", "made", "sentence"),
    [
        (record("b", 4), {"task": get_task("expression")}, '"one" and "two" cannot .* differs'),
        (record("b", 4), {"task": replace(NUMERIC, template="{question}!")}, "prompt differs: "),
        (record("b", 4), {"task": replace(NUMERIC, loose=True)}, "loose differs: False and True"),
        (record("b", 4), {"system": "think"}, "their system differs: nothing and 'think'"),
        (record("a", 4, begin=4, text="else?"), {}, ANOTHER),
        (record("a", 4, begin=4, choices=("x", "y")), {}, ANOTHER),
        (record("a", 4, begin=4, system="s"), {}, ANOTHER),
        (record("a", 4, begin=4), {"truths": {"a": "2"}}, 'truth "2" in "two" and "1" before'),
        (record("a", 4, begin=3), {}, 'a with seed 3 in "two" is in an earlier pool too'),
    ],
)
def test_what_does_not_go_together_is_refused(
    other: Record, made: dict[str, Any], sentence: str
) -> None:
    one, two = pool("one", record("a", 4), truths={"a": "1"}), pool("two", other, **made)
    with pytest.raises(UsageError, match=sentence) as caught:
        merge_pools([one, two], Path("out"))
    assert "\n" not in str(caught.value)
    assert not Path("out").exists()


def test_a_pool_and_its_export_are_one_also_without_seeds() -> None:
    bare = replace(record("a", 4), responses=tuple(Response(f"so {i}") for i in range(4)))
    export_pool(Pool.open(pool("one", bare)), Path("export"))
    with pytest.raises(UsageError, match='to question a in "export" are those of an earlier pool'):
        merge_pools(["one", "export"], Path("out"))
    answered = replace(bare, responses=(Response("", answer="7"),) * 4)
    merged = merge_pools([pool("two", answered), pool("three", answered)], Path("more"))
    assert counts(merged) == {"a": 8}, "answers alone may well be the same"


def test_the_command_says_what_became_of_it() -> None:
    one = pool("one", record("a", 8), record("b", 8), record("c", 1))
    words = ("merge", one, pool("two", record("d", 8)), "--out", "out")
    told = said(*words)
    assert "3 questions, 24 responses, task numeric, checkpoints 4, 8" in told
    assert "left out: 1 question: c (has 1 response, fewer than 8)" in told
    with pytest.raises(UsageError, match="exists already"):
        said(*words)
