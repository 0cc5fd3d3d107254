import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import Fault, Server, recorded_server
from live import in_background

from aera import Pool, Question, Record, Response, get_task
from aera.errors import PoolError, UpstreamError, UsageError
from aera.pools.pool import parse_line, write_pool
from aera.sampling.plan import Plan
from aera.sampling.recorded import RecordedUpstream
from aera.sampling.recording import Progress, Recording, record
from aera.sampling.sampler import Chat, OpenAISampler
from aera.sampling.upstream import Endpoint

NUMERIC = get_task("numeric")
QUESTIONS, RESPONSES = 8, 16
PLAN = Plan(NUMERIC, RESPONSES, {"model": "m"}, 0)
FINISHED = {"manifest.json", "plan.json", "questions.jsonl", "responses-00000.jsonl.gz"}
Pair = tuple[str, int]


@pytest.fixture(autouse=True)
def no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chance that never makes a retry wait."""
    monkeypatch.setattr("aera.sampling.upstream.random.uniform", lambda low, high: 0.0)


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    """A small recorded pool: every response says which one it is."""
    records = [
        Record(
            Question(f"q{i}", f"what is {i}? ü"),
            tuple(
                Response(f"{i}.{j} is\n\\boxed{{{j}}}", tokens=i + j + 1, finish_reason="stop")
                for j in range(RESPONSES)
            ),
        )
        for i in range(QUESTIONS)
    ]
    return write_pool(tmp_path_factory.mktemp("source"), records, task=NUMERIC, sampler={})


def recorded(
    server: Server,
    source: Pool,
    out: Path,
    *,
    plan: Plan = PLAN,
    watch: Callable[[Progress], None] = lambda progress: None,
    block: int = 4,
    concurrency: int = 4,
) -> tuple[Pool | None, Progress]:
    """Record into a directory as far as the server lets it."""

    async def scene() -> tuple[Pool | None, Progress]:
        recording = Recording(out, plan, list(source.questions.values()))
        recording.begin()
        chat = Chat("m", NUMERIC, {"seed": 0})
        async with server, OpenAISampler(Endpoint(server.base_url, tries=1), chat) as sampler:
            pool = await record(
                recording, sampler, concurrency=concurrency, block=block, watch=watch
            )
        return pool, recording.progress

    return asyncio.run(scene())


def asked(server: Server) -> list[Pair]:
    """Every (question, index) a server was asked for."""
    return [
        (f"q{call.prompt.split()[2][0]}", call.body["seed"] + place)
        for call in server.calls
        for place in range(call.n)
    ]


def on_disk(out: Path) -> list[Pair]:
    """Every (question, index) that stands in a whole line of an open segment."""
    lines = [
        parse_line(line)
        for segment in sorted(out.glob("open-*.jsonl"))
        for line in segment.read_text("utf-8").splitlines(keepends=True)
        if line.endswith("\n")
    ]
    return [(line.question_id, line.index) for line in lines]


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


def essence(pool: Pool) -> list[tuple[str, list[tuple[str, int, str | None]]]]:
    """What a recorded pool and its source have in common."""
    return [
        (r.question.text, [(each.text, each.tokens, each.finish_reason) for each in r.responses])
        for r in pool
    ]


class Stopped(BaseException):
    """Not an Exception, so that nobody handles it: as good as a kill."""


def stopping_after(calls: int) -> Callable[[Progress], None]:
    left = iter(range(calls))

    def watch(progress: Progress) -> None:
        if next(left, None) is None:
            raise Stopped

    return watch


# --- whole pools ----------------------------------------------------------------------------------


@pytest.mark.parametrize("honours_n", [True, False])
def test_a_finished_pool_equals_the_recorded_one(
    source: Pool, tmp_path: Path, honours_n: bool
) -> None:
    server = recorded_server(source, honours_n=honours_n)
    pool, progress = recorded(server, source, tmp_path / "pool")
    assert pool is not None
    assert essence(Pool.open(pool.path)) == essence(source)
    assert [r.seed for r in next(iter(pool)).responses] == list(range(RESPONSES))
    assert (progress.done, progress.wanted, progress.resumed) == (128, 128, 0)
    assert progress.completion_tokens == sum(r.tokens for q in source for r in q.responses)
    assert Counter(asked(server)).most_common(1)[0][1] == 1 or not honours_n


def test_the_manifest_keeps_plan_and_counts(source: Pool, tmp_path: Path) -> None:
    pool, _ = recorded(RecordedUpstream(source), source, tmp_path / "pool")
    assert pool is not None
    manifest = Pool.open(pool.path).manifest
    assert (manifest.task, manifest.sampler, manifest.seed) == (NUMERIC, {"model": "m"}, 0)
    assert (manifest.questions, manifest.responses) == (QUESTIONS, QUESTIONS * RESPONSES)
    assert {file.name for file in pool.path.iterdir()} == FINISHED


def test_a_finished_pool_is_not_asked_for_again(source: Pool, tmp_path: Path) -> None:
    recorded(RecordedUpstream(source), source, tmp_path / "pool")
    server = RecordedUpstream(source)
    pool, progress = recorded(server, source, tmp_path / "pool")
    assert pool is not None
    assert (server.calls, progress.resumed, progress.done) == ([], 128, 128)


# --- resuming -------------------------------------------------------------------------------------


def test_it_goes_on_where_it_was(source: Pool, tmp_path: Path) -> None:
    out = tmp_path / "pool"
    with pytest.raises(Stopped):
        recorded(RecordedUpstream(source), source, out, watch=stopping_after(9))
    there = on_disk(out)
    assert 0 < len(there) < 128
    server = RecordedUpstream(source)
    pool, progress = recorded(server, source, out)
    assert pool is not None
    assert (essence(pool), progress.resumed) == (essence(source), len(there))
    assert sorted([*there, *asked(server)]) == sorted({*there, *asked(server)})
    assert len(asked(server)) == 128 - len(there)


def test_what_is_done_is_on_disk(source: Pool, tmp_path: Path) -> None:
    counts: list[tuple[int, int]] = []

    def watch(progress: Progress) -> None:
        counts.append((progress.done, len(on_disk(tmp_path / "pool"))))

    recorded(RecordedUpstream(source), source, tmp_path / "pool", watch=watch)
    assert len(counts) == 32
    assert all(done == held for done, held in counts)


def test_what_an_interrupted_sealing_left_is_swept(source: Pool, tmp_path: Path) -> None:
    out = tmp_path / "pool"
    recorded(recorded_server(source, faults=[Fault.html()]), source, out)
    (out / "responses-00001.jsonl.gz").write_bytes(b"stale")
    (out / "responses-00002.jsonl.gz.partial").write_bytes(b"stale")
    pool, _ = recorded(RecordedUpstream(source), source, out)
    assert pool is not None
    assert {file.name for file in out.iterdir()} == FINISHED


def test_a_half_written_line_is_reported_and_asked_for_again(source: Pool, tmp_path: Path) -> None:
    out = tmp_path / "pool"
    with pytest.raises(Stopped):
        recorded(RecordedUpstream(source), source, out, watch=stopping_after(3))
    segment = out / "open-00000.jsonl"
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-9])
    last = on_disk(out)[-1]
    server = RecordedUpstream(source)
    pool, progress = recorded(server, source, out)
    lines = whole.count(b"\n")
    assert progress.damaged == [f"open-00000.jsonl, line {lines}"]
    assert last not in asked(server)
    assert len(asked(server)) == 128 - lines + 1
    assert pool is not None
    assert essence(pool) == essence(source)


def test_a_line_damaged_in_the_middle_is_named(source: Pool, tmp_path: Path) -> None:
    out = tmp_path / "pool"
    with pytest.raises(Stopped):
        recorded(RecordedUpstream(source), source, out, watch=stopping_after(3))
    segment = out / "open-00000.jsonl"
    first, *rest = segment.read_text("utf-8").splitlines(keepends=True)
    segment.write_text("".join([first[:20] + "\n", *rest]), "utf-8")
    with pytest.raises(PoolError, match=r"open-00000\.jsonl, line 1: damaged"):
        recorded(RecordedUpstream(source), source, out)


def test_failures_are_noted_retried_and_never_stored(source: Pool, tmp_path: Path) -> None:
    out = tmp_path / "pool"
    faults = [None, Fault.status(500), Fault.html(), None, Fault.reset()]
    pool, progress = recorded(recorded_server(source, faults=faults), source, out)
    assert (pool, progress.failures, progress.done) == (None, 12, 116)
    noted = [json.loads(line) for line in (out / "failures.jsonl").read_text().splitlines()]
    failed = {(row["question_id"], row["index"]) for row in noted}
    assert len(failed) == 12
    assert all(row["error"] for row in noted)
    assert not failed & {*on_disk(out)}
    server = RecordedUpstream(source)
    pool, _ = recorded(server, source, out)
    assert {*asked(server)} == failed
    assert pool is not None
    assert essence(pool) == essence(source)
    assert not (out / "failures.jsonl").exists()


def test_a_bad_question_does_not_stop_the_others(source: Pool, tmp_path: Path) -> None:
    faults = [Fault.status(400, "too long")] * 2
    pool, progress = recorded(
        recorded_server(source, faults=faults), source, tmp_path / "pool", concurrency=1
    )
    assert (pool, progress.failures, progress.done) == (None, 4, 124)


@pytest.mark.parametrize("code", [401, 404])
def test_what_is_wrong_for_every_question_ends_it_and_loses_nothing(
    source: Pool, tmp_path: Path, code: int
) -> None:
    out = tmp_path / "pool"
    faults = [*[None] * 8, *[Fault.status(code, "gone")] * 99]
    server = recorded_server(source, faults=faults)
    with pytest.raises(UpstreamError, match="gone"):
        recorded(server, source, out)
    assert len(server.calls) < 14
    assert len(on_disk(out)) == 32
    pool, _ = recorded(RecordedUpstream(source), source, out)
    assert pool is not None
    assert essence(pool) == essence(source)


# --- what is refused ------------------------------------------------------------------------------


OTHERS = [
    replace(PLAN, sampler={"model": "other"}),
    replace(PLAN, seed=1),
    replace(PLAN, task=get_task("gsm8k")),
]
MORE = replace(PLAN, responses=2 * RESPONSES)
FEWER = replace(PLAN, responses=RESPONSES // 2)


@pytest.mark.parametrize(
    ("plan", "finished"),
    [*((plan, whole) for plan in (*OTHERS, FEWER) for whole in (True, False)), (MORE, False)],
)
def test_other_settings_are_refused(
    source: Pool, tmp_path: Path, plan: Plan, finished: bool
) -> None:
    faults = [] if finished else [Fault.html()]
    recorded(recorded_server(source, faults=faults), source, tmp_path / "pool")
    with pytest.raises(UsageError, match="other settings"):
        Recording(tmp_path / "pool", plan, list(source.questions.values())).begin()


def test_other_questions_are_refused(source: Pool, tmp_path: Path) -> None:
    recorded(recorded_server(source, faults=[Fault.html()]), source, tmp_path / "pool")
    asked_now = [replace(question, text="new") for question in source.questions.values()]
    with pytest.raises(UsageError, match="other questions"):
        Recording(tmp_path / "pool", PLAN, asked_now).begin()


def test_a_plan_of_an_older_version_is_the_same_plan(source: Pool, tmp_path: Path) -> None:
    recorded(recorded_server(source, faults=[Fault.html()]), source, tmp_path / "pool")
    file = tmp_path / "pool" / "plan.json"
    fields = json.loads(file.read_text())
    for name in ("system", "pattern", "path", "normalise", "reader"):
        del fields["task"][name]
    file.write_text(json.dumps(fields))
    pool, _ = recorded(RecordedUpstream(source), source, tmp_path / "pool")
    assert pool is not None


def test_a_directory_with_something_else_is_refused(source: Pool, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(UsageError, match="no pool begun by sampling"):
        Recording(tmp_path, PLAN, list(source.questions.values())).begin()
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def test_no_responses_are_refused() -> None:
    with pytest.raises(UsageError, match="responses"):
        Plan(NUMERIC, 0)


# --- kills ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def undisturbed(source: Pool, tmp_path_factory: pytest.TempPathFactory) -> Pool:
    out = tmp_path_factory.mktemp("whole") / "pool"
    pool, _ = recorded(RecordedUpstream(source), source, out)
    assert pool is not None
    return pool


def dying_at(number: int, patch: pytest.MonkeyPatch) -> list[str]:
    """Die at file operation `number`: before it is carried out, or amid it if it writes."""
    done: list[str] = []

    def fatal(name: str) -> Callable[..., Any]:
        honest = getattr(Path, name)

        def operation(self: Path, *arguments: Any, **options: Any) -> Any:
            done.append(f"{name} {self.name}")
            last = len(done) == number
            if last and name == "write_text":
                honest(self, arguments[0][: len(arguments[0]) // 2], "utf-8")
            if last:
                raise Stopped
            return honest(self, *arguments, **options)

        return operation

    for name in ("write_text", "replace", "unlink", "open", "mkdir"):
        patch.setattr(Path, name, fatal(name))
    return done


def test_a_death_at_any_file_operation_loses_nothing(
    source: Pool, undisturbed: Pool, tmp_path: Path
) -> None:
    for number in range(1, 200):
        out = tmp_path / str(number)
        server, again = RecordedUpstream(source), RecordedUpstream(source)
        with pytest.MonkeyPatch.context() as patch:
            done = dying_at(number, patch)
            try:
                recorded(server, source, out, block=16)
                break
            except Stopped:
                pass
        pool, _ = recorded(again, source, out, block=16)
        assert pool is not None, done[-1]
        assert content(pool) == content(undisturbed), done[-1]
        assert pool.manifest.as_json().keys() == undisturbed.manifest.as_json().keys()
        assert {file.name for file in out.iterdir()} == FINISHED, done[-1]
    assert len(done) < number
    assert number > 12


@pytest.fixture(scope="module")
def questions(source: Pool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("questions") / "questions.jsonl"
    rows = ({"id": q.id, "question": q.text, "answer": "1"} for q in source.questions.values())
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return file


def sample_command(questions: Path, url: str, out: Path) -> list[str]:
    fixed = f"--model m --task numeric --responses {RESPONSES} --block 1 --concurrency 3".split()
    return ["sample", str(questions), "--base-url", url, "--out", str(out), *fixed]


class Killed:
    """`aera sample` in a process of its own, killed a moment after its calls reach the server."""

    def __init__(self, server: Server, command: list[str], chance: random.Random) -> None:
        self._server, self._chance = server, chance
        self._command = [sys.executable, "-m", "aera", *command]

    def run(self) -> bool:
        """Whether the kill came before the end."""
        seen = len(self._server.calls) + self._chance.randint(1, 4)
        with subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            while process.poll() is None and len(self._server.calls) < seen:
                time.sleep(0.001)
            time.sleep(self._chance.random() / 50)
            process.send_signal(signal.SIGKILL)
        return process.returncode == -signal.SIGKILL

    def finish(self) -> None:
        done = subprocess.run(
            self._command, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr


def test_twenty_kills_in_a_row_lose_nothing_and_ask_for_nothing_twice(
    source: Pool, questions: Path, tmp_path: Path
) -> None:
    out, whole = tmp_path / "pool", tmp_path / "whole"
    server = RecordedUpstream(source, pace=0.5)
    with in_background(server):
        killed = Killed(server, sample_command(questions, server.base_url, out), random.Random(4))
        held: set[Pair] = set()
        for number in range(20):
            before = len(server.calls)
            assert killed.run(), f"finished before kill {number}"
            assert not held & {*asked(server)[before:]}
            held = {*on_disk(out)}
        before = len(server.calls)
        assert 20 < len(held) < QUESTIONS * RESPONSES
        killed.finish()
        assert sorted([*held, *asked(server)[before:]]) == sorted(
            (question, index) for question in source.questions for index in range(RESPONSES)
        )
        Killed(server, sample_command(questions, server.base_url, whole), random.Random()).finish()
    assert_equal_pools(out, whole)


def assert_equal_pools(one: Path, other: Path) -> None:
    """Everything but the latencies, and the hashes of what holds them, is the same."""
    assert content(Pool.open(one)) == content(Pool.open(other))
    for name in ("questions.jsonl", "truths.jsonl", "plan.json"):
        assert (one / name).read_bytes() == (other / name).read_bytes()
    manifests = [Pool.open(path).manifest for path in (one, other)]
    assert replace(manifests[0], hashes={}) == replace(manifests[1], hashes={})
    assert {file.name for file in one.iterdir()} == {file.name for file in other.iterdir()}


DYING = """
import os, signal, sys
from pathlib import Path
fatal, honest = sys.argv.pop(1), Path.replace
def replace(self, target):
    if Path(target).name == fatal:
        os.kill(os.getpid(), signal.SIGKILL)
    return honest(self, target)
Path.replace = replace
from aera.cli import main
main()
"""


@pytest.fixture(scope="module")
def background(source: Pool) -> Iterator[Server]:
    with in_background(RecordedUpstream(source)) as server:
        yield server


@pytest.mark.parametrize("file", ["responses-00000.jsonl.gz", "manifest.json"])
def test_a_kill_while_sealing_asks_for_nothing_again(
    background: Server, source: Pool, questions: Path, tmp_path: Path, file: str
) -> None:
    command = sample_command(questions, background.base_url, tmp_path / "pool")
    dying = [sys.executable, "-c", DYING, file, *command]
    done = subprocess.run(dying, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "pool" / f"{file}.partial").exists()
    before = len(background.calls)
    Killed(background, command, random.Random()).finish()
    assert len(background.calls) == before
    assert essence(Pool.open(tmp_path / "pool")) == essence(source)
