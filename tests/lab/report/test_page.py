"""The report: an honest headline, figures that can be drawn, and a page that works offline."""

import asyncio
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import CHROMIUM, browser_tab
from made_questions import trajectories_of
from small_study import Bench

import aera
from aera.files import palette
from aera.lab import PaperLearner, write_report
from aera.lab.build import Built
from aera.lab.frontier import Prices
from aera.lab.learning.paper import Perceptron
from aera.lab.report.figures import reliability
from aera.lab.report.page import Section, export_svg, find_room, make_sections, page_content
from aera.lab.summary import Evaluation

MOST_BYTES = 3_000_000


def replayed(bench: Bench, *, truths: bool = True, **settings: Any) -> Evaluation:
    records = bench.records if truths else replace(bench.records, folder=None)
    return aera.evaluate(records, **settings)


def learned(bench: Bench, protocol: str, **settings: Any) -> Evaluation:
    """The paper's gate, fitted in a few epochs, beside the standard policies."""
    quick = partial(PaperLearner, perceptron=Perceptron(epochs=8))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aera.lab.api.PaperLearner", quick)
        return aera.evaluate(bench.records, protocol=protocol, paper=True, **settings)


@pytest.fixture(scope="session")
def judged(bench: Bench) -> Evaluation:
    """Nested, so that every kind of section is there."""
    return learned(bench, "nested", max_loss=0.05)


def sections_of(made: Evaluation) -> dict[str, Section]:
    return {section.name: section for section in make_sections(made)}


def frontier_rows(made: Evaluation) -> list[dict[str, Any]]:
    return [*sections_of(made)["frontier"].figures[0].rows]


def test_without_truths_it_speaks_of_agreement(bench: Bench) -> None:
    report = replayed(bench, truths=False)
    assert "of the answers equal those of fixed-32" in report.summary["headline"]["claim"]
    assert [*sections_of(report)] == ["frontier", "stops"]


# --- figures ------------------------------------------------------------------------------------


def test_reliability_counts_every_decision_but_the_last_checkpoint() -> None:
    shown = trajectories_of([[0.0, 1.0, 1.0], [0.0, 0.0, 0.0]] * 10)
    chances = np.tile([[0.9, 0.1, 0.5], [0.2, np.nan, 0.5]], (10, 1))
    bins = reliability(chances, shown)
    assert sum(each["decisions"] for each in bins) == 30
    assert (bins[0]["paid"], bins[-1]["paid"]) == (0.0, 1.0)
    assert all(each["low"] <= each["paid"] <= each["high"] for each in bins)


def test_sections_follow_what_the_evaluation_holds(
    bench: Bench, judged: Evaluation, built: Built
) -> None:
    assert "gate" not in sections_of(replayed(bench))
    assert "gate" in sections_of(replayed(bench, controller=built.controller))
    assert {"gate", "tests"} <= set(sections_of(judged))
    assert [s.name for s in make_sections(judged) if s.folded] == ["trajectories"]


def test_crossfit_marks_its_sweep_as_read_off_afterwards(bench: Bench) -> None:
    made = learned(bench, "crossfit")
    kinds = {row["policy"]: row["kind"] for row in frontier_rows(made)}
    shown = [kinds[policy] for policy in ("aera-0.30", "asc-0.95", "oracle")]
    assert shown == ["swept afterwards", "as given", "hindsight"]
    assert "crossfit is descriptive" in made.summary["headline"]["certificate"]


def test_figures_are_drawn_as_svg_in_the_light_colours(judged: Evaluation, tmp_path: Path) -> None:
    files = export_svg(tmp_path / "figures", judged)
    names = {"frontier-responses", "frontier-tokens", "calibrated", "reliability", "thresholds"}
    assert names < {file.stem for file in files}
    for file in files:
        text = file.read_text("utf-8")
        assert text.startswith("<svg")
        assert "var(" not in text
        assert "role-title" in text
    assert palette()["--blue"] in (tmp_path / "figures/stops.svg").read_text("utf-8")


def test_four_points_at_most_are_named_and_the_calibrated_come_first(judged: Evaluation) -> None:
    rows, told = frontier_rows(judged), judged.summary["headline"]
    named = [row["name"] for row in rows if row["name"]]
    assert {told["policy"], told["reference"], "oracle"} <= set(named)
    assert len(named) <= 4
    kinds = [row["kind"] for row in rows]
    assert kinds[0] == "calibrated"
    assert kinds == sorted(kinds, key=lambda kind: not kind.startswith("calibrated"))


def test_numbers_of_one_column_have_one_format(judged: Evaluation) -> None:
    for section in page_content(judged)["sections"]:
        for figure in section["figures"]:
            for row in figure["spec"]["data"]["values"]:
                loose = {name for name in figure["columns"] if isinstance(row[name], float)}
                assert loose <= set(figure["formats"]), figure["name"]


def test_the_lines_of_chosen_thresholds_are_the_gates_own(judged: Evaluation) -> None:
    """In a fold another rule may have been cheaper, whose setting is no threshold."""
    choices = judged.done.choices["aera"]
    mixed = (replace(choices[0], family="asc", setting=0.77), *choices[1:])
    done = replace(judged.done, choices={**judged.done.choices, "aera": mixed})
    own, less = (
        sections_of(made)["gate"].figures[1].caption
        for made in (judged, replace(judged, done=done))
    )
    assert "0.77" not in less
    assert own.count(",") > less.count(",")


