"""The gateway's page in a real browser, offline."""

import asyncio
import re
import subprocess
from pathlib import Path

import aiohttp
import pytest
from browser import CHROMIUM, QUIET
from fakes import FakeUpstream
from gateways import config_of

from aera import ASC, Controller, Schedule, get_task
from aera.gateway.app import GatewayServer, bind

LOGGING = ["--enable-logging=stderr", "--virtual-time-budget=4000"]
OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"


async def browsed(profile: Path) -> tuple[str, str]:
    """The page's final DOM and what the browser logged, after three votes."""
    controller = Controller(get_task("numeric"), Schedule((4, 8)), ASC(0.95))
    async with FakeUpstream(lambda call, place: "\\boxed{7}") as upstream:
        config = config_of([upstream.base_url], controller=controller, audit_share=1.0)
        server, listening = GatewayServer(config), bind("127.0.0.1", 0)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started:
            await asyncio.sleep(0.02)
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        body = {"model": "aera/m", "messages": [{"role": "user", "content": "3 + 4?"}]}
        async with aiohttp.ClientSession() as session:
            for _ in range(3):
                async with session.post(f"{address}/v1/chat/completions", json=body) as reply:
                    assert reply.status == 200
        command = [
            str(CHROMIUM),
            *QUIET,
            *LOGGING,
            OFFLINE,
            f"--user-data-dir={profile}",
            "--dump-dom",
        ]
        process = await asyncio.create_subprocess_exec(
            *command, f"{address}/", stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, log = await asyncio.wait_for(process.communicate(), 60)
        server.should_exit = True
        await serving
    return out.decode(), log.decode()


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_the_page_shows_the_latest_votes_without_an_error(tmp_path: Path) -> None:
    page, log = asyncio.run(browsed(tmp_path))
    assert page.count("<td>confident leader</td>") == 3
    assert page.count('title="7">7</td>') == 3
    assert page.count('title="m">m</td>') == 3
    assert re.search(r'<td title="chatcmpl-[0-9a-f]{32}">…[0-9a-f]{6}</td>', page)
    assert re.search(r"<td title=\"20\d\d-[^\"]+Z\">\d\d:\d\d:\d\d</td>", page)
    assert "policy asc-0.95, checkpoints 4, 8" in page
    assert "confident leader: 3" in page
    audits = page.partition('id="audits"')[2].partition("</tbody>")[0]
    assert '<td>m</td><td class="number">1</td><td class="number">0</td>' in audits
    assert "0.00 % (0.00 % to" in audits
    assert [line for line in log.splitlines() if "CONSOLE" in line] == []
