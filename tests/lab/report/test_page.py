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
from lab_fixtures import Bench
from made_questions import trajectories_of

import aera
from aera import Question, Response
from aera.core import Vote
from aera.files import palette
from aera.lab import PaperLearner, write_report
from aera.lab.build import Built
from aera.lab.frontier import Prices
from aera.lab.report import page
from aera.lab.report.figures import reliability
from aera.lab.report.page import Section, export_svg, make_sections, page_content
from aera.lab.summary import Evaluation
from aera.pools.pool import VotedRecord

MOST_BYTES = 3_000_000


def replayed(bench: Bench, *, truths: bool = True, **settings: Any) -> Evaluation:
    records = bench.records if truths else replace(bench.records, folder=None)
    return aera.evaluate(records, **settings)


@pytest.fixture(scope="session")
def judged(bench: Bench) -> Evaluation:
    """The paper's gate, nested, so that every kind of section is there; fitted in a few epochs."""
    quick = partial(PaperLearner, epochs=8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aera.lab.api.PaperLearner", quick)
        return aera.evaluate(bench.records, protocol="nested", paper=True, max_loss=0.05)


def sections_of(made: Evaluation) -> dict[str, Section]:
    return {section.name: section for section in make_sections(made)}


# --- figures ------------------------------------------------------------------------------------


def test_reliability_counts_every_decision_but_the_last_checkpoint() -> None:
    shown = trajectories_of([[0.0, 1.0, 1.0], [0.0, 0.0, 0.0]] * 10)
    chances = np.tile([[0.9, 0.1, 0.5], [0.2, np.nan, 0.5]], (10, 1))
    bins = reliability(chances, shown)
    assert sum(each["decisions"] for each in bins) == 30
    assert (bins[0]["paid"], bins[-1]["paid"]) == (0.0, 1.0)
    assert all(each["low"] <= each["paid"] <= each["high"] for each in bins)


def test_sections_follow_the_evaluation(bench: Bench, judged: Evaluation, built: Built) -> None:
    bare = replayed(bench, truths=False)
    assert [*sections_of(bare)] == ["frontier", "stops"]
    assert "of the answers equal those of fixed-32" in bare.summary["headline"]["claim"]
    assert "gate" not in sections_of(replayed(bench))
    assert "gate" in sections_of(replayed(bench, controller=built.controller))
    assert {"gate", "tests"} <= set(sections_of(judged))
    assert [s.name for s in make_sections(judged) if s.folded] == ["trajectories"]


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
    rows, told = sections_of(judged)["frontier"].figures[0].rows, judged.summary["headline"]
    named = [row["name"] for row in rows if row["name"]]
    assert {told["policy"], told["reference"], "oracle"} <= set(named)
    assert len(named) <= 4
    kinds = [row["kind"] for row in rows]
    assert kinds[0] == "calibrated"
    assert kinds == sorted(kinds, key=lambda kind: not kind.startswith("calibrated"))
    known = {row["policy"]: row["kind"] for row in rows}
    others = [known[policy] for policy in ("aera-0.30", "asc-0.95", "oracle")]
    assert others == ["swept afterwards", "as given", "hindsight"]


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
    room = page.find_room(1000)
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
    places = [place for place, each in enumerate(whole["questions"]) if each in part["questions"]]
    assert len(places) == 20
    assert part["questions"] == [whole["questions"][place] for place in places]
    for own, full in zip(part["points"], whole["points"], strict=True):
        assert own["stops"] == [full["stops"][place] for place in places]
        told = [full["reasons"][full["why"][place]] for place in places]
        assert [own["reasons"][why] for why in own["why"]] == told
    for name in ("judged", "headline", "boxes", "sections"):
        assert part[name] == whole[name], "everything but the explorer is of all questions"


# --- responses ----------------------------------------------------------------------------------


def voted(answers: list[str | None], weights: list[float] | None = None) -> VotedRecord:
    responses = tuple(Response(f"says {answer}", 7) for answer in answers)
    pairs = zip(answers, weights or [1.0] * len(answers), strict=True)
    votes = tuple(Vote(answer, weight=weight) for answer, weight in pairs)
    return VotedRecord(Question("q", "?"), responses, votes)


def test_every_frequent_answer_and_what_was_not_read_are_among_the_responses() -> None:
    said = voted(["1"] * 20 + ["2"] * 5 + [None] + ["3"] * 2)
    shown = page.show_responses(said, (4, 100), count=28)
    assert [one["number"] for one in shown] == [1, 21, 26, 27]
    assert [one["answer"] for one in shown] == ["1", "2", None, "3"]
    assert [one["number"] for one in page.show_responses(said, (8, 100), count=4)] == [1, 2, 3, 4]
    assert [one.get("why") for one in shown[1:3]] == [None, "no answer could be found"]


def test_weights_change_what_is_told_and_not_which_are_shown() -> None:
    answers: list[str | None] = ["1", "2", "2", "3", None]
    plain = page.show_responses(voted(answers), (3, 100), count=5)
    weighed = page.show_responses(voted(answers, [0.1, 0.2, 0.3, 9.0, 1.0]), (3, 100), count=5)
    assert [one["number"] for one in plain] == [one["number"] for one in weighed]
    assert weighed[0]["weight"] == 0.1


def test_a_long_text_loses_its_middle_and_a_page_has_room_for_so_many_characters() -> None:
    text = "a" * 500 + "the end"
    assert page.shorten(text, 90) == "a" * 30 + " … [417 characters left out] … " + text[-60:]
    assert page.shorten("short", 90) == "short"
    for questions in (1, 5, 150, 1_000, 2_000):
        responses, characters = page.find_room(questions)
        assert questions * responses * characters <= page.MOST_CHARACTERS
        assert responses <= page.MOST_RESPONSES
        assert characters <= page.LONGEST_RESPONSE


# --- in a browser -------------------------------------------------------------------------------


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
    file, sections = tmp_path / "r.html", make_sections(judged)
    write_report(file, judged)
    first, second = judged.frontier.trajectories.question_ids[:2]
    whole = sum(len(section.figures) for section in sections) - 1  # one waits its turn
    drawn = whole - sum(len(section.figures) for section in sections if section.folded)

    async def read() -> None:
        async with browser_tab(tmp_path / "profile") as tab:
            see = tab.value
            await tab.look(1200)
            await tab.open(file.as_uri())
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
            assert (tab.logged, tab.requested) == ([], [file.as_uri()])

    asyncio.run(read())
