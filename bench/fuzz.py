"""Hostile texts into every reader and mangled files into the importer: nothing but our own errors.

.venv/bin/python bench/fuzz.py --strings 20000 --files 1000 [--seed 0]

Exits with 1 where anything is raised that is no AeraError, where a reader gives something that is
no answer, or where an import that failed leaves something behind.
"""

import argparse
import csv
import gc
import gzip
import io
import json
import logging
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

from aera import AeraError, Response, Task
from aera.lab import TASKS, Truths, import_file, with_redo

DATA = Path(__file__).parents[1] / "tests" / "data"
FRAGMENTS = [
    *"{}()[]$%^_\\&*#,.:;=+-/<>|~!'\"` \n\t0189abcxyzABIJ",
    *("\\boxed{", "\\fbox{", "\\boxed", "}}", "{{", "\\{", "\\frac{", "}{", "\\sqrt{", "\\text{B}"),
    *("\\left(", "\\pm ", "\\times 10^", "\\pi", "^\\circ", "\\le", "\\in ", "{,}", "\\cup "),
    *("<think>", "</think>", "the answer is ", "Answer:", "#### ", "option: ", " and ", " or "),
    *("yes", "No.", "true", "null", "NaN", "Infinity", '{"answer": ', '"answer"', "[[[[", "]]]]"),
    *("1,080", "0.5", "36/2", "-3", "10%", "1e9", "1e999", "9" * 50, "9" * 5000, "1/0", "0/0"),
    *("\u2212", "\u0663", "\u221a", "\u00b2", "\u00bd", "\u0130", "\u2028", "\ud800", "\udfff"),
    *("[THINK]", "<answer>", "</answer>", "<|channel|>final<|message|>", "analysis", "\nQ:", "**"),
    *("twelve", "1.249,00", " \u20ac", " is correct", "\u7b54\u6848\u662f", "\nA. ", "x=", "f(x)="),
    *(
        "\\frac12",
        "\\dfrac{1}{2}",
        "\\sqrt 3",
        "\\right)",
        "\\cdot ",
        "\\infty",
        "\\leq ",
        "\\quad",
    ),
    *("\x00", "\x1b", "\r", "\u200b", "\u00a0", "\ufeff", "\u4e2d", "e\u0301", "\U0001f600", "ß"),
    *("better to redo the question", "s better to redo the question.", " million", "th", "B) bank"),
]
AROUND = ("{}", "\\boxed{{{}}}", '{{"answer": {}}}', "the answer is {}", "#### {}")
LASTING = (
    *("1e999", "9", "1/0", "0.5Answer:", "=9", "{", "[", "\\text{", "\\boxed{", "\\frac{", "\n\n"),
    *('1e999$"answer"', '{"answer": ', "<think>", "#### ", "the answer is "),
)
"""Fragments that nothing may be slow on, however often they stand there."""
HOSTILE: list[Any] = [
    *(None, True, False, 0, -1, 10**30, 1e308, float("nan"), float("inf"), -0.0, "", " ", "\ud800"),
    *(
        [],
        {},
        [[]],
        [None],
        [{}],
        {"role": "user"},
        [{"role": "user", "content": 7}],
        "[",
        "[1",
        "{}",
    ),
    *("x" * 100_000, ["x"] * 500, "\x00", '[{"role": []}]', {"text": {"text": {}}}, [["x"], 3]),
]
MAPS = ({}, {"question": "answer"}, {"text": "question"}, {"responses": "none"}, {"id": "task"})


def tasks() -> list[Task]:
    """Every preset, also under the redo test, and tasks with a pattern, a path and a reader."""
    text = TASKS["text"]
    return [
        *TASKS.values(),
        with_redo(TASKS["numeric"]),
        replace(text, pattern=r"answer(?: is)?:?\s*(\S*)"),
        replace(TASKS["numeric"], pattern=r"\d+"),
        replace(TASKS["json"], path=None),
        replace(TASKS["json"], path="answer.0.value"),
        replace(text, normalise=("case", "punctuation", "articles", "accents")),
        replace(text, reader="json:loads"),
        replace(TASKS["expression"], reader="ast:literal_eval"),
    ]


# --- strings --------------------------------------------------------------------------------------


def hostile_text(random: Random) -> str:
    """Fragments, any characters, one thing for ever, or something deep."""
    kind = random.random()
    if kind < 0.7:
        return "".join(random.choices(FRAGMENTS, k=random.randint(0, 12)))
    if kind < 0.85:
        return "".join(chr(random.randrange(0x110000)) for _ in range(random.randint(0, 40)))
    piece = "".join(random.choices(FRAGMENTS, k=random.randint(1, 3)))
    often = random.choice((50, 1_000, 5_000)) // len(piece) + 1
    return random.choice(AROUND).format(piece * often)


