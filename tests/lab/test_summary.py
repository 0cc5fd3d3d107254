import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streams import NUMERIC, record_of

import aera
from aera import Pool
from aera.lab import Truths, log_evaluation
from aera.lab.stats import paired_gap
from aera.policies.rules import ASC, FirstValid, Fixed
from aera.pools.pool import Plan, write_pool


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    """Three questions: one right throughout, one that recovers, one that stays wrong."""
    records = [record_of("a", "11111111"), record_of("b", "22211111"), record_of("c", "23232323")]
    return write_pool(tmp_path, records, Plan(NUMERIC))


def summary(pool: Pool, truths: Truths | None = None) -> dict[str, Any]:
    """The evaluation of that pool, as it is read back from a strict JSON file."""
    if truths is not None:
        truths.save(pool.path)
    policies = [Fixed(2), Fixed(8), ASC(0.95), FirstValid()]
    made = aera.evaluate(pool, policies, seed=5, schedule="2,8").summary
    return dict(json.loads(json.dumps(made, allow_nan=False)))


TRUTHS = Truths({"a": "1", "b": "1", "c": "1"})


def test_every_policy_is_compared_with_every_other_fixed_budget(pool: Pool) -> None:
    made = summary(pool, TRUTHS)["comparisons"]
    pairs = {(row["policy"], row["reference"]) for row in made}
    names = ["fixed-2", "fixed-8", "asc-0.95", "first-valid", "oracle"]
    assert pairs == {(n, r) for n in names for r in names[:2] if n != r}
    row = next(row for row in made if (row["policy"], row["reference"]) == ("fixed-8", "fixed-2"))
    gap = paired_gap(np.array([1.0, 1, 0]), np.array([1.0, 0, 0])).as_json("difference")
    assert {name: row[name] for name in gap} == pytest.approx(gap)


def test_a_kind_of_transition_that_never_happens_has_no_number(pool: Pool) -> None:
    rows = {row["name"]: row for row in summary(pool, TRUTHS)["trajectories"]["transitions"]}
    assert rows["collapse"]["count"] == 0
    assert rows["collapse"]["changes"] == {"majority_ratio": None, "entropy": None}
    assert rows["recovery"]["changes"]["majority_ratio"] == pytest.approx(5 / 8 - 1)


def test_without_truths_nothing_is_compared_and_every_figure_is_logged_once(pool: Pool) -> None:
    made, logged = summary(pool), list[dict[str, float]]()
    assert (made["comparisons"], made["trajectories"]) == ([], None)
    assert "run/fixed-8/responses" in log_evaluation(made, len, prefix="run/")
    log_evaluation(made, logged.append)
    [figures] = logged
    assert {type(value) for value in figures.values()} == {float}
    assert (figures["fixed-8/responses"], figures["fixed-2/response_saving"]) == (8, 75)
    assert not {"fixed-8/accuracy", "fixed-8/stops", "fixed-8/status"} & set(figures)
