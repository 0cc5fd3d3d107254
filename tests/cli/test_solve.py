import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import Call, FakeUpstream, Fault
from foreign_questions import DEMO, short_questions
from live import boxed, controller_of, in_background

from aera import BestOfN, Fixed, Pool
from aera.cli import main

Done = subprocess.CompletedProcess[str]
Aera = Callable[..., Done]


@pytest.fixture
def aera(tmp_path: Path) -> Aera:
    """Call the command line from an empty directory."""

    def call(*arguments: object, stdin: str = "", **environment: str) -> Done:
        return subprocess.run(
            [sys.executable, "-m", "aera", *map(str, arguments)],
            cwd=tmp_path,
            input=stdin,
            env={"PATH": "", "LANG": "C.UTF-8", **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return call


@pytest.fixture
def here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Aera:
    """The same within this process, which is quicker: for calls that end at once."""

    def call(*arguments: object, stdin: str = "") -> Done:
        command = ["aera", *map(str, arguments)]
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("sys.argv", command)
        monkeypatch.setattr("sys.stdin", StringIO(stdin))
        with pytest.raises(SystemExit) as ended:
            main()
        return Done(command, int(ended.value.code or 0), *capsys.readouterr())

    return call


@pytest.fixture
def server() -> Iterator[FakeUpstream]:
    """Answers seven; refuses what is bad."""
    upstream = FakeUpstream(boxed)
    honest = upstream._reply

    async def picky(request: Any, call: Call, fault: Fault | None) -> Any:
        bad = Fault.status(400, "not this one") if "bad" in call.prompt else fault
        return await honest(request, call, bad)

    upstream._reply = picky  # type: ignore[method-assign]
    with in_background(upstream):
        yield upstream


@pytest.fixture
def solving(tmp_path: Path, server: FakeUpstream) -> list[object]:
    """The options every `aera solve` here needs."""
    controller_of().save(tmp_path / "controller")
    return ["--controller", "controller", "--base-url", server.base_url, "--model", "m"]


@pytest.fixture
def sampling(tmp_path: Path, server: FakeUpstream) -> list[object]:
    """The arguments every `aera sample` here needs."""
    rows = [{"id": f"q{i}", "question": f"{i}?", "answer": "7"} for i in range(3)]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = "--model m --task numeric --responses 8 --out pool --block 4"
    return ["sample", "questions.jsonl", "--base-url", server.base_url, *options.split()]


def refused(done: Done, code: int) -> str:
    """The one line with which a call ended, after what it was about to ask."""
    assert done.returncode == code, done
    assert done.stdout == ""
    told = [line for line in done.stderr.splitlines() if not line.startswith("asking ")]
    assert len(told) == 1, done.stderr
    assert told[0].startswith("aera: ")
    return told[0]


def lines(done: Done) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


# --- solve ----------------------------------------------------------------------------------------


def test_solve_answers_a_question_as_a_json_line(
    aera: Aera, solving: list[object], server: FakeUpstream
) -> None:
    done = aera("solve", "how many?", *solving, "--seed", 5, "--set", "min_p=0.1")
    [line] = lines(done)
    assert done.returncode == 0
    assert re.search(r"\naera: 100\.0 % of \d+ responses read\n$", done.stderr)
    assert (line["answer"], line["responses"], line["tied"]) == ("7", 4, False)
    assert (line["calls"], line["error"], line["reason"]) == (1, None, line["reason"])
    assert line["completion_tokens"] == 16
    assert server.calls[0].body["min_p"] == 0.1
    assert server.calls[0].body["seed"] == 5
    assert server.calls[0].body["max_tokens"] == 16_384


def test_solve_reads_a_file(aera: Aera, solving: list[object], tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text('{"id": "a", "question": "1?"}\n\n{"question": "2?"}\n')
    done = aera("solve", "--file", "q.jsonl", *solving)
    assert done.returncode == 0
    assert {line["question_id"] for line in lines(done)} == {"a", "3"}


def test_solve_reads_standard_input_also_as_plain_text(
    aera: Aera, solving: list[object], server: FakeUpstream
) -> None:
    done = aera("solve", *solving, stdin='one?\n{"id": "b", "question": "two?"}\n')
    assert done.returncode == 0
    assert {line["question_id"] for line in lines(done)} == {"1", "b"}
    assert {call.prompt.split()[0] for call in server.calls} == {"one?", "two?"}


def test_a_failing_question_is_a_line_and_exit_3(aera: Aera, solving: list[object]) -> None:
    done = aera("solve", *solving, stdin="good?\nbad?\nfine?\n")
    assert done.returncode == 3
    found = {line["question_id"]: (line["answer"], line["error"]) for line in lines(done)}
    assert found == {
        "1": ("7", None),
        "2": (None, "upstream 400 planned_400: not this one"),
        "3": ("7", None),
    }
    assert "\naera: 1 failed; the lines with an error say why\n" in done.stderr
    assert done.stderr.endswith("\naera: 1 question without an answer\n")


def test_a_limit_over_all_questions_is_kept(
    aera: Aera, solving: list[object], server: FakeUpstream
) -> None:
    done = aera("solve", *solving, "--max-responses", 6, stdin="1?\n2?\n3?\n")
    assert done.returncode == 3
    assert "aera: 1 question got nothing: 3\n" in done.stderr
    assert sum(call.n for call in server.calls) == 6
    assert "limit: responses" in {line["reason"] for line in lines(done)}


def test_the_key_comes_from_the_environment(
    aera: Aera, solving: list[object], server: FakeUpstream
) -> None:
    options = ["--api-key-env", "MY_KEY", "--header", "X-Team: votes"]
    assert aera("solve", "?", *solving, *options, MY_KEY="secret").returncode == 0
    assert server.calls[0].headers["Authorization"] == "Bearer secret"
    assert server.calls[0].headers["X-Team"] == "votes"


def test_wrong_calls_of_solve_are_one_line(here: Aera, solving: list[object]) -> None:
    assert "no file" in refused(here("solve", "--file", "none.jsonl", *solving), 2)
    assert "name=value" in refused(here("solve", "?", *solving, "--set", "warm"), 2)
    assert "seed" in refused(here("solve", "?", *solving, "--set", "seed=lucky"), 2)
    assert "Name: value" in refused(here("solve", "?", *solving, "--header", "odd"), 2)
    assert "none.pem" in refused(here("solve", "?", *solving, "--ca-file", "none.pem"), 2)
    assert "concurrency" in refused(here("solve", "?", *solving, "--concurrency", 0), 2)
    assert "line 1: there is no question" in refused(here("solve", *solving, stdin="{}\n"), 1)


def test_a_missing_controller_is_one_line_and_exit_1(here: Aera, solving: list[object]) -> None:
    options = ["none" if option == "controller" else option for option in solving]
    assert "there is no controller" in refused(here("solve", "?", *options), 1)


# --- solve with equal expressions, or a scorer ----------------------------------------------------


def test_solve_counts_equal_expressions_together(aera: Aera) -> None:
    ways = ("(x+1)^2", "x^2+2x+1")
    with in_background(FakeUpstream(lambda call, place: f"\\boxed{{{ways[place % 2]}}}")) as server:
        options = ["--equivalence", "--base-url", server.base_url, "--model", "m"]
        done = aera("solve", "what?", *options)
    assert done.returncode == 0
    assert re.search(r"\naera: 100\.0 % of \d+ responses read\n$", done.stderr)
    assert [line["votes"] for line in lines(done)] == [{"(x+1)^2": 4.0}]


def test_solve_refuses_equivalence_where_it_cannot_apply(
    here: Aera, solving: list[object], server: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = ["solve", "?", "--equivalence", "--base-url", server.base_url, "--model", "m"]
    said = refused(here("solve", "?", "--equivalence", *solving), 2)
    assert 'the votes that "controller" was made for' in said
    assert "equivalence is for expressions" in refused(here(*plain, "--task", "numeric"), 2)
    monkeypatch.setattr("aera.reading.equivalence.find_spec", lambda name: None)
    assert "equivalence needs math-verify" in refused(here(*plain), 2)
    assert server.calls == []


@pytest.fixture
def scored(tmp_path: Path, server: FakeUpstream) -> list[object]:
    """The options that solve with a controller made for a scorer, which is not there yet."""
    length = SimpleNamespace(score=lambda question, responses: [1.0] * len(responses))
    replace(controller_of(Fixed(4)), weigher=BestOfN(length)).save(tmp_path / "scored")
    texts = ["brief", "of middling length", "long and winding", "short"]
    server._answer = lambda call, place: texts[place]
    return ["--controller", "scored", "--base-url", server.base_url, "--model", "m"]


def test_solve_scores_with_a_scorer_from_the_working_directory(
    aera: Aera, scored: list[object], tmp_path: Path
) -> None:
    (tmp_path / "judge.py").write_text(
        "class Length:\n"
        "    def score(self, question, responses):\n"
        "        return [len(response.text) / 100 for response in responses]\n"
    )
    done = aera("solve", "?", *scored, "--scorer", "judge:Length")
    assert done.returncode == 0
    assert re.search(r"\naera: 100\.0 % of \d+ responses read\n$", done.stderr)
    [line] = lines(done)
    assert (line["answer"], len(line["votes"])) == ("of middling length", 4)


def test_a_scorer_goes_exactly_where_one_is_needed(
    here: Aera, scored: list[object], solving: list[object], server: FakeUpstream, tmp_path: Path
) -> None:
    (tmp_path / "referee.py").write_text("class Judge:\n    def score(self, q, r): ...\n")
    bare = scored[2:]
    named = ["--scorer", "referee:Judge"]
    assert "--scorer MODULE:NAME" in refused(here("solve", "?", *scored), 1)
    assert "takes no scorer" in refused(here("solve", "?", *solving, *named), 1)
    assert "--scorer needs --controller" in refused(here("solve", "?", *bare, *named), 2)
    assert "no_such" in refused(here("solve", "?", *scored, "--scorer", "no_such:Judge"), 2)
    assert server.calls == []


# --- sample ---------------------------------------------------------------------------------------


def test_sample_makes_a_pool_with_truths_apart(
    aera: Aera, sampling: list[object], server: FakeUpstream, tmp_path: Path
) -> None:
    done = aera(*sampling, "--set", "top_k=20", "--seed", 9, "--system", "Be brief.")
    assert done.returncode == 0
    assert done.stderr.endswith(
        "/v1, 3 questions: 24 responses, at most 393,216 tokens, for max_tokens is 16,384\n"
    )
    assert done.stdout == "pool: 24 responses, 0 were there already\n"
    pool = Pool.open(tmp_path / "pool")
    kept = {"model": "m", "system": "Be brief.", "temperature": 0.6, "top_p": 0.95, "top_k": 20}
    assert pool.manifest.sampler.items() >= kept.items()
    assert pool.manifest.seed == 9
    assert pool.manifest.as_json()["prompt_template"] == pool.task.template
    assert [len(record.responses) for record in pool] == [8, 8, 8]
    assert json.loads((tmp_path / "pool/truths.jsonl").read_text().splitlines()[0])["answer"] == "7"
    assert sorted({call.body["seed"] for call in server.calls}) == [9, 13]


def test_sample_again_finds_everything_there(
    aera: Aera, sampling: list[object], server: FakeUpstream
) -> None:
    aera(*sampling)
    before = len(server.calls)
    assert aera(*sampling).stdout == "pool: 24 responses, 24 were there already\n"
    assert len(server.calls) == before


def test_sample_with_failures_says_how_many_and_exits_with_1(
    aera: Aera, sampling: list[object], tmp_path: Path
) -> None:
    with (tmp_path / "questions.jsonl").open("a") as file:
        file.write('{"question": "bad?"}\n')
    assert "8 of 32 responses" in refused(aera(*sampling), 1)
    assert (tmp_path / "pool/failures.jsonl").read_text().count("\n") == 8


def test_sample_reports_a_half_written_line(
    aera: Aera, sampling: list[object], tmp_path: Path
) -> None:
    questions = (tmp_path / "questions.jsonl").read_text()
    (tmp_path / "questions.jsonl").write_text(questions + '{"question": "bad?"}\n')
    aera(*sampling)
    segment = tmp_path / "pool/open-00000.jsonl"
    segment.write_bytes(segment.read_bytes()[:-5])
    done = aera(*sampling)
    assert "\nopen-00000.jsonl, line 24: half-written, dropped" in done.stderr
    assert done.stderr.count("\n") == 3


def test_wrong_calls_of_sample_are_one_line_and_leave_nothing(
    here: Aera, sampling: list[object], tmp_path: Path
) -> None:
    for options, told in (
        (["--task", "cookery"], "cookery"),
        (["--prices", "cheap"], "--prices"),
        (["--base-url", "localhost"], "http://"),
        (["--responses", 0], "responses"),
        (["--concurrency", 0], "concurrency"),
    ):
        assert told in refused(here(*sampling, *options), 2)
    assert not (tmp_path / "pool").exists()


def test_sample_with_other_settings_is_refused(aera: Aera, sampling: list[object]) -> None:
    aera(*sampling)
    assert "other settings" in refused(aera(*sampling, "--seed", 3), 2)


def test_sample_with_a_bad_line_names_it(
    here: Aera, sampling: list[object], tmp_path: Path
) -> None:
    (tmp_path / "questions.jsonl").write_text('{"question": "?"}\nwhat\n')
    assert "questions.jsonl, line 2: not JSON" in refused(here(*sampling), 1)


def test_sample_with_a_refused_key_is_one_line_and_exit_1(
    aera: Aera, sampling: list[object], server: FakeUpstream
) -> None:
    server._faults = iter([Fault.status(401, "who are you?")] * 99)
    assert "401 planned_401: who are you?" in refused(aera(*sampling), 1)
    assert len(server.calls) <= 6


# --- abroad ---------------------------------------------------------------------------------------


@pytest.fixture
def bundled(tmp_path: Path, server: FakeUpstream) -> list[object]:
    """The options of `aera solve` with the bundled controller, and questions it does not know."""
    lines = [json.dumps({"id": each.id, "question": each.text}) for each in short_questions(30)]
    (tmp_path / "short.jsonl").write_text("\n".join(lines))
    known = ["--controller", DEMO / "controller", "--file", "short.jsonl"]
    return ["solve", *known, "--base-url", server.base_url, "--model", "m"]


def test_questions_of_another_kind_are_solved_by_plain_votes_and_that_is_said(
    here: Aera, bundled: list[object]
) -> None:
    done = here(*bundled, "--out", "answers.jsonl")
    assert done.returncode == 0
    told = re.search(r"(\d+) questions decided by plain votes, for they are not", done.stderr)
    assert told is not None
    policies = [
        json.loads(line)["policy"] for line in Path("answers.jsonl").read_text().splitlines()
    ]
    assert policies.count("asc-0.95+vote") == int(told[1]) > 20
    again = here(*bundled, "--out", "answers.jsonl")
    assert "30 answers and " in again.stderr
    assert again.returncode == 0


def test_who_knows_better_keeps_the_controller(here: Aera, bundled: list[object]) -> None:
    done = here(*bundled, "--trust")
    assert "taught on" not in done.stderr
    assert {json.loads(line)["policy"] for line in done.stdout.splitlines()} == {"aera-0.17+vote"}


# --- demo -----------------------------------------------------------------------------------------


def test_the_demo_finishes_and_tells_accuracy_and_saving(aera: Aera) -> None:
    done = aera("demo", "--questions", 20, "--pace", 0)
    assert (done.returncode, done.stderr) == (0, "")
    assert "accuracy" in done.stdout
    assert "completion tokens saved" in done.stdout


def test_a_demo_without_questions_is_one_line(here: Aera) -> None:
    assert "questions" in refused(here("demo", "--questions", 0), 2)
