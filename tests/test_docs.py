"""The documentation is run: blocks and examples are executed, links are followed."""

import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import cache
from importlib import import_module
from io import StringIO
from pathlib import Path
from runpy import run_path
from xml.etree import ElementTree

import pytest
from commands import forget_modules, said
from foreign_questions import demo_rows
from gateways import free_port
from streams import write_rows
from typer.main import get_command
from typer.testing import CliRunner

from aera import Pool, get_task
from aera.cli import app
from aera.gateway.config import read_config
from aera.gateway.metrics import METRICS, Metrics
from aera.lab import TASKS, import_file
from aera.lab.formats.pools import FORMATS
from aera.lab.formats.sources import NAMES
from aera.reading.task import Task
from aera.settings import keys_of, read_toml

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [*(ROOT / f"{n}.md" for n in ("README", "CONTRIBUTING", "CHANGELOG", "LOG")), *DOCS]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
FENCE = re.compile(r"^```(\S*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)|\b(?:src|href|srcset)=\"([^\"]+)\"")
HEADING = re.compile(r"^#+ +(.*?) *$", re.MULTILINE)


def page_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def written(page: Path) -> str:
    return page.read_text("utf-8")


EXECUTED, SHOWN = ("python", "console", "output"), ("", "sh", "text", "json", "yaml", "toml")
BUNDLE = "aera/demo/gsm8k.jsonl.gz"
IMPORT = shlex.split(f"aera import {BUNDLE} --task gsm8k --out")
OTHER_PROGRAMS = {
    *("--api-key", "--enable-deterministic-inference", "--model-path"),  # engines
    *("--log_samples", "--apply_chat_template", "--include_path"),  # lm-eval
    *("--model_args", "--output_path", "--tasks"),
    *("--quick", "--held", "--list", "--accept"),  # runs/all.py
    *("--strings", "--files"),  # bench/fuzz.py
}
"""Options in our pages that are not ours."""
RUN = [page for page in PAGES if {kind for kind, _ in FENCE.findall(written(page))} & {*EXECUTED}]
WHOLE = [page for page in RUN if page.stem in ("README", "quickstart", "concepts")]
FEW, CUT = [page for page in RUN if page not in WHOLE], 32
"""Pages that run on so many of the 150 bundled questions, where their numbers come out others."""
NIGHTLY = pytest.mark.nightly
SHORT = pytest.mark.filterwarnings("ignore::ResourceWarning")
"""Pages open files in one line, which a process of its own would not mind."""
NUMBER = re.compile(r" *[-+]?\d+(\.\d+)?")
PORT = re.compile(r"\b800[012]\b")
"""The ports pages write; each page gets free ones in their place."""


class Runner:
    """Runs the blocks of one page in one folder, here; what ends in & is a process of its own."""

    def __init__(self, folder: Path, bundle: Callable[[int], Path]) -> None:
        self.folder, self.bundle, self.said, self.heard = folder, bundle, "", ""
        self.questions = 150
        self.ports = {port: str(free_port()) for port in ("8000", "8001", "8002")}
        self.background: list[subprocess.Popen[bytes]] = []
        for name in ("aera", "examples"):
            (folder / name).symlink_to(ROOT / name)

    def run(self, language: str, text: str) -> None:
        """Execute a block; an output block is what Python printed last, or part of a command's."""
        if language == "output":
            few = self.questions < 150
            told, said = (NUMBER.sub("#", each) if few else each for each in (text, self.said))
            assert told == said or text in self.heard
        elif language == "python":
            self.said = printed(lambda: exec(self._moved(text), {"__name__": "__main__"}))
        else:
            lines = text.replace("\\\n", " ").splitlines()
            for line in [line[2:] for line in lines if line.startswith("$ ")]:
                self.command(shlex.split(line))

    def command(self, words: list[str]) -> None:
        """Execute one command of a console block."""
        name, *given = map(self._moved, words)
        if words[:-1] == IMPORT:  # several pages begin with it, so it is done once and copied
            pool = self.bundle(self.questions).parent / "imported"
            shutil.copytree(pool, self.folder / words[-1])
        elif given[-1] == "&":
            self._start([sys.executable, *["-m", "aera"] * (name == "aera"), *given[:-1]])
        else:
            words, place = (given[:-2], given[-1]) if given[-2:-1] == [">"] else (given, None)
            said = self._done(name, words)
            if place:
                Path(place).write_text(said, "utf-8")

    def _moved(self, text: str) -> str:
        text = text.replace(BUNDLE, str(self.bundle(self.questions)))
        return PORT.sub(lambda port: self.ports[port[0]], text)

    def _done(self, name: str, given: list[str]) -> str:
        """What a command, or a script with its arguments, has printed."""
        if name != "aera":
            return printed(lambda: run_script(*given))
        done = CliRunner().invoke(app, given, prog_name="aera")
        assert done.exit_code == 0, f"{given}\n{done.output}\n{done.exception!r}"
        self.heard += re.sub(" +$", "", done.stdout, flags=re.MULTILINE)
        return done.stdout

    def _start(self, command: list[str]) -> None:
        """Start a server, which says where it listens, and wait until it does."""
        process = subprocess.Popen(command, cwd=self.folder, stderr=subprocess.DEVNULL)
        self.background.append(process)
        port, patience = int(command[command.index("--port") + 1]), time.monotonic() + 120
        while time.monotonic() < patience:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            assert process.poll() is None, f"{command} ended"
            time.sleep(0.05)
        raise AssertionError(f"{command} does not listen")


