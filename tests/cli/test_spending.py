"""Money on the command line: limits over real sockets, kills, what is said, what is never sent."""

import json
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from commands import Aera, Done, command, refused
from fakes import Call, FakeUpstream, in_background
from traced import TracedUpstream

from aera import Pool, Question, Response, get_task

TOKENS, AT_ONCE = 25, 8


def various(call: Call, place: int) -> Response:
    """Answers that seldom agree, of different lengths; the same for the same seed."""
    chance = random.Random(f"{call.prompt}{call.body['seed'] + place}")
    answer, tokens = chance.choice("12345"), chance.randint(5, 2 * TOKENS - 5)
    return Response(f"reason {chance.random()} \\boxed{{{answer}}}", tokens=tokens)


@pytest.fixture
def server() -> Iterator[FakeUpstream]:
    with in_background(FakeUpstream(various)) as upstream:
        yield upstream


@pytest.fixture
def solve(aera: Aera, tmp_path: Path, server: FakeUpstream) -> Aera:
    """`aera solve` for forty questions."""
    (tmp_path / "questions.txt").write_text("".join(f"what is {i}?\n" for i in range(40)))
    options = "--model m --task numeric --seed 0 --schedule 4,8,16 --file questions.txt"
    return partial(aera, "solve", "--base-url", server.base_url, *options.split())


def spent(server: FakeUpstream) -> tuple[int, int]:
    """Responses and tokens that the server generated."""
    made = [various(call, place) for call in server.calls for place in range(call.n)]
    most = [call.body["max_tokens"] for call in server.calls for _ in range(call.n)]
    return len(made), sum(min(each.tokens, top) for each, top in zip(made, most, strict=True))


def asked_of(server: FakeUpstream, first: int = 0) -> list[tuple[str, int]]:
    """The prompt and the index of every response that was asked for, from this call on."""
    return [(c.prompt, c.body["seed"] + i) for c in server.calls[first:] for i in range(c.n)]


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


# --- limits over real sockets ---------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("concurrency", [1, 16, 256])
def test_a_limit_in_tokens_is_kept_and_used(
    solve: Aera, server: FakeUpstream, concurrency: int, shared: bool
) -> None:
    limit = 80 * TOKENS
    options = ["--max-tokens-total", limit, "--set", "max_tokens=60", "--concurrency", concurrency]
    done = solve(*options, *["--shared-budget"] * shared)
    tokens = spent(server)[1]
    assert 0.9 * limit <= tokens <= limit
    assert sum(line["completion_tokens"] for line in lines(done.stdout)) == tokens
    assert "ended by a limit" in done.stderr


@pytest.mark.parametrize(
    ("options", "low", "high"),
    [
        ("--max-tokens-total 10", (0, 0), (40, 10)),
        ("--max-money 0.002 --prices 0,1.5", (0, 1200), (640, 1333)),
        ("--max-responses 21", (21, 0), (21, 2**20)),
    ],
)
def test_the_limits_that_strangers_tried_are_kept(
    solve: Aera, server: FakeUpstream, options: str, low: Any, high: Any
) -> None:
    solve(*options.split())
    bounds = zip(low, spent(server), high, strict=True)
    assert all(least <= found <= most for least, found, most in bounds)


def test_a_shared_budget_spreads_and_says_who_got_nothing(solve: Aera) -> None:
    done = solve("--shared-budget", "--max-responses", 30)
    counts = Counter(line["responses"] for line in lines(done.stdout))
    assert done.returncode == 3
    assert counts[1] >= 26  # one block showed how long responses are
    assert f"aera: {counts[0]} questions got nothing: " in done.stderr


def test_seconds_end_it_and_the_answers_come_at_once(solve: Aera, server: FakeUpstream) -> None:
    server._delay = lambda call: 0.0 if call.number < 8 else 90.0
    begun = time.monotonic()
    done = solve("--max-seconds", 1.5, "--concurrency", 4)
    assert time.monotonic() - begun < 45
    assert "limit: seconds" in {line["reason"] for line in lines(done.stdout)}
    assert len(server.calls) <= 13


