"""A pool gathered by many workers is the pool one would have recorded."""

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from fakes import FakeUpstream
from live import boxed, in_background

from aera import Chat, Endpoint, OpenAISampler, Pool, Question, Response, get_task
from aera.errors import PoolError, UsageError
from aera.sampling.gathering import gather
from aera.sampling.plan import Plan
from aera.sampling.recording import Recording, record
from aera.workers import SERIAL, Processes, Workers

TASK = get_task("numeric")
QUESTIONS = [Question(f"q{i}", f"what is {i}?") for i in range(6)]
PLAN = Plan(TASK, 8, {"model": "m"}, 0)


@dataclass(frozen=True)
class Ledger:
    """A sampler that notes every response it is asked for, and can die or fail."""

    folder: Path
    dies_at: str | None = None
    fails_at: str | None = None
    slow: float = 0.0

    async def __aenter__(self) -> "Ledger":
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    async def sample(
        self, question: Question, n: int, *, start: int = 0, deadline: float | None = None
    ) -> list[Response]:
        place = f"{question.id}-{start}"
        mark = self.folder / f"mark-{place}"
        if place == self.dies_at and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if place == self.fails_at and not mark.exists():
            mark.touch()
            return [Response("", error="no") for _ in range(n)]
        await asyncio.sleep(self.slow)
        with (self.folder / "asked").open("a") as file:
            file.write("".join(f"{question.id} {index}\n" for index in range(start, start + n)))
        return [Response(f"\\boxed{{{start + i}}}", tokens=start + i) for i in range(n)]

    @property
    def asked(self) -> list[str]:
        return sorted((self.folder / "asked").read_text().split("\n")[:-1])


EVERYTHING = sorted(f"{question.id} {index}" for question in QUESTIONS for index in range(8))


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("aera.sampling.gathering", "aera.pools.record"):
        monkeypatch.setattr(f"{module}.SEGMENT_RESPONSES", 16)


@pytest.fixture
def ledger(tmp_path: Path) -> Callable[..., Ledger]:
    folder = tmp_path / "ledger"
    folder.mkdir()
    return partial(Ledger, folder)


def gathered(path: Path, ledger: Ledger, workers: Workers = SERIAL) -> Pool | None:
    connect = partial(Ledger, ledger.folder, ledger.dies_at, ledger.fails_at)
    return gather(path, PLAN, QUESTIONS, connect=connect, workers=workers, concurrency=1, block=4)


def files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


@pytest.mark.parametrize("workers", [SERIAL, Processes(2)])
def test_the_pool_is_byte_for_byte_what_one_worker_records(
    workers: Workers, tmp_path: Path, ledger: Callable[..., Ledger]
) -> None:
    (tmp_path / "apart").mkdir()
    alone = Recording(tmp_path / "one", PLAN, QUESTIONS)
    alone.begin()
    asyncio.run(record(alone, Ledger(tmp_path / "apart")))
    assert gathered(tmp_path / "many", ledger(), workers) is not None
    assert files(tmp_path / "many") == files(tmp_path / "one")


def test_a_worker_that_is_killed_neither_loses_nor_repeats_a_response(
    tmp_path: Path, ledger: Callable[..., Ledger]
) -> None:
    book = ledger(dies_at="q3-4")
    pool = gathered(tmp_path / "pool", book, Processes(1))
    assert pool is not None
    assert book.asked == EVERYTHING
    assert sum(len(record.responses) for record in pool) == len(EVERYTHING)


def test_what_failed_is_asked_for_again_next_time(
    tmp_path: Path, ledger: Callable[..., Ledger]
) -> None:
    book = ledger(fails_at="q2-4")
    assert gathered(tmp_path / "pool", book) is None
    with pytest.raises(PoolError, match="is not finished; run aera sample again"):
        Pool.open(tmp_path / "pool")
    assert gathered(tmp_path / "pool", book) is not None
    assert book.asked == EVERYTHING


def test_a_whole_pool_is_not_sampled_again(tmp_path: Path, ledger: Callable[..., Ledger]) -> None:
    for _ in range(2):
        assert gathered(tmp_path / "pool", ledger()) is not None
    assert ledger().asked == EVERYTHING
    assert not (tmp_path / "pool" / "parts").exists()


