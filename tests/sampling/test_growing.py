"""A finished pool grows by what is missing, and is never lost on the way."""

import asyncio
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from fakes import Server
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from live import in_background

from aera import Pool, Question, Record, Response, get_task
from aera.errors import PoolError, UsageError
from aera.pools.pool import GROWING, write_pool
from aera.sampling.growing import move_in
from aera.sampling.plan import Plan
from aera.sampling.recorded import RecordedUpstream
from aera.sampling.recording import Progress, Recording, record

NUMERIC = get_task("numeric")
QUESTIONS = [Question(f"q{i}", f"what is {i}? ü") for i in range(6)]
PLAN = Plan(NUMERIC, 8, {"model": "m"}, 0)


@dataclass
class Stepping:
    """A sampler whose responses depend on question and place alone, as with stepped seeds."""

    asked: list[tuple[str, int]] = field(default_factory=list)
    fails: int = 0

    async def sample(
        self, question: Question, n: int, *, start: int = 0, deadline: float | None = None
    ) -> list[Response]:
        if self.fails:
            self.fails -= 1
            return [Response("", error="no")] * n
        places = range(start, start + n)
        self.asked += [(question.id, place) for place in places]
        return [
            Response(f"{question.text} \\boxed{{{i}}}", tokens=i + 1, seed=i, finish_reason="stop")
            for i in places
        ]


def sampled(
    out: Path,
    responses: int = 8,
    questions: Sequence[Question] = QUESTIONS,
    *,
    sampler: Stepping | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
) -> Pool | None:
    recording = Recording(out, replace(PLAN, responses=responses), questions)
    recording.begin()
    work = record(recording, sampler or Stepping(), concurrency=2, block=3, watch=watch)
    return asyncio.run(work)


def files(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*.*")}


class Stopped(BaseException):
    """Not an Exception, so that nobody handles it: as good as a kill."""


def stop(progress: Progress) -> None:
    if progress.done - progress.resumed > 10:
        raise Stopped


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aera.pools.record.SEGMENT_RESPONSES", 16)


# --- the same as at once --------------------------------------------------------------------------


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25
)
@given(
    steps=st.lists(st.tuples(st.integers(1, 24), st.integers(1, 6)), min_size=2, max_size=4),
    order=st.permutations(QUESTIONS),
)
def test_a_grown_pool_is_byte_for_byte_what_would_have_been_sampled_at_once(
    tmp_path: Path, steps: list[tuple[int, int]], order: list[Question]
) -> None:
    for name in ("grown", "whole"):
        shutil.rmtree(tmp_path / name, ignore_errors=True)
    rising = zip(*(sorted(column) for column in zip(*steps, strict=True)), strict=True)
    sampler, many, count = Stepping(), 0, 0
    for many, count in rising:
        asked = [question for question in order if question in QUESTIONS[:count]]
        assert sampled(tmp_path / "grown", many, asked, sampler=sampler) is not None
    sampled(tmp_path / "whole", many, [q for q in order if q in QUESTIONS[:count]])
    assert files(tmp_path / "grown") == files(tmp_path / "whole")
    assert len(sampler.asked) == len({*sampler.asked}) == many * count


def test_growing_asks_only_for_what_is_missing(tmp_path: Path) -> None:
    sampled(tmp_path, 8, QUESTIONS[:4])
    sampler = Stepping()
    pool = sampled(tmp_path, 12, QUESTIONS, sampler=sampler)
    wanted = [(q.id, i) for q in QUESTIONS for i in range(0 if q.id in ("q4", "q5") else 8, 12)]
    assert sorted(sampler.asked) == sorted(wanted)
    assert pool is not None
    assert (len(pool), pool.manifest.responses, pool.manifest.each) == (6, 72, 12)
    assert not (tmp_path / GROWING).exists()


def test_a_pool_of_format_1_grows(tmp_path: Path) -> None:
    sampled(tmp_path / "old")
    file = tmp_path / "old" / "manifest.json"
    told = json.loads(file.read_text())
    newer = ("responses_each", "other_counts", "left_out", "written_by")
    file.write_text(json.dumps({k: v for k, v in told.items() if k not in newer} | {"format": 1}))
    sampled(tmp_path / "old", 16)
    sampled(tmp_path / "new", 16)
    assert files(tmp_path / "old") == files(tmp_path / "new")


