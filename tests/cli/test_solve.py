import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands import Aera, Done, refused
from fakes import Call, FakeUpstream, Fault, in_background
from foreign_questions import DEMO, GATED, short_questions
from live import boxed, controller_of

from aera import BestOfN, Fixed, Pool


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


def test_the_key_comes_from_the_environment(
    aera: Aera, solving: list[object], server: FakeUpstream
) -> None:
    options = ["--api-key-env", "MY_KEY", "--header", "X-Team: votes"]
    assert aera("solve", "?", *solving, *options, MY_KEY="secret").returncode == 0
    assert server.calls[0].headers["Authorization"] == "Bearer secret"
    assert server.calls[0].headers["X-Team"] == "votes"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--file", "none.jsonl"], 2, "no file"),
        (["?", "--set", "warm"], 2, "name=value"),
        (["?", "--set", "seed=lucky"], 2, "seed"),
        (["?", "--header", "odd"], 2, "Name: value"),
        (["?", "--ca-file", "none.pem"], 2, "none.pem"),
        (["?", "--concurrency", 0], 2, "concurrency"),
        (["?", "--controller", "none"], 1, "there is no controller"),
        ([], 1, "line 1: there is no question"),
    ],
)
def test_wrong_calls_of_solve_are_one_line(
    aera: Aera, solving: list[object], words: list[object], code: int, said: str
) -> None:
    assert said in refused(aera("solve", *solving, *words, stdin="{}\n"), code)


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
    aera: Aera, solving: list[object], server: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = ["solve", "?", "--equivalence", "--base-url", server.base_url, "--model", "m"]
    said = refused(aera("solve", "?", "--equivalence", *solving), 2)
    assert 'the votes that "controller" was made for' in said
    assert "equivalence is for expressions" in refused(aera(*plain, "--task", "numeric"), 2)
    monkeypatch.setattr("aera.reading.equivalence.find_spec", lambda name: None)
    assert "equivalence needs math-verify" in refused(aera(*plain), 2)
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
    aera: Aera, scored: list[object], solving: list[object], server: FakeUpstream, tmp_path: Path
) -> None:
    (tmp_path / "referee.py").write_text("class Judge:\n    def score(self, q, r): ...\n")
    bare = scored[2:]
    named = ["--scorer", "referee:Judge"]
    assert "--scorer MODULE:NAME" in refused(aera("solve", "?", *scored), 1)
    assert "takes no scorer" in refused(aera("solve", "?", *solving, *named), 1)
    assert "--scorer needs --controller" in refused(aera("solve", "?", *bare, *named), 2)
    assert "no_such" in refused(aera("solve", "?", *scored, "--scorer", "no_such:Judge"), 2)
    assert server.calls == []


# --- sample ---------------------------------------------------------------------------------------


def test_sample_makes_a_pool_with_truths_apart(
    aera: Aera, sampling: list[object], server: FakeUpstream, tmp_path: Path
) -> None:
    done = aera(*sampling, "--set", "top_k=20", "--seed", 9, "--system", "Be brief.")
    assert done.returncode == 0
    assert done.stderr.endswith(
        "/v1, 3 questions: 24 responses, at most 393,216 tokens, for max_tokens is 16,384\n"
        "readable: 100.0 % of 24 responses read\n"
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
    asked = len(server.calls)
    assert "other settings" in refused(aera(*sampling, "--seed", 10), 2)
    again = aera(*sampling, "--set", "top_k=20", "--seed", 9, "--system", "Be brief.")
    assert again.stdout == "pool: 24 responses, 24 were there already\n"
    assert len(server.calls) == asked


def test_sample_with_failures_says_how_many_and_drops_a_half_written_line(
    aera: Aera, sampling: list[object], tmp_path: Path
) -> None:
    with (tmp_path / "questions.jsonl").open("a") as file:
        file.write('{"question": "bad?"}\n')
    assert "8 of 32 responses" in refused(aera(*sampling), 1)
    assert (tmp_path / "pool/failures.jsonl").read_text().count("\n") == 8
    segment = tmp_path / "pool/open-00000.jsonl"
    segment.write_bytes(segment.read_bytes()[:-5])
    done = aera(*sampling)
    assert "\nopen-00000.jsonl, line 24: half-written, dropped" in done.stderr
    assert done.stderr.count("\n") == 3


def test_wrong_calls_of_sample_are_one_line_and_leave_nothing(
    aera: Aera, sampling: list[object], tmp_path: Path
) -> None:
    for options, told in (
        (["--task", "cookery"], "cookery"),
        (["--prices", "cheap"], "--prices"),
        (["--base-url", "localhost"], "http://"),
        (["--responses", 0], "responses"),
        (["--concurrency", 0], "concurrency"),
    ):
        assert told in refused(aera(*sampling, *options), 2)
    assert not (tmp_path / "pool").exists()


def test_sample_with_a_bad_line_names_it(
    aera: Aera, sampling: list[object], tmp_path: Path
) -> None:
    (tmp_path / "questions.jsonl").write_text('{"question": "?"}\nwhat\n')
    assert "questions.jsonl, line 2: not JSON" in refused(aera(*sampling), 1)


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
    aera: Aera, bundled: list[object], tmp_path: Path
) -> None:
    done = aera(*bundled, "--out", "answers.jsonl")
    assert done.returncode == 0
    told = re.search(r"(\d+) questions decided by plain votes, for they are not", done.stderr)
    assert told is not None
    answers = (tmp_path / "answers.jsonl").read_text().splitlines()
    policies = [json.loads(line)["policy"] for line in answers]
    assert policies.count("lead-4+vote") == int(told[1]) > 20
    again = aera(*bundled, "--out", "answers.jsonl")
    assert "30 answers and " in again.stderr
    assert again.returncode == 0


def test_who_knows_better_keeps_the_controller(aera: Aera, bundled: list[object]) -> None:
    done = aera(*bundled, "--trust")
    assert "taught on" not in done.stderr
    assert {json.loads(line)["policy"] for line in done.stdout.splitlines()} == {GATED}


@pytest.mark.parametrize(
    ("code", "path", "advice"),
    [
        (401, "/v1", "(the key in OPENAI_API_KEY was refused)"),
        (404, "", "(did you forget /v1 in --base-url?)"),
    ],
)
def test_the_first_error_and_what_to_do_stand_on_standard_error(
    aera: Aera, tmp_path: Path, code: int, path: str, advice: str
) -> None:
    with in_background(FakeUpstream(boxed, faults=[Fault.status(code)] * 9)) as server:
        address = server.base_url.removesuffix("/v1") + path
        options = ["--base-url", address, "--model", "m", "--task", "numeric"]
        done = aera("solve", "how many?", *options)
        asked = tmp_path / "asked.jsonl"
        asked.write_text('{"question": "how many?"}\n')
        sampled = aera("sample", asked, *options, "--out", tmp_path / "pool", "--responses", 4)
    assert [advice in line for line in done.stderr.splitlines()].count(True) == 1
    assert json.loads(done.stdout)["error"].startswith(f"upstream {code}")
    assert sampled.stderr.splitlines()[-1].endswith(advice)