def printed(run: Callable[[], object]) -> str:
    """What runs here prints."""
    with redirect_stdout(StringIO()) as said:
        run()
    return said.getvalue()


def run_script(path: str | Path, *given: str) -> None:
    """A script as if it were a program's main module."""
    before, sys.argv = sys.argv, [str(path), *given]
    try:
        run_path(str(path), run_name="__main__")
    finally:
        sys.argv = before


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """The first so many bundled questions as a file, with a pool beside it."""

    @cache
    def make(questions: int) -> Path:
        folder = tmp_path_factory.mktemp("bundle")
        file = write_rows(folder / "bundle.jsonl.gz", demo_rows(questions))
        import_file(file, folder / "imported", task=get_task("gsm8k"))
        return file

    return make


@pytest.fixture
def runner(
    tmp_path: Path, bundle: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Runner]:
    made, known = Runner(tmp_path, bundle), {*sys.modules}
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield made
    for process in made.background:
        process.terminate()
        process.wait(timeout=120)
    forget_modules(known, tmp_path)


@SHORT
@pytest.mark.parametrize(
    ("page", "questions"),
    [
        *(pytest.param(page, 150, id=page_name(page)) for page in WHOLE),
        *(pytest.param(page, CUT, id=page_name(page)) for page in FEW),
        *(pytest.param(page, 150, id=f"all of {page.stem}", marks=NIGHTLY) for page in FEW),
    ],
)
def test_the_blocks_of_a_page_run_in_order(page: Path, questions: int, runner: Runner) -> None:
    runner.questions = questions
    for language, text in FENCE.findall(written(page)):
        if language in EXECUTED:
            runner.run(language, text)


def test_a_block_is_run_or_meant_not_to_be() -> None:
    kinds = {(kind, page.name) for page in PAGES for kind, _ in FENCE.findall(written(page))}
    assert not [each for each in kinds if each[0] not in (*EXECUTED, *SHOWN)]


# --- links ----------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: dict[str, int] = {}
    for heading in HEADING.findall(re.sub(r"^```.*?^```", "", written(page), flags=re.M | re.S)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
    return {slug + (f"-{n}" if n else "") for slug, most in found.items() for n in range(most + 1)}


def links(page: Path) -> list[str]:
    found = [one or other for one, other in LINK.findall(CODE.sub("", written(page)))]
    return [link for link in found if "://" not in link and not link.startswith("mailto:")]


def leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    return target.exists() and (not anchor or anchor in anchors(target))


def test_links_lead_somewhere() -> None:
    told = [(page, link) for page in PAGES for link in links(page)]
    assert not [(page.name, link) for page, link in told if not leads_somewhere(page, link)]


def test_figures_are_whole_and_fetch_nothing() -> None:
    for figure in (ROOT / "docs").rglob("*.svg"):
        drawn = ElementTree.parse(figure).getroot()
        assert drawn.find("{http://www.w3.org/2000/svg}title") is not None, figure
        assert not re.search(r"href|url\(", written(figure)), figure


def test_the_readme_links_every_page() -> None:
    readme = ROOT / "README.md"
    linked = {(readme.parent / link.partition("#")[0]).resolve() for link in links(readme)}
    assert not [page for page in (*DOCS, ROOT / "examples") if page not in linked]


# --- examples -------------------------------------------------------------------------------------


@pytest.fixture
def parts(bundle: Callable[[int], Path], tmp_path: Path) -> dict[str, str]:
    """What the examples take: a small pool of the bundled responses, and its evaluation."""
    pool, file = Pool.open(bundle(CUT).parent / "imported"), str(tmp_path / "evaluation.json")
    said("evaluate", pool.path, "--json", file)
    return {
        "POOL": str(pool.path),
        "FILE": file,
        "OUT": "controller",
        "TOKENS": "50000",
        "URL": "http://127.0.0.1:8001/v1",
        "MODEL": "recorded",
        "QUESTION": pool.task.prompt(next(iter(pool.questions.values()))),
    }


@SHORT
@pytest.mark.parametrize("example", EXAMPLES, ids=page_name)
def test_an_example_runs_as_it_says(example: Path, parts: dict[str, str], runner: Runner) -> None:
    usage = written(example).splitlines()[0].strip('"').rpartition(": ")[2]
    words = [parts.get(word, word) for word in usage.split()]
    if example.stem == "client":
        stand_in = f"python examples/stand_in.py {parts['POOL']} --port 8000 &"
        gateway = "aera serve --upstream http://127.0.0.1:8000/v1 --port 8001 &"
        runner.run("console", f"$ {stand_in}\n$ {gateway}\n")
    runner.command([*words, "&"] if example.stem == "stand_in" else words)


@SHORT
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=page_name)
def test_the_cells_of_a_notebook_run_in_order(notebook: Path, runner: Runner) -> None:
    runner.questions = CUT
    cells = json.loads(written(notebook))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    runner.run("python", "\n".join(code))
    assert not any(cell.get("outputs") for cell in cells), "outputs are not kept"


