"""Write docs/tasks.md from the table of tasks."""

from pools import ROOT, table

from aera.reading.presets import KEYS, TASKS
from aera.reading.task import KINDS, Task

PAGE = ROOT / "docs" / "tasks.md"
INTRODUCTION = f"""# Tasks

How is a question asked, and where is the answer found? A task is a prompt and a reader. `--task` takes a name from this
list, a file `NAME.toml`, or `MODULE:NAME` from Python. `aera tasks` prints the list. For data of your own, start with
{", ".join(f"`{kind}`" for kind in KINDS[:-1])} or `{KINDS[-1]}`.

`runs/tasks_page.py` writes this page from `aera/reading/presets.py`.
"""
READING_TEXT = """
An answer is looked for in this order, and the first place that has one counts:

1. what the task's own `pattern`, `path` or `reader` finds, where it has one (then nothing else is tried);
2. the last box, `\\\\boxed{}` or `\\\\fbox{}`, anywhere in the text;
3. the last `#### 18` or "the answer is 18";
4. the last line, where it is nothing but an answer;
5. where the table says so, the last number.

Thinking sections are passed over. Of a response that was cut off, only a box counts. A response without a readable answer
abstains: it costs, but it never wins.

Answers are compared in one canonical form: 18, $18.0 and 36/2 are the same number, (b), B and `\\\\text{B}` the same letter.
Expressions are compared as written after tidying up; `--equivalence` also asks math-verify
([equal expressions](data.md#equal-expressions)).

## A task of your own

In a file, as `percent.toml`; what it leaves out is taken from the preset of its kind:

```text
kind = "numeric"
prompt = "{question}\\\\n\\\\nEnd with the percentage inside \\\\\\\\boxed{}."
```

"""
PYTHON_TEXT = """
`MODULE:NAME` is a `Task`, or a function from a text to an answer or None. In Python: [extend](extend.md#a-task-or-a-reader).

## Prompts
"""
MEANINGS = {
    "name": "what it is called; else the name of the file",
    "kind": ", ".join(KINDS),
    "prompt": "the user message, with `{question}` in it",
    "system": "a system message sent with every question",
    "pattern": "a regular expression whose last match is the answer: its first group, or all of it",
    "path": "for json, the field that is the answer, as `answer` or `result.0.value`",
    "reader": "MODULE:NAME of a function from a text to an answer or None",
    "letters": "the letters a choice may be",
    "normalise": "for text, what does not count: case, punctuation, articles, accents",
    "loose": "whether the last number counts where nothing else is found",
    "redo": "whether the paper's test applies: a box in the last 100 characters, and no redo asked for",
    "shuffle": "whether choices are put in an order of their own when asking",
    "equivalence": "whether math-verify is asked which expressions are the same",
}


def render() -> str:
    """The page as it should be."""
    rows = [[f"`{each.name}`", each.kind, each.describe()] for each in TASKS.values()]
    keys = [[f"`{key}`", MEANINGS[key]] for key in KEYS]
    parts = [INTRODUCTION, table(["task", "answers are", "read from"], rows, words=True)]
    parts += [READING_TEXT.replace("\\\\", "\\") + table(["key", "means"], keys, words=True)]
    return "\n".join([*parts, PYTHON_TEXT, *_prompts()])


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
