"""Tasks: what they are made of, and what is special about reading with each."""

import json
from pathlib import Path

import pytest

from aera import Question, Response, Task, Vote, get_task
from aera.errors import UsageError
from aera.lab import TASKS
from aera.reading import task as tasks
from aera.reading.find import THINKING, last_boxed

PAPER = tasks.with_redo(get_task("gsm8k"))


def test_the_redo_test_is_on_only_where_somebody_asks_for_it() -> None:
    assert not [task for task in TASKS.values() if task.redo or tasks.REDO_NOTE in task.template]
    assert PAPER.redo
    assert PAPER.template.endswith(tasks.REDO_NOTE)
    assert PAPER.read(Response("The answer is 7")) == Vote(None, redo=True)


@pytest.mark.parametrize(
    ("text", "redo"),
    [
        (r"It's better to redo the question. \boxed{5}", True),
        (r"It is better to redo. \boxed{5}", True),
        (r"Better to redo? \boxed{5}", False),
        *((r"\boxed{5}" + "." * 92, False), (r"\boxed{5}" + "." * 97, True)),
        *(("Boxed", False), ("", True)),
    ],
)
def test_a_redo_is_a_phrase_or_a_missing_box(text: str, redo: bool) -> None:
    assert tasks.needs_redo(text) is redo


def test_a_redo_abstains_and_keeps_what_it_had_boxed_before() -> None:
    text = r"\boxed{5}. It's better to redo the question. \boxed{6}"
    assert PAPER.read(Response(text)) == Vote(None, redo=True, raw="5")
    cut = Response(r"\boxed{5} and then" + " more" * 30, finish_reason="length")
    assert PAPER.read(cut) == Vote(None, redo=True, raw="5")


@pytest.mark.parametrize("text", ["The answer is 5", "#### 5", "so\n5"])
def test_a_truncated_response_votes_by_its_box_only(text: str) -> None:
    task = get_task("gsm8k")
    assert task.read(Response(text)).answer == "5"
    assert task.read(Response(text, finish_reason="length")).answer is None
    boxed = Response(r"\boxed{6} and " + text, finish_reason="length")
    assert task.read(boxed) == Vote("6", raw="6")


def test_a_recorded_answer_is_read_where_there_is_no_text() -> None:
    assert get_task("numeric").read(Response("", answer="18.0")).answer == "18"
    assert get_task("choice").read(Response("", answer="N")).answer is None


def test_a_pattern_a_path_or_a_reader_is_the_only_place_that_is_looked_at() -> None:
    pattern = Task("mine", "numeric", pattern=r"^Result: (\S+)$")
    text = "Result: 4\nResult: 5.0\n\\boxed{6}"
    assert pattern.read(Response(text)).answer == "5"
    assert pattern.read(Response(r"\boxed{6}")).answer is None
    assert pattern.read(Response(r"Result: \boxed{6}")).answer == "6"
    path = Task("mine", "json", path="steps.-1.value")
    assert path.read(Response('{"steps": [{"value": 1}, {"value": "b"}]}')).answer == "b"
    reader = Task("mine", "text", normalise=(), reader="builtins:len")
    assert reader.read(Response("four")).answer == "4"


def test_a_reader_that_fails_abstains_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    task = Task("mine", "text", reader="math:sqrt")
    assert [task.read(Response("x")).answer for _ in range(3)] == [None] * 3
    assert len(caplog.records) == 1
    assert "math:sqrt failed" in caplog.text


def test_unread_responses_do_not_agree_on_anything() -> None:
    assert not get_task("numeric").same(None, "7")
    assert not get_task("numeric").same("x", "x")
    assert get_task("numeric").same("7.0", "7")


def test_the_prompt_lists_the_choices_by_letter() -> None:
    task = Task("mine", "choice", "Q: {question}!")
    assert task.prompt(Question("1", "Which?", ("red", "blue"))) == "Q: Which?\n(A) red\n(B) blue!"


@pytest.mark.parametrize("name", TASKS)
def test_a_task_survives_its_manifest(name: str) -> None:
    assert tasks.task_from_json({**get_task(name).as_json(), "unknown": 1}) == get_task(name)


# --- by name, from a file, from Python ------------------------------------------------------------

WHOLE = """
kind = "numeric"
prompt = "Q: {question}"
system = "Be brief."
pattern = 'Result: (\\d+)'
thinking = ["<plan>", "</plan>"]
"""


def write(folder: Path, text: str) -> str:
    file = folder / "mine.toml"
    file.write_text(text, "utf-8")
    return str(file)


