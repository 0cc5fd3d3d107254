import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from foreign import APPLES, DATA, PENS, TEXTS, imported, refused
from openai.types.chat import ChatCompletion

from aera import ASC, Response, Run, Schedule, Task
from aera.cli.ask import allocation_line
from aera.errors import RecordError, UsageError
from aera.lab import Truths
from aera.lab.formats.batches import export_allocations

WriteRows = Callable[..., Path]
OUTPUT, INPUT = DATA / "batch_output.jsonl", DATA / "batch_input.jsonl"


def test_choices_become_responses_in_the_order_of_their_index(tmp_path: Path) -> None:
    pool = imported(OUTPUT, tmp_path / "pool", questions=INPUT)
    apples, pens, cakes = pool
    assert [apples.question.text, pens.question.text] == [APPLES, PENS]
    assert [each.text for each in pens.responses] == TEXTS[PENS]
    assert sum(each.tokens for each in pens.responses) == 40
    assert pens.responses[2].truncated
    expired = "This request could not be executed before the completion window expired."
    assert cakes.responses == (Response("", error=expired),) * 4


def test_without_its_input_a_batch_is_known_by_its_ids(tmp_path: Path) -> None:
    pool = imported(OUTPUT, tmp_path / "pool")
    assert [(q.id, q.text) for q in pool.questions.values()] == [
        (name, name) for name in ("pens", "apples", "cakes")
    ]
    assert [len(record.responses) for record in pool] == [4, 4, 4]


def test_requests_with_one_prompt_are_one_question(tmp_path: Path) -> None:
    pool = imported(
        DATA / "vllm_batch.jsonl", tmp_path / "pool", questions=DATA / "vllm_input.jsonl"
    )
    (record,) = pool
    right, refusal, bare = record.responses
    assert record.question.text == APPLES
    assert replace(right, prompt_tokens=0) == Response(
        "<think>3 and 4</think>\\boxed{7}", 9, None, "stop", model="m"
    )
    assert refusal.error == "This model's maximum context length is 8 tokens."
    assert (bare.text, bare.tokens) == ("\\boxed{8}", 5)


def test_questions_by_id_bring_their_truths_and_what_is_missing_failed(
    tmp_path: Path, write_rows: WriteRows
) -> None:
    names = ("apples", "pens", "cakes", "pies")
    rows = [{"id": name, "question": f"{name}?", "answer": 7} for name in names]
    questions = write_rows(tmp_path / "questions.jsonl", rows)
    pool = imported(OUTPUT, tmp_path / "pool", questions=questions)
    assert Truths.open(pool.path) == Truths(dict.fromkeys(names, "7"))
    assert list(pool)[3].responses == (Response("", error="the batch gave no reply"),) * 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"custom_id": 5}, 'the field "custom_id" is 5'),
        ({"response": {"status_code": 200, "body": {"object": "list"}}}, "no list of choices"),
        ({"response": {"body": {"choices": [1]}}}, "no list of choices"),
        ({"response": {"body": {"choices": []}}}, "the reply has no choices"),
    ],
)
def test_a_bad_line_is_named(
    tmp_path: Path, write_rows: WriteRows, change: dict[str, Any], message: str
) -> None:
    row = json.loads(OUTPUT.read_text("utf-8").splitlines()[0])
    file = write_rows(tmp_path / "out.jsonl", [row, {**row, "custom_id": "b", **change}])
    said = refused(file, tmp_path / "pool")
    assert said.startswith("out.jsonl, line 2: ")
    assert message in said


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"response": None, "error": None}, "no response"),
        ({"response": {"status_code": 500, "body": {}}}, "status 500"),
        ({"error": "gone"}, "gone"),
        (
            {"response": {"status_code": 400, "body": {"error": {"message": "too long"}}}},
            "too long",
        ),
    ],
)
def test_a_line_that_failed_is_a_failed_response(
    tmp_path: Path, write_rows: WriteRows, line: dict[str, Any], message: str
) -> None:
    body = {"choices": [{"message": {"content": "\\boxed{7}"}}]}
    good = {"custom_id": "b", "response": {"body": body}}
    file = write_rows(tmp_path / "rows", [{"custom_id": "a", **line}, good])
    assert next(iter(imported(file, tmp_path / "pool"))).responses == (Response("", error=message),)


def test_questions_that_do_not_fit_are_refused(tmp_path: Path, write_rows: WriteRows) -> None:
    def said(*rows: dict[str, Any]) -> str:
        questions = write_rows(tmp_path / "asked.jsonl", rows)
        return refused(OUTPUT, tmp_path / "pool", questions=questions)

    asked = {"id": "apples", "question": "?"}
    assert said(asked) == "batch_output.jsonl, line 1: asked.jsonl has no question pens"
    assert said(asked, asked) == "asked.jsonl, line 2: apples comes a second time"
    assert said() == "asked.jsonl holds no question"
    assert "no message of a user" in said({"custom_id": "apples", "body": {}})
    with pytest.raises(UsageError, match="--questions goes with openai-batch"):
        imported(DATA / "wide.parquet", tmp_path / "pool", questions=INPUT)
    with pytest.raises(UsageError, match="there is no file"):
        imported(OUTPUT, tmp_path / "pool", questions=tmp_path / "none")


# --- allocations out ------------------------------------------------------------------------------


def test_allocations_become_the_output_of_a_batch(
    tmp_path: Path, numeric: Task, record_of: Callable[..., Any]
) -> None:
    record = record_of("q1", ["7"] * 4)
    run = Run(record.question, ASC(0.95), task=numeric, schedule=Schedule((4,)))
    run.feed(record.responses)
    done = run.allocation
    failed = replace(done, question_id="q2", error="upstream: gone")
    lines = "".join(json.dumps(allocation_line(each)) + "\n" for each in (done, failed))
    (tmp_path / "solved.jsonl").write_text(lines)
    assert export_allocations(tmp_path / "solved.jsonl", tmp_path / "batch.jsonl") == 2
    first, second = map(json.loads, (tmp_path / "batch.jsonl").read_text().splitlines())
    completion = ChatCompletion.model_validate(first["response"]["body"])
    assert (first["custom_id"], completion.choices[0].message.content) == (
        "q1",
        "so it is \\boxed{7}",
    )
    assert first["response"]["body"]["aera"]["reason"] == done.reason
    assert completion.usage is not None
    assert completion.usage.completion_tokens == done.completion_tokens
    assert (second["response"], second["error"]["message"]) == (None, "upstream: gone")
    pool = imported(tmp_path / "batch.jsonl", tmp_path / "pool")
    assert [numeric.read(r.responses[0]).answer for r in pool] == ["7", None]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (None, "solved holds no allocation"),
        ({}, 'solved, line 1: the field "question_id" is missing'),
        ({"question_id": "a", "answer": 7}, 'solved, line 1: the field "answer" is 7'),
    ],
)
def test_what_is_no_allocation_is_refused(
    tmp_path: Path, write_rows: WriteRows, row: dict[str, Any] | None, message: str
) -> None:
    file = write_rows(tmp_path / "solved", [] if row is None else [row])
    with pytest.raises(RecordError) as caught:
        export_allocations(file, tmp_path / "out")
    assert str(caught.value) == message
    assert not (tmp_path / "out").exists()
