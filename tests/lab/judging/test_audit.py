import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_questions import made_table
from small_study import Bench, Letters

from aera.arrays import Vectors
from aera.errors import AeraError
from aera.evidence.paper import NAMES
from aera.evidence.votes import VOTE_FEATURE_NAMES
from aera.lab import Built, VoteLearner, build, limit_for
from aera.lab.judging.audit import Audit, audit_controller, audit_pool
from aera.lab.learning.perceptron import Perceptron
from aera.lab.learning.weigher import WeigherFit
from aera.voting.traits import UNTRACED


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
    assert [finding.subject for finding in audit.admitted] == [*NAMES]
    checked = {finding.subject for finding in audit.checks}
    assert {"evidence at 4", "evidence at 8", "evidence at 16", "questions.jsonl"} <= checked
    assert {"truths.jsonl", "logprob", "seed"} <= {f.subject for f in audit.excluded}


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
    assert subjects(audit)[:1] == ["evidence at 4"]
    assert "moved" in (audit.leaks[0].leak or "")


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
        "42 and 18, by stored hashes of their words and groups"
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
    learner = VoteLearner(WeigherFit(Perceptron((32, 32), 0.2, 1e-2, 1e-2, epochs=4, batch=32)))
    made = build(learner, made_table(), limit_for(learner, 0.1))
    assert made.controller.weigher is not None
    made.controller.save(tmp_path / "taught")
    return tmp_path / "taught"


def test_a_controller_that_weighs_votes_passes_with_all_its_inputs_named(taught: Path) -> None:
    audit = audit_controller(taught)
    assert audit.leaks == ()
    assert [finding.subject for finding in audit.admitted] == [*VOTE_FEATURE_NAMES, *UNTRACED]
    assert [finding.provenance for finding in audit.checks] == [
        "60 and 0, by stored hashes of their words and groups"
    ]
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
