"""Tasks: what they are made of, and what is special about reading with each."""

from pathlib import Path

import pytest

from aera import Question, Response, Task, Vote, get_task
from aera.errors import UsageError
from aera.lab import TASKS
from aera.reading.task import REDO_NOTE, needs_redo, readable_answer, task_from_json, with_redo

PAPER = with_redo(get_task("gsm8k"))


def test_the_redo_test_is_on_only_where_somebody_asks_for_it() -> None:
    assert not [task for task in TASKS.values() if task.redo or REDO_NOTE in task.template]
    assert PAPER.redo
    assert PAPER.template.endswith(REDO_NOTE)
    assert PAPER.read(Response("The answer is 7")) == Vote(None, redo=True)


@pytest.mark.parametrize(
    ("text", "redo"),
    [
        (r"\boxed{5}", False),
        (r"It's better to redo the question. \boxed{5}", True),
        (r"It is better to redo. \boxed{5}", True),
        (r"Better to redo? \boxed{5}", False),
        ("5", True),
        ("", True),
        ("Boxed", False),
        (r"\boxed{5}" + "." * 92, False),
        (r"\boxed{5}" + "." * 97, True),
        (r"<think>better to redo</think>\boxed{5}", True),
    ],
)
def test_a_redo_is_a_phrase_or_a_missing_box(text: str, redo: bool) -> None:
    assert needs_redo(text) is redo


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
    assert task_from_json({**get_task(name).as_json(), "unknown": 1}) == get_task(name)


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
    written = ["so \\boxed{7}", "x #### 7 ", "7", "many", "", None]
    read = [readable_answer(COLOURS, text, get_task("numeric")) for text in written]
    assert read == ["7", "7", "7", None, None, None]
    written = [(COLOURS, "blue"), (COLOURS, "A"), (Question("p", "?"), "blue")]
    read = [readable_answer(*each, get_task("choice")) for each in written]
    assert read == ["B", "A", None]
