"""Pools and controllers as `aera` wrote them before its inside was rewritten, each a few kB.

Made with the code of commit 41257b9 (only the sentences of refused controllers were newer), in two
goes: a first run of this script ended at `asc-weighted`, and its later controllers were then made
by the same calls. questions.jsonl was put together from `imported`; what `aera info` had sealed in
`recorded` was taken out, so that it is as the killed gateway left it. The script as it stands has
not been run from end to end. pinned.json is what tests/test_written_before.py saw then.

Do not make it anew: a file that today's code writes proves nothing about yesterday's. The script
stays to show what each file is. It needs the extras `data` and `train`.
"""

import asyncio
import gzip
import json
import os
import shutil
import signal
import sys
import tempfile
import urllib.request
from pathlib import Path

import aera

HERE = Path(__file__).parent
DEMO = HERE.parents[2] / "aera" / "demo"
SCORER = """
class Short:
    def score(self, question, responses):
        return [100 / (100 + len(response.text)) for response in responses]
"""
CONTROLLERS = {
    "gate": ("wide", "--policy", "aera-0.2"),
    "asc-weighted": ("taught", "--policy", "asc-0.9+weighted", "--weigher", DEMO / "controller"),
    "paper": ("wide", "--paper", "--max-loss", "0.2"),
    "majority": ("bare", "--max-loss", "0.2"),
    "best-of-n": ("wide", "--scorer", "written_judges:Short"),
}


async def call(*words: object, ends: int = 0) -> None:
    """Run one command of `aera`."""
    line = (sys.executable, "-m", "aera", *map(str, words))
    code = await (await asyncio.create_subprocess_exec(*line)).wait()
    assert code == ends, (words, code)


def keep(rows: list[dict[str, object]], name: str) -> Path:
    file = Path(f"{name}.jsonl")
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    return file


async def serve(url: str, questions: list[str]) -> None:
    """A gateway that records; it is told to stop when its audits are done."""
    words = ("--upstream", url, "--task", "numeric", "--schedule", "4,8", "--audit-share", "1")
    line = (sys.executable, "-m", "aera", "serve", *words, "--record", str(HERE / "recorded"))
    gateway = await asyncio.create_subprocess_exec(*line, env=os.environ | {"AERA_PORT": "18431"})
    await asyncio.sleep(10)
    for text in questions:
        said = [{"role": "user", "content": text}]
        body = json.dumps({"model": "aera/m", "messages": said}).encode()
        address = "http://127.0.0.1:18431/v1/chat/completions"
        asked = urllib.request.Request(address, body, {"Content-Type": "application/json"})
        await asyncio.to_thread(lambda asked=asked: urllib.request.urlopen(asked).read())
    await asyncio.sleep(5)
    gateway.send_signal(signal.SIGKILL)
    await gateway.wait()


async def make() -> None:
    with gzip.open(DEMO / "gsm8k.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    for row in rows:
        row["responses"] = row["responses"][:8]
    keep(rows, "wide")
    keep(rows[:3], "first")
    keep(rows[2:5], "second")
    questions = keep(
        [{k: row[k] for k in ("id", "question", "answer")} for row in rows[:3]], "questions"
    )
    shutil.copy(questions, HERE)
    keep([{k: row[k] for k in row if k != "answer"} for row in rows], "bare")
    for name in ("wide", "bare", "second"):
        await call("import", f"{name}.jsonl", "--out", name)
    await call("import", "wide.jsonl", "--out", "taught", "--task", "gsm8k")
    await call("import", "first.jsonl", "--out", HERE / "imported")
    await call("merge", HERE / "imported", "second", "--out", HERE / "merged")
    await call("export", HERE / "imported", "--out", HERE / "exported.parquet")
    await call("export", HERE / "imported", "--out", HERE / "sharded")
    async with aera.RecordedUpstream(aera.open_pool("wide")) as server:
        to = ("--base-url", server.base_url, "--model", "m", "--task", "numeric", "--block", 2)
        asked = ("sample", "questions.jsonl", *to, "--concurrency", 1, "--out")
        await call(*asked, HERE / "sampled", "--responses", 4)
        await call(*asked, HERE / "growing", "--responses", 4)
        await call(*asked, HERE / "growing", "--responses", 8, "--max-responses", 4, ends=1)
        await call(*asked, HERE / "interrupted", "--responses", 8, "--max-responses", 10, ends=1)
        known = ("--task", "numeric", "--schedule", "4,8", "--policy", "asc-0.9", "--seed", 0)
        at = ("--base-url", server.base_url, "--model", "m", "--file", "questions.jsonl")
        await call("solve", *at, *known, "--out", HERE / "solved.jsonl")
        journal = ("--out", HERE / "stopped.jsonl", "--max-responses", 8, "--concurrency", 1)
        await call("solve", *at, *known, *journal, ends=3)
        await serve(server.base_url, [row["question"] for row in rows[:3]])
    for name, (pool, *words) in CONTROLLERS.items():
        await call("train", pool, *words, "--out", HERE / name)
    aera.default_controller(aera.get_task("numeric")).save(HERE / "untrained")


if __name__ == "__main__":
    for each in HERE.iterdir():
        if each.is_dir():
            shutil.rmtree(each)
        elif each.name not in ("make.py", "pinned.json"):
            each.unlink()
    os.chdir(tempfile.mkdtemp())
    Path("written_judges.py").write_text(SCORER, "utf-8")
    asyncio.run(make())
