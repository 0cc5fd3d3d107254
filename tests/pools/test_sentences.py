from collections.abc import Callable
from pathlib import Path

from aera import Record, Task
from aera.pools.pool import write_pool
from aera.pools.stats import name_few, tell_pool


def test_a_pool_is_told_with_what_does_not_count(
    tmp_path: Path, numeric: Task, record_of: Callable[[str, str], Record]
) -> None:
    records = [record_of("a", "1111"), record_of("b", "11111"), record_of("c", "1")]
    pool = write_pool(tmp_path, records, task=numeric, sampler={})
    assert tell_pool(pool.manifest, "here") == [
        "here: 2 questions, 9 responses, task numeric, checkpoints 4",
        "left out: 1 question: c (has 1 response, fewer than 4)",
        "some questions have more than the 4 responses that count; --responses raises it",
    ]


def test_three_questions_are_named_and_the_others_counted() -> None:
    assert name_few(dict.fromkeys("abc", "late")).endswith("a (late), b (late), c (late)")
    assert name_few(dict.fromkeys("abcd", "late")).startswith("4 questions: a (late), b")
    assert name_few(dict.fromkeys("abcd", "late")).endswith("c (late), …")
