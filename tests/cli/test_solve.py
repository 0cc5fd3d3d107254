import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
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
    """Answers seven."""
    with in_background(FakeUpstream(boxed)) as upstream:
        yield upstream


@pytest.fixture
def solve(aera: Aera, tmp_path: Path, server: FakeUpstream) -> Aera:
    """`aera solve` by a controller."""
    controller_of().save(tmp_path / "controller")
    options = ["--controller", "controller", "--base-url", server.base_url, "--model", "m"]
    return partial(aera, "solve", *options)


@pytest.fixture
def sample(aera: Aera, tmp_path: Path, server: FakeUpstream) -> Aera:
    """`aera sample` for three questions."""
    rows = [{"id": f"q{i}", "question": f"{i}?", "answer": "7"} for i in range(3)]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = "questions.jsonl --model m --task numeric --responses 8 --out pool --block 4"
    return partial(aera, "sample", "--base-url", server.base_url, *options.split())


def lines(done: Done) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


# --- solve ----------------------------------------------------------------------------------------


def test_what_is_set_reaches_the_server(solve: Aera, server: FakeUpstream) -> None:
    given = ["--seed", 5, "--set", "min_p=0.1", "--api-key-env", "MY_KEY", "--header", "X-Team: a"]
    assert solve("how many?", *given, MY_KEY="k").returncode == 0
    call = server.calls[0]
    assert {"min_p": 0.1, "seed": 5, "max_tokens": 16_384}.items() <= call.body.items()
    assert (call.headers["Authorization"], call.headers["X-Team"]) == ("Bearer k", "a")


def test_solve_reads_standard_input_also_as_plain_text(solve: Aera, server: FakeUpstream) -> None:
    done = solve(stdin='one?\n\n{"id": "b", "question": "two?"}\nthree?\n')
    assert done.returncode == 0
    assert {line["question_id"] for line in lines(done)} == {"1", "b", "4"}
    assert {call.prompt.split()[0] for call in server.calls} == {"one?", "two?", "three?"}