def test_a_file_describes_a_task(tmp_path: Path) -> None:
    task = get_task(write(tmp_path, WHOLE))
    assert (task.name, task.template, task.system) == ("mine", "Q: {question}", "Be brief.")
    assert task.read(Response("Result: 12 apples")).answer == "12"
    assert task.read(Response("<plan>Result: 13")).answer is None


def test_what_a_file_does_not_say_is_the_preset_of_its_kind(tmp_path: Path) -> None:
    task = get_task(write(tmp_path, 'kind = "yes-no"\nname = "sure"'))
    assert task == Task("sure", "yes-no", get_task("yes-no").template)
    words = get_task(write(tmp_path, 'kind = "text"\nnormalise = ["case"]'))
    assert words.read(Response(r"\boxed{The End}")).answer == "the end"


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("kind", "is not TOML"),
        ("", "kind is missing; it is one of numeric"),
        ('kind = "essay"', 'kind is one of numeric, .* but got "essay"'),
        ('kind = "text"\nlike = 1', '"like" is unknown; there are name, kind, prompt'),
        ('kind = "text"\nprompts = "x"', 'did you mean "prompt"'),
        ('kind = "text"\nprompt = 3', "prompt must be text, but is 3"),
        ('kind = "text"\nprompt = "ask"', r"the prompt of the task .mine. has no \{question\}"),
        ('kind = "text"\nloose = "yes"', "loose must be true or false"),
        ('kind = "text"\nnormalise = [1]', "normalise must be text, but is 1"),
        ('kind = "text"\nnormalise = ["x"]', '"x" cannot be normalised away'),
        ('kind = "numeric"\npattern = "("', "is no regular expression"),
        ('kind = "numeric"\nthinking = ["<a>"]', "needs pairs: a marker that opens"),
        ('kind = "numeric"\nequivalence = true', "equivalence is for expressions"),
        ('kind = "numeric"\npath = "a"', 'path goes with kind = "json"'),
    ],
)
def test_a_bad_file_says_which_key_is_wrong(tmp_path: Path, text: str, trouble: str) -> None:
    with pytest.raises(UsageError, match=trouble):
        get_task(write(tmp_path, text))


def test_a_function_is_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_tasks.py").write_text(
        "def first_word(text):\n    return text.split()[0] if text.split() else None\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    own = get_task("my_tasks:first_word")
    assert own.read(Response("hello world")).answer == "hello"
    assert own.read(Response("  ")).answer is None


@pytest.mark.parametrize(
    ("named", "trouble"),
    [
        ("nothing", "no task is called"),
        ("gone.toml", r"gone.toml. cannot be read: No such file"),
        ("nowhere:x", 'the module "nowhere" cannot be imported'),
        ("math:nothing", 'the module "math" has no "nothing"'),
        ("math:pi", "is neither a Task nor a function"),
        (":x", "named as MODULE:NAME"),
    ],
)
def test_what_cannot_be_had_is_refused(named: str, trouble: str) -> None:
    with pytest.raises(UsageError, match=trouble):
        get_task(named)


# --- written answers ------------------------------------------------------------------------------

COLOURS = Question("q", "Which?", ("red", "blue"))


def test_a_solution_counts_as_what_it_boxes_or_marks_and_a_choice_as_its_letter() -> None:
    written = ["so \\boxed{7}", "x #### 7 ", "So the answer is 7.", "7", "many", "", None]
    read = [tasks.readable_answer(COLOURS, text, get_task("numeric")) for text in written]
    assert read == ["7", "7", "7", "7", None, None, None]
    written = [(COLOURS, "blue"), (COLOURS, "A"), (Question("p", "?"), "blue")]
    read = [tasks.readable_answer(*each, get_task("choice")) for each in written]
    assert read == ["B", "A", None]


# --- where a text gives its answer ----------------------------------------------------------------

ENDINGS = Path(__file__).parents[1] / "data" / "endings.jsonl"
"""401 endings with the right reading beside each, null where a careful reader abstains. Whoever
wrote them had not seen the reader."""
UNREAD = {
    "b134": "A: is a marker here and the first option of a choice elsewhere",
    "b333": "\u00d7 10^23 behind a phrase is a product, which only a box may hold",
    "b291": "the third option is named by its place only",
}
"""Rows that abstain and need not, with the reason."""


