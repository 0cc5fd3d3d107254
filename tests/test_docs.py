"""The documentation is run: blocks and examples are executed, links are followed."""

import gzip
import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.main import get_command

from aera import Controller, get_task, standard_policies
from aera.cli import app
from aera.gateway.config import read_config, read_file
from aera.gateway.metrics import COUNTERS, GAUGES, Metrics
from aera.lab import Truths, evaluate, import_jsonl
from aera.lab.formats.recognising import FORMATS
from aera.lab.formats.rows import NAMES
from aera.pools.pool import hold

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "LOG.md", *DOCS]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
FENCE = re.compile(r"^```(\S*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)|\b(?:src|href|srcset)=\"([^\"]+)\"")
HEADING = re.compile(r"^#+ +(.*?) *$", re.MULTILINE)
EXECUTED, SHOWN = ("python", "console", "output"), ("", "sh", "text", "json", "yaml", "toml")
IMPORT = shlex.split("aera import aera/demo/gsm8k.jsonl.gz --task gsm8k --out")
OTHER_PROGRAMS = {
    *("--api-key", "--enable-deterministic-inference", "--model-path"),  # engines
    *("--log_samples", "--apply_chat_template", "--include_path"),  # lm-eval
    *("--model_args", "--output_path", "--tasks"),
    *("--quick", "--held", "--list", "--accept"),  # runs/all.py
    *("--strings", "--files"),  # bench/fuzz.py
}
"""Options in our pages that are not ours."""
FORMER = {"--rival"}
"""Options that only the log still names, as they were called then."""
PORT = re.compile(r"\b800[01]\b")
"""The ports pages write; each page gets free ones in their place."""


def page_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def written(page: Path) -> str:
    return page.read_text("utf-8")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Runner:
    """Runs the blocks of one page in one folder; a command that ends in & runs until the end."""

    def __init__(self, folder: Path, shared: Path) -> None:
        self.folder, self.shared, self.said = folder, shared, ""
        self.ports = {"8000": str(free_port()), "8001": str(free_port())}
        self.background: list[subprocess.Popen[bytes]] = []
        for name in ("aera", "examples"):
            (folder / name).symlink_to(ROOT / name)

    def run(self, language: str, text: str) -> None:
        """Execute a block; an output block is what the block before it printed."""
        if language == "output":
            assert text == self.said
        elif language == "python":
            self.said = self._done([sys.executable, "-c", self._moved(text)])
        else:
            lines = text.replace("\\\n", " ").splitlines()
            for line in [line[2:] for line in lines if line.startswith("$ ")]:
                self.command(shlex.split(line))

    def command(self, words: list[str]) -> None:
        """Execute one command of a console block."""
        programs = {"aera": [sys.executable, "-m", "aera"], "python": [sys.executable]}
        command = [*programs[words[0]], *map(self._moved, words[1:])]
        if words[:-1] == IMPORT:
            self._import_bundled(words[-1])
        elif command[-1] == "&":
            self._start(command[:-1])
        elif ">" in command:
            place = command.index(">")
            (self.folder / command[place + 1]).write_text(self._done(command[:place]), "utf-8")
        else:
            self._done(command)

    def _moved(self, text: str) -> str:
        return PORT.sub(lambda port: self.ports[port[0]], text)

    def _import_bundled(self, out: str) -> None:
        """Several pages begin with it, so it is done once and copied."""
        imported = self.shared / "bundled"
        if not imported.exists():
            bundle = ROOT / "aera/demo/gsm8k.jsonl.gz"
            import_jsonl(bundle, imported, task=get_task("gsm8k"))
        shutil.copytree(imported, self.folder / out)

    def _done(self, command: list[str]) -> str:
        done = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _start(self, command: list[str]) -> None:
        """Start a server, which says where it listens, and wait until it does."""
        process = subprocess.Popen(command, cwd=self.folder, stderr=subprocess.DEVNULL)
        self.background.append(process)
        port, patience = int(command[command.index("--port") + 1]), time.monotonic() + 30
        while time.monotonic() < patience:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            assert process.poll() is None, f"{command} ended"
            time.sleep(0.05)
        raise AssertionError(f"{command} does not listen")

    def close(self) -> None:
        for process in self.background:
            process.terminate()
        for process in self.background:
            process.wait(timeout=30)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.fixture
def runner(tmp_path: Path, shared: Path) -> Iterator[Runner]:
    made = Runner(tmp_path, shared)
    yield made
    made.close()


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_the_blocks_of_a_page_run_in_order(page: Path, runner: Runner) -> None:
    for language, text in FENCE.findall(written(page)):
        if language in EXECUTED:
            runner.run(language, text)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_a_block_is_run_or_meant_not_to_be(page: Path) -> None:
    assert {language for language, _ in FENCE.findall(written(page))} <= {*EXECUTED, *SHOWN}


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


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert not [link for link in links(page) if not leads_somewhere(page, link)]


