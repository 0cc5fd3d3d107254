"""The gateway's page in a real browser, offline."""

import re
from pathlib import Path

import pytest
from browser import CHROMIUM, browser_tab
from fakes import FakeUpstream
from gateways import BODY, House, visit

from aera import ASC, Controller, Schedule, get_task


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_the_page_shows_the_latest_votes_and_how_they_went_over_time(tmp_path: Path) -> None:
    async def act(house: House) -> tuple[str, list[tuple[int, int]]]:
        for _ in range(3):
            assert (await house.post(BODY))[0] == 200
        async with browser_tab(tmp_path) as tab:
            await tab.look(1280, "dark")
            await tab.open(f"{house.url}/")
            page, sizes = await tab.value("document.querySelector('main').outerHTML"), []
            for width in (1280, 390):
                await tab.look(width)
                sizes.append((width, await tab.value("document.documentElement.scrollWidth")))
            assert tab.logged == []
            assert all(url.startswith(house.url) for url in tab.requested)
            return page, sizes

    controller = Controller(get_task("numeric"), Schedule((4, 8)), ASC(0.95))
    server = FakeUpstream(lambda call, place: "\\boxed{7}")
    kind = {"controller": controller, "audit_share": 1.0, "prices": (0.5, 1.5)}
    page, sizes = visit(act, server, **kind)
    assert page.count("<td>confident leader</td>") == 3
    assert page.count('title="7">7</td>') == 3
    assert page.count('title="m">m</td>') == 3
    assert re.search(r'<td title="chatcmpl-[0-9a-f]{32}">…[0-9a-f]{6}</td>', page)
    assert re.search(r"<td title=\"20\d\d-[^\"]+Z\">\d\d:\d\d:\d\d</td>", page)
    assert "policy asc-0.95, checkpoints 4, 8" in page
    assert "confident leader: 3" in page
    drawn = re.findall(r'aria-label="([a-z ]+) from [^"]+ now ([\d.,]+)"', page)
    names = ["questions a minute", "samples a question", "tokens saved", "money saved"]
    assert [name for name, _ in drawn] == names
    assert drawn[1][1] == "4"
    assert '<th class="number" hidden="">unread</th>' in page, "a column without a figure"
    audits = page.partition('id="audits"')[2].partition("</tbody>")[0]
    assert re.search(r'<td>m</td><td class="number">\d</td><td class="number">0</td>', audits)
    assert "0.00 % (0.00 % to" in audits
    assert all(wide <= width for width, wide in sizes), "nothing is wider than the page"
