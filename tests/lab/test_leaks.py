import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from foreign_questions import DEMO
from lab_fixtures import Bench
from made_questions import made_records, made_table, table_of
from streams import edit

from aera import Question
from aera.lab import VoteLearner, build, limit_for
from aera.lab.build import Built
from aera.lab.leaks import Finding, check_controller, check_pool
from aera.paper.features import NAMES
from aera.policies.gate import VOTE_FEATURE_NAMES
from aera.solving.controller import question_hashes
from aera.voting.traits import TRAIT_NAMES, UNTRACED

SHIPPED = DEMO / "controller"
APART, CALIBRATION = "fitted and calibrated questions", "calibration.json"
LEARNER = VoteLearner()


@pytest.fixture
def controller(built: Built, tmp_path: Path) -> Path:
    built.controller.save(tmp_path / "controller")
    return tmp_path / "controller"


def subjects(found: list[Finding], part: str) -> list[str]:
    return [finding.subject for finding in found if finding.part == part]


def leaks(found: list[Finding]) -> dict[str, str]:
    return {finding.subject: finding.leak for finding in found if finding.leak}


def told(found: list[Finding]) -> dict[str, str]:
    return {f.subject: f.provenance for f in found if f.part == "checks"}


# --- a pool ---------------------------------------------------------------------------------------


def test_a_clean_pool_passes(bench: Bench) -> None:
    found = check_pool(bench.pool.path)
    assert leaks(found) == {}
    names = [*NAMES, *VOTE_FEATURE_NAMES, *TRAIT_NAMES]
    assert subjects(found, "admitted inputs") == names
    assert {"groups", "questions.jsonl"} <= {*subjects(found, "checks")}
    assert {"truths.jsonl", "seed"} <= {*subjects(found, "excluded")}


@pytest.mark.parametrize(
    ("name", "column", "kind"),
    [
        ("responses-00000.jsonl.gz", "correct", "an outcome beside the responses"),
        ("questions.jsonl", "answer", "an outcome beside the responses"),
        ("questions.jsonl", "hint", "not a column of a pool"),
    ],
)
def test_a_column_that_does_not_belong_there_is_a_leak_even_on_one_line(
    pool_copy: Path, name: str, column: str, kind: str
) -> None:
    file = pool_copy / name
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "rt", encoding="utf-8") as lines:
        *rows, last = map(json.loads, lines)
    with opened(file, "wt", encoding="utf-8") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in (*rows, {**last, column: "3"}))
    expected = {f"{name}: {column}": kind}
    assert leaks(check_pool(pool_copy)) == expected
    assert leaks(check_controller(SHIPPED, pool_copy)) == expected


# --- a controller ---------------------------------------------------------------------------------


def test_a_clean_controller_passes_and_questions_that_had_a_part_in_it_are_named(
    controller: Path, bench: Bench
) -> None:
    shipped = check_controller(SHIPPED, bench.pool.path)
    assert leaks(shipped) == {}
    assert told(shipped)["questions of the pool"] == "0 of 60 had a part in it"
    found = check_controller(controller, bench.pool.path)
    assert leaks(found) == {}
    assert subjects(found, "admitted inputs") == [*NAMES]
    assert told(found)[APART] == "42 and 18, disjoint; by stored hashes of words and groups"
    own = told(found)["questions of the pool"]
    assert own.startswith("60 of 60 (")
    assert own.endswith("had a part in it, so this is no test of it")


def test_an_input_from_the_future_is_a_leak_also_beside_a_fixed_budget(controller: Path) -> None:
    edit(controller, features=[*NAMES[:-1], "z_next"])
    edit(controller, model_sha256=None, threshold=None, policy="fixed-8")
    assert "z_next" in leaks(check_controller(controller))


