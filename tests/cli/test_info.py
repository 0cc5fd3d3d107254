"""What a pool or a controller is, said in lines and as JSON."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import said
from commands import said as aera
from lab_fixtures import Bench
from live import controller_of
from made_questions import Long
from streams import row_of, write_rows

from aera import BestOfN, Controller, Fixed, Question, Record, Response, Schedule, get_task
from aera.errors import AeraError, ControllerError, UsageError
from aera.lab import Truths, export_pool
from aera.pools.pool import Plan, write_pool

NUMERIC = get_task("numeric")


def info(path: object, *options: str) -> str:
    """What the command prints."""
    return said("info", path, *options)


def told(path: object) -> Any:
    return json.loads(info(path, "--json"))


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """Four responses of every kind to two questions, and one to a third."""
    good = Response("\\boxed{7}", 10, model="m")
    cut = Response("so it", 30, finish_reason="length", model="m")
    lost = Response("I cannot say \ud83d", 5, model="other")
    bare, failed = Response("", 0, answer="8"), Response("", 1, error="no")
    asked = Question("a", "?", system="be brief", group="g")
    records = [
        Record(asked, (good, cut, lost, bare)),
        Record(Question("b", "??"), (good, good, lost, failed)),
        Record(Question("c", "???"), (good,)),
    ]
    settings = {"model": "m", "system": "think"}
    write_pool(tmp_path / "pool", records, Plan(NUMERIC, sampler=settings, seed=3))
    Truths({"a": "7", "c": "7"}).save(tmp_path / "pool")
    return tmp_path / "pool"


def test_a_pool_says_what_is_in_it_as_values_and_in_lines(pool: Path) -> None:
    found = told(pool)
    assert (found["kind"], found["checkpoints"], found["seed"]) == ("pool", [4], 3)
    counts = {"read": 4, "unread": 2, "truncated": 1, "failed": 1}
    assert counts.items() <= found["readability"].items()
    prompt = {"template": NUMERIC.template, "system": "think", "as_sampled": True}
    assert (found["prompt"], found["growing"]) == (prompt, None)
    shown = info(pool)
    for line in (
        "1 questions have a system message of their own",
        "50.0 % of 8 responses read, 25.0 % without an answer",
        "not read: a: I cannot say",
        "models: m (4), other (2)",
        "groups: 1",
        "texts: 6 responses have one, 1 with only an answer",
        "left out: 1 question: c (has 1 response, fewer than 4)",
    ):
        assert line in shown, shown


def test_an_exported_pool_says_it_too(bench: Bench, tmp_path: Path) -> None:
    export_pool(bench.pool, tmp_path / "export")
    ours, theirs = told(tmp_path / "export"), told(bench.pool.path)
    assert (ours["kind"], theirs["kind"]) == ("exported pool", "pool")
    for name in ("questions", "responses", "checkpoints", "tokens", "readability", "truths"):
        assert ours[name] == theirs[name]


# --- controllers ----------------------------------------------------------------------------------


def test_a_controller_says_what_it_was_taught_on(bench: Bench, tmp_path: Path) -> None:
    path = Path(__file__).parents[2] / "aera" / "demo" / "controller"
    found, shown = told(path), info(path)
    assert found["kind"] == "controller"
    assert found["label"] in shown
    assert found["calibration"]["summary"] in shown
    assert f"taught on {found['fitted']:,} questions" in shown
    assert f"home: {found['home']['questions']} questions" in shown
    assert found["home"]["models"][0] in shown
    controller_of().save(tmp_path / "plain")
    shown = info(tmp_path / "plain")
    assert "the controller asc-0.95, written by aera " in shown
    assert "taught on nothing" in shown
    assert "home: not recorded" in shown


def test_a_controller_with_a_scorer_needs_none_to_be_looked_at(tmp_path: Path) -> None:
    replace(controller_of(), weigher=BestOfN(Long())).save(tmp_path)
    assert told(tmp_path)["scorer"]["name"].endswith("Long")


# --- what is refused ------------------------------------------------------------------------------


def test_what_is_neither_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no pool and no controller at"):
        info(tmp_path / "x")
    with pytest.raises(AeraError, match="there is no pool at"):
        info(tmp_path)
    (tmp_path / "config.json").write_text('{"format": 9, "written_by": "9.1"}')
    (tmp_path / "calibration.json").write_text("{}")
    with pytest.raises(ControllerError, match=r"aera 9.1 wrote, .* update aera"):
        info(tmp_path)


# --- import and export ----------------------------------------------------------------------------


def test_columns_of_other_names_are_mapped(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("frage,modell,richtig\nhow many?,so 7,7\nhow many?,\\boxed{7},7\n")
    call = ["import", file, "--task", "gsm8k"]
    names = ["--map", "question=frage", "--map", "text=modell", "--map", "answer=richtig"]
    assert "1 questions, 2 responses" in aera(*call, "--out", tmp_path / "pool", *names)
    for wrong, message in (
        ("text=model", 'there is no column "model"; there are frage, modell, richtig'),
        ("words=modell", "ours one of question, messages, system, id"),
        ("text", "--map takes OURS=THEIRS"),
        ("question=modell", 'says twice what "question" is'),
    ):
        with pytest.raises(AeraError, match=message):
            aera(*call, "--out", tmp_path / "none", *names[:2], "--map", wrong)


def test_answers_alone_come_in_and_are_evaluated(tmp_path: Path) -> None:
    said = [{"answer": "33", "tokens": 9}, {"answer": None, "tokens": 5}, {"answer": "34"}]
    row = {"id": "aime-0", "question": "aime-0", "answer": "33", "task": "numeric"}
    file = write_rows(tmp_path / "others.jsonl.gz", [{**row, "responses": said * 4}])
    assert "66.7 % of 12 responses read" in aera("import", file, "--out", tmp_path / "pool")
    assert accuracy(tmp_path / "pool", tmp_path / "evaluation.json") == (False, 100.0)


def accuracy(pool: Path, file: Path, *options: str) -> Any:
    aera("evaluate", pool, "--policies", "fixed-4", "--json", file, *options)
    evaluation = json.loads(file.read_text("utf-8"))
    return evaluation["pool"]["equivalence"], evaluation["points"][0]["accuracy"]


def test_equal_answers_merge_where_asked_for(tmp_path: Path) -> None:
    answers = ["x^2+2x+1", "(1+x)^2", "7", "(x+1)(x+1)"]
    row = {**row_of("a", answers, "(x+1)^2"), "task": "expression"}
    aera("import", write_rows(tmp_path / "rows.jsonl", [row]), "--out", tmp_path / "pool")
    out = tmp_path / "evaluation.json"
    assert accuracy(tmp_path / "pool", out) == (False, 0.0)
    assert accuracy(tmp_path / "pool", out, "--equivalence") == (True, 100.0)
    for merges in (True, False):
        task = replace(get_task("expression"), equivalence=merges)
        controller = Controller(task, Schedule((4,)), Fixed(4))
        controller.save(tmp_path / f"merges-{merges}")
    trained = ["--controller", str(tmp_path / "merges-True")]
    assert accuracy(tmp_path / "pool", out, *trained) == (True, 100.0)
    controller = ("--controller", tmp_path / "merges-False")
    with pytest.raises(UsageError, match="would change the votes"):
        aera("evaluate", tmp_path / "pool", "--equivalence", *controller)


def test_what_is_made_of_an_address_is_that_of_the_pool(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, made = f"memory:/{tmp_path}/{bench.pool.name}", []
    monkeypatch.setattr("aera.pools.pool.SEGMENT_RESPONSES", 640)
    aera("export", bench.pool.path, "--out", address)
    for number, place in enumerate((address, bench.pool.path)):
        out = tmp_path / str(number)
        out.mkdir()
        files = ("--json", out / "out.json", "--report", out / "page.html")
        aera("evaluate", place, "--protocol", "holdout", "--max-loss", "0.1", *files)
        aera("train", place, "--out", out / "controller", "--max-loss", 0.5)
        found = (each for each in sorted(out.rglob("*")) if each.is_file())
        made.append({str(each.relative_to(out)): each.read_bytes() for each in found})
    assert made[0] == made[1]
    assert json.loads(made[0]["out.json"])["points"][0]["accuracy"] is not None
