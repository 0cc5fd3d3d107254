"""A headless Chromium that is told what to do: evaluate, press keys, take pictures."""

import asyncio
import itertools
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = shutil.which("chromium")
QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--remote-debugging-port=0"),
)


class Tab:
    """One page, what it logged and what it asked the network for."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.logged: list[str] = []
        self.requested: list[str] = []
        self._socket = socket
        self._numbers = itertools.count(1)
        self._replies: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for message in self._socket:
            told = json.loads(message.data)
            if "id" in told:
                self._replies.pop(told["id"]).set_result(told)
            elif told["method"] in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
                self.logged.append(json.dumps(told["params"]))
            elif told["method"] == "Log.entryAdded":
                self.logged.append(told["params"]["entry"]["text"])
            elif told["method"] == "Network.requestWillBeSent":
                self.requested.append(told["params"]["request"]["url"])

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol, with its result."""
        number = next(self._numbers)
        self._replies[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        told = await asyncio.wait_for(self._replies[number], 120)
        assert "error" not in told, told
        result: dict[str, Any] = told["result"]
        return result

    async def open(self, address: str) -> None:
        """Go there and wait until the page says that it is ready."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=address)
        for _ in range(200):
            if await self.value("document.body?.dataset.ready === 'yes'"):
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"{address} did not become ready: {self.logged}")

    async def value(self, script: str) -> Any:
        """What a script evaluates to."""
        told = await self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    async def press(self, key: str, code: int) -> None:
        """One key, down and up."""
        for kind in ("rawKeyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code
            )

    async def look(self, width: int, scheme: str = "light") -> None:
        """Another size of the window, light or dark."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.call("Emulation.setEmulatedMedia", features=features)

    async def close(self) -> None:
        """Stop listening."""
        await self._socket.close()
        await self._listening


@asynccontextmanager
async def browser_tab(profile: Path) -> AsyncIterator[Tab]:
    """A tab of a browser of its own, ended afterwards."""
    process = await asyncio.create_subprocess_exec(
        *(str(CHROMIUM), *QUIET, f"--user-data-dir={profile}", "about:blank"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        port = await _port(profile / "DevToolsActivePort")
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json") as reply:
                pages = [page for page in await reply.json() if page["type"] == "page"]
            address = pages[0]["webSocketDebuggerUrl"]
            async with session.ws_connect(address, max_msg_size=0) as socket:
                tab = Tab(socket)
                yield tab
                await tab.close()
    finally:
        process.terminate()
        await process.wait()


async def _port(file: Path) -> str:
    """Where the browser listens; it writes the file once it does."""
    for _ in range(200):
        if file.exists() and (lines := file.read_text("utf-8").splitlines()):
            return lines[0]
        await asyncio.sleep(0.1)
    raise AssertionError("chromium did not start")