# --- on the way -----------------------------------------------------------------------------------


def test_a_pool_that_grows_is_the_old_one_meanwhile(tmp_path: Path) -> None:
    before = [*(sampled(tmp_path) or ())]
    with pytest.raises(Stopped):
        sampled(tmp_path, 16, watch=stop)
    assert [*Pool.open(tmp_path)] == before
    assert len([*(sampled(tmp_path, 8) or ())]) == len(before)
    sampler = Stepping()
    grown = sampled(tmp_path, 16, sampler=sampler)
    assert grown is not None
    assert len(sampler.asked) < 6 * 8 - 10
    assert {len(each.responses) for each in grown} == {16}


def test_what_failed_while_growing_is_asked_for_again(tmp_path: Path) -> None:
    sampled(tmp_path)
    assert sampled(tmp_path, 16, sampler=Stepping(fails=2)) is None
    assert (tmp_path / GROWING / "failures.jsonl").exists()
    assert Pool.open(tmp_path).manifest.each == 8
    sampler = Stepping()
    assert sampled(tmp_path, 16, sampler=sampler) is not None
    assert len(sampler.asked) == 6


def dying_at(number: int, patch: pytest.MonkeyPatch) -> list[str]:
    """Die at file operation `number`: before it is carried out, or amid it if it writes."""
    done: list[str] = []

    def fatal(owner: Any, name: str) -> Callable[..., Any]:
        honest = getattr(owner, name)

        def operation(path: Path, *arguments: Any, **options: Any) -> Any:
            done.append(f"{name} {path.name}")
            last = len(done) == number
            if last and name == "write_text":
                honest(path, arguments[0][: len(arguments[0]) // 2], "utf-8")
            if last:
                raise Stopped
            return honest(path, *arguments, **options)

        return operation

    for name in ("write_text", "replace", "unlink", "open", "mkdir"):
        patch.setattr(Path, name, fatal(Path, name))
    patch.setattr(shutil, "rmtree", fatal(shutil, "rmtree"))
    return done


def test_a_death_at_any_file_operation_loses_nothing(tmp_path: Path) -> None:
    first, whole = tmp_path / "first", tmp_path / "whole"
    old, new = [*(sampled(first, 8, QUESTIONS[1:]) or ())], [*(sampled(whole, 16) or ())]
    said: set[str] = set()
    for number in range(1, 400):
        out = tmp_path / "pool"
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(first, out)
        with pytest.MonkeyPatch.context() as patch:
            done = dying_at(number, patch)
            try:
                sampled(out, 16)
                break
            except Stopped:
                pass
        if (out / "manifest.json").exists():
            held = [*Pool.open(out)]
            assert held in (old, new), done[-1]
            said.add("old" if held == old else "new")
        else:
            with pytest.raises(PoolError, match="is being grown; run aera sample again"):
                Pool.open(out)
            said.add("growing")
        assert sampled(out, 16) is not None
        assert files(out) == files(whole), done[-1]
    assert len(done) < number
    assert said == {"old", "growing", "new"}


# --- what is refused ------------------------------------------------------------------------------


def test_fewer_responses_are_refused_in_one_sentence(tmp_path: Path) -> None:
    sampled(tmp_path)
    before = files(tmp_path)
    with pytest.raises(UsageError, match=r"it has 8 responses for each question, and 4 are fewer"):
        sampled(tmp_path, 4)
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    "questions", [QUESTIONS[1:], [replace(QUESTIONS[0], text="else?"), *QUESTIONS[1:]]]
)
def test_lost_or_changed_questions_are_refused(tmp_path: Path, questions: list[Question]) -> None:
    sampled(tmp_path)
    before = files(tmp_path)
    with pytest.raises(UsageError, match="other questions"):
        sampled(tmp_path, 8, questions)
    with pytest.raises(UsageError, match="other"):
        sampled(tmp_path, 16, questions)
    assert files(tmp_path) == before


def test_a_pool_that_grows_to_one_size_is_not_grown_to_another(tmp_path: Path) -> None:
    sampled(tmp_path)
    assert sampled(tmp_path, 16, sampler=Stepping(fails=1)) is None
    with pytest.raises(UsageError, match=r"other settings; continue with those in growing/plan"):
        sampled(tmp_path, 32)


def test_a_folder_of_that_name_elsewhere_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / GROWING).mkdir()
    (tmp_path / GROWING / "roses.txt").write_text("precious")
    with pytest.raises(UsageError, match="no pool begun by sampling"):
        sampled(tmp_path)
    move_in(tmp_path)
    assert (tmp_path / GROWING / "roses.txt").exists()


