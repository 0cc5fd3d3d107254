import os
import pickle
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from aera.errors import RunError, UpstreamError, UsageError
from aera.workers import SERIAL, Processes, RayWorkers, Workers, parse_workers, run_in_order


def squared(number: int) -> int:
    return number * number


def refusing(number: int) -> int:
    raise UpstreamError(f"not {number}", status=401)


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


def test_processes_stay_for_the_next_work() -> None:
    workers = Processes(2)
    first = {*workers.map(process_number, range(20))}
    assert {*workers.map(process_number, range(20))} & first


def sleeping(number: int, *, folder: Path) -> int:
    """Say which process this is, and stay."""
    (folder / "pid").write_text(str(os.getpid()))
    time.sleep(60)
    return number


@pytest.mark.parametrize("workers", [SERIAL, Processes(2)])
def test_results_come_in_the_order_of_the_parts(workers: Workers) -> None:
    assert [*workers.map(squared, range(20))] == [n * n for n in range(20)]
    assert [*workers.map(squared, [])] == []


@pytest.mark.parametrize("workers", [SERIAL, Processes(2)])
def test_an_error_comes_back_as_it_was_raised(workers: Workers) -> None:
    with pytest.raises(UpstreamError, match=r"^upstream 401: not 0$") as caught:
        [*workers.map(refusing, range(3))]
    assert caught.value.final


def test_an_upstream_error_survives_a_journey() -> None:
    error = UpstreamError("no", status=429, kind="rate", retry_after=2.0)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.retry_after, again.message) == (str(error), 2.0, "no")


def test_a_part_whose_process_died_is_worked_on_again(tmp_path: Path) -> None:
    done = Processes(2).map(partial(dying_once, folder=tmp_path), range(8))
    assert [*done] == [*range(8)]
    assert (tmp_path / "died").exists()


def test_a_part_that_kills_every_process_is_given_up() -> None:
    with pytest.raises(RunError, match="died 3 times"):
        [*Processes(1).map(dying, range(2))]


def test_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from test_workers import *\n"
        "if __name__ == '__main__':\n"
        "    [*Processes(1).map(partial(sleeping, folder=Path(sys.argv[2])), range(2))]\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    command = [sys.executable, str(script), str(Path(__file__).parent), str(tmp_path)]
    with subprocess.Popen(command) as parent:
        while not (name := (tmp_path / "pid")).exists() or not name.read_text():
            time.sleep(0.05)
        parent.kill()
    until = time.monotonic() + 10
    while Path(f"/proc/{name.read_text()}").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not Path(f"/proc/{name.read_text()}").exists()


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
