"""Tasks by name, from a file of one's own, and from Python."""

from pathlib import Path

import pytest

from aera.core import Response
from aera.errors import UsageError
from aera.reading.task import Task, get_task, with_redo

WHOLE = """
kind = "numeric"
prompt = "Q: {question}"
system = "Be brief."
pattern = 'Result: (\\d+)'
"""


def write(folder: Path, text: str) -> str:
    file = folder / "mine.toml"
    file.write_text(text, "utf-8")
    return str(file)


def test_a_file_describes_a_task(tmp_path: Path) -> None:
    task = get_task(write(tmp_path, WHOLE))
    assert (task.name, task.template, task.system) == ("mine", "Q: {question}", "Be brief.")
    assert task.read(Response("Result: 12 apples")).answer == "12"


def test_what_a_file_does_not_say_is_the_preset_of_its_kind(tmp_path: Path) -> None:
    task = get_task(write(tmp_path, 'kind = "yes-no"\nname = "sure"'))
    assert task == Task("sure", "yes-no", get_task("yes-no").template)
    words = get_task(write(tmp_path, 'kind = "text"\nnormalise = ["case"]'))
    assert words.read(Response(r"\boxed{The End}")).answer == "the end"


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("kind", "is not TOML"),
        ("", 'the key "kind" is missing; it is one of numeric'),
        ('kind = "essay"', '"kind" is one of numeric, .* but is "essay"'),
        ('kind = "text"\nlike = 1', 'no key is called "like"; known are name, kind'),
        ('kind = "text"\nprompt = 3', 'the key "prompt" must be a text, but is 3'),
        ('kind = "text"\nprompt = "ask"', r"the prompt of the task .mine. has no \{question\}"),
        ('kind = "text"\nloose = "yes"', 'the key "loose" must be true or false'),
        ('kind = "text"\nnormalise = [1]', 'the key "normalise" must be a list of texts'),
        ('kind = "text"\nnormalise = ["x"]', '"x" cannot be normalised away'),
        ('kind = "numeric"\npattern = "("', "is no regular expression"),
        ('kind = "numeric"\npath = "a"', 'the key "path" goes with kind = "json"'),
    ],
)
def test_a_bad_file_says_which_key_is_wrong(tmp_path: Path, text: str, trouble: str) -> None:
    with pytest.raises(UsageError, match=trouble):
        get_task(write(tmp_path, text))


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match=r"there is no task file .*gone"):
        get_task("gone.toml")


def test_a_task_comes_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_tasks.py").write_text(
        "from aera import Task\n"
        "shout = Task('shout', 'text', 'SAY {question}', normalise=())\n"
        "def first_word(text):\n    return text.split()[0] if text.split() else None\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert get_task("my_tasks:shout").template == "SAY {question}"
    own = get_task("my_tasks:first_word")
    assert own.read(Response("hello world")).answer == "hello"
    assert own.read(Response("  ")).answer is None


@pytest.mark.parametrize(
    ("named", "trouble"),
    [
        ("nowhere:x", 'the module "nowhere" cannot be imported'),
        ("math:nothing", 'the module "math" has no "nothing"'),
        ("math:pi", "is neither a Task nor a function"),
        (":x", "named as MODULE:NAME"),
    ],
)
def test_what_python_cannot_give_is_refused(named: str, trouble: str) -> None:
    with pytest.raises(UsageError, match=trouble):
        get_task(named)


def test_the_papers_note_is_added_where_it_is_asked_for() -> None:
    paper = with_redo(get_task("math"))
    assert paper.redo
    assert "better to redo" in paper.template
