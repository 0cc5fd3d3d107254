"""Write docs/tasks.md from the table of tasks, and from what the reader says of itself."""

from inspect import getmodule

from pools import ROOT, table

from aera import Task
from aera.lab import KEYS, KINDS, REDO_TAIL, TASKS

PAGE = ROOT / "docs" / "tasks.md"
OWN = ", ".join(f"`{kind}`" for kind in KINDS[:-1]) + f" or `{KINDS[-1]}`"
INTRODUCTION = f"""# Tasks

How is a question asked, and where is the answer found? A task is a prompt and a reader. `--task` takes a name from this
list, a [file](#a-task-of-your-own) `NAME.toml`, or [`MODULE:NAME`](#in-python) from Python. `aera tasks` prints the
list. For data of your own, start with {OWN}.

A task means the same in every command: `import`, `sample`, `evaluate`, `train`, `solve` and `serve` read a response
alike. A pool and a controller keep their task.

`runs/tasks_page.py` writes this page from `aera/reading/`.
"""
READING = "## How an answer is read\n"
FORMS = r"""A response without a readable answer abstains: it costs, but it never wins. For `json`, the answer is the field at `path`
of the last JSON value in the text. An answer that was [imported without a text](data.md#import) counts as it is.

Two answers are the same where their canonical forms are:

| kind | the same answer |
| --- | --- |
| `numeric` | 18, $18.0 and 36/2 |
| `choice` | (b), B and `\text{B}` |
| `expression` | as written after tidying up; `--equivalence` also asks math-verify ([equal expressions](data.md#equal-expressions)) |
| `text` | "The Nile." and "nile": case, punctuation and articles do not count, `accents` where you say so |
| `yes-no` | yes, Yes. and true; no and false |
| `json` | numbers by value, texts without the white space around them |

## How much was read

`import`, `evaluate`, `train`, `solve`, `info` and the report say which share of the responses was read, and why the
others were not. The page and the metrics of `serve` show it too. Where nothing could be read, `import`, `evaluate` and
`train` refuse the pool. Less than half is a warning in red, with examples. `solve` and `serve` stop a question after a
first block in which nothing could be read; `solve` then ends with exit code 3. Each of these says what the task looks
for. Take another task, or write one.
"""
FILE = r"""## A task of your own

A TOML file; what it leaves out is taken from the preset of its kind. Here responses end in a line `RESULT: 42`, which
no preset reads:

```python
import json
from pathlib import Path

Path("mine.toml").write_text(
    r'''
kind = "numeric"
prompt = "{question}\n\nEnd with a line that says RESULT: and the number."
system = "You are a careful accountant."
pattern = 'RESULT: *(.+)'
''',
    "utf-8",
)
texts = ["6 x 7 is forty-two.\nRESULT: 42", "RESULT: 41", "I am not sure.", "RESULT: $42.00"]
row = {"question": "What is 6 x 7?", "answer": "42", "responses": texts}
Path("mine.jsonl").write_text(json.dumps(row) + "\n", "utf-8")
```

```console
$ aera import mine.jsonl --task mine.toml --out out/mine
$ aera evaluate out/mine
```

```python
import aera

pool = aera.open_pool("out/mine")
print(pool.task.describe())
[record] = pool
print([pool.task.read(response).answer for response in record.responses])
```

```output
the last match of RESULT: *(.+)
['42', '41', None, '42']
```
"""
PYTHON = r"""A key that is unknown, or of the wrong type, is refused by its name. Of several system messages, a question's own counts
first, then `--system`, then the task's. The gateway adds none: it passes messages on.

### In Python

A `Task` takes the same fields; `prompt` is `template` there. `--task MODULE:NAME` names a `Task`, or a function from a
text to an answer or None, in a module of the working directory or the environment. Such a function gets a task of its
own: the question as the prompt, and answers compared as they are.

```python
from pathlib import Path

Path("mine.py").write_text(
    r'''
from aera import Task

asked = "{question}\n\nEnd with a line that says RESULT: and the number."
task = Task("mine", "numeric", asked, pattern=r"RESULT: *(.+)")


def read(text):
    found = text.rpartition("RESULT:")[2] if "RESULT:" in text else ""
    return found.strip(" $") or None
''',
    "utf-8",
)
```

```console
$ aera import mine.jsonl --task mine:task --out out/mine-task
$ aera import mine.jsonl --task mine:read --out out/mine-read
```

Where `read` raises on a response, that response abstains. Whoever opens such a pool or controller later needs the module
too. More parts of your own: [extend](extend.md).
"""
REDO = f"""## The paper's redo rule

No preset uses it. A task with `redo` reads as the paper does: only a box in the last {REDO_TAIL} characters counts, and
none where the response says that it is better to redo the question. `with_redo(task)` of `aera.reading.task` sets
`redo` and adds the note to the prompt that allows it. The recipes that repeat the paper read so
([the paper, repeated](paper.md)).

## Prompts
"""
MEANINGS = {
    "name": "what it is called; else the name of the file",
    "kind": f"what an answer is: {', '.join(KINDS)}",
    "prompt": "the user message, with `{question}` in it",
    "system": "a system message sent with every question",
    "pattern": "a regular expression whose last match is the answer: its first group, or all of it",
    "path": "for json, the field that is the answer, as `answer` or `result.0.value`",
    "reader": "MODULE:NAME of a function from a text to an answer or None",
    "letters": "the letters a choice may be",
    "normalise": "for text, a list of what does not count: case, punctuation, articles, accents",
    "loose": "whether the last number counts where nothing else is found",
    "redo": "whether [the paper's redo rule](#the-papers-redo-rule) applies",
    "shuffle": "whether choices are put in an order of their own when asking",
    "equivalence": "whether math-verify is asked which expressions are the same",
}


def render() -> str:
    """The page as it should be."""
    rows = [[f"`{each.name}`", each.kind, each.describe()] for each in TASKS.values()]
    keys = [[f"`{key}`", MEANINGS[key]] for key in KEYS]
    presets = table(["task", "answers are", "read from"], rows, words=True) + "\n"
    parts = [INTRODUCTION, presets, READING, _order(), FORMS, FILE]
    parts += [table(["key", "means"], keys, words=True) + "\n", PYTHON, REDO, *_prompts()]
    return "\n".join(parts).replace("'''", '"""')  # as the formatter writes it in the page


def _order() -> str:
    """Where an answer is looked for, in the words of the module that does it."""
    return (getmodule(Task).__doc__ or "").partition("\n\n")[2].strip() + "\n"


def _prompts() -> list[str]:
    """Every prompt once, with the tasks that use it."""
    users: dict[str, list[Task]] = {}
    for task in TASKS.values():
        users.setdefault(task.template, []).append(task)
    return [
        f"{', '.join(f'`{task.name}`' for task in tasks)}:\n\n```text\n{template}\n```\n"
        for template, tasks in users.items()
    ]


if __name__ == "__main__":
    PAGE.write_text(render(), "utf-8")
