"""Evaluations: prompts are billed alike wherever a row comes from, and a rule goes everywhere."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import said
from made_questions import SCHEDULE, TASK, made_records
from streams import NUMERIC, record_of

import aera
from aera import Pool, Response
from aera.errors import UsageError
from aera.lab import Truths, log_evaluation
from aera.lab.stats import paired_gap
from aera.lab.summary import Evaluation
from aera.policies.rules import ASC, FirstValid, Fixed
from aera.pools.pool import HeldRecords, Plan, VotedRecord, hold, write_pool

PROMPT = 30
"""Tokens of every prompt, recorded with the first response of a call."""


def billed(record: VotedRecord) -> VotedRecord:
    """The same with prompt tokens, two responses to a call."""
    responses = [
        Response(each.text, each.tokens, prompt_tokens=PROMPT * (place % 2 == 0))
        for place, each in enumerate(record.responses)
    ]
    return replace(record, responses=tuple(responses))


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    voted, answers = made_records()
    pool = write_pool(tmp_path, map(billed, voted), Plan(TASK))
    Truths(answers).save(pool.path)
    return pool


@pytest.fixture
def records(pool: Pool) -> HeldRecords:
    return replace(hold(pool), schedule=SCHEDULE)


def bill(made: Evaluation, policy: str) -> float:
    """Money for a thousand questions, from the stops alone."""
    point = made.frontier[policy]
    column = {str(c): place for place, c in enumerate(SCHEDULE)}
    fixed = policy.startswith("fixed-")
    blocks = [n * (1 if fixed else column[c] + 1) for c, n in point.stops.items()]
    return (1000 * PROMPT * sum(blocks) / 60 + 10 * point.tokens) / 1000


def test_plain_votes_are_judged_in_the_orders_of_what_was_learned(records: HeldRecords) -> None:
    made = aera.evaluate(records, protocol="nested", max_loss=0.1)
    orders = made.frontier["aera-calibrated"].ends.shape
    assert orders[1] > 20
    for point in made.frontier.points:
        assert point.ends.shape == orders or point.policy == "first-valid"
    once = aera.evaluate(records).frontier
    for policy in ("fixed-4", "asc-0.95", "esc-5", "lead-4"):
        there, here = made.frontier[policy].stored, once[policy]
        assert (there.accuracy, there.tokens) == (here.accuracy, here.tokens)


@pytest.mark.parametrize("options", [{}, {"protocol": "nested", "paper": True}])
def test_every_row_bills_its_prompts(records: HeldRecords, options: dict[str, object]) -> None:
    made = aera.evaluate(records, prices=(1000, 10), **options)  # type: ignore[arg-type]
    rows = {row["policy"]: row for row in made.rows()}
    for policy in rows:
        assert rows[policy]["money"] == pytest.approx(bill(made, policy), abs=1e-5), policy
    assert made.summary["prices"] == {"prompt": 1000, "completion": 10}
    assert [point["money"] for point in made.summary["points"]] == [
        row["money"] for row in rows.values()
    ]
    assert not [line for line in made.remarks if "recorded its prompt tokens" in line]
    [line] = [line for line in made.remarks if " costs " in line]
    assert line.startswith("aera-calibrated costs" if options else "lead-4 costs")


def test_a_fixed_controller_asks_once(records: HeldRecords) -> None:
    controller = aera.train(records, policy="fixed-4")
    made = aera.evaluate(records, "asc-0.9", controller=controller, prices=(1000, 10))
    assert made.frontier["fixed-4"].kind == "controller"
    rows = {row["policy"]: row for row in made.rows()}
    assert rows["fixed-4"]["money"] == pytest.approx(bill(made, "fixed-4"))
    assert any(line.startswith("fixed-4 costs") for line in made.remarks)


def judge(records: HeldRecords, **asked: Any) -> Evaluation:
    return aera.evaluate(records, [], rule="re2-vote", **asked)


@pytest.mark.parametrize(  # crossfit is always the paper's
    ("protocol", "paper"), [("crossfit", True), *product(["nested", "holdout"], [True, False])]
)
def test_every_protocol_is_judged_by_the_rule_it_is_given(
    records: HeldRecords, protocol: str, *, paper: bool
) -> None:
    unboxed = [
        replace(record, votes=tuple(replace(vote, raw="no answer") for vote in record.votes))
        for record in records
    ]
    made = judge(replace(records, records=unboxed), protocol=protocol, paper=paper)
    assert {point.accuracy for point in made.frontier.points} == {0.0}
    means = made.frontier.trajectories.re2_mean
    assert means.max() > 0  # read as before; only the answer is another


def test_another_rule_is_not_learned_without_truths(records: HeldRecords) -> None:
    with pytest.raises(UsageError, match="learned from truths"):
        judge(records, protocol="nested", without_truths=True)


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (("--rule", "re2-vote"), {"rule": "re2-vote"}),
        (("--prices", "1,2", "--max-samples", "6"), {"prices": (1, 2), "max_samples": 6}),
        (
            ("--protocol", "nested", "--paper", "--max-loss", "0.1", "--seed", "3"),
            {"protocol": "nested", "paper": True, "max_loss": 0.1, "seed": 3},
        ),
        (
            ("--protocol", "holdout", "--without-truths", "--schedule", "2,8"),
            {"protocol": "holdout", "without_truths": True, "schedule": "2,8"},
        ),
    ],
)
def test_python_and_the_command_say_the_same(
    tmp_path: Path, pool: Pool, words: tuple[str, ...], asked: dict[str, Any]
) -> None:
    made, file = aera.evaluate(pool.path, **asked), tmp_path / "evaluation.json"
    told = " ".join(said("evaluate", pool.path, *words, "--json", file).split())
    assert json.loads(file.read_text("utf-8")) == json.loads(json.dumps(made.summary))
    assert all(" ".join(line.split()) in told for line in made.remarks)


# --- the summary ----------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Pool:
    """Three questions: one right throughout, one that recovers, one that stays wrong."""
    records = [record_of("a", "11111111"), record_of("b", "22211111"), record_of("c", "23232323")]
    return write_pool(tmp_path, records, Plan(NUMERIC))


def summarized(small: Pool, truths: Truths | None = None) -> dict[str, Any]:
    """The evaluation of that small, as it is read back from a strict JSON file."""
    if truths is not None:
        truths.save(small.path)
    policies = [Fixed(2), Fixed(8), ASC(0.95), FirstValid()]
    made = aera.evaluate(small, policies, seed=5, schedule="2,8").summary
    return dict(json.loads(json.dumps(made, allow_nan=False)))


SMALL_TRUTHS = Truths({"a": "1", "b": "1", "c": "1"})


def test_every_policy_is_compared_with_every_other_fixed_budget(small: Pool) -> None:
    made = summarized(small, SMALL_TRUTHS)["comparisons"]
    pairs = {(row["policy"], row["reference"]) for row in made}
    names = ["fixed-2", "fixed-8", "asc-0.95", "first-valid", "oracle"]
    assert pairs == {(n, r) for n in names for r in names[:2] if n != r}
    row = next(row for row in made if (row["policy"], row["reference"]) == ("fixed-8", "fixed-2"))
    gap = paired_gap(np.array([1.0, 1, 0]), np.array([1.0, 0, 0])).as_json("difference")
    assert {name: row[name] for name in gap} == pytest.approx(gap)


def test_a_kind_of_transition_that_never_happens_has_no_number(small: Pool) -> None:
    told = summarized(small, SMALL_TRUTHS)["trajectories"]["transitions"]
    rows = {row["name"]: row for row in told}
    assert rows["collapse"]["count"] == 0
    assert rows["collapse"]["changes"] == {"majority_ratio": None, "entropy": None}
    assert rows["recovery"]["changes"]["majority_ratio"] == pytest.approx(5 / 8 - 1)


def test_without_truths_nothing_is_compared_and_every_figure_is_logged_once(small: Pool) -> None:
    made, logged = summarized(small), list[dict[str, float]]()
    assert (made["comparisons"], made["trajectories"]) == ([], None)
    assert "run/fixed-8/responses" in log_evaluation(made, len, prefix="run/")
    log_evaluation(made, logged.append)
    [figures] = logged
    assert {type(value) for value in figures.values()} == {float}
    assert (figures["fixed-8/responses"], figures["fixed-2/response_saving"]) == (8, 75)
    assert not {"fixed-8/accuracy", "fixed-8/stops", "fixed-8/status"} & set(figures)
