"""What a pool or a controller is, said in lines and as JSON."""

import json
from pathlib import Path
from typing import Any

import pytest
from commands import said
from lab_fixtures import Bench
from live import controller_of

from aera import BestOfN, Controller, Question, Record, Response, get_task
from aera.errors import AeraError, ControllerError, UsageError
from aera.lab import Truths, export_pool
from aera.pools.log import Log
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


# --- on the way -----------------------------------------------------------------------------------


def filled(out: Path, responses: int, calls: int) -> None:
    """Bring a log two responses a call, all of which fail after so many calls."""
    questions = [Question(f"q{i}", "?") for i in range(3)]
    with Log(out, Plan(NUMERIC, responses, {"model": "m"}, 0), questions) as log:
        for question in questions:
            for places in log.missing(question, block=2):
                said = Response("\\boxed{7}", 3) if calls > 0 else Response("", error="no")
                log.add(question, places.start, [said] * len(places))
                calls -= 1
        log.seal()


def test_a_pool_that_is_being_filled_says_how_far_it_is(tmp_path: Path) -> None:
    filled(tmp_path, 4, calls=3)
    found, shown = told(tmp_path), info(tmp_path)
    assert (found["kind"], found["done"], found["wanted"]) == ("unfinished pool", 6, 12)
    assert (found["fewest"], found["most"], found["finished_questions"]) == (0, 4, 1)
    assert (found["failures"], found["readability"]["read"]) == (6, 6)
    assert "6 of 12 responses are there: 0 to 4 of 4 for each of 3 questions" in shown
    assert "6 failures" in shown


def test_a_pool_that_grows_is_a_pool_and_says_how_far_it_is(tmp_path: Path) -> None:
    filled(tmp_path, 2, calls=99)
    filled(tmp_path, 4, calls=1)
    found = told(tmp_path)
    assert (found["kind"], found["responses"], found["responses_each"]) == ("pool", 6, 2)
    assert (found["growing"]["done"], found["growing"]["wanted"]) == (8, 12)
    assert "it is being grown" in info(tmp_path)


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
    class Length:
        def score(self, question: Question, responses: Any) -> list[float]:
            return [len(response.text) for response in responses]

    plain = controller_of()
    Controller(plain.task, plain.schedule, plain.policy, weigher=BestOfN(Length())).save(tmp_path)
    assert told(tmp_path)["scorer"]["name"].endswith("Length")


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
