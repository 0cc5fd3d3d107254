"""Pools and controllers that an earlier version wrote (data/written, see its README.md) still work.

What is pinned was seen when they were written. No rewrite of the package may change it, so nothing
here is written anew by AERA_GOLDEN.
"""

import json
import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from commands import said
from fakes import FakeUpstream, in_background

import aera

WRITTEN = Path(__file__).parent / "data" / "written"
PINNED: dict[str, Any] = json.loads((WRITTEN / "pinned.json").read_text("utf-8"))


class Short:
    """The scorer that the controller for best-of-n was made with."""

    def score(self, question: aera.Question, responses: Any) -> list[float]:
        return [100 / (100 + len(response.text)) for response in responses]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A copy of all of them: to open a recording may tidy it up."""
    return Path(shutil.copytree(WRITTEN, tmp_path / "written"))


def seven() -> AbstractContextManager[FakeUpstream]:
    """A model server that says 7."""
    return in_background(FakeUpstream(lambda call, place: "so \\boxed{7}"))


def asked(server: FakeUpstream) -> int:
    """How many responses it was asked for."""
    return sum(call.n for call in server.calls)


# --- pools ----------------------------------------------------------------------------------------


def told(pool: Any) -> dict[str, Any]:
    """Size, task and checkpoints of a pool, and how its responses begin and weigh."""
    records = [*pool]
    responses = [each for record in records for each in record.responses]
    return {
        "questions": [record.question.text[:20] for record in records],
        "responses": [len(record.responses) for record in records],
        "task": pool.task.name,
        "schedule": [*pool.schedule],
        "tokens": sum(each.tokens for each in responses),
        "logprobs": round(sum(each.logprob or 0 for each in responses), 6),
        "first": responses[0].text[:60],
        "last": responses[-1].text[-60:],
    }


@pytest.mark.parametrize("name", ["sampled", "imported", "merged", "growing", "recorded"])
def test_a_pool_written_before_holds_what_it_held(name: str, written: Path) -> None:
    pinned = dict(PINNED["pools"][name])
    labels = pinned.pop("labels")
    assert told(aera.open_pool(written / name)) == pinned
    assert json.loads(said("info", written / name, "--json"))["truths"] == labels


def test_a_pool_in_one_parquet_file_is_imported_and_a_folder_of_them_opens(written: Path) -> None:
    said("import", written / "exported.parquet", "--out", written / "again")
    for place in (written / "again", written / "sharded"):
        assert told(aera.open_pool(place)) | {"labels": 3} == PINNED["pools"]["imported"]


def test_an_interrupted_pool_says_how_far_it_is(written: Path) -> None:
    found = json.loads(said("info", written / "interrupted", "--json"))
    assert (found["done"], found["wanted"], found["task"]["name"]) == (10, 24, "numeric")
    assert (found["fewest"], found["most"], found["finished_questions"]) == (0, 8, 1)
    shown = [said("info", written / name) for name in ("interrupted", "growing")]
    assert "10 of 24 responses are there: 0 to 8 of 8 for each of 3 questions, 1 of " in shown[0]
    assert "it is being grown" in shown[1]
    grown = json.loads(said("info", written / "growing", "--json"))["growing"]
    assert (grown["done"], grown["wanted"]) == (16, 24)


@pytest.mark.parametrize(
    ("name", "missing"), [("interrupted", 14), ("growing", 8), ("sampled", 12)]
)
def test_a_pool_begun_before_goes_on_and_pays_once(name: str, missing: int, written: Path) -> None:
    out, before = written / name, written / "questions.jsonl"
    with seven() as server:
        to = ("--base-url", server.base_url, "--model", "m", "--task", "numeric", "--responses", 8)
        said("sample", before, *to, "--out", out)
    assert asked(server) == missing
    pool = aera.open_pool(out)
    texts = [each.text for record in pool for each in record.responses]
    assert (len(texts), texts.count("so \\boxed{7}")) == (24, missing)


@pytest.mark.parametrize(
    ("name", "paid", "answers"),
    [("solved.jsonl", 0, ["3", "60", "460"]), ("stopped.jsonl", 8, ["3", "7", "7"])],
)
def test_answers_begun_before_go_on_and_pay_nothing_twice(
    name: str, paid: int, answers: list[str], written: Path
) -> None:
    with seven() as server:
        to = ("--base-url", server.base_url, "--model", "m", "--file", written / "questions.jsonl")
        how = ("--task", "numeric", "--schedule", "4,8", "--policy", "asc-0.9", "--seed", 0)
        said("solve", *to, *how, "--out", written / name)
    assert asked(server) == paid
    lines = [json.loads(line) for line in (written / name).read_text("utf-8").splitlines()]
    found = {line["question_id"]: line["answer"] for line in lines if line["answer"]}
    assert [found[name] for name in sorted(found)] == answers


# --- controllers ----------------------------------------------------------------------------------


# The one called bundled has an MLP weigher and a gate of eleven inputs.


def decided(controller: aera.Controller) -> dict[str, Any]:
    """What it is, and what it decides on each recorded question."""
    pool = aera.open_pool(WRITTEN / "imported")
    made: dict[str, Any] = {
        "label": controller.label,
        "task": controller.task.name,
        "schedule": [*controller.schedule],
        "seen": [len(controller.fitted), len(controller.calibrated)],
    }
    for question in (record.question for record in pool):
        run = aera.RecordedSampler(pool)
        done = aera.solve_blocking(question, run, controller.cut_to(8))
        made[question.id] = {
            "answer": (done.answer or "")[:40],
            "responses": done.responses,
            "p_continue": [step.decision.p_continue for step in done.steps],
            "votes": sorted(done.votes.values()),
        }
    return made


def close(value: Any) -> Any:
    """The same to 1e-9 wherever it is a number."""
    if isinstance(value, dict):
        return {name: close(each) for name, each in value.items()}
    if isinstance(value, list):
        return [close(each) for each in value]
    return pytest.approx(value, rel=0, abs=1e-9) if isinstance(value, float) else value


@pytest.mark.parametrize("name", PINNED["controllers"])
def test_a_controller_written_before_decides_as_it_did(name: str) -> None:
    scorer = Short() if name == "best-of-n" else None
    loaded = aera.Controller.load(WRITTEN / name, scorer=scorer)
    assert decided(loaded) == close(PINNED["controllers"][name])
