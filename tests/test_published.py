"""Pages and recipes do not part ways: every section is what its recipe published last."""

import ast
import re
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from aera.cli import app

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
    monkeypatch.setattr(published, "STAMPS", tmp_path / "runs/published.json")
    for folder in ("runs", "docs", "out", "aera"):
        (tmp_path / folder).mkdir()
    (tmp_path / "runs/recipe.py").write_text('"""A recipe."""\n\npublish("one", f"{1 + 1}")\n')
    (tmp_path / "runs/published.json").write_text("{}")
    (tmp_path / "docs/page.md").write_text("# Page\n\n<!-- begin one -->\n<!-- end one -->\n")
    forget(published)
    published.put("one", "2", "recipe", {})
    return published


def forget(published: ModuleType) -> None:
    """Files have changed."""
    for known in (published.read_tree, published.shape_of, published.code_of):
        known.cache_clear()


def edit(path: Path, old: str, new: str, published: ModuleType) -> None:
    path.write_text(path.read_text().replace(old, new))
    forget(published)


def test_every_section_is_what_its_recipe_published_last(published: ModuleType) -> None:
    stamps, sections = published.read_stamps(), published.read_sections()
    assert set(sections) - set(stamps) == set(), "no recipe is known to have written these"
    assert set(stamps) - set(sections) == set(), "these were published and are gone"
    edited = [name for name in stamps if published.digest(sections[name][1]) != stamps[name].text]
    assert edited == [], "these were changed by hand"


def test_no_recipe_has_changed_since_it_published(published: ModuleType) -> None:
    stamps = published.read_stamps()
    assert not {
        stamp.recipe
        for stamp in stamps.values()
        if published.source_of(stamp.recipe) != stamp.source
    }, "run them again: python runs/all.py POOLS"


def test_every_recipe_that_publishes_has_a_section(published: ModuleType) -> None:
    import all as everything

    known = {stamp.recipe for stamp in published.read_stamps().values()}
    assert set(everything.recipes()) == known


PAGES = ["README.md", "docs/results.md", "docs/paper.md", "docs/agreement.md"]


def read_prose(page: str, published: ModuleType) -> str:
    """The sentences of a page: no tables, no code, no addresses."""
    told = published.SECTION.sub("", (ROOT / page).read_text("utf-8"))
    told = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", " ", told, flags=re.DOTALL)
    return " ".join(told.split())


def read_tables(published: ModuleType) -> str:
    """All that recipes have published, the bundled controller's card among it."""
    card = (ROOT / "aera/demo/controller/README.md").read_text("utf-8")
    return " ".join([card, *(text for _, text in published.read_sections().values())])


@pytest.mark.parametrize("page", PAGES)
def test_an_interval_in_a_sentence_stands_in_a_table(page: str, published: ModuleType) -> None:
    told = re.findall(r"\[[-+]?\d+\.\d+, [-+]?\d+\.\d+\]", read_prose(page, published))
    tables = read_tables(published)
    assert told or page == "docs/agreement.md"
    assert [interval for interval in told if interval not in tables] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_number_in_a_sentence_stands_in_a_table(page: str, published: ModuleType) -> None:
    known = [float(each) for each in re.findall(r"\d+\.\d+", read_tables(published))]
    told = set(re.findall(r"(?<![\w.,])\d+\.\d+(?![\w.])", read_prose(page, published)))
    by_digits = {
        digits: {f"{each + shift:.{digits}f}" for each in known for shift in (-1e-9, 1e-9)}
        for digits in {len(each.partition(".")[2]) for each in told}
    }
    assert told - set().union(*by_digits.values()) == set()


def test_readme_card_and_help_tell_the_held_out_figure(published: ModuleType) -> None:
    import demo_controller

    held = demo_controller.held_out()
    assert held in (ROOT / "aera/demo/controller/README.md").read_text("utf-8")
    assert held in " ".join(CliRunner().invoke(app, ["--help"]).stdout.split())
    points, interval, tokens = re.findall(r"[-+]?\d+\.\d+|\[.*?\]", held)[:3]
    readme = " ".join((ROOT / "README.md").read_text("utf-8").split())
    more = f"{float(points):.1f} points {interval} more accuracy than 128 plain votes"
    assert f"{more} for {tokens} % " in readme


def test_the_picture_of_the_readme_shows_the_published_tables(published: ModuleType) -> None:
    import picture

    figure = (ROOT / "docs/figures/frontier.svg").read_text("utf-8")
    assert f"<desc>{picture.drawn_from()}</desc>" in figure, "run python runs/picture.py"


def test_a_section_is_up_to_date_until_its_text_recipe_or_code_changes(
    small: ModuleType, tmp_path: Path
) -> None:
    def changes() -> list[str]:
        found: list[str] = small.find_changes("one", small.read_stamps()["one"], tmp_path)
        return found

    assert "\n2\n" in (tmp_path / "docs/page.md").read_text()
    assert changes() == []
    (tmp_path / "aera/module.py").write_text("X = 1\n")
    forget(small)
    assert changes() == ["the code"]
    edit(tmp_path / "runs/recipe.py", "1 + 1", "1 + 2", small)
    assert changes() == ["its recipe", "the code"]
    edit(tmp_path / "docs/page.md", "\n2\n", "\n3\n", small)
    assert changes() == ["its text"]


def test_a_section_that_was_accepted_stays_out_of_date(small: ModuleType, tmp_path: Path) -> None:
    edit(tmp_path / "docs/page.md", "\n2\n", "\n3\n", small)
    small.accept("one")
    assert small.find_changes("one", small.read_stamps()["one"], tmp_path) == ["the code"]


def test_a_section_that_is_gone_is_forgotten(small: ModuleType, tmp_path: Path) -> None:
    edit(tmp_path / "docs/page.md", "begin one", "begin two", small)
    small.accept("one")
    assert small.read_stamps() == {}


def test_a_recipe_that_is_no_program_is_run_by_its_callers(
    small: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import all as everything

    monkeypatch.setattr(everything, "RUNS", tmp_path / "runs")
    main = 'if __name__ == "__main__":\n    run()\n'
    (tmp_path / "runs/caller.py").write_text(f"from recipe import run\n\n{main}")
    (tmp_path / "runs/other.py").write_text(main)
    assert everything.recipes() == ["recipe"]
    assert everything.scripts("recipe") == ["caller"]
    edit(tmp_path / "runs/recipe.py", 'publish("one"', f'{main}\npublish("one"', small)
    assert everything.scripts("recipe") == ["recipe"]


def test_layout_comments_and_docstrings_do_not_change_a_recipe(published: ModuleType) -> None:
    def seen(text: str) -> str:
        return repr(published.outline(ast.parse(text)))

    plain = 'def f(a):\n    """One."""\n    return g(a, "x")\n'
    assert seen(plain) == seen("def f(\n    a,\n):\n    # why\n    return g(a, 'x')\n")
    assert seen(plain) != seen(plain.replace('"x"', '"y"'))


def test_a_section_no_page_has_is_refused(small: ModuleType) -> None:
    with pytest.raises(SystemExit, match="no page in docs/ has a section two"):
        small.put("two", "text", "recipe", {})