def test_tokens_are_the_axis_and_money_where_there_are_prices(bench: Bench) -> None:
    plain, paid = replayed(bench), replayed(bench, prices=(0.1, 0.4))
    names = [[f.name for f in sections_of(made)["frontier"].figures] for made in (plain, paid)]
    assert names[0] == ["frontier-tokens", "frontier-responses"]
    assert names[1] == ["frontier-money", *names[0]]
    content = page_content(paid)
    money = paid.frontier["lead-4"].money(Prices(0.1, 0.4))
    assert content["boxes"]["money per 1,000 questions"] == f"{money:,.2f}"
    assert content["prices"] == {"prompt": 0.1, "completion": 0.4}


# --- the page -----------------------------------------------------------------------------------


def test_a_question_cannot_break_out_of_the_page(bench: Bench, tmp_path: Path) -> None:
    made = replayed(bench)
    first, *others = bench.records
    question = replace(first.question, text="</script><script>alert(1)</script>")
    records = replace(bench.records, records=[replace(first, question=question), *others])
    write_report(tmp_path / "r.html", replace(made, records=records))
    assert "<script>alert" not in (tmp_path / "r.html").read_text("utf-8")


def test_a_thousand_questions_stay_within_three_megabytes(
    judged: Evaluation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = find_room(1000)
    monkeypatch.setattr("aera.lab.report.page.find_room", lambda questions: room)
    write_report(tmp_path / "r.html", judged)
    content = page_content(judged)
    assert all(len(each["responses"]) == room[0] for each in content["questions"])
    told = len(json.dumps([content["questions"], content["points"]], ensure_ascii=False).encode())
    rest = (tmp_path / "r.html").stat().st_size - told
    assert rest + told * 1000 / content["judged"] < MOST_BYTES


def test_why_each_question_stopped_is_told_for_every_policy(judged: Evaluation) -> None:
    content = json.loads(json.dumps(page_content(judged), allow_nan=False))
    for point in content["points"]:
        assert len(point["stops"]) == len(point["why"]) == len(content["questions"])
        assert max(point["why"]) < len(point["reasons"])
    gated = next(point for point in content["points"] if point["policy"] == "aera-calibrated")
    assert all("fold" in reason for reason in gated["reasons"])


def test_a_page_shows_as_many_questions_as_it_can_and_says_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = page_content(replayed(bench))
    monkeypatch.setattr("aera.lab.report.page.MOST_QUESTIONS", 20)
    part = page_content(replayed(bench))
    assert part["judged"] == whole["judged"] == 60
    known = {question["id"]: place for place, question in enumerate(whole["questions"])}
    rows = [known[question["id"]] for question in part["questions"]]
    assert (len(rows), rows) == (20, sorted(rows))
    assert part["questions"] == [whole["questions"][row] for row in rows]
    for own, full in zip(part["points"], whole["points"], strict=True):
        assert own["stops"] == [full["stops"][row] for row in rows]
        assert [own["reasons"][why] for why in own["why"]] == [
            full["reasons"][full["why"][row]] for row in rows
        ]
    for name in ("headline", "boxes", "sections"):
        assert part[name] == whole[name], "everything but the explorer is of all questions"


OVERLAPPING = """(() => {
  const names = new Map();
  document.querySelectorAll("#frontier figure svg text").forEach((text) => {
    if (/^(fixed|weighted|aera|oracle|asc)/.test(text.textContent) && text.closest(".mark-text"))
      names.set(text.textContent, text.getBoundingClientRect());
  });
  const all = [...names];
  const over = (a, b) =>
    a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  return all.flatMap(([one, a], i) =>
    all.slice(i + 1).filter(([, b]) => over(a, b)).map(([other]) => [one, other]));
})()"""
"""Names on the frontier that lie over each other."""


CHARTS = "document.querySelectorAll('figure svg').length"
HEADING = "document.querySelector('#question h3').textContent"
GROUND = "getComputedStyle(document.body).backgroundColor"
CHOOSE = """const list = document.getElementById('policy'); list.value = 'fixed-4';
    list.dispatchEvent(new Event('change'))"""
UNFOLD = "document.querySelectorAll('section > details').forEach(d => d.open = true)"
UNNAMED = """[...document.querySelectorAll('button,select,input')]
    .filter((one) => !one.ariaLabel && !one.labels?.length).length"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_the_page_works_in_a_browser_without_a_network(judged: Evaluation, tmp_path: Path) -> None:
    """A reader presses a key, chooses a policy, turns the lights off and unfolds it all."""
    page, sections = tmp_path / "r.html", make_sections(judged)
    write_report(page, judged)
    first, second = judged.frontier.trajectories.question_ids[:2]
    whole = sum(len(section.figures) for section in sections) - 1  # one waits its turn
    drawn = whole - sum(len(section.figures) for section in sections if section.folded)

    async def read() -> None:
        async with browser_tab(tmp_path / "profile") as tab:
            see = tab.value
            await tab.look(1200)
            await tab.open(page.as_uri())
            assert (await see(CHARTS), await see(HEADING)) == (drawn, first)
            await see("document.getElementById('questions').focus()")
            await tab.press("ArrowDown", 40)
            assert await see(HEADING) == second
            await see(CHOOSE)
            why = await see("document.querySelector('#question .why').textContent")
            assert "fixed-4 stops after 4 responses" in why
            await see("document.querySelector('input[value=responses]').click()")
            light = await see(GROUND)
            await tab.look(390, "dark")
            assert await see(GROUND) != light
            assert await see("document.documentElement.scrollWidth") == 390
            assert await see(UNNAMED) == 0
            await see(UNFOLD)
            await asyncio.sleep(1.5)
            assert await see(CHARTS) == whole
            assert not await see(OVERLAPPING)
            assert (tab.logged, tab.requested) == ([], [page.as_uri()])

    asyncio.run(read())
