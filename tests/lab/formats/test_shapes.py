"""Files as people bring them: each comes in as it is, or is refused with what to do."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from foreign import brought

from aera import get_task
from aera.errors import AeraError
from aera.lab import Truths

TOM, SIX = "Tom has 3 apples and buys 4. How many?", "What is 6 x 7?"
BOXES = ["\\boxed{7}", "\\boxed{8}"]


def logprob(token: str, value: float) -> dict[str, Any]:
    return {"logprob": value, "rank": 1, "decoded_token": token}


def requested(name: str, prompt: str | None, *answers: int) -> dict[str, Any]:
    """A `RequestOutput` of vLLM, as its fields are written down."""
    tops = {str(100 + i): logprob(str(i), -5.0 - i) for i in range(20)}
    steps = [
        {"10": logprob("so ", -0.1), **tops},
        {"11": logprob("\\boxed{7", -0.2), **tops},
        {"12": logprob("}", -0.3), **tops},
    ]
    told = {"token_ids": [10, 11, 12], "cumulative_logprob": -0.6, "finish_reason": "stop"}
    outputs = [
        {"index": i, "text": f"so \\boxed{{{answer}}}", "logprobs": steps, **told}
        for i, answer in enumerate(answers)
    ]
    ids = {"prompt_token_ids": [1, 2, 3, 4, 5], "prompt_logprobs": None}
    return {"request_id": name, "prompt": prompt, **ids, "outputs": outputs, "finished": True}


def completion(name: str, *answers: int) -> dict[str, Any]:
    """A chat completion, of twenty tokens to each choice."""
    choices = [
        {"index": i, "message": {"content": f"\\boxed{{{each}}}"}, "finish_reason": "stop"}
        for i, each in enumerate(answers)
    ]
    usage = {"prompt_tokens": 9, "completion_tokens": 20 * len(choices)}
    return {"id": name, "object": "chat.completion", "model": "m", "choices": choices,
            "usage": usage}  # fmt: skip


ROW = {"question": TOM, "answer": "7", "responses": BOXES}
REPLIES = [
    {"prompt": p, **completion(f"{p}{a}", a)} for a in (7, 8) for p in (TOM, SIX)
]  # a call each
EXCEL = f"Question;Model Output;Correct Answer\n{TOM};the answer is 7;7\n{TOM};the answer is 8;7\n"
NUMBERED = f"question,answer,response_1,response_2\n{TOM},7,{BOXES[0]},{BOXES[1]}\n"
SHARED = {"conversations": [{"from": "human", "value": TOM}, {"from": "gpt", "value": BOXES[0]}]}
ASKED = {"messages": [{"role": "user", "content": TOM}]}
OTHER = {**ROW, "question": SIX}
CALLS = [requested(f"{a}{p}", p, a) for a in (7, 8) for p in (TOM, SIX)]
SHAPES: dict[str, tuple[Any, dict[str, int]]] = {
    "capitals.jsonl": ([{name.title(): value for name, value in ROW.items()}], {"0": 2}),
    "by_id.json": (json.dumps({"tom": ROW, "six": OTHER}), {"tom": 2, "six": 2}),
    "in_data.json": (json.dumps({"meta": {"model": "m"}, "data": [ROW]}, indent=1), {"0": 2}),
    "alone.json": (json.dumps(ROW, indent=1), {"0": 2}),
    "pretty.jsonl": ("\n".join(json.dumps(r, indent=2) for r in (ROW, OTHER)), {"0": 2, "1": 2}),
    "numbered.csv": (NUMBERED, {"0": 2}),
    "twice.csv": (NUMBERED.replace("_1", "").replace("_2", ""), {"0": 2}),
    "excel.csv": (EXCEL, {"0": 2}),
    "generated.jsonl": ([{"prompt": TOM, "generated_text": text} for text in BOXES], {"0": 2}),
    "output.jsonl": ([{"input": TOM, "output": BOXES, "gt": "7"}], {"0": 2}),
    "objects.jsonl": ([{"prompt": TOM, "response": [{"text": each} for each in BOXES]}], {"0": 2}),
    "sharegpt.jsonl": ([SHARED], {"0": 1}),
    "reply.jsonl": ([{"prompt": TOM, "response": completion("c", 7, 8)}], {"0": 2}),
    "replies.jsonl": ([{**ROW, "responses": [completion("c", 7), completion("d", 8)]}], {"0": 2}),
    "logged.jsonl": ([{"request": ASKED, "response": completion("c", 7)}], {"0": 1}),
    "calls.jsonl": (REPLIES, {"0": 2, "1": 2}),
    "requests.jsonl": (CALLS, {f"7{TOM}": 2, f"7{SIX}": 2}),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_comes_in(tmp_path: Path, name: str) -> None:
    content, counts = SHAPES[name]
    pool = brought(tmp_path, content, name, task="numeric").pool
    assert {each.question.id: len(each.responses) for each in pool} == counts
    first = next(iter(pool))
    assert (first.question.text, first.read(pool.task).votes[0].answer) == (TOM, "7")


@pytest.mark.parametrize("values", [BOXES, [7, 8]])
@pytest.mark.parametrize("name", ["answer_1", "Answer 1", "1"])
def test_the_numbered_column_that_is_suggested_stands_for_all_of_its_kind(
    tmp_path: Path, name: str, values: list[Any]
) -> None:
    numbered = {name.replace("1", str(n)): value for n, value in enumerate(values, 1)}
    rows = [{"question": TOM, "answer": "7", "model_name": "m", **numbered}]
    with pytest.raises(AeraError, match=r"or give --map (.*), which takes all 2") as caught:
        brought(tmp_path, rows, task="numeric")
    [told] = re.findall(r"--map (.*), which", str(caught.value))
    del rows[0]["answer"]
    found = brought(tmp_path, rows, task="numeric", columns=[told])
    assert "columns without a use: model_name; --map answer=NAME says which is right" in found.lines
    [record] = found.pool
    votes = record.read(get_task("numeric")).votes
    assert [vote.answer for vote in votes] == ["7", "8"]


@pytest.mark.parametrize("name", ["dump.jsonl", "dump.json"])
def test_a_dump_of_vllm_keeps_tokens_logprobs_and_ids(tmp_path: Path, name: str) -> None:
    rows = [requested("a", TOM, 7, 7, 8), requested("b", SIX, 42, 42, 41)]
    content = rows if name[-1] == "l" else json.dumps(rows, indent=1)
    found = brought(tmp_path, content, name, task="numeric")
    assert [*found.pool.questions] == ["a", "b"]
    first = next(iter(found.pool)).responses
    told = [(each.tokens, each.logprob, each.prompt_tokens) for each in first]
    assert told == [(3, -0.6, 5), (3, -0.6, 0), (3, -0.6, 0)]
    assert first[0].trace is not None
    assert first[0].finish_reason == "stop"
    assert not any("estimated" in line for line in found.lines)


def test_a_reply_keeps_what_its_server_counted(tmp_path: Path) -> None:
    row = {"prompt": TOM, "response": completion("c", 7, 8)}
    [record] = brought(tmp_path, [row], task="numeric").pool
    told = [(each.tokens, each.prompt_tokens, each.model) for each in record.responses]
    assert told == [(20, 9, "m"), (20, 0, "m")]


def test_thinking_apart_from_the_text_is_kept_and_has_tokens(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = [
        {"content": text, "reasoning_content": "hm " * 40} for text in BOXES
    ]
    told += [{"content": None, "reasoning_content": "\\boxed{9}"}, {"content": "7"}]
    [record] = brought(tmp_path, [{"problem": TOM, "responses": told}], task="numeric").pool
    assert [vote.answer for vote in record.read(get_task("numeric")).votes] == ["7", "8", None, "7"]
    assert [each.tokens for each in record.responses] == [36, 36, 6, 1]


@pytest.mark.parametrize(
    ("said", "whole", "kind", "key"),
    [
        ("She has them all. The answer is 7.", True, "text", "response_answer"),
        ("7", False, "answer", "text"),
    ],
)
def test_an_answer_beside_a_target_is_the_models_and_that_is_told(
    tmp_path: Path, said: str, whole: bool, kind: str, key: str
) -> None:
    table = f'question,answer,target\n{TOM},"{said}",7\n'
    found = brought(tmp_path, table, "table.csv", task="numeric")
    assert [each.text for each in next(iter(found.pool)).responses] == [said if whole else ""]
    assert Truths.open(found.pool.path) == Truths({"0": "7"})
    [told] = [line for line in found.lines if "--map" in line]
    assert told == (
        f'the column "answer" is taken for the {kind} of the model, and "target" for what is '
        f"right; --map {key}=answer says otherwise"
    )
    (tmp_path / "pool").rename(tmp_path / "first")
    again = brought(tmp_path, table, "table.csv", task="numeric", columns=[f"{key}=answer"])
    assert Truths.open(again.pool.path) == Truths({"0": "7"})


@pytest.mark.parametrize("prompt", [TOM, f"{TOM}\n<think>\n"])
def test_thinking_that_the_prompt_opened_and_nothing_closes_never_votes(
    tmp_path: Path, prompt: str
) -> None:
    whole = "5 x 20.\n</think>\n\\boxed{100}" if prompt == TOM else "<think></think>\\boxed{100}"
    texts = ["Maybe \\boxed{7}? But wait,"] * 3 + [whole]
    found = brought(tmp_path, [{**ROW, "question": prompt, "responses": texts}], task="numeric")
    assert "3 end inside thinking that the prompt opened, and do not vote" in found.lines
    [record] = found.pool
    votes = record.read(found.pool.task).votes
    assert [vote.answer for vote in votes] == [None, None, None, "100"]
    assert [response.truncated for response in record.responses] == [True, True, True, False]


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([ROW | {"responses": ["<plan>a</plan> \\boxed{7}"] * 31}], "31 begin with <plan>"),
        ([{"problem": f"{TOM} {n}", "text": "\\boxed{7}"} for n in range(3)], "nothing to vote on"),
        ([{"question": TOM, "text": t, "model": m} for m in "ABB" for t in BOXES], "A (2), B (4);"),
        ([{**ROW, "model": "A"}, {**OTHER, "model": "B"}], "2 models: A (2), B (2);"),
        ([{**ROW, "answer": None, "reference": "page"}], "truth: 1 question: 0 ('page' is no num"),
        ([{"question": TOM, "text": "so " * 70 + t} for t in BOXES * 2], "2 of 4 long responses"),
    ],
)
def test_what_is_strange_is_told(tmp_path: Path, rows: Any, told: str) -> None:
    assert told in "\n".join(brought(tmp_path, rows, task="numeric").lines)


GERMAN = "question,text\nÄpfel?,7\n".encode("latin-1")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", GERMAN, "can't decode byte 0xc4 .*; save it as UTF-8"),
        ("a.pkl", b"\x80\x04]", "is a pickle, which is not read; save it as JSON lines"),
        ("a.xlsx", b"PK\x03\x04", "is a spreadsheet, which is not read; save it as CSV"),
        ("a.jsonl", "{'question': 'x'}\n", "line 1: not JSON .* as json.dumps writes it"),
        ("a.txt", "RequestOutput(request_id=0)\n", "line 1: not JSON .* as json.dumps writes it"),
        ("a.jsonl", [json.dumps(json.dumps(ROW))], "a JSON object is needed, but got str"),
        ("a.jsonl", [completion("c", 7)], "there is no question.*there are object, model"),
        ("a.jsonl", [requested("a", None, 7)], "there is no question"),
        ("a.csv", f"question,answer\n{TOM},The answer is 7\n", "or give --map text=answer; there"),
        ("a.jsonl", [{"problem": TOM, "code": BOXES}], "or give --map responses=code; there"),
        ("a.jsonl", [{"asks": TOM, "responses": BOXES}], "or give --map question=asks; there"),
    ],
)
def test_a_shape_that_cannot_be_used_says_what_to_do(
    tmp_path: Path, name: str, text: Any, message: str
) -> None:
    with pytest.raises(AeraError, match=message):
        brought(tmp_path, text, name, task="numeric")