def answer_of(task: str, text: str, options: tuple[str, ...] = (), **more: str) -> str | None:
    reader = tasks.question_reader(get_task(task), Question("q", "?", options))
    return reader.read(Response(text, **more)).answer  # type: ignore[arg-type]


def endings() -> list[dict]:  # type: ignore[type-arg]
    return [json.loads(line) for line in ENDINGS.read_text("utf-8").splitlines()]


@pytest.mark.parametrize("row", endings(), ids=lambda row: row["id"])
def test_an_ending_is_read_as_its_author_meant_it(row: dict) -> None:  # type: ignore[type-arg]
    thought = f"<think>{row['reasoning']}</think>" if row.get("reasoning") else ""
    options = tuple(row.get("choices", ()))
    got = answer_of(row["task"], thought + row["text"], options, finish_reason=row["finish_reason"])
    wanted = None if row["id"] in UNREAD else row["answer"]
    assert got == (wanted and get_task(row["task"]).canonical(wanted)), row["why"]


ALTERNATIVES = r"""Answer: {} (or {})|#### {} (or {})|<answer>{} (or {})</answer>|**{}** (or {})
    |\boxed{{{}}} (or {})|$\boxed{{{}}}$ or {}|\boxed{{{}}} (possibly {})
    |The answer is **{}** (or {}).|Answer: {}, or perhaps {}|Answer: {} (alternatively {})
    |\boxed{{{}}} (oder {})"""
CITIES = ("London", "Berlin", "Paris", "Madrid")
SILENT = {
    "numeric": r"""Answer: 5 to 6|The answer is two of the three.|Answer: 5 100-gram bags
        |Answer: 5'11"|The answer is 3.5 x 10^4|Answer: 12 or more|Answer: 3! = 6|Answer: 0x1F
        |Answer: 2³|Answer: 101_2|Answer: 12 divided by three|The answer is 9 minus $4
        |The answer is two thirds.|The answer is 2 and a half|Answer: 5K|答案是1万2千元|答案是5或6
        |Ответ: 5 или 6|답은 5 또는 6입니다|The answer is 10^{3}.
        |So the answer: **18** apples and **20** pears|The answer is 5, but wait, it is 6
        |\boxed{18}\boxed{20}|Confidence: 95%|Answer: 5 apples (or 6)|**5** cm (or 6 cm)
        |so \boxed{5} apples or 6 apples.|So $a = \boxed{5}$ and $b = \boxed{6}$""",
    "choice": r"""Answer: (A) and (C)|If asked about Spain, D is correct.|Another option is B
        |Answer: (A) (B)|Answer: B. Wait, it is C|every answer choice: B|Answer: C major
        |Answer: E = mc^2|C. Paris|答案是A和C|정답은 A와 C|उत्तर A या B है""",
    "expression": "Answer: 2 or more|Answer: I think|The answer is 7 times 6",
}
"""What says nothing to be answer_of, by task; most of what does stands among the endings."""
ANSWERS_18 = """答えは18です。|정답은 18입니다|답: 18달러|উত্তর হল 18।|উত্তর: ১৮|उत्तर 18 है।|సమాధానం 18.
    |คำตอบคือ 18|Jibu ni 18.|الإجابة هي 18.|Ответ — 18.|La risposta è 18.|La réponse est donc 18.
    |Het antwoord is 18.|The answer must be 18.|**Answer:** She makes **$18** a day"""
