"""Pages and recipes do not part ways: every section is what its recipe published last."""

import ast
import json
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from made_questions import made_table

from aera.lab import VoteLearner, limit_for
from aera.lab.judging import learn_and_tune

ROOT = Path(__file__).parents[1]


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "runs")
    import published

    return published


@pytest.fixture
def small(published: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A page with one section and the recipe that wrote it."""
    for name, place in {"ROOT": ".", "RUNS": "runs", "DOCS": "docs"}.items():
        monkeypatch.setattr(published, name, tmp_path / place)
    monkeypatch.setattr(published, "FOUND", tmp_path / "runs/published")
    for folder in ("runs", "docs", "aera"):
        (tmp_path / folder).mkdir()
    (tmp_path / "runs/recipe.py").write_text('"""A recipe."""\n\npublish("one", f"{1 + 1}")\n')
    (tmp_path / "docs/page.md").write_text(
        "# Page\n\n<!-- begin one; columns 2; rows ^a -->\n<!-- end one -->\n"
    )
    forget(published)
    rows = [["a", "1", "2"], ["b", "3", "4"]]
    published.put("one", [published.Table(["", "x", "y"], rows), "Said."], "recipe", {})
    return published


def forget(published: ModuleType) -> None:
    """Files have changed."""
    for known in (published.read_tree, published.shape_of, published.code_of):
        known.cache_clear()


def test_pages_show_what_recipes_published_last(published: ModuleType) -> None:
    for page in sorted(published.DOCS.glob("*.md")):
        text = page.read_text("utf-8")
        assert published.fill(text) == text, "run python runs/published.py"


def test_no_recipe_has_changed_since_it_published(published: ModuleType) -> None:
    import all as everything

    found = [published.read(name) for name in published.names()]
    assert {each.recipe for each in found} == set(everything.recipes())
    changed = {each.recipe for each in found if published.source_of(each.recipe) != each.source}
    assert not changed, "run them again: python runs/all.py POOLS"


PAGES = ["README.md", "docs/results.md", "docs/paper.md"]


def read_prose(page: str, published: ModuleType) -> str:
    """The sentences of a page: no tables, no code, no addresses."""
    told = published.SECTION.sub("", (ROOT / page).read_text("utf-8"))
    told = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", " ", told, flags=re.DOTALL)
    return " ".join(told.split())


def read_tables(published: ModuleType) -> str:
    """All that recipes have published, the bundled controller's card among it."""
    card = (ROOT / "aera/demo/controller/README.md").read_text("utf-8")
    return " ".join([card, *(published.show(name, "") for name in published.names())])


@pytest.mark.parametrize("page", PAGES)
def test_numbers_of_a_sentence_stand_in_a_table(page: str, published: ModuleType) -> None:
    prose, tables = read_prose(page, published), read_tables(published)
    told = re.findall(r"\[[-+]?\d+\.\d+, [-+]?\d+\.\d+\]", prose)
    assert told
    assert [interval for interval in told if interval not in tables] == []
    known = [float(each) for each in re.findall(r"\d+\.\d+", tables)]
    for number in {*re.findall(r"(?<![\w.,])\d+\.\d+(?![\w.])", prose)}:
        digits = len(number.partition(".")[2])
        shifted = (each + shift for each in known for shift in (-1e-9, 1e-9))
        assert number in {f"{each:.{digits}f}" for each in shifted}


def test_readme_and_card_tell_the_held_out_figure(published: ModuleType) -> None:
    import demo_controller

    held = demo_controller.held_out()
    assert held in (ROOT / "aera/demo/controller/README.md").read_text("utf-8")
    assert held in " ".join((ROOT / "README.md").read_text("utf-8").split())


def test_the_picture_of_the_readme_shows_the_published_tables(published: ModuleType) -> None:
    import picture

    figure = (ROOT / "docs/figures/frontier.svg").read_text("utf-8")
    assert f"<desc>{picture.drawn_from()}</desc>" in figure, "run python runs/picture.py"


def test_a_result_holds_until_recipe_or_code_changes(small: ModuleType, tmp_path: Path) -> None:
    page = (tmp_path / "docs/page.md").read_text()
    assert "|  | y |\n| --- | ---: |\n| a | 2 |\n<!-- end" in page
    assert small.show("one", "").endswith("| b | 3 | 4 |\n\nSaid.")
    assert small.find_changes("one", tmp_path) == []
    (tmp_path / "aera/module.py").write_text("X = 1\n")
    forget(small)
    assert small.find_changes("one", tmp_path) == ["the code"]
    (tmp_path / "runs/recipe.py").write_text('publish("one", f"{1 + 2}")\n')
    forget(small)
    assert small.find_changes("one", tmp_path) == ["its recipe", "the code"]
    small.accept("one")
    assert small.find_changes("one", tmp_path) == ["the code"]


def test_layout_comments_and_docstrings_do_not_change_a_recipe(published: ModuleType) -> None:
    def seen(text: str) -> str:
        return repr(published.outline(ast.parse(text)))

    plain = 'def f(a):\n    """One."""\n    return g(a, "x")\n'
    assert seen(plain) == seen("def f(\n    a,\n):\n    # why\n    return g(a, 'x')\n")
    assert seen(plain) != seen(plain.replace('"x"', '"y"'))


# --- rivals ---------------------------------------------------------------------------------------

# --- rivals ---------------------------------------------------------------------------------------


@pytest.fixture
def rivals(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "runs")
    import rivals

    return rivals


def test_rivals_are_calibrated_on_what_aera_train_learns(rivals: ModuleType) -> None:
    table, rows = made_table(), np.arange(40)
    model, tuning = learn_and_tune(rivals.WEIGHTED, table, rows, certified=False, seed=0)
    limit = limit_for(VoteLearner(), 0.3)
    assert {*rivals.NAMES} == {*rivals.ANSWERS}
    for family in (*model.families(limit).values(), *rivals.ANSWERS.values()):
        choice = limit.choose(family, tuning, grid=model.grid(family))
        assert choice.feasible or family.name in ("majority", "entropy")


def test_plain_votes_stay_plain(rivals: ModuleType) -> None:
    model = rivals.PLAIN.fit(made_table(), np.arange(40), seed=0)
    assert model.weigher is None


def test_nobody_is_judged_on_a_question_that_taught(rivals: ModuleType) -> None:
    with pytest.raises(AssertionError):
        rivals.teach(rivals.PLAIN, made_table(), made_table())


def test_an_interval_is_wider_where_many_are_compared(rivals: ModuleType) -> None:
    chance = np.random.default_rng(0)
    ours = rivals.Outcome(chance.integers(0, 2, 80) * 1.0, np.ones(80), np.ones(80))
    rival = replace(ours, scores=chance.integers(0, 2, 80) * 1.0)
    shown = rivals.against_table(ours, {"one": rival, "two": rival})[0].rows[0]
    alone, together = (json.loads(cell.replace("+", "")) for cell in shown[2:4])
    assert together[0] < alone[0] < alone[1] < together[1]


def test_means_over_seeds_are_taken_question_by_question(rivals: ModuleType) -> None:
    runs = [rivals.Outcome(*(np.array([1.0, value]),) * 3) for value in (0.0, 1.0)]
    assert rivals.Outcome.mean(runs).scores.tolist() == [1.0, 0.5]