# --- nothing is paid twice ------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
def test_kills_lose_no_finished_call_and_double_no_line(
    solve: partial[Done], server: FakeUpstream, tmp_path: Path, shared: bool
) -> None:
    server._delay = lambda call: random.Random(call.number).uniform(0.0, 0.1)
    limit = ["--shared-budget", "--max-responses", 500] if shared else []
    options = [*limit, "--out", "answers.jsonl", "--concurrency", AT_ONCE]
    line = command(*solve.args[1:], *options)
    chance, log = random.Random(0), tmp_path / "answers.jsonl.pool" / "open-00000.jsonl"
    for _ in range(3):
        known, first = paid_for(log), len(server.calls)
        work = subprocess.Popen(line, cwd=tmp_path, stderr=subprocess.DEVNULL)
        until = first + chance.randint(1, 12)
        while work.poll() is None and len(server.calls) < until:
            time.sleep(0.01)
        time.sleep(chance.uniform(0.0, 0.05))
        work.send_signal(chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGINT)))
        work.wait()
        assert not known & {*asked_of(server, first)}
        lost = [c for c in server.calls[first:] if (c.prompt, c.body["seed"]) not in paid_for(log)]
        assert len(lost) <= AT_ONCE
    server._delay = lambda call: 0.0
    done = solve(*options)
    assert done.returncode in (0, 3), done.stderr
    answers = lines((tmp_path / "answers.jsonl").read_text())
    assert sorted(int(line["question_id"]) for line in answers) == list(range(1, 41))
    before = len(server.calls)
    solve(*options)
    assert len(server.calls) == before


def paid_for(log: Path) -> set[tuple[str, int]]:
    """Prompt and index of every response that the log holds whole."""
    text, task = log.read_text() if log.exists() else "", get_task("numeric")
    whole = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    asked = ((f"what is {int(line['question_id']) - 1}?", line["index"]) for line in whole)
    return {(task.prompt(Question("", text)), index) for text, index in asked}


def test_another_model_does_not_go_on_with_what_was_paid_for(solve: Aera) -> None:
    out = ["--out", "answers.jsonl", "--max-responses", 20]
    solve(*out)
    assert "begun with another request" in refused(solve(*out, "--model", "other"), 2)
    assert "holds answers by" in refused(solve(*out, "--policy", "fixed-4"), 2)


# --- what is said, and what is never sent ---------------------------------------------------------


def test_a_table_is_asked_by_its_questions_and_no_answer_is_sent(
    aera: Aera, solve: partial[Done], server: FakeUpstream, tmp_path: Path
) -> None:
    table = "question,answer\nwhat is six?,SECRET-6\nand two?,SECRET-2\n"
    (tmp_path / "exam.csv").write_text(table)
    for stdin, more in (("", ["--file", "exam.csv"]), (table, [])):
        done = aera(*solve.args[1:-2], *more, stdin=stdin)
        assert len(lines(done.stdout)) == 2, done.stderr
    assert "SECRET" not in json.dumps([call.body for call in server.calls])
    assert {call.prompt.split("?")[0] for call in server.calls} == {"what is six", "and two"}


def test_what_is_said_at_the_end_is_the_sum_of_the_lines(solve: Aera) -> None:
    done = solve("--prices", "1,2")
    found = lines(done.stdout)
    assert f"{sum(line['money'] for line in found):,.4g} in money; saved about" in done.stderr
    assert f"{sum(line['tied'] for line in found)} answer" in done.stderr


def test_labels_that_cannot_run_are_refused(solve: Aera, server: FakeUpstream) -> None:
    for label, told in (
        ("oracle", "knows the right answers"),
        ("asc-0.9+weighted", "weights come with a trained controller"),
        ("aera-0.2", "needs a gate"),
    ):
        assert told in refused(solve("--policy", label), 2)
    assert server.calls == []


def test_at_most_so_many_samples_are_taken(solve: Aera) -> None:
    done = solve("--max-samples", 6, "--policy", "lead-99")
    assert {line["responses"] for line in lines(done.stdout)} == {6}
    assert "--schedule sets another" in refused(solve("--max-samples", 99), 2)


# --- traces ---------------------------------------------------------------------------------------


def test_sample_keeps_traces_and_on_request_every_token(tmp_path: Path, aera: Aera) -> None:
    rows = "".join(f"{i},what is {i}?\n" for i in range(3))
    (tmp_path / "questions.csv").write_text("id,question\n" + rows)
    options = "--model m --task numeric --responses 4 --out pool --traces --raw-traces raw.jsonl"
    with in_background(TracedUpstream(lambda call, place: "it is \\boxed{7}")) as server:
        done = aera("sample", "questions.csv", "--base-url", server.base_url, *options.split())
        told = aera("info", server.base_url, "--model", "m", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(told.stdout)["gives"] == "full traces"
    kept = [each for record in Pool.open(tmp_path / "pool") for each in record.responses]
    assert all(each.trace is not None for each in kept)
    raw = lines((tmp_path / "raw.jsonl").read_text())
    places = sorted((each["question_id"], each["index"]) for each in raw)
    assert places == [(str(i), index) for i in range(3) for index in range(4)]
    assert {len(each["logprob"]) == len(each["confidence"]) > 3 for each in raw} == {True}
    assert "with a trace of their tokens" in aera("info", "pool").stdout