NUMERIC = [
    *(("answer is $1{,}080$", "1080"), ("answer is 12 since 3 boxes hold 4", "12")),
    *((r"First \boxed{3}. Finally, \boxed{4}", "4"), (r"\boxed{3} and again \boxed{3}", "3")),
    *(("=> 131", "131"), ("So in all:\n\u2192 131", "131")),
    ("analysisWe get 5assistantfinal6", "6"),
    *((r"\boxed{90} (or 1.5 hours)", "90"), (r"\boxed{0.5} (or 50%)", "0.5")),
    *((r"\boxed{0.33} (or 1/3)", "0.33"), (r"\boxed{1/3} (or 0.333)", "1/3")),
    *((r"\boxed{5} (or 5.0)", "5"), (r"\boxed{5} or so", "5")),
    *(("The answer is 3½.", "3.5"), ("答案是2万元", "20000"), ("答案是5千克", "5")),
    ("Total cost: $18", "18"),
    *(("Answer:\n- 18 dollars", "18"), ("Apples: 5\nPears: 18", None), ("- 5\n- 18", None)),
    ("Answer:\n\n1. First compute 9.\n2. Then 18", None),
    *((f"The answer is 18{end}\n\nThe answer is 7", "18") for end in tasks._ENDS),
    *((each.strip(), "18") for each in ANSWERS_18.split("|")),
]
CHOICE = [
    *(("Answer: 'A'", "A"), (r"answer is \text{B}", "B"), ("answer is likely (B)", "B")),
    *(("The correct option is: [b]", "B"), ("This corresponds to option (B).", "B")),
    *(("The answer is \u201cA\u201d.", "A"), ("答えはAです", "A"), ("सही उत्तर B है।", "B")),
    *(("因此选择C。", "C"), ("Option B", "B")),
    ("The description matches A Tale of Two Cities", None),
    ("Let us check each option:\n\nA. is wrong\nB. fits", None),
]
EXPRESSION = [
    *(("Answer: x = 5 or x = 6", "5, 6"), ("answer: 2.5x+1. So", "2.5x+1")),
    *(("Answer: x+1 (by factoring)", "x+1"), ("Answer: 5 (possibly 6)", None)),
    *(("Solving:\n\n$x^2 + 1$", "x^2+1"), ("So the answer is $$x^2$$", "x^2")),
    ("The number of pairs is **117**.", "117"),
    ("### Final Answer\n\\[\n\\boxed{}\n\\]", None),
]
OTHERS = [
    *(("gpqa", r"\boxed{E}", None), ("mmlu-pro", r"\boxed{E}", "E")),
    ("text", r"so \boxed{The Eiffel Tower!}", "eiffel tower"),
    *(("text", "Thinking.\nParis", "paris"), ("text", "Paris is **not** it.", "paris is not it")),
    ("text", "The answer is Paris. It is in France.", "paris"),
    *(("text", "<answer>Paris</answer>", "paris"), ("yes-no", "Hm.\nTrue", "yes")),
    *(("yes-no", r"\boxed{\text{Yes}}", "yes"), ("yes-no", "The answer is: **No**, because", "no")),
    *(("yes-no", "perhaps", None), ("yes-no", "Answer: No idea", None)),
    *(("yes-no", "True or false? Hard to say", None), ("yes-no", "No information is given", None)),
    *(("yes-no", "It is not **true**.", None), ("yes-no", "The claim is **false**.", "no")),
    *(("text", "Answer: \u22125", "-5"), ("text", r"\boxed{[1,-2]}", "1 -2")),
    *(("text", "The order is **a b c**.", "b c"), ("text", "[ANSWER]\n5\n[/ANSWER]", "5")),
    *(("yes-no", "No, it is not", "no"), ("json", 'Here: {"answer": 4.0, "why": "so"} bye', "4")),
    *(("json", '{"other": 1}', None), ("json", '```json\n{"answer": " Paris "}\n```', "Paris")),
    *(("json", "no object", None), ("numeric-loose", "3 and 4 make 7 of them.", None)),
    *(("numeric-loose", "It makes 7.", "7"), ("numeric-loose", "4+5 = 9 apples.", "9")),
    *(("choice-loose", "It could be B.", "B"), ("choice-loose", "I would rule out B.", None)),
    *(("choice-loose", "Plan B, vitamin D.", None), ("choice-loose", "It is known.\nA) Rome", "A")),
    ("choice-loose", "(C) Paris\n\nIt lies on a river.", "C"),
    *(("choice-loose", "A. Rome\nB. Oslo", None), ("choice-loose", "A. Rome\n\nB. Oslo", None)),
    ("choice-loose", "A. Rome is old.\nB. Oslo is new.\n\nSo:\nA. Rome", "A"),
    ("choice-loose", "A. Let me think.\n\nSo it must be B.", "B"),
]
SAID = [
    *((task, text.strip(), None) for task, texts in SILENT.items() for text in texts.split("|")),
    *(("numeric", *each) for each in NUMERIC),
    *(("choice", *each) for each in CHOICE),
    *(("expression", *each) for each in EXPRESSION),
    *OTHERS,
]


@pytest.mark.parametrize(("task", "text", "answer"), SAID)
def test_a_response_votes_for_what_it_says(task: str, text: str, answer: str | None) -> None:
    assert answer_of(task, text) == answer


