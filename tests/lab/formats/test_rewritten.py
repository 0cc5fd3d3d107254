"""One pool, written down in the ways people do, is evaluated alike."""

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import aera
from aera import get_task, standard_policies
from aera.lab import Truths, evaluate, import_file
from aera.reading.find import last_boxed

DEMO = Path(aera.__file__).parent / "demo" / "gsm8k.jsonl.gz"
QUESTIONS, RESPONSES = 40, 16
POLITE = " " + "I hope this helps, and do not hesitate to ask if anything is unclear to you. " * 3

Row = dict[str, Any]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """Some questions of the bundled pool."""
    with gzip.open(DEMO, "rt", encoding="utf-8") as lines:
        found = [json.loads(next(lines)) for _ in range(QUESTIONS)]
    return [{**row, "responses": row["responses"][:RESPONSES]} for row in found]


def with_texts(rows: list[Row], change: Callable[[str], str]) -> list[Row]:
    return [
        {**row, "responses": [{**each, "text": change(each["text"])} for each in row["responses"]]}
        for row in rows
    ]


def singles(rows: list[Row]) -> list[Row]:
    """One row per response, so that responses to different questions take turns."""
    return [
        {**{k: v for k, v in row.items() if k != "responses"}, **row["responses"][n], "index": n}
        for n in range(RESPONSES)
        for row in rows
    ]


def marked(text: str) -> str:
    boxed = last_boxed(text)
    return text if boxed is None else f"{text.replace('boxed', 'text')}\n#### {boxed}"


def lines(rows: list[Row]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def strings(rows: list[Row]) -> list[Row]:
    return [{**row, "responses": [each["text"] for each in row["responses"]]} for row in rows]


def in_csv(rows: list[Row]) -> str:
    file, table = io.StringIO(newline=""), singles(rows)
    writer = csv.DictWriter(file, [*table[0]])
    writer.writeheader()
    writer.writerows(table)
    return file.getvalue()


def talked(row: Row) -> Row:
    talk = [{"role": "user", "content": row["question"]}]
    return {"messages": talk, **{name: row[name] for name in row if name != "question"}}


def bare(row: Row) -> Row:
    samples = [{k: each[k] for k in ("text", "finish_reason")} for each in row["responses"]]
    return {"problem": row["question"], "gold": row["answer"], "samples": samples}


def accuracies(name: str, text: str, folder: Path) -> dict[str, Any]:
    (folder / name).write_text(text, "utf-8", newline="")
    pool = import_file(folder / name, folder / "pool", task=get_task("gsm8k")).pool
    assert (len(pool), pool.schedule.last) == (QUESTIONS, RESPONSES)
    found = evaluate(pool, standard_policies(pool.schedule), truths=Truths.open(pool.path))
    return {point.policy: point.accuracy for point in found.points}


@pytest.fixture(scope="module")
def original(rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return accuracies("rows.jsonl", lines(rows), tmp_path_factory.mktemp("original"))


WAYS: dict[str, tuple[Callable[[list[Row]], str], float]] = {
    "marked.jsonl": (lambda rows: lines(with_texts(rows, marked)), 0.1),
    "polite.jsonl": (lambda rows: lines(with_texts(rows, lambda text: text + POLITE)), 0.1),
    "strings.jsonl": (lambda rows: lines(strings(rows)), 0.1),
    "rows.csv": (in_csv, 0.0),
    "singles.jsonl": (lambda rows: lines(singles(rows)), 0.0),
    "messages.jsonl": (lambda rows: lines([*map(talked, rows)]), 0.0),
    "bare.jsonl": (lambda rows: lines([*map(bare, rows)]), 0.0),
    "rows.json": (lambda rows: "\ufeff" + json.dumps(rows, indent=1), 0.0),
}


@pytest.mark.parametrize("name", WAYS)
def test_a_pool_written_in_another_way_is_evaluated_alike(
    tmp_path: Path, rows: list[Row], original: dict[str, Any], name: str
) -> None:
    write, within = WAYS[name]
    assert min(original.values()) > 50
    assert accuracies(name, write(rows), tmp_path) == pytest.approx(original, abs=within)
