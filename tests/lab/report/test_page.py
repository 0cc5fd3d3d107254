"""The report: an honest headline, figures that can be drawn, and a page that works offline."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import CHROMIUM, browser_tab
from small_study import Bench
from typer.testing import CliRunner

from aera import Pool, Schedule, standard_policies
from aera.cli import app
from aera.files import palette
from aera.lab import (
    Built,
    PaperLearner,
    Report,
    Trajectories,
    evaluate,
    export_svg,
    summarize,
    write_report,
)
from aera.lab.judging.evaluation import Evaluation, EvaluationSettings, evaluate_pool
from aera.lab.learning.perceptron import Perceptron
from aera.lab.report.explorer import shown_columns
from aera.lab.report.reliability import Predictions, reliability
from aera.lab.report.responses import Room

MOST_BYTES = 3_000_000


def replayed(bench: Bench, *, truths: bool = True) -> Report:
    policies = [*standard_policies(bench.pool.schedule)]
    known = bench.truths if truths else None
    frontier = evaluate(bench.records, policies, truths=known)
    summary = summarize(frontier, bench.records, protocol="replay", seed=0)
    return Report(summary, frontier, bench.records, policies, truths=known)


def learned(bench: Bench, protocol: str, **settings: Any) -> Evaluation:
    """The paper's gate, fitted in a few epochs, beside the standard policies."""
    quick = partial(PaperLearner, perceptron=Perceptron(epochs=8))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aera.lab.judging.evaluation.PaperLearner", quick)
        return evaluate_pool(
            bench.records,
            standard_policies(bench.pool.schedule),
            truths=bench.truths,
            settings=EvaluationSettings(protocol, paper=True, **settings),
        )


@pytest.fixture(scope="session")
def judged(bench: Bench) -> Report:
    """Nested, so that every kind of section is there."""
    made = learned(bench, "nested", max_loss=0.05)
    ablations = [{"features": "all", "8 responses": 70.0}]
    return Report.of(replace(made, sections={**made.sections, "ablations": ablations}))


def sections_of(report: Report) -> list[str]:
    return [section.name for section in report.sections]


def test_without_truths_it_speaks_of_agreement(bench: Bench) -> None:
    report = replayed(bench, truths=False)
    assert "of the answers equal those of fixed-32" in report.headline["claim"]
    assert sections_of(report) == ["frontier", "stops"]


def test_a_controller_has_its_gate_shown(bench: Bench, built: Built) -> None:
    settings = EvaluationSettings("replay")
    made = evaluate_pool(
        bench.records, (), truths=bench.truths, settings=settings, controller=built.controller
    )
    report = Report.of(made)
    assert report.headline["status"] == "in-sample"
    assert report.predictions is not None
    assert "gate" in sections_of(report)


# --- figures ------------------------------------------------------------------------------------


def test_reliability_counts_every_decision_but_the_last_checkpoint(
    trajectories_of: Callable[..., Trajectories],
) -> None:
    shown = trajectories_of([[0.0, 1.0, 1.0], [0.0, 0.0, 0.0]] * 10)
    chances = np.tile([[0.9, 0.1, 0.5], [0.2, np.nan, 0.5]], (10, 1))
    bins = reliability(Predictions(chances, np.zeros(20, dtype=np.int64), {}), shown)
    assert sum(each.decisions for each in bins) == 30
    assert (bins[0].paid, bins[-1].paid) == (0.0, 1.0)
    assert all(each.low <= each.paid <= each.high for each in bins)


def test_sections_follow_what_the_evaluation_holds(bench: Bench, judged: Report) -> None:
    assert "gate" not in sections_of(replayed(bench))
    assert {"gate", "tests", "ablations"} <= set(sections_of(judged))
    assert "transfer" not in sections_of(judged)


def test_crossfit_marks_its_sweep_as_read_off_afterwards(bench: Bench) -> None:
    report = Report.of(learned(bench, "crossfit"))
    rows = {row["policy"]: row for row in report.sections[0].figures[0].rows}
    assert rows["aera-0.30"]["kind"] == "swept afterwards"
    assert rows["asc-0.95"]["kind"] == "as given"
    assert rows["oracle"]["kind"] == "hindsight"
    assert "crossfit is descriptive" in report.headline["certificate"]


