"""Logs of lm-eval, of Inspect and of OpenAI's batches come in as they were written; batches out."""

import gzip
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import refusal, said
from foreign import APPLES, DATA, PENS, TEXTS, brought, imported
from openai.types.chat import ChatCompletion
from streams import NUMERIC, record_of, write_rows

from aera import ASC, Pool, Question, Response, Run, Schedule
from aera.cli.ask import allocation_line
from aera.errors import PoolError, UsageError
from aera.lab import Truths
from aera.lab.formats.foreign import export_allocations
from aera.lab.formats.pools import ESTIMATED

Row = dict[str, Any]
OUTPUT, INPUT = DATA / "batch_output.jsonl", DATA / "batch_input.jsonl"
LOG: Row = json.loads((DATA / "inspect.json").read_text("utf-8"))
LM_EVAL: Row = json.loads((DATA / "samples_tiny.jsonl").read_text("utf-8").splitlines()[0])


# --- lm-eval --------------------------------------------------------------------------------------


def test_a_document_may_have_no_question_and_no_truth(tmp_path: Path) -> None:
    rows = [{**LM_EVAL, "doc": {"x": 1}}, {**LM_EVAL, "doc_id": 1, "target": ["7", "8"]}]
    pool = brought(tmp_path, rows, task="numeric").pool
    assert pool.questions["0"] == Question("0", f"Question: {APPLES}\nAnswer:")
    assert [*(Truths.open(pool.path) or ())] == ["0"]
    assert [each.tokens for each in next(iter(pool)).responses] == [5, 2, 3, 2]
    assert pool.manifest.sampler["tokens"] == ESTIMATED


# --- Inspect --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["inspect.json", "inspect.eval"])
def test_epochs_become_responses_and_a_failure_stays_one(tmp_path: Path, name: str) -> None:
    pool = imported(DATA / name, tmp_path / "pool")
    apples, pens = pool
    assert (apples.question, pens.question) == (Question("apples", APPLES), Question("pens", PENS))
    assert [each.tokens for each in apples.responses] == [5, 6, 0, 8]
    assert apples.responses[2].error == "RuntimeError('server went away')"
    last = pens.responses[3]
    assert (last.text, last.finish_reason) == ("12 + 3 = \\boxed{15}", "stop")
    assert Truths.open(pool.path) == Truths({"apples": "7", "pens": "36"})
    assert "tokens" not in pool.manifest.sampler


def test_a_log_is_recognised_also_packed_on_one_line_or_gzipped(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "0", "w", zipfile.ZIP_DEFLATED) as archive:
        for place, sample in enumerate(LOG["samples"]):
            archive.writestr(f"samples/{place}.json", json.dumps(sample))
    (tmp_path / "1").write_text(json.dumps(LOG))
    (tmp_path / "2").write_bytes(gzip.compress((DATA / "inspect.json").read_bytes()))
    for name in "012":
        assert len(imported(tmp_path / name, tmp_path / f"pool{name}")) == 2


def test_samples_that_ask_the_same_stay_apart_and_all_they_say_is_read(tmp_path: Path) -> None:
    parts = [{"type": "reasoning", "reasoning": "3+4"}, {"type": "text", "text": "\\boxed{7}"}]
    choice = {"message": {"content": parts}, "stop_reason": "max_tokens"}
    sample = {
        **LOG["samples"][0],
        "input": [{"role": "system", "content": "s"}, {"role": "user", "content": "how many?"}],
        "target": ["7"],
        "epoch": 1,
        "output": {"choices": [choice, choice], "usage": {"output_tokens": 20}},
    }
    samples = [{**sample, "id": name} for name in "ab"]
    pool = brought(tmp_path, json.dumps({**LOG, "samples": samples}), task="numeric").pool
    asked = [Question(name, "how many?", system="s") for name in "ab"]
    said = Response("<think>3+4</think>\\boxed{7}", 10, finish_reason="length")
    assert [each.question for each in pool] == asked
    assert next(iter(pool)).responses == (said, said)


# --- batches --------------------------------------------------------------------------------------


def test_choices_become_responses_in_the_order_of_their_index(tmp_path: Path) -> None:
    apples, pens, cakes = imported(OUTPUT, tmp_path / "pool", questions=INPUT)
    assert [apples.question.text, pens.question.text] == [APPLES, PENS]
    assert [each.text for each in pens.responses] == TEXTS[PENS]
    assert sum(each.tokens for each in pens.responses) == 40
    assert pens.responses[2].truncated
    expired = "This request could not be executed before the completion window expired."
    assert cakes.responses == (Response("", error=expired),) * 4
    bare = imported(OUTPUT, tmp_path / "by_id")
    assert [(q.id, q.text) for q in bare.questions.values()] == [
        (name, name) for name in ("pens", "apples", "cakes")
    ]


