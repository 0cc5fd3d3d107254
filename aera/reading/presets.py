"""Presets: tasks by name, from a file of one's own, or from Python."""

import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from aera.errors import UsageError
from aera.plugins import load_named
from aera.reading.task import KINDS, WORDS, Task

NUMERIC = (
    "{question}\n\nSolve this step by step. Put only the final number inside \\boxed{}, "
    "without units or extra text."
)
CHOICE = (
    "{question}\n\nThink step by step about the options, then choose the single best one and "
    "put only its letter inside \\boxed{}."
)
EXPRESSION = (
    "{question}\n\nSolve the problem step by step. If you reach a final answer, put it inside "
    "\\boxed{}."
)
TEXT = (
    "{question}\n\nThink step by step, then put only the final answer, as short as possible, "
    "inside \\boxed{}."
)
YES_NO = (
    "{question}\n\nThink step by step, then put only the final answer, yes or no, inside \\boxed{}."
)
JSON = '{question}\n\nAnswer with one JSON object whose field "answer" holds the final answer.'
REDO_NOTE = (
    "\n\nNote: if you notice that your approach leads nowhere, you may abandon it by saying "
    '"It\'s better to redo the question." and ending there.'
)

_NUMBERS = Task("numeric", "numeric", NUMERIC)
_CHOICES = Task("choice", "choice", CHOICE)
_EXPRESSIONS = Task("expression", "expression", EXPRESSION)

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _NUMBERS,
        _CHOICES,
        _EXPRESSIONS,
        Task("text", "text", TEXT),
        Task("yes-no", "yes-no", YES_NO),
        Task("json", "json", JSON, path="answer"),
        replace(_NUMBERS, name="gsm8k"),
        replace(_CHOICES, name="gpqa", letters="ABCD", shuffle=True),
        replace(_CHOICES, name="commonsense", letters="ABCDE"),
        replace(_CHOICES, name="mmlu-pro"),
        replace(_EXPRESSIONS, name="math"),
        replace(_EXPRESSIONS, name="amc"),
        replace(_EXPRESSIONS, name="aime"),
    )
}
"""What --task may name without a file."""


def with_redo(task: Task) -> Task:
    """A task as the paper has it: the note that allows to give up, and the Re2 redo test."""
    return replace(task, template=task.template + REDO_NOTE, redo=True)


def get_task(name: str) -> Task:
    """A task by the name of a preset, by a file NAME.toml, or by MODULE:NAME from Python."""
    if name in TASKS:
        return TASKS[name]
    if name.endswith(".toml") or Path(name).is_file():
        return read_task(Path(name))
    if ":" in name:
        return _from_python(name)
    raise UsageError(
        f'no task is called "{name}"; known are {", ".join(TASKS)}, a file NAME.toml and '
        "MODULE:NAME"
    )


def _from_python(named: str) -> Task:
    """A Task, or a function from a text to an answer, which makes one."""
    found: Any = load_named(named, "task")
    if isinstance(found, Task):
        return found
    if not callable(found):
        raise UsageError(f'"{named}" is neither a Task nor a function from a text to an answer')
    return Task(named.rpartition(":")[2], "text", normalise=(), reader=named)


# --- files ----------------------------------------------------------------------------------------

KEYS: dict[str, tuple[str, type]] = {
    "name": ("name", str),
    "kind": ("kind", str),
    "prompt": ("template", str),
    "system": ("system", str),
    "pattern": ("pattern", str),
    "path": ("path", str),
    "reader": ("reader", str),
    "letters": ("letters", str),
    "normalise": ("normalise", list),
    "loose": ("loose", bool),
    "redo": ("redo", bool),
    "shuffle": ("shuffle", bool),
    "equivalence": ("equivalence", bool),
}
"""Keys of a task file, the field each sets, and what it must be."""


def read_task(path: Path) -> Task:
    """A task from a TOML file; what is wrong is said with its key."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UsageError(f'there is no task file "{path}"') from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError(f'the task file "{path}" is not TOML: {error}') from None
    told: dict[str, Any] = {}
    for key, value in content.items():
        _check(key, value, path)
        told[KEYS[key][0]] = value
    if "kind" not in told:
        raise UsageError(f'"{path}": the key "kind" is missing; it is one of {", ".join(KINDS)}')
    if told.get("path") is not None and told["kind"] != "json":
        raise UsageError(f'"{path}": the key "path" goes with kind = "json"')
    base = TASKS[told["kind"]]
    defaults: dict[str, Any] = {field.name: getattr(base, field.name) for field in fields(Task)}
    normalise = tuple(str(each) for each in told.get("normalise", WORDS))
    try:
        return Task(**{**defaults, "name": path.stem, **told, "normalise": normalise})
    except UsageError as error:
        raise UsageError(f'"{path}": {error}') from None


def _check(key: str, value: Any, path: Path) -> None:
    if key not in KEYS:
        raise UsageError(f'"{path}": no key is called "{key}"; known are {", ".join(KEYS)}')
    kind = KEYS[key][1]
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        wanted = {str: "a text", list: "a list of texts", bool: "true or false"}[kind]
        raise UsageError(f'"{path}": the key "{key}" must be {wanted}, but is {value!r:.40}')
    if key == "kind" and value not in KINDS:
        raise UsageError(f'"{path}": "kind" is one of {", ".join(KINDS)}, but is "{value}"')
    if isinstance(value, list) and not all(isinstance(each, str) for each in value):
        raise UsageError(f'"{path}": the key "{key}" must be a list of texts')
