"""What a row means: names, conversations, lists, single responses and answers alone."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from foreign import brought

from aera import Question, Response, get_task
from aera.errors import AeraError
from aera.lab import Truths
from aera.lab.formats.rows import Entry, read_exam, read_questions, read_rows
from aera.lab.formats.sources import NAMES

Row = dict[str, Any]


def entries(*rows: Row, **mapped: str) -> list[Entry]:
    return list(read_rows(((f"f, line {n}", row) for n, row in enumerate(rows, 1)), mapped))


def only(*rows: Row, **mapped: str) -> Entry:
    (entry,) = entries(*rows, **mapped)
    return entry


def said(entry: Entry) -> list[str]:
    return [response.text for response in entry.responses]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(ours, name) for ours in ("question", "responses", "answer") for name in NAMES[ours]],
)
def test_the_usual_names_are_known(ours: str, theirs: str) -> None:
    row = {"question": "?", "responses": ["x", {"text": "y"}], "answer": 7}
    entry = only({theirs if name == ours else name: value for name, value in row.items()})
    assert entry.question == Question("0", "?")
    assert (said(entry), entry.truth) == (["x", "y"], "7")
    assert entry.truth_name == (theirs if ours == "answer" else "answer")


@pytest.mark.parametrize("name", ["qid", "doc_id", "example_id", "sample_id"])
def test_questions_of_one_wording_are_told_apart_by_their_id(name: str) -> None:
    rows = [{name: f"q{n % 3}", "prompt": "Which is right?", "output": "x"} for n in range(12)]
    found = [(each.question.id, len(each.responses)) for each in entries(*rows)]
    assert found == [("q0", 4), ("q1", 4), ("q2", 4)]


@pytest.mark.parametrize("one", NAMES["text"])
def test_rows_of_one_response_are_grouped(one: str) -> None:
    rows = [{"question": q, one: f"{q}{n}", "index": n} for n in (2, 0, 1) for q in "ab"]
    first, second = entries(*rows)
    assert (said(first), said(second)) == (["a0", "a1", "a2"], ["b0", "b1", "b2"])
    assert [each.question.id for each in (first, second)] == ["0", "1"]


def test_an_id_that_every_row_has_of_its_own_groups_none() -> None:
    rows = [{"id": n, "question": "ab"[n % 2], "text": str(n)} for n in range(8)]
    first, second = entries(*rows)
    assert (first.question.id, said(second)) == ("0", ["1", "3", "5", "7"])
    assert len(entries(*({"id": n, "question": str(n), "text": "x"} for n in range(8)))) == 8
    begun = [{"id": n % 2, "question": str(n // 2), "text": "x"} for n in range(4)] * 2
    assert [len(each.responses) for each in entries(*begun, id="question")] == [4, 4]


def test_a_conversation_is_a_question_a_system_message_and_perhaps_a_reply() -> None:
    talk = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "hello!"},
        {"role": "user", "content": [{"type": "text", "text": "look:"}]},
        {"role": "user", "content": "how many?"},
    ]
    asked = Question("0", "look:\n\nhow many?", system="be brief")
    assert only({"messages": talk, "responses": ["7"]}).question == asked
    assert only({"prompt": talk, "completion": "7"}).question == asked
    assert only({"input": {"messages": talk}, "completion": "7"}).question == asked
    replies = [[*talk, {"role": "assistant", "content": text}] for text in "78"]
    entry = only(*({"messages": each} for each in replies))
    assert (entry.question, said(entry)) == (asked, ["7", "8"])
    other = [{"role": "user", "content": "bye"}, *talk[2:]]
    assert len(entries({"messages": talk, "text": "7"}, {"messages": other, "text": "7"})) == 2


def test_a_question_beside_messages_keeps_their_system_message() -> None:
    talk = [{"role": "system", "content": "s"}, {"role": "user", "content": "Q: how many?"}]
    question = only({"question": "how many?", "messages": talk, "responses": ["7"]}).question
    assert question == Question("0", "how many?", system="s")
    assert only({"question": "?", "system": "s", "text": "7"}).question.system == "s"


def test_cells_may_hold_lists_and_numbers_as_text() -> None:
    row = {
        "question": '[{"role": "user", "content": "which?"}]',
        "choices": '["tea", "milk"]',
        "responses": '["A", {"text": "B", "tokens": "12", "logprob": "-1.5", "seed": "3"}]',
        "group": 5,
    }
    entry = only(row)
    assert entry.question == Question("0", "which?", ("tea", "milk"), group="5")
    assert entry.responses[1] == Response("B", 12, -1.5, seed=3)
    text = only({"question": "?", "text": "[1, 2]", "tokens": "209.0", "index": "0"})
    assert text.responses == (Response("[1, 2]", 209),)
    assert said(only({"question": "?", "responses": "['it\\'s 1', \"2\"]"})) == ["it's 1", "2"]


@pytest.mark.parametrize(
    "choices", [["tea", 2], {"A": "tea", "B": 2}, {"label": ["A", "B"], "text": ["tea", 2]}]
)
def test_choices_come_as_a_list_by_letter_or_with_labels(choices: Any) -> None:
    row = {"question": "?", "options": choices, "responses": ["A"]}
    assert only(row).question.choices == ("tea", "2")
    columns = {"question": "?", "A": "tea", "Option B": 2, "option_d": "no", "responses": ["A"]}
    assert only(columns).question.choices == ("tea", "2"), "C is missing, so D is none of them"


def test_a_response_may_be_its_answer_alone() -> None:
    told = [{"answer": "33", "tokens": 9}, {"answer": None, "tokens": 5}, {"final_answer": 7}]
    entry = only({"question": "?", "answer": "1", "responses": [*told, {"prediction": ["x"]}, 8]})
    assert entry.responses == (
        Response("", 9, answer="33"),
        Response("", 5),
        Response("", 1, answer="7"),
        Response("", 1, answer="x"),
        Response("", 1, answer="8"),
    )
    assert (entry.truth, entry.estimated) == ("1", True)


def test_an_answer_is_told_from_the_truth_and_beside_a_text_only_a_mapped_one_counts() -> None:
    row = {"question": "?", "answer": "7", "prediction": "8"}
    assert (only(row).truth, only(row).responses[0].answer) == ("7", "8")
    row = {"question": "?", "text": "so 7", "extracted": "7", "answer": "6"}
    assert only(row).responses == (Response("so 7", 1),)
    mapped = only(row, response_answer="extracted")
    assert mapped.responses == (Response("so 7", 1, answer="7"),)


def test_responses_may_be_choices_or_conversations() -> None:
    choice = {"index": 1, "message": {"role": "assistant", "content": "b"}, "finish_reason": "stop"}
    first = {"index": 0, "message": {"content": "a", "reasoning": "hm"}}
    told = said(only({"question": "?", "responses": [choice, first]}))
    assert told == ["<think>hm</think>a", "b"]
    talk = [[{"role": "assistant", "content": "a"}], [{"role": "assistant", "content": "b"}]]
    assert said(only({"question": "?", "completions": talk})) == ["a", "b"]


def test_a_column_that_is_empty_gives_way_to_the_next() -> None:
    row = {"question": None, "problem": "?", "answer": float("nan"), "solution": "#### 7"}
    entry = only({**row, "responses": None, "text": "7", "id": None})
    assert (entry.question, entry.truth) == (Question("0", "?"), "#### 7")


@pytest.mark.parametrize("name", ["gold", "target", "ground_truth", "reference", "answerKey"])
def test_an_answer_beside_a_clearer_truth_also_an_empty_one_is_the_models(name: str) -> None:
    for gold in ("4", None):
        entry = only({"question": "?", "answer": "5", name: gold, "responses": ["5"]})
        assert (entry.truth, entry.unused) == (gold, ("answer",))


@pytest.mark.parametrize(
    "row",
    [
        {"samples": [{"text": "x", "finish": "stop"}, {"text": "y", "stop_reason": "max_tokens"}]},
        {"responses": ["x", "y"], "finish_reasons": ["stop", "length"]},
        {"outputs": "['x', 'y']", "finish": "['stop', 'MAX_TOKENS']"},
    ],
)
def test_why_a_response_ended_is_read_by_any_usual_name(row: Row) -> None:
    told = [each.finish_reason for each in only({"question": "?", **row}).responses]
    assert told == ["stop", "length"]


def test_mapped_columns_count_before_the_usual_ones() -> None:
    row = {"question": "no", "item": {"q": "?", "run": 1}, "t": "7", "name": "a", "k": "g"}
    row["r"] = [{"said": "x", "n": 3}]
    mapped = {"question": "item.q", "responses": "r", "text": "said", "tokens": "n", "answer": "t"}
    entry = only(row, **mapped, id="name", group="k")
    assert entry.question == Question("a", "?", group="g")
    assert (entry.responses, entry.truth) == ((Response("x", 3),), "7")
    assert entry.unused == ("question", "item.run")


def test_a_mapped_column_may_be_missing_from_some_rows_but_not_from_all() -> None:
    rows = [{"id": n, "question": "?", "responses": ["x"]} for n in "ab"]
    found = entries(rows[0], {**rows[1], "t": "7"}, answer="t")
    assert [each.truth for each in found] == [None, "7"]
    with pytest.raises(AeraError, match='line 1: there is no column "t"; there are id, quest'):
        entries(*rows, answer="t")


# --- files of questions ---------------------------------------------------------------------------

COLOURS = {"id": "c", "question": "which?", "choices": ["red", "blue", "green", "grey"]}


def exam_of(
    tmp_path: Path, *rows: dict[str, Any], task: str = "numeric", seed: int = 0
) -> tuple[list[Question], Truths | None]:
    """The exam these lines make, a blank one below each."""
    (tmp_path / "q.jsonl").write_text("".join(f"{json.dumps(row)}\n\n" for row in rows))
    return read_exam(tmp_path / "q.jsonl", get_task(task), seed=seed)


def test_questions_and_truths_are_parted(tmp_path: Path) -> None:
    rows = ({"id": "a", "question": "1+1?", "answer": 2}, {"question": "2+2?", "answer": None})
    questions = [Question("a", "1+1?"), Question("3", "2+2?")]
    assert exam_of(tmp_path, *rows) == (questions, Truths({"a": "2"}))
    assert exam_of(tmp_path, {"question": "?"})[1] is None


def test_the_truth_moves_with_the_choices_where_the_task_shuffles(tmp_path: Path) -> None:
    line = {**COLOURS, "answer": "green"}
    [question], truths = exam_of(tmp_path, line, task="commonsense", seed=5)
    assert (question.choices, truths) == (tuple(COLOURS["choices"]), Truths({"c": "C"}))
    for answer in ("green", "C", "(C)"):
        for seed in range(6):
            line = {**COLOURS, "answer": answer}
            [question], truths = exam_of(tmp_path, line, task="gpqa", seed=seed)
            assert question.choices["ABCD".index(truths["c"])] == "green"
            assert question == Question("c", "which?", tuple(COLOURS["choices"])).arrange(seed)


TABLE = 'id,problem,answer\na,1+1?,2\nb,"2, or 3?",3\n'
ROWS = '{"a": {"problem": "1+1?", "answer": 2}, "b": {"problem": "2, or 3?", "answer": 3}}'


@pytest.mark.parametrize(("name", "text"), [("q.csv", TABLE), ("q.txt", TABLE), ("q.json", ROWS)])
def test_a_table_is_read_and_its_answers_stay_behind(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    asked = [Question("a", "1+1?"), Question("b", "2, or 3?")]
    exam = read_exam(tmp_path / name, get_task("numeric"))
    assert exam == (asked, Truths({"a": "2", "b": "3"}))
    assert read_questions(tmp_path / name) == asked


def test_a_question_of_another_name_is_mapped(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("asked,answer\n1+1?,2\n")
    mapped = read_questions(tmp_path / "q.csv", ["question=asked"])
    assert mapped == [Question("2", "1+1?")]


def test_plain_lines_are_questions_as_they_stand(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text('one?\n\n{"id": "b", "question": "two?", "answer": "2"}\n')
    assert read_questions(tmp_path / "q.txt") == [Question("1", "one?"), Question("b", "two?")]


# --- files as people bring them -------------------------------------------------------------------

TOM, SIX = "Tom has 3 apples and buys 4. How many?", "What is 6 x 7?"
BOXES = ["\\boxed{7}", "\\boxed{8}"]


def logprob(token: str, value: float) -> dict[str, Any]:
    return {"logprob": value, "rank": 1, "decoded_token": token}


def requested(name: str, prompt: str | None, *answers: int) -> dict[str, Any]:
    """A `RequestOutput` of vLLM, as its fields are written down."""
    tops = {str(100 + i): logprob(str(i), -5.0 - i) for i in range(20)}
    said = enumerate(("so ", "\\boxed{7", "}"), start=10)
    steps = [{str(place): logprob(each, -0.2), **tops} for place, each in said]
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
    "table.json": (json.dumps({"columns": [*ROW], "data": [[*ROW.values()]]}), {"0": 2}),
    "columns.json": (json.dumps({name: {"0": each} for name, each in ROW.items()}), {"0": 2}),
    "nested.json": (json.dumps({"acc": {"x": 1}, "samples": [ROW]}), {"0": 2}),
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
    one = [told.replace("responses", "text"), "answer=right"]
    row = {**{each: str(told) for each, told in rows[0].items()}, "right": "7"}
    again = brought(tmp_path, [row], task="numeric", columns=one)
    assert f'"{name}" is one of 2 columns numbered like it: --map {told} takes all' in again.lines


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


@pytest.mark.parametrize("columns", [None, ["responses=choices"]])
def test_choices_that_say_their_content_are_replies(tmp_path: Path, columns: Any) -> None:
    about = {"finish_reason": "stop", "usage": {"completion_tokens": 9}}
    rows = [{"question": TOM, "choices": [{"content": each, **about} for each in BOXES]}]
    [record] = brought(tmp_path, rows, task="numeric", columns=columns).pool
    assert [(each.text, each.tokens) for each in record.responses] == [(each, 9) for each in BOXES]


def test_thinking_apart_from_the_text_is_kept_and_has_tokens(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = [
        {"content": text, "reasoning_content": "hm " * 40} for text in BOXES
    ]
    told += [{"content": None, "reasoning_content": "\\boxed{9}"}, {"content": "7"}]
    [record] = brought(tmp_path, [{"problem": TOM, "responses": told}], task="numeric").pool
    assert [vote.answer for vote in record.read(get_task("numeric")).votes] == ["7", "8", None, "7"]
    assert [each.tokens for each in record.responses] == [36, 36, 6, 1]
    row = {"problem": TOM, "responses": BOXES, "reasoning_content": ["hm " * 40] * 2}
    [beside] = brought(tmp_path, [row], task="numeric").pool
    assert beside.responses == record.responses[:2]


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
    again = brought(tmp_path, table, "table.csv", task="numeric", columns=[f"{key}=answer"])
    assert Truths.open(again.pool.path) == Truths({"0": "7"})


@pytest.mark.parametrize("prompt", [TOM, f"{TOM}\n<think>\n"])
def test_thinking_that_the_prompt_opened_never_votes(tmp_path: Path, prompt: str) -> None:
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
        ([{**ROW, "answer": None, "reference": "page"}], "truth: 1 question: 0 ('page' is no num"),
        ([{"question": TOM, "text": "so " * 70 + t} for t in BOXES * 2], "2 of 4 long responses"),
        ([{**ROW, "gold": "9"}], "columns without a use: answer; gold says what is right"),
        ([{"question": TOM, "response": t, "output": "?"} for t in BOXES], "without a use: output"),
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
        ("a.jsonl", [json.dumps(json.dumps(ROW))], "a JSON object is needed, but got str"),
        ("a.jsonl", [completion("c", 7)], "there is no question.*there are object, model"),
        ("a.csv", f"question,answer\n{TOM},The answer is 7\n", "or give --map text=answer; there"),
        ("a.csv", f"question,outputs\n{TOM},\"['a'\n 'b']\"\n", "numpy prints no commas: tolist"),
        ("a.jsonl", [{"item": ASKED, "n": 1}], "question=NAME; there are item.messages, n$"),
        ("a.jsonl", [ROW | {"finish": ["stop"]}], "finish.* no list of 2"),
        ("a.jsonl", [ROW | {"reasoning_content": ["hm"]}], "reasoning_content.* no list of 2"),
        ("a.jsonl", [{"problem": TOM, "code": BOXES}], "or give --map responses=code; there"),
        ("a.jsonl", [{"asks": TOM, "responses": BOXES}], "or give --map question=asks; there"),
    ],
)
def test_a_shape_that_cannot_be_used_says_what_to_do(
    tmp_path: Path, name: str, text: Any, message: str
) -> None:
    with pytest.raises(AeraError, match=message):
        brought(tmp_path, text, name, task="numeric")