def test_a_broken_link_or_anchor_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One `two`\n\n[a](page.md#one-two) [b](#three) [c](gone.md) `[d](e)`\n")
    broken = [link for link in links(page) if not leads_somewhere(page, link)]
    assert broken == ["#three", "gone.md"]


@pytest.mark.parametrize("figure", sorted((ROOT / "docs").rglob("*.svg")), ids=page_name)
def test_a_figure_is_whole_and_fetches_nothing(figure: Path) -> None:
    drawn = ElementTree.parse(figure).getroot()
    assert drawn.find("{http://www.w3.org/2000/svg}title") is not None
    assert "href" not in written(figure)
    assert "url(" not in written(figure)


def test_the_readme_links_every_page_and_every_example() -> None:
    readme = ROOT / "README.md"
    linked = {(readme.parent / link.partition("#")[0]).resolve() for link in links(readme)}
    assert not [path for path in (*DOCS, *EXAMPLES) if path not in linked]


# --- examples -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the examples take: a small pool of the bundled responses, and its evaluation."""
    folder = tmp_path_factory.mktemp("examples")
    with gzip.open(ROOT / "aera/demo/gsm8k.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line, _ in zip(file, range(24), strict=False)]
    cut = [json.dumps({**row, "responses": row["responses"][:16]}) + "\n" for row in rows]
    (folder / "part.jsonl").write_text("".join(cut), "utf-8")
    pool = import_jsonl(folder / "part.jsonl", folder / "pool", task=get_task("gsm8k"))
    evaluated = str(folder / "evaluation.json")
    command = [sys.executable, "-m", "aera", "evaluate", str(pool.path), "--json", evaluated]
    subprocess.run(command, check=True, capture_output=True)
    return {
        "POOL": str(pool.path),
        "FILE": evaluated,
        "OUT": "controller",
        "TOKENS": "50000",
        "URL": "http://127.0.0.1:8001/v1",
        "MODEL": "recorded",
        "QUESTION": pool.task.prompt(next(iter(pool.questions.values()))),
    }


@pytest.mark.parametrize("example", EXAMPLES, ids=page_name)
def test_an_example_runs_as_its_first_line_says(
    example: Path, parts: dict[str, str], runner: Runner
) -> None:
    usage = written(example).splitlines()[0].strip('"').rpartition(": ")[2]
    words = [parts.get(word, word) for word in usage.split()]
    if example.stem == "client":
        stand_in = f"python examples/stand_in.py {parts['POOL']} --port 8000 &"
        gateway = "aera serve --upstream http://127.0.0.1:8000/v1 --port 8001 &"
        runner.run("console", f"$ {stand_in}\n$ {gateway}\n")
    runner.command([*words, "&"] if example.stem == "stand_in" else words)


@pytest.mark.parametrize("example", EXAMPLES, ids=page_name)
def test_an_example_without_arguments_says_how_it_is_run(example: Path) -> None:
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.strip() == written(example).splitlines()[0].strip('"')


@pytest.mark.parametrize("example", EXAMPLES, ids=page_name)
def test_an_example_stays_under_25_lines(example: Path) -> None:
    assert len(written(example).splitlines()) < 25


# --- what pages say of the code -------------------------------------------------------------------


def folders_in_tree(page: str) -> list[str]:
    """The folders a page's tree names, each with its whole path; two spaces are one level."""
    [tree] = [text for _, text in FENCE.findall(page) if text.startswith("aera/ ")]
    found: list[str] = []
    above: list[str] = []
    for line in tree.splitlines():
        name = re.match(r"( *)(\w+)/(?: |$)", line)
        if name:
            above = [*above[: len(name[1]) // 2], name[2]]
            found.append("/".join(above))
    return found


def test_the_tree_in_the_readme_names_every_room_once_and_no_other() -> None:
    rooms = {
        str(module.parent.relative_to(ROOT))
        for module in (ROOT / "aera").rglob("*.py")
        if module.stem != "__init__"
    }
    named = folders_in_tree(written(ROOT / "README.md"))
    assert sorted(name for name in named if name.partition("/")[0] == "aera") == sorted(rooms)
    assert not [name for name in named if not (ROOT / name).is_dir()]


def test_a_room_that_is_missing_or_made_up_is_noticed() -> None:
    tree = "aera/      all\n  lab/     one, as lab/report/\n    report/  two\n  web/\nruns/\n"
    page = f"```\n{tree}```\n"
    assert folders_in_tree(page) == ["aera", "aera/lab", "aera/lab/report", "aera/web", "runs"]


def test_contributing_stays_under_forty_lines() -> None:
    assert len(written(ROOT / "CONTRIBUTING.md").splitlines()) < 40


@pytest.mark.parametrize("name", ["commands", "evidence", "policies", "tasks"])
def test_a_generated_page_is_what_its_recipe_writes(name: str) -> None:
    code = f"from {name}_page import PAGE, render; assert PAGE.read_text('utf-8') == render()"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT / "runs", check=True)


def test_the_readme_lists_every_command_and_pages_name_no_option_that_is_not_there() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    listed = written(ROOT / "README.md").partition("## What it does")[2].partition("\n## ")[0]
    assert not [name for name in commands if f"`aera {name}`" not in listed]
    known = {each for made in commands.values() for p in made.params for each in p.opts} | {
        "--help"
    }
    for page in PAGES:
        named = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", written(page)))
        foreign = OTHER_PROGRAMS | (FORMER if page.name == "LOG.md" else set())
        assert named - known <= foreign, page.name


def test_the_data_page_names_every_format_and_every_column_of_an_import() -> None:
    page = written(ROOT / "docs" / "data.md")
    rows = re.findall(r"^\| `(\w+)` \| (`.*?`) \|", page.partition("### Rows")[2], re.MULTILINE)
    named = {ours: tuple(re.findall(r"`(\w+)`", found)) for ours, found in rows}
    assert {ours: named.get(ours) for ours in NAMES} == NAMES
    table = page.partition("## Import")[2].partition("### Rows")[0]
    assert not [name for name in FORMATS if f"`{name}`" not in table]


def test_the_gateway_page_names_every_metric_and_no_other() -> None:
    known = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in Metrics(()).collect()
    }
    suffix = re.compile(r"_(bucket|sum|count)$")
    page = written(ROOT / "docs" / "gateway.md")
    assert {suffix.sub("", name) for name in re.findall(r"\baera_\w+", page)} == known


def test_the_gateway_page_names_the_labels_of_every_metric() -> None:
    page = written(ROOT / "docs" / "gateway.md")
    rows = re.findall(r"^\| `aera_(\w+?)(?:_total)?` \|([^|]*)\|", page, re.MULTILINE)
    shown = {name: re.findall(r"`(\w+)`", labels) for name, labels in rows}
    known = {name: labels for name, (_, *labels) in {**COUNTERS, **GAUGES}.items()}
    assert {name: labels for name, labels in shown.items() if labels or name in known} == known


def test_the_file_on_the_gateway_page_can_be_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [text] = [
        text for kind, text in FENCE.findall(written(ROOT / "docs/gateway.md")) if kind == "toml"
    ]
    (tmp_path / "gateway.toml").write_text(text, "utf-8")
    (tmp_path / "controllers").mkdir()
    (tmp_path / "controllers/mine").symlink_to(ROOT / "aera/demo/controller")
    (tmp_path / "keys.txt").write_text("a-key-from-the-file\n", "utf-8")
    for name in ("GPU_KEY", "CLOUD_KEY", "BLUE_KEY", "AERA_KEYS"):
        monkeypatch.setenv(name, f"a-key-of-{name}")
    config = read_config(read_file(tmp_path / "gateway.toml"), "", tmp_path)
    assert [model.name for model in config.model] == ["small", "large"]
    assert [key.name for key in config.key] == ["", "", "blue"]


def test_the_table_in_the_readme_is_what_the_demo_prints(tmp_path: Path) -> None:
    pool = import_jsonl(
        ROOT / "aera/demo/gsm8k.jsonl.gz", tmp_path / "demo", task=get_task("gsm8k")
    )
    records, truths = hold(pool), Truths.open(pool.path)
    bundled = Controller.load(ROOT / "aera/demo/controller")
    plain = evaluate(records, standard_policies(pool.schedule), truths=truths)
    own = evaluate(records, [bundled.policy], truths=truths, weigher=bundled.weigher)
    shown = {each.policy: each for each in (*own.points, *plain.points)}
    readme = written(ROOT / "README.md")
    rows = re.findall(r"^  (\S+) +([\d.]+) +([\d.]+) +([\d,]+) +([\d.]+)  ", readme, re.MULTILINE)
    assert len(rows) == 5
    for label, *cells in rows:
        p = shown[label]
        written_out = [f"{p.accuracy:.2f}", f"{p.responses:.2f}", f"{p.tokens:,.0f}"]
        assert cells == [*written_out, f"{p.token_saving:.1f}"]