def test_requests_with_one_prompt_are_one_question(tmp_path: Path) -> None:
    named = ("--format", "openai-batch", "--questions", DATA / "vllm_input.jsonl")
    words = (DATA / "vllm_batch.jsonl", "--task", "numeric", "--out", tmp_path / "pool")
    said("import", *words, *named)
    [record] = Pool.open(tmp_path / "pool")
    right, refusal, bare = record.responses
    assert record.question.text == APPLES
    assert replace(right, prompt_tokens=0) == Response(
        "<think>3 and 4</think>\\boxed{7}", 9, None, "stop", model="m"
    )
    assert refusal.error == "This model's maximum context length is 8 tokens."
    assert (bare.text, bare.tokens) == ("\\boxed{8}", 5)


def test_questions_by_id_bring_their_truths_and_what_is_missing_failed(tmp_path: Path) -> None:
    names = ("apples", "pens", "cakes", "pies")
    rows = [{"id": name, "question": f"{name}?", "answer": 7} for name in names]
    questions = write_rows(tmp_path / "questions.jsonl", rows)
    pool = imported(OUTPUT, tmp_path / "pool", questions=questions)
    assert Truths.open(pool.path) == Truths(dict.fromkeys(names, "7"))
    assert list(pool)[3].responses == (Response("", error="the batch gave no reply"),) * 4
    alike = write_rows(tmp_path / "alike.jsonl", [{**row, "question": "?"} for row in rows])
    assert [len(r.responses) for r in imported(OUTPUT, tmp_path / "one", questions=alike)] == [16]


def test_a_line_that_failed_is_a_failed_response(tmp_path: Path) -> None:
    refusal = {"status_code": 400, "body": {"error": {"message": "too long"}}}
    failed: dict[str, Row] = {
        "no response": {"response": None, "error": None},
        "status 500": {"response": {"status_code": 500, "body": {}}},
        "gone": {"error": "gone"},
        "too long": {"response": refusal},
    }
    body = {"choices": [{"message": {"content": "\\boxed{7}"}}]}
    rows = [{"custom_id": said, **line} for said, line in failed.items()]
    good = {"custom_id": "good", "response": {"body": body}}
    found = brought(tmp_path, [*rows, good], task="numeric")
    pool, told = found.pool, "\n".join(found.lines)
    assert "nothing came back to 4 questions: no response (no response), status 500 (sta" in told
    assert "--questions takes the batch's input, or a table of id (the custom_id), question" in told
    errors = {each.question.id: each.responses[0].error for each in pool}
    assert errors == {"good": None, **{said: said for said in failed}}


# --- allocations out ------------------------------------------------------------------------------


def test_allocations_become_the_output_of_a_batch(tmp_path: Path) -> None:
    record = record_of("q1", ["7"] * 4)
    run = Run(record.question, ASC(0.95), task=NUMERIC, schedule=Schedule((4,)))
    run.feed(record.responses)
    done = run.allocation
    failed = replace(done, question_id="q2", error="upstream: gone")
    lines = "".join(json.dumps(allocation_line(each)) + "\n" for each in (done, failed))
    (tmp_path / "solved.jsonl").write_text(lines)
    said("export", tmp_path / "solved.jsonl", "--out", tmp_path / "batch.jsonl")
    with pytest.raises(UsageError, match="a file on this disk"):
        said("export", tmp_path / "solved.jsonl", "--out", "s3://b/x")
    first, second = map(json.loads, (tmp_path / "batch.jsonl").read_text().splitlines())
    completion = ChatCompletion.model_validate(first["response"]["body"])
    text = completion.choices[0].message.content
    assert (first["custom_id"], text) == ("q1", "so it is \\boxed{7}")
    assert first["response"]["body"]["aera"]["reason"] == done.reason
    assert completion.usage.completion_tokens == done.completion_tokens
    assert (second["response"], second["error"]["message"]) == (None, "upstream: gone")
    pool = imported(tmp_path / "batch.jsonl", tmp_path / "pool")
    assert [NUMERIC.read(r.responses[0]).answer for r in pool] == ["7", None]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (None, "solved holds no allocation"),
        ({}, 'solved, line 1: the field "question_id" is missing'),
        ({"question_id": "a", "answer": 7}, 'solved, line 1: the field "answer" is 7'),
    ],
)
def test_what_is_no_allocation_is_refused(tmp_path: Path, row: Row | None, message: str) -> None:
    file = write_rows(tmp_path / "solved", [] if row is None else [row])
    assert refusal(PoolError, export_allocations, file, tmp_path / "out") == message
    assert not (tmp_path / "out").exists()
