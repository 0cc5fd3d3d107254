"""Pools become one: questions together, responses one pool after the other."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aera import Pool, Question, Record, Response, Task, get_task
from aera.cli import app
from aera.errors import UsageError
from aera.lab import Truths, export_pool
from aera.lab.formats.merging import merge_pools
from aera.pools.pool import write_pool

NUMERIC = get_task("numeric")
Maker = Callable[..., Path]


def record(name: str, count: int, *, begin: int = 0, text: str = "", **fields: Any) -> Record:
    """A question whose responses box their numbers, with these as their seeds."""
    responses = [Response(f"\\boxed{{{i}}}", 1, seed=i) for i in range(begin, begin + count)]
    return Record(Question(name, text or f"what is {name}?", **fields), tuple(responses))


@pytest.fixture
def pool(tmp_path: Path) -> Maker:
    def make(
        name: str,
        *records: Record,
        task: Task = NUMERIC,
        truths: dict[str, str] | None = None,
        seed: int | None = None,
        **sampler: Any,
    ) -> Path:
        (tmp_path / name).mkdir()
        write_pool(tmp_path / name, records, task=task, sampler=sampler, seed=seed)
        if truths:
            Truths(truths).save(tmp_path / name)
        return tmp_path / name

    return make


def counts(pool: Pool) -> dict[str, int]:
    return {each.question.id: len(each.responses) for each in pool.everything()}


def test_a_question_in_several_pools_has_its_responses_one_pool_after_the_other(
    pool: Maker, tmp_path: Path
) -> None:
    one = pool("one", record("a", 4), record("b", 4))
    two = pool("two", record("b", 4, begin=10), record("a", 4, begin=10))
    merged = merge_pools([one, two], tmp_path / "out")
    a, b = merged
    assert (
        [r.seed for r in a.responses]
        == [r.seed for r in b.responses]
        == [0, 1, 2, 3, 10, 11, 12, 13]
    )
    assert (a.question.id, len(merged), merged.manifest.each) == ("a", 2, 8)


def test_questions_come_together_and_short_ones_are_left_out(pool: Maker, tmp_path: Path) -> None:
    one = pool("one", record("a", 8), record("b", 8), record("c", 2))
    two = pool("two", record("d", 8), record("c", 3, begin=10))
    merged = merge_pools([one, two], tmp_path / "out")
    assert counts(merged) == {"a": 8, "b": 8, "c": 5, "d": 8}
    assert merged.left_out == {"c": "has 5 responses, fewer than 8"}
    assert len(merge_pools([one, two], tmp_path / "five", responses=5)) == 4


def test_a_question_that_was_left_out_may_count_in_the_end(pool: Maker, tmp_path: Path) -> None:
    one = pool("one", record("a", 8), record("b", 8), record("c", 2))
    two = pool("two", record("c", 6, begin=2))
    assert Pool.open(one).left_out
    merged = merge_pools([one, two], tmp_path / "out")
    assert (counts(merged), merged.left_out) == ({"a": 8, "b": 8, "c": 8}, {})


def test_one_pool_is_merged_into_itself_unchanged(pool: Maker, tmp_path: Path) -> None:
    one = pool("one", record("a", 8), truths={"a": "3"})
    merged = merge_pools([one], tmp_path / "out")
    assert list(merged) == list(Pool.open(one))
    assert Truths.open(merged.path) == Truths({"a": "3"})


def test_exported_pools_are_merged_too(pool: Maker, tmp_path: Path) -> None:
    one = pool("one", record("a", 4), truths={"a": "1"})
    export_pool(Pool.open(pool("two", record("b", 4), truths={"b": "2"})), tmp_path / "export")
    merged = merge_pools([one, tmp_path / "export"], tmp_path / "out")
    assert (counts(merged), Truths.open(merged.path)) == (
        {"a": 4, "b": 4},
        Truths({"a": "1", "b": "2"}),
    )


def test_settings_that_differ_are_told_of_each_pool(pool: Maker, tmp_path: Path) -> None:
    one = pool("one", record("a", 4), seed=0, model="m", temperature=0.6)
    two = pool("two", record("b", 4), seed=9, model="m", temperature=1.0)
    manifest = merge_pools([one, two], tmp_path / "out").manifest
    assert manifest.seed is None
    assert manifest.sampler == {
        "model": "m",
        "merged_from": [{"pool": "one", "temperature": 0.6}, {"pool": "two", "temperature": 1.0}],
    }


def test_truths_are_merged_and_may_be_written_in_two_ways(pool: Maker, tmp_path: Path) -> None:
    one = pool("one", record("a", 4), truths={"a": "1,000"})
    two = pool("two", record("a", 4, begin=4), record("b", 8), truths={"a": "1000", "b": "2"})
    none = pool("none", record("c", 8))
    merged = merge_pools([one, two, none], tmp_path / "out")
    assert Truths.open(merged.path) == Truths({"a": "1,000", "b": "2"})


def test_groups_are_kept(pool: Maker, tmp_path: Path) -> None:
    one = pool("one", record("a", 4))
    two = pool("two", record("a", 4, begin=4, group="g"))
    [merged] = merge_pools([one, two], tmp_path / "out")
    assert merged.question.group == "g"


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ({"task": get_task("expression")}, '"one" and "two" cannot be merged, their .* differs'),
        (
            {"task": replace(NUMERIC, template="{question}!")},
            "their prompt differs: .* and '{quest",
        ),
        ({"task": replace(NUMERIC, loose=True)}, "their task's loose differs: False and True"),
        ({"system": "think"}, "their system differs: nothing and 'think'"),
    ],
)
def test_another_task_or_prompt_is_refused_with_what_differs(
    pool: Maker, tmp_path: Path, other: dict[str, Any], sentence: str
) -> None:
    one, two = pool("one", record("a", 4)), pool("two", record("b", 4), **other)
    refused([one, two], tmp_path, sentence)


def refused(pools: list[Path], tmp_path: Path, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as caught:
        merge_pools(pools, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("other", [{"text": "else?"}, {"choices": ("x", "y")}, {"system": "s"}])
def test_one_id_for_two_questions_is_refused(
    pool: Maker, tmp_path: Path, other: dict[str, Any]
) -> None:
    one, two = pool("one", record("a", 4)), pool("two", record("a", 4, begin=4, **other))
    refused([one, two], tmp_path, 'question a in "two" has another text')


def test_two_truths_for_one_question_are_refused(pool: Maker, tmp_path: Path) -> None:
    one = pool("one", record("a", 4), truths={"a": "1"})
    two = pool("two", record("a", 4, begin=4), truths={"a": "2"})
    refused([one, two], tmp_path, 'question a has the truth "2" in "two" and "1" before')


def test_the_same_responses_again_are_refused(pool: Maker, tmp_path: Path) -> None:
    one, two = pool("one", record("a", 4)), pool("two", record("a", 4, begin=3))
    refused([one, two], tmp_path, 'question a with seed 3 in "two" is in an earlier pool too')


def test_the_command_says_what_became_of_it(pool: Maker, tmp_path: Path) -> None:
    one = pool("one", record("a", 8), record("b", 8), record("c", 1))
    words = ["merge", str(one), str(pool("two", record("d", 8))), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "3 questions, 24 responses, task numeric, checkpoints 4, 8" in done.output
    assert "question c is left out: it has 1 response, fewer than 8" in done.output
    again = CliRunner().invoke(app, words)
    assert "exists already" in str(again.exception)