def test_calibrated_points_are_marked(judged: Report) -> None:
    rows = {row["policy"]: row for row in judged.sections[0].figures[0].rows}
    assert rows["aera-calibrated"]["kind"] == "calibrated, nested"
    assert rows["aera-calibrated"]["barred"]


def test_figures_are_drawn_as_svg_in_the_light_colours(judged: Report, tmp_path: Path) -> None:
    files = export_svg(tmp_path / "figures", judged)
    names = {"frontier-responses", "frontier-tokens", "calibrated", "reliability", "thresholds"}
    assert names < {file.stem for file in files}
    for file in files:
        text = file.read_text("utf-8")
        assert text.startswith("<svg")
        assert "var(" not in text
        assert "role-title" in text
    assert palette()["--blue"] in (tmp_path / "figures/stops.svg").read_text("utf-8")


def test_four_points_at_most_are_named_and_the_calibrated_come_first(judged: Report) -> None:
    figure = judged.sections[0].figures[0]
    told = judged.headline
    named = [row["name"] for row in figure.rows if row["name"]]
    assert {told["policy"], told["reference"], "oracle"} <= set(named)
    assert len(named) <= 4
    assert all("policy" in figure.columns and row["policy"] for row in figure.rows)
    kinds = [row["kind"] for row in figure.rows]
    assert kinds[0] == "calibrated, nested"
    assert kinds == sorted(kinds, key=lambda kind: not kind.startswith("calibrated"))
    assert "other rules" not in {row["family"] for row in figure.rows}


def test_numbers_of_one_column_have_one_format(judged: Report) -> None:
    for section in judged.as_json()["sections"]:
        for figure in section["figures"]:
            for row in figure["spec"]["data"]["values"]:
                loose = {name for name in figure["columns"] if isinstance(row[name], float)}
                assert loose <= set(figure["formats"]), figure["name"]


def test_loss_by_difficulty_has_intervals_that_grow_with_few_questions(judged: Report) -> None:
    [section] = [section for section in judged.sections if section.name == "stops"]
    rows = [row for row in section.figures[1].rows if row["policy"] == "aera-calibrated"]
    assert all(row["from"] < row["loss"] < row["to"] for row in rows)
    rows.sort(key=lambda row: row["questions"])
    assert rows[0]["to"] - rows[0]["from"] > rows[-1]["to"] - rows[-1]["from"]


def test_money_is_shown_where_the_evaluation_has_it(bench: Bench) -> None:
    report = replayed(bench)
    assert "frontier-money" not in {figure.name for figure in report.sections[0].figures}
    points = [{**point, "money": 1.25} for point in report.evaluation["points"]]
    prices = {"prompt": 0.1, "completion": 0.4}
    paid = replace(report, evaluation={**report.evaluation, "points": points, "prices": prices})
    content = paid.as_json()
    assert content["boxes"]["money per 1,000 questions"] == "1.25"
    assert content["prices"] == prices
    assert "frontier-money" in {figure.name for figure in paid.sections[0].figures}


def test_a_long_schedule_is_shown_in_part() -> None:
    columns = shown_columns(Schedule(tuple(range(1, 129))))
    assert len(columns) <= 12
    assert (columns[0], columns[-1]) == (0, 127)


# --- the page -----------------------------------------------------------------------------------


def test_a_question_cannot_break_out_of_the_page(bench: Bench, tmp_path: Path) -> None:
    report = replayed(bench)
    first, *others = bench.records
    question = replace(first.question, text="</script><script>alert(1)</script>")
    records = replace(bench.records, records=[replace(first, question=question), *others])
    write_report(tmp_path / "r.html", replace(report, records=records))
    assert "<script>alert" not in (tmp_path / "r.html").read_text("utf-8")


