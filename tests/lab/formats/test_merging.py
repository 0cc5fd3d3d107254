"""Pools become one: questions together, responses one pool after the other."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import said

from aera import Pool, Question, Record, Response, Task, get_task
from aera.errors import UsageError
from aera.lab import Truths, export_pool
from aera.lab.formats.pools import merge_pools
from aera.pools.pool import Plan, write_pool

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