@pytest.mark.parametrize(
    ("task", "text", "answer"),
    [
        *(("choice", r"\boxed{\text{Berlin}}", "B"), ("choice", r"\boxed{Rome}", None)),
        *(("choice", "Answer: D. Paris", None), ("choice", "Answer: Paris", "C")),
        *(("choice", r"\boxed{E}", None), ("choice", "So:\nC. Paris", "C")),
        ("choice", "A is correct only if the sky is green. C is correct.", "C"),
        *(("choice-loose", "Hence Madrid!", "D"), ("choice-loose", "Except Madrid.", None)),
        *(("choice-loose", "C. Paris", "C"), ("choice-loose", "So:\nC. Madrid", None)),
    ],
)
def test_an_option_may_be_named_by_its_words(task: str, text: str, answer: str | None) -> None:
    assert answer_of(task, text, CITIES) == answer
    cells = ("T cells", "Macrophages", "B cells")
    said = ("Answer: B cells", "Answer: B", "Answer: T cells", "Answer: A. T cells, since B cells")
    assert [answer_of("choice", each, cells) for each in said] == ["C", "B", "A", "A"]
    assert answer_of("choice", "Answer: B", ("B", "A")) == "B"
    assert answer_of("choice", "Answer: C major", ("G major", "C major")) == "B"


@pytest.mark.parametrize("form", ALTERNATIVES.split("|"))
@pytest.mark.parametrize(
    ("task", "one", "other"),
    [
        *((name, "5", "6") for name in ("numeric", "numeric-loose", "expression")),
        *((name, "A", "C") for name in ("choice", "choice-loose")),
        *(("yes-no", "yes", "no"), ("yes-no", "no", "yes")),
    ],
)
def test_an_answer_beside_another_abstains(task: str, one: str, other: str, form: str) -> None:
    assert answer_of(task, form.strip().format(one, other)) is None


# --- boxes and thinking ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "content"),
    [
        *((r"\boxed{1} then \fbox{2}", "2"), (r"\boxed 18 apples", "18")),
        *((r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"), (r"\boxed{\boxed{5}}", "5")),
        *((r"\boxed{1} and \boxed{}", "1"), (r"\boxed{1} and \boxed{2", "1")),
        *((r"\boxed{\text{a \} b}}", r"\text{a \} b}"), (r"a box of \boxes{5}", None)),
        ("\\boxed{%s}" % ("{x}" * 5_000), "{x}" * 5_000),
    ],
)
def test_the_last_closed_box_with_something_in_it_counts(text: str, content: str | None) -> None:
    assert last_boxed(text) == content


@pytest.mark.parametrize(("opening", "closing", "model"), THINKING)
def test_every_known_marker_hides_what_it_encloses(opening: str, closing: str, model: str) -> None:
    opening = opening.removeprefix("^")
    boxed = f"{opening}So \\boxed{{7}}. "
    assert model
    assert answer_of("numeric", boxed) is None
    assert answer_of("numeric", f"{boxed}{closing}Answer: 42") == "42"
    assert answer_of("numeric", f"{boxed}{boxed}{closing}{closing}\\boxed{{42}}") == "42"
    if opening != "analysis":
        assert answer_of("numeric", f"{boxed.upper()}{closing.upper()}Answer: 42") == "42"
        assert answer_of("numeric", f"\\boxed{{1}}{boxed}") is None


def test_a_task_adds_its_own_markers_and_unknown_ones_are_counted() -> None:
    plan, plain = "<plan>\\boxed{7}</plan>Answer: 42", get_task("numeric")
    own = Task("mine", "numeric", thinking=("<plan>", "</plan>"))
    assert (plain.read(Response(plan)).answer, own.read(Response(plan)).answer) == ("7", "42")
    texts = (plan, "<think>x</think>\\boxed{1}", "<answer>2</answer>")
    replies = [Response(text) for text in texts]
    found = tasks.Readability.of("q", replies, [plain.read(each) for each in replies])
    assert found.markers == {"<plan>": 1}
    said = found.join([found]).summary()
    assert '2 begin with <plan> (if that is thinking, a task file says so: thinking = ["<pl' in said
    assert "<plan>" not in found.summary(own)


def test_what_would_help_is_said_where_little_was_read() -> None:
    prose, cut = [Response("So he has 339.")], [Response("So he has 3", finish_reason="length")]
    loose = "--task numeric-loose reads a last sentence too; or give another --task"
    for name, replies, advice in (
        ("numeric", prose, loose),
        ("text", prose, "rests on few of them; give another --task"),
        ("numeric", cut, "most were cut off: allow more tokens"),
        ("numeric", [Response("")], "most failed or came without a text: look at what the server"),
    ):
        task = get_task(name)
        found = tasks.Readability.of("q", replies, [task.read(Response("?!"))])
        assert advice in (found.warning(task) or "")
