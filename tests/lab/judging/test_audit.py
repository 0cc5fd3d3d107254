import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_questions import made_table
from small_study import Bench, Letters

import aera
from aera import Question
from aera.arrays import Vectors
from aera.errors import AeraError
from aera.lab import Built, VoteLearner, build, limit_for
from aera.lab.judging.audit import Audit, audit_controller, audit_pool
from aera.lab.learning.perceptron import Perceptron
from aera.lab.learning.votes import VoteTable
from aera.lab.learning.weigher import WeigherFit
from aera.paper.features import NAMES
from aera.policies.features import VOTE_FEATURE_NAMES
from aera.pools.pool import VotedRecord
from aera.solving.controller import question_hashes
from aera.voting.traits import TRAIT_NAMES, UNTRACED
from aera.voting.weigher import Weigher

SHIPPED = Path(aera.__file__).parent / "demo" / "controller"
LEARNER = VoteLearner(WeigherFit(Perceptron((32, 32), 0.2, 1e-2, 1e-2, epochs=4, batch=32)))


@pytest.fixture
def controller(built: Built, tmp_path: Path) -> Path:
    built.controller.save(tmp_path / "controller")
    return tmp_path / "controller"


def subjects(audit: Audit) -> list[str]:
    return [finding.subject for finding in audit.leaks]


def rewrite(path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change every line of a file."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    with opened(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(change(row)) + "\n" for row in rows)


def edit(path: Path, **fields: Any) -> None:
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, **fields}))


# --- a pool ---------------------------------------------------------------------------------------


def test_a_clean_pool_passes(bench: Bench, letters: Letters) -> None:
    audit = audit_pool(bench.pool.path, letters, questions=3)
    assert audit.leaks == ()
    names = [*NAMES, *VOTE_FEATURE_NAMES, *TRAIT_NAMES]
    assert [finding.subject for finding in audit.admitted] == names
    checked = {finding.subject for finding in audit.checks}
    perturbed = {"traits", "vote features", "the paper's features"}
    assert {*perturbed, "groups", "learning", "questions.jsonl"} <= checked
    assert {"truths.jsonl", "seed"} <= {f.subject for f in audit.excluded}
    told = [f.provenance for f in audit.checks if f.subject == "traits"]
    assert told == [
        "recomputed on 3 questions at 4, 8, 16 with every later response replaced",
        "recomputed on 3 questions with every truth replaced",
    ]


def test_what_teaches_is_perturbed_where_there_are_questions_enough(bench: Bench) -> None:
    audit = audit_pool(bench.pool.path, Letters(), questions=20)
    assert audit.leaks == ()
    taught = [f.subject for f in audit.checks if f.subject.startswith("taught")]
    assert taught == ["taught by the crowd", "taught by the crowd", "taught by truths"]


def test_a_pool_without_truths_is_audited_without_them(pool_copy: Path, letters: Letters) -> None:
    (pool_copy / "truths.jsonl").unlink()
    audit = audit_pool(pool_copy, letters, questions=2)
    assert audit.leaks == ()
    assert not [f for f in audit.checks if "truth" in f.provenance]