@pytest.mark.parametrize("example", EXAMPLES, ids=page_name)
def test_an_example_without_arguments_says_how_it_is_run(example: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        run_script(example)
    assert ended.value.code == written(example).splitlines()[0].strip('"')


# --- what pages say of the code -------------------------------------------------------------------


def test_the_tree_in_the_readme_names_every_room_once_and_no_other() -> None:
    """Two spaces are one level."""
    texts = [text for _, text in FENCE.findall(written(ROOT / "README.md"))]
    [tree] = [text for text in texts if text.startswith("aera/ ")]
    named: list[str] = []
    above: list[str] = []
    for indent, name in re.findall(r"^( *)(\w+)/(?: |$)", tree, re.MULTILINE):
        above = [*above[: len(indent) // 2], name]
        named.append("/".join(above))
    modules = [each for each in (ROOT / "aera").rglob("*.py") if each.stem != "__init__"]
    rooms = {str(module.parent.relative_to(ROOT)) for module in modules}
    assert sorted(name for name in named if name.partition("/")[0] == "aera") == sorted(rooms)
    assert not [name for name in named if not (ROOT / name).is_dir()]


@pytest.mark.parametrize("name", ["commands", "evidence", "policies"])
def test_a_page_is_what_its_recipe_writes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "runs")
    recipe = import_module(f"{name}_page")
    assert recipe.PAGE.read_text("utf-8") == recipe.render()


def test_the_readme_lists_every_command_and_pages_name_no_option_that_is_not_there() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    listed = written(ROOT / "README.md").partition("## Where things are")[2].partition("\n## ")[0]
    assert not [name for name in commands if f"`aera {name}`" not in listed]
    known = {each for made in commands.values() for p in made.params for each in p.opts}
    for page in PAGES:
        named = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", written(page)))
        assert named - known <= {"--help", *OTHER_PROGRAMS}, page.name


def test_the_data_page_names_every_format_and_every_column_of_an_import() -> None:
    page = written(ROOT / "docs" / "data.md")
    rows = re.findall(r"^\| `(\w+)` \| (`.*?`) \|", page.partition("### Rows")[2], re.MULTILINE)
    named = {ours: tuple(re.findall(r"`(\w+)`", found)) for ours, found in rows}
    assert {ours: named.get(ours) for ours in NAMES} == NAMES
    table = page.partition("## Import")[2].partition("### Rows")[0]
    assert not [name for name in FORMATS if f"`{name}`" not in table]


def test_the_data_page_names_every_task_and_every_key_of_a_task_file() -> None:
    page = written(ROOT / "docs" / "data.md").partition("## How an answer is read")[2]
    presets, _, own = page.partition("### A task of your own")
    assert not [name for name in TASKS if f"`{name}`" not in presets]
    assert [*re.findall(r"^\| `(\w+)` \|", own, re.MULTILINE)][: len(keys_of(Task))] == [
        *keys_of(Task)
    ]


def test_the_gateway_page_names_every_metric_with_its_labels_and_no_other() -> None:
    page, made = written(ROOT / "docs" / "gateway.md"), Metrics(()).registry.collect()
    known = {each.name + ("_total" if each.type == "counter" else "") for each in made}
    suffix = re.compile(r"_(bucket|sum|count)$")
    assert {suffix.sub("", name) for name in re.findall(r"\baera_\w+", page)} == known
    rows = re.findall(r"^\| `aera_(\w+?)(?:_total)?` \|([^|]*)\|", page, re.MULTILINE)
    shown = {name: re.findall(r"`(\w+)`", labels) for name, labels in rows}
    labels = {name: found for name, (_, _, *found) in METRICS.items()}
    assert {name: each for name, each in shown.items() if each or name in labels} == labels


def test_the_gateways_file_can_be_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fenced = FENCE.findall(written(ROOT / "docs/gateway.md"))
    [text] = [text for kind, text in fenced if kind == "toml"]
    (tmp_path / "gateway.toml").write_text(text, "utf-8")
    (tmp_path / "controllers").mkdir()
    (tmp_path / "controllers/mine").symlink_to(ROOT / "aera/demo/controller")
    (tmp_path / "keys.txt").write_text("a-key-from-the-file\n", "utf-8")
    for name in ("GPU_KEY", "CLOUD_KEY", "BLUE_KEY", "AERA_KEYS"):
        monkeypatch.setenv(name, f"a-key-of-{name}")
    config = read_config(read_toml(tmp_path / "gateway.toml"), "", tmp_path)
    assert [model.name for model in config.model] == ["small", "large"]
    assert [key.name for key in config.key] == ["", "", "blue"]
