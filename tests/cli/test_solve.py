import json
import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands import Aera, Done, command, refused
from fakes import Call, FakeUpstream, Fault, in_background
from foreign_questions import DEMO, GATED, short_questions
from live import boxed, controller_of
from traced import TracedUpstream

from aera import BestOfN, Fixed, Pool, Question, Response, get_task


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


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


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
    assert {line["question_id"] for line in lines(done.stdout)} == {"1", "b", "4"}
    assert {call.prompt.split()[0] for call in server.calls} == {"one?", "two?", "three?"}


def test_a_server_that_says_nothing_is_waited_for_aloud(
    solve: Aera, aera: Aera, server: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aera.cli.ask.EVERY", 0.2)
    monkeypatch.setattr("aera.sampling.replicas.CHECK_SECONDS", 0.1)
    server.mute = True
    said, silent = solve("how many?", "--max-seconds", 1.5).stderr, f"{server.base_url} does not"
    assert said.count("still waiting, up to 600 s for a call; --max-seconds or Ctrl-C ends") == 3
    assert said.count(f"({silent} answer: is the model server running there?)") == 3
    assert f"aera: {silent} answer" in refused(aera("info", server.base_url, "--model", "m"), 1)


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
        assert [line["votes"] for line in lines(aera(*plain).stdout)] == [{"(x+1)^2": 4.0}]
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
    [line] = lines(solve(*named, *scored).stdout)
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
    assert "other settings (seed, system, top_k)" in refused(sample("--seed", 10), 2)
    again = sample("--set", "top_k=20", "--seed", 9, "--system", "Be brief.")
    assert again.stdout == "pool: 24 responses, 24 were there already\n"
    assert len(server.calls) == asked


def test_replies_that_cannot_be_read_are_told_before_all_are_paid_for(
    sample: Aera, server: FakeUpstream
) -> None:
    server._answer = lambda call, place: ""
    done = sample("--responses", 24)
    assert (done.returncode, done.stderr.count("ONLY 0 %")) == (0, 2)
    assert done.stderr.index("ONLY 0 %") < done.stderr.index("readable: ")


def test_a_pool_without_a_response_binds_nobody(sample: Aera, server: FakeUpstream) -> None:
    server._faults = iter([Fault.status(404)] * 9)
    assert "404" in refused(sample("--model", "wrong"), 1)
    server._faults = iter(())
    assert sample().returncode == 0


def test_wrong_calls_of_sample_are_one_line_and_leave_nothing(sample: Aera, tmp_path: Path) -> None:
    for options, told in (
        (["--task", "cookery"], "cookery"),
        (["--prices", "cheap"], "--prices"),
        (["--base-url", "http://x/v1/chat/completions/"], "leave out the /chat/completions"),
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
    answers = (tmp_path / "answers.jsonl").read_text().splitlines()
    policies = [json.loads(line)["policy"] for line in answers]
    assert policies.count("lead-4+vote") == int(told[1]) > 20
    again = aera(*bundled, "--out", "answers.jsonl")
    assert (again.returncode, "30 answers and " in again.stderr) == (0, True)
    trusted = aera(*bundled, "--trust")
    assert "taught on" not in trusted.stderr
    assert {line["policy"] for line in lines(trusted.stdout)} == {GATED}


@pytest.mark.parametrize(
    ("code", "path", "key", "advice"),
    [
        (401, "/v1", "wrong", "(the key in OPENAI_API_KEY was refused)"),
        (401, "/v1", "", "(no key is set in OPENAI_API_KEY)"),
        (404, "", "", " has no list of models: did you forget /v1?)"),
        (404, "/v1", "", '/v1 does not list the model "m": it has "recorded")'),
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
        probed = aera("info", address, "--model", "m", OPENAI_API_KEY=key)
    assert [advice in line for line in done.stderr.splitlines()].count(True) == 1
    assert json.loads(done.stdout)["error"].startswith(f"upstream {code}")
    assert all(each.stderr.rstrip().endswith(advice) for each in (sampled, probed))


@pytest.mark.parametrize("verb", ["solve", "sample"])
@pytest.mark.parametrize(
    ("code", "told", "most"),
    [
        (400, {"param": "temperature"}, 16),
        (429, {"code": "insufficient_quota"}, 16),
        (200, {}, 16),  # a page, not JSON
        (400, {}, 32),  # with one thing left out after the other
        (400, {"param": "messages"}, 80),  # which may be about that question alone
        (400, {"code": "inspected"}, 80),
    ],
)
def test_what_no_question_can_mend_is_asked_of_few(
    aera: Aera, tmp_path: Path, code: int, told: dict[str, str], most: int, verb: str
) -> None:
    rows = [json.dumps({"id": f"q{i}", "question": f"{i}?"}) for i in range(40)]
    (tmp_path / "asked.jsonl").write_text("\n".join(rows))
    body, kind = {"error": {"message": "no", **told}}, "html" if code == 200 else "status"
    fault = Fault(kind, code, retry_after="0", body=body)
    with in_background(FakeUpstream(boxed, faults=[fault] * 999)) as server:
        options = ["--base-url", server.base_url, "--model", "m", "--task", "numeric"]
        given = ["--file", "asked.jsonl"] if verb == "solve" else ["asked.jsonl", "--out", "pool"]
        done = aera(verb, *given, *options)
    assert done.returncode
    assert (len(server.calls) <= most, "billed" in done.stderr) == (True, False)
    if verb == "solve":
        assert ["no" in line["error"] for line in lines(done.stdout)] == [True] * 40
        assert (len({call.prompt for call in server.calls}) == 40) == (most == 80)


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


# --- money: limits over real sockets, kills, what is said and never sent --------------------------

TOKENS, AT_ONCE = 25, 8


def various(call: Call, place: int) -> Response:
    """Answers that seldom agree, of different lengths; the same for the same seed."""
    chance = random.Random(f"{call.prompt}{call.body['seed'] + place}")
    answer, tokens = chance.choice("12345"), chance.randint(5, 2 * TOKENS - 5)
    return Response(f"reason {chance.random()} \\boxed{{{answer}}}", tokens=tokens)


@pytest.fixture
def billing() -> Iterator[FakeUpstream]:
    with in_background(FakeUpstream(various)) as upstream:
        yield upstream


@pytest.fixture
def spend(aera: Aera, tmp_path: Path, billing: FakeUpstream) -> Aera:
    """`aera solve` for forty questions."""
    (tmp_path / "questions.txt").write_text("".join(f"what is {i}?\n" for i in range(40)))
    options = "--model m --task numeric --seed 0 --schedule 4,8,16 --file questions.txt"
    return partial(aera, "solve", "--base-url", billing.base_url, *options.split())


def spent(server: FakeUpstream) -> tuple[int, int]:
    """Responses and tokens that the server generated."""
    made = [various(call, place) for call in server.calls for place in range(call.n)]
    most = [call.body["max_tokens"] for call in server.calls for _ in range(call.n)]
    return len(made), sum(min(each.tokens, top) for each, top in zip(made, most, strict=True))


def asked_of(server: FakeUpstream, first: int = 0) -> list[tuple[str, int]]:
    """The prompt and the index of every response that was asked for, from this call on."""
    return [(c.prompt, c.body["seed"] + i) for c in server.calls[first:] for i in range(c.n)]


# --- limits over real sockets ---------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("concurrency", [1, 16, 256])
def test_a_limit_in_tokens_is_kept_and_used(
    spend: Aera, billing: FakeUpstream, concurrency: int, shared: bool
) -> None:
    limit = 80 * TOKENS
    options = ["--max-tokens-total", limit, "--set", "max_tokens=60", "--concurrency", concurrency]
    done = spend(*options, *["--shared-budget"] * shared)
    tokens = spent(billing)[1]
    assert 0.9 * limit <= tokens <= limit
    assert sum(line["completion_tokens"] for line in lines(done.stdout)) == tokens
    assert "ended by a limit" in done.stderr


def test_a_shared_budget_spreads_and_says_who_got_nothing(spend: Aera) -> None:
    done = spend("--shared-budget", "--max-responses", 30)
    counts = Counter(line["responses"] for line in lines(done.stdout))
    assert done.returncode == 3
    assert counts[1] >= 26  # one block showed how long responses are
    assert f"aera: {counts[0]} questions got nothing: " in done.stderr


# --- nothing is paid twice ------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
def test_kills_lose_no_finished_call_and_double_no_line(
    spend: partial[Done], billing: FakeUpstream, tmp_path: Path, shared: bool
) -> None:
    billing._delay = lambda call: random.Random(call.number).uniform(0.0, 0.1)
    limit = ["--shared-budget", "--max-responses", 500] if shared else []
    options = [*limit, "--out", "answers.jsonl", "--concurrency", AT_ONCE]
    line = command(*spend.args[1:], *options)
    chance, log = random.Random(0), tmp_path / "answers.jsonl.pool" / "open-00000.jsonl"
    for _ in range(3):
        known, first = paid_for(log), len(billing.calls)
        work = subprocess.Popen(line, cwd=tmp_path, stderr=subprocess.DEVNULL)
        until = first + chance.randint(1, 12)
        while work.poll() is None and len(billing.calls) < until:
            time.sleep(0.01)
        time.sleep(chance.uniform(0.0, 0.05))
        work.send_signal(chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGINT)))
        work.wait()
        assert not known & {*asked_of(billing, first)}
        lost = [c for c in billing.calls[first:] if (c.prompt, c.body["seed"]) not in paid_for(log)]
        assert len(lost) <= AT_ONCE
    billing._delay = lambda call: 0.0
    done = spend(*options)
    assert done.returncode in (0, 3), done.stderr
    answers = lines((tmp_path / "answers.jsonl").read_text())
    assert sorted(int(line["question_id"]) for line in answers) == list(range(1, 41))
    before = len(billing.calls)
    spend(*options)
    assert len(billing.calls) == before


def paid_for(log: Path) -> set[tuple[str, int]]:
    """Prompt and index of every response that the log holds whole."""
    text, task = log.read_text() if log.exists() else "", get_task("numeric")
    whole = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    asked = ((f"what is {int(line['question_id']) - 1}?", line["index"]) for line in whole)
    return {(task.prompt(Question("", text)), index) for text, index in asked}


def test_another_model_does_not_go_on_with_what_was_paid_for(spend: Aera) -> None:
    out = ["--out", "answers.jsonl", "--max-responses", 20]
    spend(*out)
    assert "begun with another request" in refused(spend(*out, "--model", "other"), 2)
    assert "holds answers by" in refused(spend(*out, "--policy", "fixed-4"), 2)


# --- what is said, and what is never sent ---------------------------------------------------------


def test_a_table_is_asked_by_its_questions_and_no_answer_is_sent(
    aera: Aera, spend: partial[Done], billing: FakeUpstream, tmp_path: Path
) -> None:
    table = "question,answer\nwhat is six?,SECRET-6\nand two?,SECRET-2\n"
    (tmp_path / "exam.csv").write_text(table)
    for stdin, more in (("", ["--file", "exam.csv"]), (table, [])):
        done = aera(*spend.args[1:-2], *more, stdin=stdin)
        assert len(lines(done.stdout)) == 2, done.stderr
    assert "SECRET" not in json.dumps([call.body for call in billing.calls])
    assert {call.prompt.split("?")[0] for call in billing.calls} == {"what is six", "and two"}


def test_at_most_so_many_samples_are_taken(spend: Aera) -> None:
    done = spend("--max-samples", 6, "--policy", "lead-99")
    assert {line["responses"] for line in lines(done.stdout)} == {6}
    told = lines(spend("--policy", "lead-1+max6").stdout)
    assert {line["full_budget"] for line in told} == {6}
    assert "--schedule sets another" in refused(spend("--max-samples", 99), 2)


# --- traces ---------------------------------------------------------------------------------------


def test_sample_keeps_traces_and_on_request_every_token(tmp_path: Path, aera: Aera) -> None:
    rows = "".join(f"{i},what is {i}?\n" for i in range(3))
    (tmp_path / "questions.csv").write_text("id,question\n" + rows)
    options = "--model m --task numeric --responses 4 --out pool --traces --raw-traces raw.jsonl"
    with in_background(TracedUpstream(lambda call, place: "it is \\boxed{7}")) as billing:
        done = aera("sample", "questions.csv", "--base-url", billing.base_url, *options.split())
        told = aera("info", billing.base_url, "--model", "m", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(told.stdout)["gives"] == "full traces"
    kept = [each for record in Pool.open(tmp_path / "pool") for each in record.responses]
    assert all(each.trace is not None for each in kept)
    raw = lines((tmp_path / "raw.jsonl").read_text())
    places = sorted((each["question_id"], each["index"]) for each in raw)
    assert places == [(str(i), index) for i in range(3) for index in range(4)]
    assert {len(each["logprob"]) == len(each["confidence"]) > 3 for each in raw} == {True}
    assert "with a trace of their tokens" in aera("info", "pool").stdout
