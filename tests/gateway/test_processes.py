"""Several processes on one port: one set of numbers, also when one of them is killed."""

import asyncio
import fcntl
import os
import signal
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeUpstream
from gateways import BODY, ask, free_port, served
from live import boxed, in_background
from prometheus_client.parser import text_string_to_metric_families

from aera.gateway.board import SLOTS, SharedCounts, SharedTelemetry, read_counts
from aera.gateway.supervisor import PREFIX, sweep
from aera.sampling.replicas import Replicas
from aera.sampling.upstream import Endpoint

CHAT = "/v1/chat/completions"


def children(number: int) -> list[int]:
    return list(map(int, Path(f"/proc/{number}/task/{number}/children").read_text().split()))


def numbers(port: int) -> dict[Any, float]:
    """The metrics, by name and labels."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_counters_of_a_killed_process_are_not_lost() -> None:
    port = free_port()
    with in_background(FakeUpstream(boxed)) as server:
        variables = {"AERA_UPSTREAM": server.base_url, "AERA_LOG_LEVEL": "error"}
        with served(port, "--processes", "2", **variables) as process:
            for number in range(300):
                if number == 150:
                    victim = children(process.pid)[0]
                    os.kill(victim, signal.SIGKILL)
                    while victim in children(process.pid):
                        time.sleep(0.01)
                status, _ = ask(port, CHAT, {**BODY, "model": "aera/m" if number % 2 else "m"})
                assert status == 200
            seen, state = numbers(port), ask(port, "/state")[1]
            process.send_signal(signal.SIGHUP)
            end = time.monotonic() + 10
            while (again := ask(port, "/state")[1])["generation"] < 2 or len(again["latest"]) < 75:
                assert time.monotonic() < end
            process.send_signal(signal.SIGTERM)
            assert process.wait(15) == 0
    assert seen["aera_requests_total", "m", "chat", "200"] == 300
    assert seen["aera_samples_total",] == 150 * 4
    assert seen["aera_samples_per_question_count",] == 150
    assert seen["aera_samples_per_question_sum",] == 600
    assert (state["generation"], again["generation"]) == (1, 2)
    assert 75 <= len(again["latest"]) <= 150  # the killed one may not have shown its last second


def test_requests_under_way_end_when_all_are_told_to_stop() -> None:
    port = free_port()
    with in_background(FakeUpstream(boxed, delay=lambda call: 60.0)) as server:
        variables = {"AERA_UPSTREAM": server.base_url, "AERA_DRAIN_SECONDS": "0.3"}
        with served(port, "--processes", "2", **variables) as process:
            told: list[Any] = []
            asking = threading.Thread(target=lambda: told.append(ask(port, CHAT, BODY)))
            asking.start()
            while not server.calls:
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            assert process.wait(15) == 1
            asking.join(10)
    assert (told[0][0], told[0][1]["error"]["code"]) == (503, "stopping")


def test_processes_leave_when_their_supervisor_is_gone() -> None:
    port = free_port()
    with (
        in_background(FakeUpstream(boxed)) as server,
        served(port, "--processes", "2", AERA_UPSTREAM=server.base_url) as process,
    ):
        family = children(process.pid)
        process.kill()
        end = time.monotonic() + 10
        while any(Path(f"/proc/{n}").exists() for n in family) and time.monotonic() < end:
            time.sleep(0.05)
        left = [n for n in family if Path(f"/proc/{n}").exists()]
    assert len(family) == 2
    assert left == []


def test_a_process_that_is_told_to_stop_at_once_has_a_successor() -> None:
    port = free_port()
    with (
        in_background(FakeUpstream(boxed)) as server,
        served(port, "--processes", "2", AERA_UPSTREAM=server.base_url) as process,
    ):
        os.kill(children(process.pid)[0], signal.SIGKILL)  # its successor is young
        end = time.monotonic() + 10
        first = children(process.pid)
        while len(young := children(process.pid)) < 2 or young == first:
            assert time.monotonic() < end
            time.sleep(0.01)
        os.kill(young[-1], signal.SIGTERM)
        while young[-1] in children(process.pid):
            time.sleep(0.01)
        while len(children(process.pid)) < 2:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert ask(port, CHAT, BODY)[0] == 200


def test_folders_of_gateways_that_were_killed_are_swept_away(tmp_path: Path) -> None:
    left, lives, fresh = (tmp_path / f"{PREFIX}{name}" for name in ("left", "lives", "fresh"))
    for folder in (left, lives, fresh):
        folder.mkdir()
        (folder / "0.names").touch()
    for folder in (left, lives):
        os.utime(folder, (1.0, 1.0))
    held = os.open(lives, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)
    sweep(tmp_path)
    os.close(held)
    assert sorted(tmp_path.iterdir()) == sorted([fresh, lives])


# --- the numbers in files -------------------------------------------------------------------------


def test_who_comes_after_counts_on(tmp_path: Path) -> None:
    first = SharedTelemetry(tmp_path, "0")
    first.counts["requests", "chat", "200"] += 2
    first.voting.observe(0.7)
    first.active = 3
    first.latest.append({"time": 1.0})
    first.publish()
    other = SharedTelemetry(tmp_path, "1")
    other.counts["requests", "chat", "200"] += 5
    other.voting.observe(700)
    after = SharedTelemetry(tmp_path, "0")
    after.counts["requests", "chat", "200"] += 1
    after.active += 1
    seen = other.merged()
    assert seen.counts["requests", "chat", "200"] == 8
    assert (sum(seen.voting.counts), seen.voting.sum, seen.active) == (2, 700.7, 1)
    assert list(seen.latest) == [{"time": 1.0}]


def test_a_replica_that_is_asked_no_more_has_no_gauges(tmp_path: Path) -> None:
    async def look() -> tuple[Any, ...]:
        endpoints = (Endpoint("http://127.0.0.1:1/v1"),)
        async with Replicas(endpoints) as replicas:
            one, other = SharedTelemetry(tmp_path, "0"), SharedTelemetry(tmp_path, "1")
            seen = []
            for upstreams in ({"m": replicas, "k": replicas}, {"m": replicas}):
                for each in (one, other):
                    each.upstreams = upstreams
                    each.publish()
                seen.append(one.merged().gauges())
            seen.append(SharedTelemetry(tmp_path, "1").merged().gauges())
            return tuple(
                {key[1]: v for key, v in g.items() if key[0] == "upstream_permits"} for g in seen
            )

    before, after, successor = asyncio.run(look())
    assert before.keys() == {"m", "k"}
    assert after.keys() == {"m"}
    assert (after["m"], successor["m"]) == (before["m"], before["m"] / 2)


@pytest.mark.parametrize("count", [1, SLOTS, 3 * SLOTS])
def test_there_is_room_for_any_number_of_names(tmp_path: Path, count: int) -> None:
    counts = SharedCounts(tmp_path, "0")
    for number in range(count):
        counts["requests", str(number)] += number + 1
    counts["requests", "0"] += 1
    read = read_counts(tmp_path, "0")
    assert read == dict(counts)
    assert (read["requests", "0"], read["requests", str(count - 1)]) == (2, count + (count == 1))
