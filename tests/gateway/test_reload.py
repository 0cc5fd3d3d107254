"""Another configuration while requests are under way: by signal, refused, and back again."""

import asyncio
import http.client
import json
import signal
import threading
import time
import urllib.request
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from fakes import FakeUpstream
from gateways import BODY, House, ask, free_port, housed, served, settings_of
from live import boxed, controller_of, in_background

from aera import Fixed
from aera.errors import UsageError
from aera.gateway.configuration import Configuration
from aera.gateway.settings import ClientKey, GatewaySettings, KeyLimits
from aera.sampling.upstream import Endpoint

CHAT = "/v1/chat/completions"
KEY = "the-only-key-of-all"
BEARER = {"headers": {"Authorization": f"Bearer {KEY}"}}


class Shelf:
    """Where settings are read from again."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings: GatewaySettings | None = settings
        self.broken: Exception = UsageError("the file is broken")
        self.configuration = Configuration(settings, self.load)

    def load(self) -> GatewaySettings:
        if self.settings is None:
            raise self.broken
        return self.settings

    def change(self, **model: Any) -> None:
        assert self.settings is not None
        own = replace(self.settings.models[0], **model)
        self.settings = replace(self.settings, models=(own,))


def at(server: FakeUpstream, **settings: Any) -> Shelf:
    return Shelf(settings_of((Endpoint(server.base_url, None),), **settings))


async def samples(house: House) -> int:
    return int((await house.post(BODY))[2]["aera"]["samples"])


def test_new_requests_get_the_new_and_those_under_way_end_on_the_old() -> None:
    async def scene() -> Any:
        async with FakeUpstream(boxed, delay=lambda call: 0.3) as old, FakeUpstream(boxed) as new:
            shelf = at(old)
            async with housed(shelf.configuration) as house:
                application = house.server.application
                first = asyncio.create_task(house.post(BODY))
                while not old.calls:
                    await asyncio.sleep(0.01)
                shelf.change(
                    upstreams=(Endpoint(new.base_url, None),), controller=controller_of(Fixed(8))
                )
                await application.reload()
                opened = application._connections._opened
                both = len(opened)
                second = await samples(house)
                status, _, told = await first
                await asyncio.sleep(0.05)
                state = json.loads((await house.get("/state"))[1])
                return second, status, told["aera"]["samples"], both, len(opened), state

    second, status, first, both, left, state = asyncio.run(scene())
    assert (second, status, first) == (8, 200, 4)
    assert (both, left) == (2, 1)
    assert (state["generation"], state["policy"], len(state["latest"])) == (2, "fixed-8", 2)
    assert abs(state["since"] - time.time()) < 60


def test_servers_that_stay_keep_their_connections() -> None:
    async def scene() -> bool:
        async with FakeUpstream(boxed) as server:
            shelf = at(server)
            async with housed(shelf.configuration) as house:
                application = house.server.application
                before = application.serving.models["m"].opened
                await application.reload()
                await asyncio.sleep(0.05)  # the former settings retire
                return before is application.serving.models["m"].opened and before.users == 1

    assert asyncio.run(scene())


def test_what_cannot_be_served_is_refused_and_the_way_back_is_open() -> None:
    async def scene() -> Any:
        async with FakeUpstream(boxed) as server:
            shelf, told = at(server), []
            async with housed(shelf.configuration) as house:
                application = house.server.application
                await application.reload(back=True)  # there is nothing before
                shelf.change(controller=controller_of(Fixed(8)))
                await application.reload()
                shelf.settings = None
                for broken in (shelf.broken, FileNotFoundError(2, "gone", "x"), KeyError("x")):
                    shelf.broken = broken
                    await application.reload()
                told.append(await samples(house))
                await application.reload(back=True)
                told.append(await samples(house))
                await application.reload(back=True)
                told.append(await samples(house))
                return told, dict(application.telemetry.counts)

    told, counts = asyncio.run(scene())
    assert told == [8, 4, 8]
    ended = {key[1]: count for key, count in counts.items() if key[0] == "reloads"}
    assert ended == {"taken": 1, "refused": 4, "back": 2}


def test_what_a_key_has_used_stays_used() -> None:
    async def scene() -> Any:
        async with FakeUpstream(boxed) as server:
            shelf = at(server, keys=(KEY,), key_limits=KeyLimits(requests_per_minute=3))
            async with housed(shelf.configuration) as house:
                statuses = [(await house.post(BODY, **BEARER))[0] for _ in range(2)]
                assert shelf.settings is not None
                more = ClientKey(KEY, KeyLimits(requests_per_minute=4))
                shelf.settings = replace(shelf.settings, keys=(more,))
                await house.server.application.reload()
                return statuses + [(await house.post(BODY, **BEARER))[0] for _ in range(3)]

    assert asyncio.run(scene()) == [200, 200, 200, 200, 429]


# --- as a process ---------------------------------------------------------------------------------

FILE = """
[[upstream]]
name = "gpu"
url = "{url}"
concurrency = {calls}