def test_a_server_that_says_nothing_is_waited_for_aloud(
    solve: Aera, server: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aera.cli.ask.EVERY", 0.2)
    server._delay = lambda call: 1.0
    assert solve("how many?").stderr.count("nothing is done after") == 1


def test_what_never_came_and_what_came_are_what_was_asked_for(aera: Aera) -> None:
    with in_background(FakeUpstream(boxed, faults=[Fault("reset")] * 2)) as server:
        asked = f"solve ? --base-url {server.base_url} --model m --task numeric"
        done = aera(*asked.split())
    assert "12 responses asked for, retries counted: 4 came, 8 never came" in done.stderr


def test_what_was_dropped_is_not_asked_again(
    solve: Aera, aera: Aera, server: FakeUpstream, tmp_path: Path
) -> None:
    rows = [{"id": "a", "question": "one?"}, {"id": "b", "question": "two?"}]
    (tmp_path / "two.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    call = ("--file", "two.jsonl", "--out", "solved.jsonl")
    assert solve(*call).returncode == 0
    assert aera("drop", "solved.jsonl.pool", "--ids", "a").returncode == 0
    (tmp_path / "solved.jsonl").unlink()
    server.calls.clear()
    assert solve(*call).returncode == 0
    assert server.calls == []
    [line] = (tmp_path / "solved.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line)["question_id"] == "b"


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
        (["?", "--equivalence"], 2, 'the votes that "controller" was made for'),
        ([], 1, "line 1: there is no question"),
    ],
)
def test_wrong_calls_of_solve_are_one_line(solve: Aera, words: Any, code: int, said: str) -> None:
    assert said in refused(solve(*words, stdin="{}\n"), code)


# --- solve with equal expressions, or a scorer ----------------------------------------------------


def test_solve_counts_equal_expressions_together_where_that_can_be(
    aera: Aera, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = ("(x+1)^2", "x^2+2x+1")
    with in_background(FakeUpstream(lambda call, place: f"\\boxed{{{ways[place % 2]}}}")) as server:
        plain = ["solve", "?", "--equivalence", "--base-url", server.base_url, "--model", "m"]
        assert [line["votes"] for line in lines(aera(*plain))] == [{"(x+1)^2": 4.0}]
        said = refused(aera(*plain, "--task", "numeric"), 2)
        assert "equivalence is for expressions" in said
        monkeypatch.setattr("aera.reading.equivalence.find_spec", lambda name: None)
        assert "equivalence needs math-verify" in refused(aera(*plain), 2)
        assert len(server.calls) == 1


def test_a_scorer_from_the_working_directory_goes_exactly_where_one_is_needed(
    aera: Aera, solve: Aera, server: FakeUpstream, tmp_path: Path
) -> None:
    length = SimpleNamespace(score=lambda question, responses: [1.0] * len(responses))
    replace(controller_of(Fixed(4)), weigher=BestOfN(length)).save(tmp_path / "scored")
    texts = ["brief", "of middling length", "long and winding", "short"]
    server._answer = lambda call, place: texts[place]
    (tmp_path / "judge.py").write_text(
        "class Length:\n"
        "    def score(self, question, responses):\n"
        "        return [len(response.text) / 100 for response in responses]\n"
    )
    named, scored = ["?", "--scorer", "judge:Length"], ["--controller", "scored"]
    bare = ["--base-url", server.base_url, "--model", "m"]
    assert "--scorer MODULE:NAME" in refused(solve("?", *scored), 1)
    assert "takes no scorer" in refused(solve(*named), 1)
    other = aera("solve", *bare, "?", "--controller", DEMO / "controller", "--task", "choice")
    assert "--task choice goes without --controller" in refused(other, 2)
    assert "--scorer needs --controller" in refused(aera("solve", *bare, *named), 2)
    assert "no_such" in refused(solve("?", *scored, "--scorer", "no_such:Judge"), 2)
    assert server.calls == []
    [line] = lines(solve(*named, *scored))
    assert (line["answer"], len(line["votes"])) == ("of middling length", 4)


# --- sample ---------------------------------------------------------------------------------------


def test_a_pool_has_its_truths_apart(sample: Aera, server: FakeUpstream, tmp_path: Path) -> None:
    done = sample("--set", "top_k=20", "--seed", 9, "--system", "Be brief.")
    assert done.stdout == "pool: 24 responses, 0 were there already\n"
    pool = Pool.open(tmp_path / "pool")
    kept = {"model": "m", "system": "Be brief.", "temperature": 0.6, "top_p": 0.95, "top_k": 20}
    assert pool.manifest.sampler.items() >= kept.items()
    assert pool.manifest.seed == 9
    assert json.loads((tmp_path / "pool/truths.jsonl").read_text().splitlines()[0])["answer"] == "7"
    assert sorted({call.body["seed"] for call in server.calls}) == [9, 13]
    asked = len(server.calls)
    assert "other settings" in refused(sample("--seed", 10), 2)
    again = sample("--set", "top_k=20", "--seed", 9, "--system", "Be brief.")
    assert again.stdout == "pool: 24 responses, 24 were there already\n"
    assert len(server.calls) == asked


def test_wrong_calls_of_sample_are_one_line_and_leave_nothing(sample: Aera, tmp_path: Path) -> None:
    for options, told in (
        (["--task", "cookery"], "cookery"),
        (["--prices", "cheap"], "--prices"),
        (["--base-url", "localhost"], "http://"),
        (["--responses", 0], "responses"),
    ):
        assert told in refused(sample(*options), 2)
    assert not (tmp_path / "pool").exists()


# --- abroad ---------------------------------------------------------------------------------------


def test_questions_of_another_kind_are_solved_by_plain_votes_unless_somebody_knows_better(
    aera: Aera, server: FakeUpstream, tmp_path: Path
) -> None:
    rows = [json.dumps({"id": each.id, "question": each.text}) for each in short_questions(30)]
    (tmp_path / "short.jsonl").write_text("\n".join(rows))
    known = ["--controller", DEMO / "controller", "--file", "short.jsonl"]
    bundled = ["solve", *known, "--base-url", server.base_url, "--model", "m"]
    done = aera(*bundled, "--out", "answers.jsonl")
    assert done.returncode == 0
    told = re.search(r"(\d+) questions decided by plain votes, for they are not", done.stderr)
    assert told is not None
    answers = (tmp_path / "answers.jsonl").read_text().splitlines()
    policies = [json.loads(line)["policy"] for line in answers]
    assert policies.count("lead-4+vote") == int(told[1]) > 20
    again = aera(*bundled, "--out", "answers.jsonl")
    assert (again.returncode, "30 answers and " in again.stderr) == (0, True)
    trusted = aera(*bundled, "--trust")
    assert "taught on" not in trusted.stderr
    assert {line["policy"] for line in lines(trusted)} == {GATED}


@pytest.mark.parametrize(
    ("code", "path", "key", "advice"),
    [
        (401, "/v1", "wrong", "(the key in OPENAI_API_KEY was refused)"),
        (401, "/v1", "", "(no key is set in OPENAI_API_KEY)"),
        (404, "", "", "/chat/completions was asked; did you forget /v1 in --base-url?)"),
        (404, "/v1/v1", "", "/v1/v1/chat/completions was asked)"),
        (429, "/v1", "", "(--concurrency can be lowered)"),
    ],
)
def test_the_first_error_and_what_to_do_stand_on_standard_error(
    aera: Aera, tmp_path: Path, code: int, path: str, key: str, advice: str
) -> None:
    faults = [Fault.status(code, retry_after="0")] * 40
    with in_background(FakeUpstream(boxed, faults=faults)) as server:
        address = server.base_url.removesuffix("/v1") + path
        options = ["--base-url", address, "--model", "m", "--task", "numeric"]
        done = aera("solve", "how many?", *options, OPENAI_API_KEY=key)
        asked = tmp_path / "asked.jsonl"
        asked.write_text('{"question": "how many?"}\n')
        options += ["--out", tmp_path / "pool", "--responses", 4]
        sampled = aera("sample", asked, *options, OPENAI_API_KEY=key)
    assert [advice in line for line in done.stderr.splitlines()].count(True) == 1
    assert json.loads(done.stdout)["error"].startswith(f"upstream {code}")
    assert sampled.stderr.splitlines()[-1].endswith(advice)


@pytest.mark.parametrize("verb", ["solve", "sample"])
def test_the_end_says_that_the_context_has_cut_responses(
    solve: Aera, sample: Aera, server: FakeUpstream, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest: Any = server._reply

    async def narrow(request: Any, call: Call, fault: Any) -> Any:
        told = "maximum context length is 1500 tokens and your request has 300 input tokens"
        fits = call.body["max_tokens"] <= 1_200
        return await honest(request, call, fault if fits else Fault.status(400, told))

    monkeypatch.setattr(server, "_reply", narrow)
    done = solve("7?") if verb == "solve" else sample()
    assert done.returncode == 0
    assert "responses had at most 1,200 tokens: the server's context is 1,500\n" in done.stderr