def test_a_question_or_group_of_both_parts_is_a_leak(controller: Path, built: Built) -> None:
    fitted = sorted(built.controller.fitted)
    edit(controller, calibrated=[*sorted(built.controller.calibrated), fitted[0]])
    assert leaks(check_controller(controller)) == {APART: "1 questions are in both"}
    one, other = (question_hashes(Question(n, f"what is {n}?", group="one")) for n in "ab")
    assert not {one[0]} & {*other}
    edit(controller, fitted=one, calibrated=other)
    assert leaks(check_controller(controller)) == {APART: "1 questions are in both"}


@pytest.mark.parametrize("content", [None, "{", "[]", "null", '{"features": 3}'])
def test_what_cannot_be_loaded_does_not_pass(content: str | None, controller: Path) -> None:
    if content is None:
        (controller / "model.safetensors").unlink()
    else:
        (controller / "config.json").write_text(content)
    assert "controller" in leaks(check_controller(controller))


# --- a controller that weighs votes ---------------------------------------------------------------


@pytest.fixture
def taught(tmp_path: Path) -> Path:
    made = build(LEARNER, made_table(), limit_for(LEARNER, 0.1))
    made.controller.save(tmp_path / "taught")
    return tmp_path / "taught"


def test_a_controller_that_weighs_votes_passes_with_all_its_inputs_named(taught: Path) -> None:
    found = check_controller(taught)
    assert leaks(found) == {}
    assert subjects(found, "admitted inputs") == [*VOTE_FEATURE_NAMES, *UNTRACED[2:]]  # no logprobs
    assert told(found)[APART].startswith("the same 60: each was judged by what the others taught")
    assert "certifies nothing" in told(found)[APART]
    excluded = {*subjects(found, "excluded")}
    assert not excluded & {"logprob", "finish_reason"}, "the weigher looks at them"


def test_a_trait_of_the_truth_is_a_leak_there_too(taught: Path) -> None:
    edit(taught, traits=[*UNTRACED[:-1], "truth"])
    assert [*leaks(check_controller(taught))] == ["truth", "controller"]


def test_an_older_controller_that_kept_no_list_says_who_calibrated(taught: Path) -> None:
    edit(taught, calibrated=[])
    edit(taught / CALIBRATION, out_of_fold=None)
    found = check_controller(taught)
    assert leaks(found) == {}
    assert told(found)[APART].startswith("60 that taught and, by an older version,")


@pytest.mark.parametrize(
    ("wrong", "kept", "leak"),
    [
        ({"out_of_fold": False}, None, "60 questions are in both"),
        ({"alpha": 0.1}, None, "60 questions are in both"),
        ({"alpha": 0.1}, [], "certified on no question"),
    ],
)
def test_questions_that_teach_and_calibrate_in_fold_or_certify_are_a_leak(
    taught: Path, wrong: dict[str, Any], kept: list[str] | None, leak: str
) -> None:
    """Nor can a certificate rest on what taught, whether or not each was judged by others."""
    edit(taught / CALIBRATION, **wrong)
    if kept is not None:
        edit(taught, calibrated=kept)
    assert leaks(check_controller(taught)) == {APART: leak}


def test_weights_that_saw_the_calibration_questions_are_a_leak(tmp_path: Path) -> None:
    """Elsewhere they may be brought along; on their own questions nothing is out of fold."""
    table, (records, truths) = made_table(), made_records(7, questions=120)
    teacher = build(LEARNER, table, limit_for(LEARNER, 0.1)).controller
    brought = replace(LEARNER, given=teacher.weigher)
    for path, again, known in (
        (tmp_path / "same", table, True),
        (tmp_path / "elsewhere", table_of(records[60:], truths), False),
    ):
        made = build(brought, again, limit_for(brought, 0.1), teacher=teacher)
        made.controller.save(path)
        assert teacher.fitted < made.controller.fitted or known
        assert bool(leaks(check_controller(path))) == known
        said = made.controller.calibration["weights_from"]
        assert said.endswith("60 of which calibrate here too") == known