def test_a_thousand_questions_stay_within_three_megabytes(
    judged: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room.of(1000)
    monkeypatch.setattr(Room, "of", lambda questions: room)
    judged = replace(judged)  # nothing of it has been made yet
    write_report(tmp_path / "r.html", judged)
    content = judged.as_json()
    assert all(len(each["responses"]) == room.responses for each in content["questions"])
    told = len(json.dumps([content["questions"], content["points"]], ensure_ascii=False).encode())
    rest = (tmp_path / "r.html").stat().st_size - told
    assert rest + told * 1000 / content["judged"] < MOST_BYTES


def test_why_each_question_stopped_is_told_for_every_policy(judged: Report) -> None:
    content = judged.as_json()
    assert json.loads(json.dumps(content, allow_nan=False))
    for point in content["points"]:
        assert len(point["stops"]) == len(point["why"]) == len(content["questions"])
        assert max(point["why"]) < len(point["reasons"])
    gated = next(point for point in content["points"] if point["policy"] == "aera-calibrated")
    assert all("fold" in reason for reason in gated["reasons"])


def test_a_page_shows_as_many_questions_as_it_can_and_says_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = replayed(bench).as_json()
    monkeypatch.setattr("aera.lab.report.explorer.MOST_QUESTIONS", 20)
    part = replayed(bench).as_json()
    assert part["judged"] == whole["judged"] == 60
    known = {question["id"]: place for place, question in enumerate(whole["questions"])}
    rows = [known[question["id"]] for question in part["questions"]]
    assert len(rows) == 20
    assert rows == sorted(rows)
    assert part["questions"] == [whole["questions"][row] for row in rows]
    for own, full in zip(part["points"], whole["points"], strict=True):
        assert own["stops"] == [full["stops"][row] for row in rows]
        reasons = [full["reasons"][full["why"][row]] for row in rows]
        assert [own["reasons"][why] for why in own["why"]] == reasons
    for name in ("headline", "boxes", "sections"):
        assert part[name] == whole[name], "everything but the explorer is of all questions"


def test_the_command_writes_page_and_figures(bench: Bench, tmp_path: Path) -> None:
    page, figures = tmp_path / "r.html", tmp_path / "figures"
    call = ["evaluate", str(bench.pool.path), "--report", str(page), "--figures", str(figures)]
    done = CliRunner().invoke(app, [*call, "--policies", "asc-0.9,esc-3"], catch_exceptions=False)
    assert done.exit_code == 0
    assert page.read_text("utf-8").startswith("<!doctype html>")
    assert (figures / "stops.svg").exists()
    assert Pool.open(bench.pool.path).path.name in page.read_text("utf-8")


async def explored(page: Path, profile: Path) -> dict[str, Any]:
    """What a reader finds who presses a key, chooses a policy and turns the lights off."""
    async with browser_tab(profile) as tab:
        await tab.look(1200)
        await tab.open(page.as_uri())
        seen: dict[str, Any] = {
            "charts": await tab.value("document.querySelectorAll('figure svg').length")
        }
        heading = "document.querySelector('#question h3').textContent"
        seen["first"] = await tab.value(heading)
        await tab.value("document.getElementById('questions').focus()")
        await tab.press("ArrowDown", 40)
        seen["second"] = await tab.value(heading)
        why = "document.querySelector('#question .why').textContent"
        await tab.value(
            "const list = document.getElementById('policy'); list.value = 'fixed-4';"
            "list.dispatchEvent(new Event('change'))"
        )
        seen["why"] = await tab.value(why)
        await tab.value("document.querySelector('input[value=tokens]').click()")
        ground = "getComputedStyle(document.body).backgroundColor"
        seen["light"] = await tab.value(ground)
        await tab.look(390, "dark")
        seen["dark"] = await tab.value(ground)
        seen["width"] = await tab.value("document.documentElement.scrollWidth")
        unnamed = "[...document.querySelectorAll('button,select,input')]"
        unnamed += ".filter((one) => !one.ariaLabel && !one.labels?.length).length"
        seen["unnamed"] = await tab.value(unnamed)
        seen["logged"], seen["requested"] = tab.logged, tab.requested
        return seen


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_the_page_works_in_a_browser_without_a_network(judged: Report, tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    write_report(page, judged)
    seen = asyncio.run(explored(page, tmp_path / "profile"))
    assert seen["logged"] == []
    assert seen["requested"] == [page.as_uri()]
    assert seen["charts"] == sum(len(s.figures) for s in judged.sections) - 1  # one waits its turn
    first, second = judged.frontier.trajectories.question_ids[:2]
    assert (seen["first"], seen["second"]) == (first, second)
    assert "fixed-4 stops after 4 responses" in seen["why"]
    assert "fixed budget" in seen["why"]
    assert seen["light"] != seen["dark"]
    assert seen["width"] == 390
    assert seen["unnamed"] == 0