# --- kills ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serves sixteen recorded responses to each question, slowly enough to be killed amid them."""
    records = [
        Record(
            question,
            tuple(
                Response(f"\\boxed{{{j}}} {question.id}", tokens=10 + j, finish_reason="stop")
                for j in range(16)
            ),
        )
        for question in QUESTIONS
    ]
    source = write_pool(tmp_path_factory.mktemp("source"), records, task=NUMERIC, sampler={})
    with in_background(RecordedUpstream(source, pace=0.5)) as started:
        yield started


@pytest.fixture
def asked_for(tmp_path: Path) -> Path:
    file = tmp_path / "questions.jsonl"
    rows = ({"id": q.id, "question": q.text, "answer": "1"} for q in QUESTIONS)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return file


def command(server: Server, questions: Path, out: Path, responses: int) -> list[str]:
    fixed = f"--model m --task numeric --responses {responses} --block 1 --concurrency 3".split()
    call = [sys.executable, "-m", "aera", "sample", str(questions), "--out", str(out)]
    return [*call, "--base-url", server.base_url, *fixed]


def finish(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def killed(words: list[str], server: Server, chance: random.Random) -> None:
    """Begin, and kill -9 a moment after some calls have reached the server."""
    seen = len(server.calls) + chance.randint(1, 4)
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and len(server.calls) < seen:
            time.sleep(0.001)
        time.sleep(chance.random() / 50)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


def content(pool: Pool) -> list[Record]:
    """A pool's records without the time they took."""
    return [
        replace(
            r,
            responses=tuple(
                replace(each, latency_ms=None, prompt_tokens=0) for each in r.responses
            ),
        )
        for r in pool
    ]


def test_kills_while_growing_lose_nothing(server: Server, asked_for: Path, tmp_path: Path) -> None:
    out, whole = tmp_path / "pool", tmp_path / "whole"
    finish(command(server, asked_for, out, 8))
    old, before = [*Pool.open(out)], len(server.calls)
    chance = random.Random(3)
    for _ in range(6):
        killed(command(server, asked_for, out, 16), server, chance)
        assert [*Pool.open(out)] == old
    finish(command(server, asked_for, out, 16))
    again = len(server.calls) - before
    assert 6 * 8 <= again <= 6 * 8 + 6 * 3  # what was under way at a kill is asked for again
    finish(command(server, asked_for, whole, 16))
    assert content(Pool.open(out)) == content(Pool.open(whole))
    assert {file.name for file in out.iterdir()} == {file.name for file in whole.iterdir()}
    for name in ("questions.jsonl", "truths.jsonl", "plan.json"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()


DYING = """
import os, signal, sys
from pathlib import Path
fatal, honest = sys.argv.pop(1), Path.replace
def replace(self, target):
    if str(target).endswith(fatal):
        os.kill(os.getpid(), signal.SIGKILL)
    return honest(self, target)
Path.replace = replace
from aera.cli import main
main()
"""


@pytest.mark.parametrize(
    ("file", "growing"),
    [
        ("growing/manifest.json", False),
        ("pool/responses-00000.jsonl.gz", True),
        ("pool/manifest.json", True),
    ],
)
def test_a_kill_while_sealing_what_grew_asks_for_nothing_again(
    server: Server, asked_for: Path, tmp_path: Path, file: str, growing: bool
) -> None:
    out = tmp_path / "pool"
    finish(command(server, asked_for, out, 2))
    words = command(server, asked_for, out, 4)
    dying = [sys.executable, "-c", DYING, file, *words[3:]]
    assert subprocess.run(dying, timeout=60, check=False).returncode == -signal.SIGKILL
    if growing:
        with pytest.raises(PoolError, match="is being grown; run aera sample again"):
            Pool.open(out)
    else:
        assert Pool.open(out).manifest.each == 2
    before = len(server.calls)
    finish(words)
    assert len(server.calls) == before
    assert {len(each.responses) for each in Pool.open(out)} == {4}
