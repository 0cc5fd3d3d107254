"""One pool, written down in the ways people do, is evaluated alike."""

import csv
import gzip
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


def lines(path: Path, rows: list[Row]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_marked(folder: Path, rows: list[Row]) -> Path:
    return lines(folder / "marked.jsonl", with_texts(rows, marked))


def write_polite(folder: Path, rows: list[Row]) -> Path:
    return lines(folder / "polite.jsonl", with_texts(rows, lambda text: text + POLITE))


def write_uncut(folder: Path, rows: list[Row]) -> Path:
    """Without saying which responses were cut off."""
    stopped = [[{**each, "finish_reason": None} for each in row["responses"]] for row in rows]
    told = [{**row, "responses": said} for row, said in zip(rows, stopped, strict=True)]
    return lines(folder / "uncut.jsonl", told)


def write_strings(folder: Path, rows: list[Row]) -> Path:
    plain = [{**row, "responses": [each["text"] for each in row["responses"]]} for row in rows]
    return lines(folder / "strings.jsonl", plain)


def write_csv(folder: Path, rows: list[Row]) -> Path:
    table = singles(rows)
    with (folder / "rows.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*table[0]])
        writer.writeheader()
        writer.writerows(table)
    return folder / "rows.csv"


def write_singles(folder: Path, rows: list[Row]) -> Path:
    return lines(folder / "singles.jsonl", singles(rows))


def write_messages(folder: Path, rows: list[Row]) -> Path:
    talk = [{**row, "messages": [{"role": "user", "content": row["question"]}]} for row in rows]
    bare = [{name: row[name] for name in row if name != "question"} for row in talk]
    return lines(folder / "messages.jsonl", bare)


def write_bare(folder: Path, rows: list[Row]) -> Path:
    bare = [
        {
            "problem": row["question"],
            "gold": row["answer"],
            "samples": [
                {k: each[k] for k in ("text", "finish_reason")} for each in row["responses"]
            ],
        }
        for row in rows
    ]
    return lines(folder / "bare.jsonl", bare)


def write_array(folder: Path, rows: list[Row]) -> Path:
    (folder / "rows.json").write_text("\ufeff" + json.dumps(rows, indent=1), "utf-8")
    return folder / "rows.json"


def accuracies(file: Path, out: Path) -> dict[str, Any]:
    pool = import_file(file, out, task=get_task("gsm8k"))
    assert (len(pool), pool.schedule.last) == (QUESTIONS, RESPONSES)
    found = evaluate(pool, standard_policies(pool.schedule), truths=Truths.open(pool.path))
    return {point.policy: point.accuracy for point in found.points}


@pytest.fixture(scope="module")
def original(rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("original")
    return accuracies(lines(folder / "rows.jsonl", rows), folder / "pool")


@pytest.mark.parametrize(
    ("write", "within"),
    [
        (write_marked, 0.1),
        (write_polite, 0.1),
        (write_strings, 0.1),
        (write_csv, 0.0),
        (write_singles, 0.0),
        (write_messages, 0.0),
        (write_bare, 0.0),
        (write_array, 0.0),
    ],
)
def test_a_pool_written_in_another_way_is_evaluated_alike(
    tmp_path: Path,
    rows: list[Row],
    original: dict[str, Any],
    write: Callable[[Path, list[Row]], Path],
    within: float,
) -> None:
    found = accuracies(write(tmp_path, rows), tmp_path / "pool")
    assert min(original.values()) > 50
    assert found == pytest.approx(original, abs=within)


def test_texts_alone_are_evaluated_like_responses_that_do_not_say_they_were_cut_off(
    tmp_path: Path, rows: list[Row]
) -> None:
    expected = accuracies(write_uncut(tmp_path, rows), tmp_path / "uncut")
    assert accuracies(write_strings(tmp_path, rows), tmp_path / "pool") == expected