[[model]]
name = "m"
policy = "fixed-{samples}"
"""


class Asking:
    """Clients that ask without a pause, each on a connection of its own."""

    def __init__(self, port: int, count: int = 4) -> None:
        self.port, self.over, self.seen = port, False, Counter[Any]()
        self.threads = [threading.Thread(target=self._ask, args=(i,)) for i in range(count)]
        for thread in self.threads:
            thread.start()

    def _ask(self, number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        body = json.dumps({**BODY, "model": "m" if number % 2 else "aera/m"})
        while not self.over:
            try:
                connection.request("POST", CHAT, body, {"Content-Type": "application/json"})
                reply = connection.getresponse()
                reply.read()
                self.seen[reply.status] += 1
            except (OSError, http.client.HTTPException) as error:
                self.seen[repr(error)] += 1
                connection.close()
        connection.close()

    def stop(self) -> Counter[Any]:
        self.over = True
        for thread in self.threads:
            thread.join(20)
        return self.seen


def count_reloads(port: int) -> int:
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    rows = [line for line in text.splitlines() if line.startswith("aera_reloads_total")]
    return int(sum(float(row.split()[-1]) for row in rows))


def wait_for_reloads(port: int, count: int) -> None:
    end = time.monotonic() + 20
    while count_reloads(port) < count and time.monotonic() < end:
        time.sleep(0.01)


def test_thirty_reloads_under_load_drop_nothing(tmp_path: Path) -> None:
    port, file = free_port(), tmp_path / "gateway.toml"
    with in_background(FakeUpstream(boxed)) as server:
        text = FILE.format(url=server.base_url, calls=64, samples=1)
        file.write_text(text)
        with served(port, AERA_CONFIG=str(file), AERA_LOG_LEVEL="error") as process:
            asking = Asking(port)
            for number in range(1, 31):
                calls, samples = 64 + number % 2, 1 + number % 3
                text = FILE.format(url=server.base_url, calls=calls, samples=samples)
                file.write_text("[[model" if number % 10 == 9 else text)
                process.send_signal(signal.SIGHUP)
                wait_for_reloads(port, number)
            process.send_signal(signal.SIGUSR1)
            wait_for_reloads(port, 31)
            seen = asking.stop()
            state = ask(port, "/state")[1]
    assert list(seen) == [200]
    assert seen[200] > 100
    assert (state["generation"], state["policy"]) == (29, "fixed-2")  # the 29th file was broken


def test_a_file_of_keys_is_read_again(tmp_path: Path) -> None:
    port, file, other = free_port(), tmp_path / "keys", "another-key-of-some-length"
    file.write_text(f"# ours\n{KEY}\n\n")
    with in_background(FakeUpstream(boxed)) as server:
        variables = {"AERA_UPSTREAM": server.base_url, "AERA_KEYS_FILE": str(file)}
        with served(port, **variables) as process:
            before = [ask(port, CHAT, BODY, key=key)[0] for key in (KEY, other)]
            file.write_text(f"{other}\n")
            process.send_signal(signal.SIGHUP)
            wait_for_reloads(port, 1)
            after = [ask(port, CHAT, BODY, key=key)[0] for key in (KEY, other)]
            file.write_text("short\n")
            process.send_signal(signal.SIGHUP)
            wait_for_reloads(port, 2)
            still = ask(port, CHAT, BODY, key=other)[0]
            process.kill()
            said = process.stderr.read() if process.stderr else ""
    assert (before, after, still) == ([200, 401], [401, 200], 200)
    [line] = [line for line in said.splitlines() if "configuration refused" in line]
    assert "has 5 characters" in json.loads(line)["why"]