def test_a_group_on_both_sides_of_a_split_is_a_leak(
    pool_copy: Path, letters: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrite(pool_copy / "questions.jsonl", lambda row: {**row, "group": row["id"][-1]})
    clean = audit_pool(pool_copy, letters, questions=2)
    assert clean.leaks == ()
    monkeypatch.setattr("aera.lab.judging.audit.group_questions", lambda q: np.arange(len(q)))
    audit = audit_pool(pool_copy, letters, questions=2)
    assert subjects(audit) == ["groups"]
    assert "stands on both sides of a split" in (audit.leaks[0].leak or "")


def test_an_outcome_in_a_segment_is_a_leak(pool_copy: Path, letters: Letters) -> None:
    segment = next(pool_copy.glob("responses-*.gz"))
    rewrite(segment, lambda row: {**row, "correct": True})
    audit = audit_pool(pool_copy, letters, questions=2)
    assert subjects(audit) == [f"{segment.name}: correct"]
    assert "outcome" in (audit.leaks[0].leak or "")


def test_an_outcome_on_a_single_line_is_a_leak(pool_copy: Path, letters: Letters) -> None:
    segment = next(pool_copy.glob("responses-*.gz"))
    rewrite(segment, lambda row: row | ({"reward": 1} if row["index"] == 31 else {}))
    assert subjects(audit_pool(pool_copy, letters, questions=2)) == [f"{segment.name}: reward"]


def test_an_answer_beside_the_questions_is_a_leak(pool_copy: Path, letters: Letters) -> None:
    rewrite(pool_copy / "questions.jsonl", lambda row: {**row, "answer": "3"})
    assert subjects(audit_pool(pool_copy, letters, questions=2)) == ["questions.jsonl: answer"]


def test_a_column_nobody_knows_is_named_too(pool_copy: Path, letters: Letters) -> None:
    rewrite(pool_copy / "questions.jsonl", lambda row: {**row, "hint": "3"})
    audit = audit_pool(pool_copy, letters, questions=2)
    assert [(f.subject, f.leak) for f in audit.leaks] == [
        ("questions.jsonl: hint", "not a column of a pool")
    ]


class Remembering(Letters):
    """An encoder that is not frozen: it moves with every text it has seen."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        vectors = super().encode(texts)
        return np.roll(vectors, len(self.asked) % 7, axis=1) * np.float32(1 + len(self.asked))


def test_evidence_that_moves_with_what_else_was_seen_is_a_leak(bench: Bench) -> None:
    audit = audit_pool(bench.pool.path, Remembering(), questions=2)
    assert "the paper's features" in subjects(audit)
    assert "moved at 4 with the future" in (audit.leaks[0].leak or "")


@pytest.mark.parametrize("name", ["questions.jsonl", "responses-00000.jsonl.gz"])
def test_a_damaged_pool_is_refused_in_one_sentence(
    name: str, pool_copy: Path, letters: Letters
) -> None:
    (pool_copy / name).write_text("{\n")
    with pytest.raises(AeraError, match=name) as error:
        audit_pool(pool_copy, letters, questions=2)
    assert "\n" not in str(error.value)


# --- a controller ---------------------------------------------------------------------------------


def test_a_clean_controller_passes(controller: Path) -> None:
    audit = audit_controller(controller)
    assert audit.leaks == ()
    assert [finding.subject for finding in audit.admitted] == [*NAMES]
    assert [f.provenance for f in audit.checks] == [
        "42 and 18, disjoint; by stored hashes of words and groups"
    ]


def test_the_shipped_controller_passes_on_bundled_responses(bench: Bench) -> None:
    audit = audit_controller(SHIPPED, bench.pool.path, questions=3)
    assert audit.leaks == ()
    told = {finding.subject: finding.provenance for finding in audit.checks}
    assert told["questions of the pool"] == "0 of 60 had a part in it"
    for kind in ("traits", "weights", "vote features", "p_continue", "decisions"):
        assert told[kind] == "recomputed on 3 questions with every truth replaced"
    assert "the paper's features" not in told, "it does not look at them"


def test_the_papers_controller_is_perturbed_with_its_own_encoder(
    controller: Path, bench: Bench
) -> None:
    audit = audit_controller(controller, bench.pool.path, questions=2)
    assert audit.leaks == ()
    told = {finding.subject: finding.provenance for finding in audit.checks}
    assert {"the paper's features", "p_continue", "decisions"} < set(told)
    assert told["questions of the pool"].startswith("60 of 60 (")
    assert told["questions of the pool"].endswith("had a part in it, so this is no test of it")


def test_a_pool_that_leaks_is_found_with_a_controller_too(pool_copy: Path) -> None:
    rewrite(pool_copy / "questions.jsonl", lambda row: {**row, "answer": "3"})
    assert subjects(audit_controller(SHIPPED, pool_copy, questions=2)) == [
        "questions.jsonl: answer"
    ]


def test_an_input_from_the_future_is_a_leak(controller: Path) -> None:
    edit(controller, features=[*NAMES[:-1], "z_next"])
    assert "z_next" in subjects(audit_controller(controller))


def test_a_question_in_both_fit_and_calibration_is_a_leak(controller: Path, built: Built) -> None:
    fitted = sorted(built.controller.fitted)
    edit(controller, calibrated=[*sorted(built.controller.calibrated), fitted[0]])
    audit = audit_controller(controller)
    assert subjects(audit) == ["fitted and calibrated questions"]
    assert audit.leaks[0].leak == "1 questions are in both"


def test_a_controller_that_cannot_be_loaded_does_not_pass(controller: Path) -> None:
    (controller / "model.safetensors").unlink()
    assert subjects(audit_controller(controller)) == ["controller"]


@pytest.mark.parametrize("content", ["{", "[]", "null", '{"features": 3}'])
def test_a_controller_without_a_readable_config_does_not_pass(
    content: str, controller: Path
) -> None:
    (controller / "config.json").write_text(content)
    assert "controller" in subjects(audit_controller(controller))


def test_an_outcome_among_the_inputs_of_a_fixed_budget_is_a_leak(controller: Path) -> None:
    edit(controller, model_sha256=None, threshold=None, policy="fixed-8", features=["z_next"])
    assert "z_next" in subjects(audit_controller(controller))


# --- a controller that weighs votes ---------------------------------------------------------------


@pytest.fixture
def taught(tmp_path: Path) -> Path:
    made = build(LEARNER, made_table(), limit_for(LEARNER, 0.1))
    assert made.controller.weigher is not None
    made.controller.save(tmp_path / "taught")
    return tmp_path / "taught"


def test_a_controller_that_weighs_votes_passes_with_all_its_inputs_named(taught: Path) -> None:
    audit = audit_controller(taught)
    assert audit.leaks == ()
    assert [finding.subject for finding in audit.admitted] == [*VOTE_FEATURE_NAMES, *UNTRACED]
    [apart] = audit.checks
    assert apart.provenance.startswith("the same 60: each was judged by what the others taught")
    assert "certifies nothing" in apart.provenance
    excluded = {finding.subject for finding in audit.excluded}
    assert not excluded & {"logprob", "finish_reason"}, "the weigher looks at them"
    assert {"truths.jsonl", "question_id", "latency_ms"} <= excluded


@pytest.mark.parametrize(
    ("field", "names"), [("features", VOTE_FEATURE_NAMES), ("traits", UNTRACED)]
)
def test_an_input_of_the_truth_is_a_leak_there_too(
    taught: Path, field: str, names: tuple[str, ...]
) -> None:
    edit(taught, **{field: [*names[:-1], "truth"]})
    assert subjects(audit_controller(taught)) == ["truth", "controller"]


def calibrate(path: Path, **fields: Any) -> None:
    told = json.loads((path / "calibration.json").read_text())
    (path / "calibration.json").write_text(json.dumps({**told, **fields}))


def test_an_older_controller_that_kept_no_list_says_who_calibrated(taught: Path) -> None:
    edit(taught, calibrated=[])
    calibrate(taught, out_of_fold=None)
    audit = audit_controller(taught)
    assert audit.leaks == ()
    assert audit.checks[0].provenance.startswith("60 that taught and, by an older version,")


@pytest.mark.parametrize("wrong", [{"out_of_fold": False}, {"alpha": 0.1}])
def test_questions_that_teach_and_calibrate_in_fold_are_a_leak(
    taught: Path, wrong: dict[str, Any]
) -> None:
    """Nor can a certificate rest on what taught, whether or not each was judged by others."""
    calibrate(taught, **wrong)
    audit = audit_controller(taught)
    assert subjects(audit) == ["fitted and calibrated questions"]
    assert audit.leaks[0].leak == "60 questions are in both"


def test_a_certificate_without_its_questions_is_a_leak(taught: Path) -> None:
    edit(taught, calibrated=[])
    calibrate(taught, alpha=0.1)
    assert audit_controller(taught).leaks[0].leak == "certified on no question"


def test_a_group_in_both_fit_and_calibration_is_a_leak(controller: Path) -> None:
    fitted, calibrated = (
        question_hashes(Question(name, f"what is {name}?", group="one")) for name in "ab"
    )
    assert not {fitted[0]} & {*calibrated}
    edit(controller, fitted=fitted, calibrated=calibrated)
    assert audit_controller(controller).leaks[0].leak == "1 questions are in both"


def test_weights_that_saw_the_calibration_questions_are_a_leak(tmp_path: Path) -> None:
    """Elsewhere they may be brought along; on their own questions nothing is out of fold."""
    table = made_table()
    teacher = build(LEARNER, table, limit_for(LEARNER, 0.1)).controller
    assert isinstance(teacher.weigher, Weigher)
    brought = replace(LEARNER, given=teacher.weigher)
    for seed, leaks in ((0, True), (7, False)):
        path, again = tmp_path / str(seed), made_table(seed) if seed else table
        again = replace(again, records=renamed(again)) if seed else again
        made = build(brought, again, limit_for(brought, 0.1), teacher=teacher)
        made.controller.save(path)
        assert teacher.fitted < made.controller.fitted or leaks
        assert bool(audit_controller(path).leaks) == leaks
        said = made.controller.calibration["weights_from"]
        assert said.endswith("60 of which calibrate here too") == leaks


def renamed(table: VoteTable) -> tuple[VotedRecord, ...]:
    """The same records under questions of other words."""
    return tuple(
        replace(each, question=replace(each.question, text=f"elsewhere, {each.question.text}"))
        for each in table.records
    )