@pytest.mark.parametrize("step", ["file_hash", "_clear"])
def test_joining_that_was_interrupted_is_done_again(
    step: str, tmp_path: Path, ledger: Callable[..., Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(f"aera.sampling.gathering.{step}", lambda path: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            gathered(tmp_path / "pool", ledger())
    assert gathered(tmp_path / "pool", ledger()) is not None
    assert ledger().asked == EVERYTHING
    assert (tmp_path / "pool" / "plan.json").exists()
    assert not (tmp_path / "pool" / "parts").exists()


def test_other_questions_or_settings_are_refused(
    tmp_path: Path, ledger: Callable[..., Ledger]
) -> None:
    assert gathered(tmp_path / "pool", ledger(fails_at="q0-0")) is None
    connect = partial(Ledger, tmp_path / "ledger")
    with pytest.raises(UsageError, match="other settings"):
        gather(tmp_path / "pool", Plan(TASK, 8, {}, 1), QUESTIONS, connect=connect)
    with pytest.raises(UsageError, match="more questions"):
        gather(tmp_path / "pool", PLAN, QUESTIONS[:2], connect=connect)


def test_a_whole_pool_of_other_questions_or_settings_is_refused(
    tmp_path: Path, ledger: Callable[..., Ledger]
) -> None:
    assert gathered(tmp_path / "pool", ledger()) is not None
    connect, before = partial(Ledger, tmp_path / "ledger"), files(tmp_path / "pool")
    others = [Question(f"q{i}", "what else?") for i in range(6)]
    with pytest.raises(UsageError, match="other settings"):
        gather(tmp_path / "pool", Plan(TASK, 4, {"model": "m"}, 0), QUESTIONS, connect=connect)
    with pytest.raises(UsageError, match="other questions"):
        gather(tmp_path / "pool", PLAN, others, connect=connect)
    assert files(tmp_path / "pool") == before


def test_a_whole_pool_is_grown_by_one_worker(tmp_path: Path, ledger: Callable[..., Ledger]) -> None:
    assert gathered(tmp_path / "pool", ledger()) is not None
    connect, before = partial(Ledger, tmp_path / "ledger"), files(tmp_path / "pool")
    more = [*QUESTIONS, Question("q6", "what is 6?")]
    for plan, asked in ((Plan(TASK, 16, {"model": "m"}, 0), QUESTIONS), (PLAN, more)):
        with pytest.raises(UsageError, match="grown by one worker; run it without --workers"):
            gather(tmp_path / "pool", plan, asked, connect=connect, workers=Processes(2))
    assert files(tmp_path / "pool") == before


@pytest.mark.parametrize("there", ["manifest.json", "notes.txt"])
def test_what_was_not_begun_by_sampling_is_left_alone(
    there: str, tmp_path: Path, ledger: Callable[..., Ledger]
) -> None:
    (tmp_path / "pool").mkdir()
    (tmp_path / "pool" / there).write_text("{}")
    with pytest.raises(UsageError, match="no pool begun by sampling"):
        gathered(tmp_path / "pool", ledger())
    assert files(tmp_path / "pool") == {there: b"{}"}


def test_a_pool_begun_by_many_is_left_to_them(
    tmp_path: Path, ledger: Callable[..., Ledger]
) -> None:
    assert gathered(tmp_path / "pool", ledger(fails_at="q0-0")) is None
    with pytest.raises(UsageError, match="begun with several workers"):
        Recording(tmp_path / "pool", PLAN, QUESTIONS).begin()


def test_a_pool_begun_by_one_worker_is_left_to_it(
    tmp_path: Path, ledger: Callable[..., Ledger]
) -> None:
    begun = Recording(tmp_path / "pool", PLAN, QUESTIONS)
    begun.begin()
    begun.close()
    with pytest.raises(UsageError, match="without --workers"):
        gathered(tmp_path / "pool", ledger())


def test_workers_bring_their_own_connections_to_a_model_server(tmp_path: Path) -> None:
    with in_background(FakeUpstream(boxed)) as server:
        chat = Chat("m", TASK, {"seed": 0})
        connect = partial(OpenAISampler, Endpoint(server.base_url), chat)
        pool = gather(tmp_path, PLAN, QUESTIONS, connect=connect, workers=Processes(2))
        assert pool is not None
        assert {response.text for record in pool for response in record.responses} == {
            "so it is \\boxed{7}"
        }
        assert sum(call.n for call in server.calls) == len(EVERYTHING)