def fuzz_strings(count: int, seed: int) -> tuple[list[str], tuple[float, str]]:
    """What went wrong, and the longest that a reader took for a text, with both."""
    random = Random(seed)
    return read_all(hostile_text(random) for _ in range(count))


def long_texts(size: int) -> Iterator[str]:
    """What was slow once or looks like it, for so long that a reader must be linear."""
    for around, piece in zip(cycle(AROUND), LASTING * 2, strict=False):
        yield around.format(piece * (size // len(piece) + 1))


def read_all(texts: Iterable[str]) -> tuple[list[str], tuple[float, str]]:
    """Every text by every reader, as above.

    Timed is this thread alone, without the garbage of others: a collection of all that a long
    test run has made takes a second.
    """
    readers, troubles, slowest = tasks(), [], (0.0, "")
    for text in texts:
        gc.disable()
        for task in readers:
            begun = time.thread_time()
            try:
                _read(task, text)
            except AeraError:
                pass
            except Exception:  # noqa: BLE001 - whatever it is, it is what we look for
                troubles.append(f"{task.name} on {text[:200]!r}\n{traceback.format_exc()}")
            slowest = max(slowest, (time.thread_time() - begun, f"{task.name}, {text[:40]!r}"))
        gc.enable()
    return troubles, slowest


def _read(task: Task, text: str) -> None:
    for response in (
        Response(text),
        Response(text, finish_reason="length"),
        Response("", answer=text),
    ):
        answer = task.read(response).answer
        if answer is not None and not isinstance(answer, str):
            raise TypeError(f"an answer is {type(answer).__name__}")
    answer = task.canonical(text)
    if answer is not None and task.canonical(answer) != answer:
        raise ValueError(f"{answer!r} is canonical and not its own canonical form")


# --- files ----------------------------------------------------------------------------------------


def good_rows() -> list[dict[str, Any]]:
    """Questions with responses of every shape."""
    said = [
        {
            "text": "so \\boxed{7}",
            "tokens": 9,
            "logprob": -1.5,
            "finish_reason": "stop",
            "index": 0,
        },
        {"text": "7", "tokens": 3, "index": 1, "error": None},
        {"text": "#### 8", "index": 2, "seed": 4, "latency_ms": 12.5, "model": "m"},
    ]
    talk = [{"role": "system", "content": "s"}, {"role": "user", "content": "how many?"}]
    return [
        {"id": "a", "question": "how many?", "answer": "7", "task": "numeric", "responses": said},
        {"id": "b", "messages": talk, "answer": "x #### 8", "group": "g", "responses": ["7", "8"]},
        {"id": 3, "prompt": talk, "target": 7, "completions": [{"answer": "7", "tokens": 5}, 8]},
        {"id": "d", "question": "?", "choices": ["tea", "milk"], "answer": "tea", "samples": ["7"]},
    ]


def single_rows() -> list[dict[str, Any]]:
    """A response per row."""
    return [
        {"id": name, "question": f"{name}?", "answer": "7", "text": f"\\boxed{{{n}}}", "index": n}
        for name in "ab"
        for n in (7, 8, 9)
    ]


def _lines(rows: list[Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _csv(rows: list[Any]) -> bytes:
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows if isinstance(row, dict) for name in row))
    writer = csv.writer(text)
    writer.writerow(names)
    for row in rows:
        cells = [row.get(name) if isinstance(row, dict) else row for name in names]
        writer.writerow([json.dumps(c) if isinstance(c, list | dict) else c for c in cells])
    return text.getvalue().encode("utf-8", "surrogatepass")


def _list(rows: list[Any]) -> bytes:
    return json.dumps(rows, indent=1).encode()


WRITERS: dict[str, Callable[[list[Any]], bytes]] = {
    "rows.jsonl": _lines,
    "rows.json": _list,
    "rows.csv": _csv,
}
FOREIGN = (
    "samples_tiny.jsonl",
    "inspect.json",
    "inspect.eval",
    "wide.parquet",
    "batch_output.jsonl",
)


def mangled_file(random: Random) -> tuple[str, bytes]:
    """A name, and content that was good before something happened to it."""
    rows: list[Any] = random.choice((good_rows, single_rows))()
    name = random.choice((*WRITERS, *FOREIGN))
    if name in WRITERS:
        for _ in range(random.choice((0, 1, 2, 5))):
            rows = _swapped(rows, random)
        content = WRITERS[name](rows)
    else:
        content = (DATA / name).read_bytes()
        if name.endswith(".jsonl") and random.random() < 0.6:
            content = _lines(_swapped([json.loads(line) for line in content.splitlines()], random))
        elif name == "inspect.json" and random.random() < 0.6:
            content = json.dumps(_swap(json.loads(content), random)).encode()
    for damage in random.choices(DAMAGES, k=random.choice((0, 0, 1, 1, 2))):
        content = damage(content, random)
    return name, content


def _swapped(rows: list[Any], random: Random) -> list[Any]:
    """The same rows, one of them with something else somewhere inside."""
    place = random.randrange(len(rows))
    return [_swap(row, random) if i == place else row for i, row in enumerate(rows)]


def _swap(value: Any, random: Random) -> Any:
    """The same value with something else somewhere inside."""
    inside = (
        [*value]
        if isinstance(value, dict)
        else [*range(len(value))]
        if isinstance(value, list)
        else []
    )
    if not inside or random.random() < 0.15:
        return _deep(random) if random.random() < 0.1 else random.choice(HOSTILE)
    changed = value.copy()
    chosen = random.choice(inside)
    if isinstance(changed, dict) and random.random() < 0.1:
        changed[random.choice(("responses", "text", "id", "", "answer"))] = changed.pop(chosen)
        return changed
    changed[chosen] = _swap(value[chosen], random)
    return changed


def _deep(random: Random) -> Any:
    value: Any = 7
    for _ in range(random.choice((50, 300, 700))):
        value = [value] if random.random() < 0.5 else {"text": value}
    return value


def _flip(content: bytes, random: Random) -> bytes:
    data = bytearray(content)
    for _ in range(random.choice((1, 3, 30)) if data else 0):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(data)


def _cut(content: bytes, random: Random) -> bytes:
    begin = random.choice((0, 0, random.randint(0, len(content))))
    return content[begin : random.randint(begin, len(content))]


def _encode(content: bytes, random: Random) -> bytes:
    names = ("utf-16", "utf-16-le", "utf-32", "latin-1", "cp037", "utf-7", "utf-8-sig")
    return content.decode("utf-8", "replace").encode(random.choice(names), "replace")


def _insert(content: bytes, random: Random) -> bytes:
    place = random.randint(0, len(content))
    pieces = (b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"[" * 5_000, b"9" * 5_000, b'"', b"\n", b"]")
    return content[:place] + random.choice(pieces) + content[place:]


def _zip(content: bytes, random: Random) -> bytes:
    packed = gzip.compress(content)
    return random.choice((packed, packed[:-5], gzip.compress(packed), packed + b"x"))


def _double(content: bytes, random: Random) -> bytes:
    return content * 2


DAMAGES = (_flip, _cut, _encode, _insert, _zip, _double)


def fuzz_files(count: int, seed: int) -> tuple[list[str], Counter[str]]:
    """What went wrong, and how many files came in or were refused."""
    random, readers, troubles = Random(seed), tasks(), []
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(count):
            folder = Path(scratch, str(number))
            folder.mkdir()
            name, content = mangled_file(random)
            (folder / name).write_bytes(content)
            options = {
                "task": random.choice((*[TASKS["numeric"]] * 30, None, *readers)),
                "columns": random.choice((*[{}] * 30, *MAPS)),
                "responses": random.choice((None, None, None, 1, 2)),
            }
            try:
                counts[_import(folder, name, options)] += 1
            except Exception:  # noqa: BLE001 - whatever it is, it is what we look for
                troubles.append(
                    f"file {number}, {name}, {content[:300]!r}\n{traceback.format_exc()}"
                )
    return troubles, counts


def _import(folder: Path, name: str, options: dict[str, Any]) -> str:
    """Whether a file came in; what came in can be read again, what did not leaves nothing."""
    try:
        pool = import_file(folder / name, folder / "pool", **options).pool
    except AeraError as error:
        if "\n" in str(error) or not str(error):
            raise ValueError(f"an error is not one sentence: {str(error)!r}") from None
        left = [path.name for path in folder.iterdir() if path.name != name]
        if left:
            raise ValueError(f"a refused import left {left}") from None
        return "refused"
    assert len([*pool]) == len(pool)
    Truths.open(pool.path)
    return "imported"


def main(arguments: list[str]) -> Iterator[str]:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--strings", type=int, default=20_000)
    parser.add_argument("--files", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    told = parser.parse_args(arguments)
    logging.getLogger("aera").setLevel(logging.ERROR)
    troubles, slowest = fuzz_strings(told.strings, told.seed)
    print(
        f"{told.strings:,} texts into {len(tasks())} readers: {len(troubles)} faults; "
        f"the slowest took {slowest[0]:.2f} s ({slowest[1]})"
    )
    yield from troubles
    troubles, counts = fuzz_files(told.files, told.seed)
    print(
        f"{told.files:,} mangled files: {counts['imported']} came in, {counts['refused']} were "
        f"refused in one sentence, {len(troubles)} faults"
    )
    yield from troubles


if __name__ == "__main__":
    found = [*main(sys.argv[1:])]
    print("\n".join(found[:20]))
    sys.exit(bool(found))
