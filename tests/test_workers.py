import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from aera.errors import RunError, UpstreamError, UsageError
from aera.reading.equivalence import Worker
from aera.workers import SERIAL, Processes, RayWorkers, Workers, parse_workers, run_in_order

HANGING = "\\frac{5^{(5^{(5^{(5^5)})}-4)}-5}{16}"


def squared(number: int) -> int:
    return number * number


def refusing(number: int) -> int:
    raise UpstreamError(f"not {number}", status=401, retry_after=2.0)


def dying_once(number: int, *, folder: Path) -> int:
    """Kill the worker the first time number 3 is worked on."""
    mark = folder / "died"
    if number == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def dying(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def process_number(part: int) -> int:
    return os.getpid()


def staying(number: int, process: int | None = None) -> int:
    """Say which process this is, and stay."""
    os.write(1, f"{process or os.getpid()}\n".encode())
    time.sleep(60)
    return number


def comparing(answer: str) -> None:
    """Stay while another process compares expressions."""
    worker = Worker()
    worker.pipe.send(([answer, "q"], 1.0))
    staying(0, worker.process.pid)


@pytest.mark.parametrize("workers", [SERIAL, Processes(2)])
def test_results_come_in_order_and_an_error_as_it_was_raised(workers: Workers) -> None:
    assert [*workers.map(squared, range(20))] == [n * n for n in range(20)]
    assert [*workers.map(squared, [])] == []
    with pytest.raises(UpstreamError, match=r"^upstream 401: not 0$") as caught:
        [*workers.map(refusing, range(3))]
    assert (caught.value.final, caught.value.retry_after) == (True, 2.0)


def test_processes_stay_for_the_next_work() -> None:
    first, second = ({*Processes(2).map(process_number, range(20))} for _ in range(2))
    assert first & second


def test_a_part_whose_process_died_is_worked_on_again(tmp_path: Path) -> None:
    done = Processes(2).map(partial(dying_once, folder=tmp_path), range(8))
    assert [*done] == [*range(8)]
    assert (tmp_path / "died").exists()


def test_a_part_that_kills_every_process_is_given_up() -> None:
    with pytest.raises(RunError, match="died 3 times"):
        [*Processes(1).map(dying, range(2))]


def gone(pid: int) -> bool:
    """Whether a process has ended; a zombie that nobody collects has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at /proc")
@pytest.mark.parametrize(
    "started",
    ["[*Processes(1).map(staying, range(2))]", "comparing('1+q')", f"comparing({HANGING!r})"],
)
def test_a_process_ends_with_the_one_that_started_it(started: str) -> None:
    code = f"import sys; sys.path.insert(0, sys.argv[1]); from test_workers import *; {started}"
    command = [sys.executable, "-c", code, str(Path(__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        worker = int(parent.stdout.readline())
        parent.kill()
    until = time.monotonic() + 120
    while not gone(worker):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_no_more_parts_are_begun_than_are_waited_for() -> None:
    begun: list[int] = []

    def begin(part: int) -> int:
        begun.append(part)
        return part

    results = run_in_order(begin, squared, range(100), ahead=4)
    assert next(results) == 0
    assert begun == [0, 1, 2, 3]
    assert [*results][-1] == 99 * 99


def test_workers_have_names() -> None:
    assert parse_workers("1") is SERIAL
    assert parse_workers("3") == Processes(3)
    assert parse_workers("ray") == RayWorkers()
    assert parse_workers("ray:head:6379") == RayWorkers("head:6379")


@pytest.mark.parametrize("name", ["", "0", "-1", "dask", "rays"])
def test_other_names_are_refused_in_one_sentence(name: str) -> None:
    with pytest.raises(UsageError):
        parse_workers(name)
