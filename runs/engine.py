"""What adaptive voting is worth on a real engine: wall time, tokens a second and joules.

    python runs/engine.py --base-url http://localhost:8000/v1 --model M --file asked.jsonl --task numeric
        [--set max_tokens=1024] [--first 150] [--plain 40x128] [--out engine.jsonl]
        ["fixed-128=--policy fixed-128" "asc-0.95=--policy asc-0.95" "controller=--controller DIR" ...]

The questions are JSON lines with question, answer and perhaps id. Every LABEL=OPTIONS is one `aera solve` as a
user would run it, in the order given; the same label may come again. --plain KxN asks the engine for
N samples of each of K questions at once, without aera: what it can give. After every run a JSON line is
written to --out and printed; the table comes last. "late" is the last tenth of the questions, in
the order in which they ended. Joules are those of all NVIDIA GPUs of this machine, where there are any.
"""

import argparse
import asyncio
import ctypes
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp
from pools import table

from aera import Chat, Question, get_task
from aera.lab import grade

RUNS = ("fixed-128=--policy fixed-128", "asc-0.95=--policy asc-0.95", "default=")


def joules() -> float | None:
    """What the GPUs have used since they were started; None where nobody counts."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    count, total = ctypes.c_uint(), 0.0
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return None
    for place in range(count.value):
        device, millijoules = ctypes.c_void_p(), ctypes.c_ulonglong()
        failed = nvml.nvmlDeviceGetHandleByIndex_v2(place, ctypes.byref(device))
        if failed or nvml.nvmlDeviceGetTotalEnergyConsumption(device, ctypes.byref(millijoules)):
            return None
        total += millijoules.value / 1000
    return total


def quantile(values: list[float], share: float) -> float:
    """The value below which such a share of them is."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def wilson(share: float, count: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share of so many."""
    middle, whole = share + z * z / (2 * count), 1 + z * z / count
    half = z * (share * (1 - share) / count + z * z / (4 * count * count)) ** 0.5
    return (middle - half) / whole, (middle + half) / whole


def summed(ended: list[tuple[float, Any]], truths: dict[str, str], task: Any) -> dict[str, Any]:
    """Questions with the seconds after which they ended, as figures."""
    lines = [line for _, line in ended]
    right = [grade(line["answer"], truths[line["question_id"]], task=task) for line in lines]
    wall, tokens = ended[-1][0], sum(line["completion_tokens"] for line in lines)
    share = sum(right) / len(right)
    low, high = wilson(share, len(right))
    return {
        "questions": len(lines),
        "seconds": round(wall, 2),
        "questions_per_second": round(len(lines) / wall, 3),
        "responses": sum(line["responses"] for line in lines),
        "completion_tokens": tokens,
        "tokens_per_second": round(tokens / wall, 1),
        "p50": round(quantile([line["seconds"] for line in lines], 0.5), 2),
        "p95": round(quantile([line["seconds"] for line in lines], 0.95), 2),
        "accuracy": round(100 * share, 2),
        "low": round(100 * low, 2),
        "high": round(100 * high, 2),
        "errors": sum(line["error"] is not None for line in lines),
    }


def solve(label: str, options: str, told: argparse.Namespace, asked: list[Any]) -> dict[str, Any]:
    """One run of the command; answers count when they are printed."""
    file, task = told.out.with_suffix(".asked.jsonl"), get_task(told.task)
    file.write_text("".join(json.dumps(each) + "\n" for each in asked), "utf-8")
    truths = {each["id"]: str(each["answer"]) for each in asked}
    call = [sys.executable, "-m", "aera", "solve", "--file", file, "--base-url", told.base_url]
    call += ["--model", told.model, *(part for each in told.set for part in ("--set", each))]
    call += (
        options.split() if "--controller" in options else ["--task", told.task, *options.split()]
    )
    before, begun, ended = joules(), time.monotonic(), list[tuple[float, Any]]()
    errors = told.out.with_name(f"{told.out.stem}-{label}.err")
    with errors.open("w") as said:
        run = subprocess.Popen([*map(str, call)], stdout=subprocess.PIPE, stderr=said, text=True)
        assert run.stdout is not None
        for line in run.stdout:
            ended.append((time.monotonic() - begun, json.loads(line)))
        code = run.wait()
    wall, after = time.monotonic() - begun, joules()
    if not ended:
        raise SystemExit(f"{label}: no answers; {errors} says why")
    used = None if before is None or after is None else round(after - before, 1)
    early = summed(ended[: -max(1, len(ended) // 10)] or ended, truths, task)
    whole = summed(ended, truths, task) | {
        "wall": round(wall, 2),
        "joules": used,
        "exit_code": code,
    }
    return {"label": label, "options": options, **whole, "without_the_late": early}


async def ask_plainly(k: int, n: int, told: argparse.Namespace, asked: list[Any]) -> Any:
    """What the engine gives when k questions are asked for n samples each, all at once."""
    fields = dict(each.split("=", 1) for each in told.set)
    settings = {name: json.loads(value) for name, value in fields.items()}
    chat = Chat(told.model, get_task(told.task), {"temperature": 0.6, "top_p": 0.95, **settings})
    questions = [Question(each["id"], each["question"]) for each in (asked * k)[:k]]
    bodies = [{**chat.body(question), "n": n} for question in questions]
    patience = aiohttp.ClientTimeout(total=None)
    before, begun = joules(), time.monotonic()
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=patience, raise_for_status=True
    ) as session:

        async def ask(body: Any) -> tuple[float, int]:
            async with session.post(f"{told.base_url}/chat/completions", json=body) as reply:
                usage = (await reply.json())["usage"]
            return time.monotonic() - begun, usage["completion_tokens"]

        calls = await asyncio.gather(*map(ask, bodies))
    wall, after, tokens = time.monotonic() - begun, joules(), sum(count for _, count in calls)
    return {
        "label": f"plain {k}x{n}",
        "wall": round(wall, 2),
        "responses": k * n,
        "completion_tokens": tokens,
        "tokens_per_second": round(tokens / wall, 1),
        "half_after": round(quantile([seconds for seconds, _ in calls], 0.5), 2),
        "joules": None if before is None or after is None else round(after - before, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="*", default=RUNS, metavar="LABEL=OPTIONS")
    for name in ("base-url", "model", "file", "task"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--first", type=int)
    parser.add_argument("--plain", action="append", default=[])
    parser.add_argument("--out", type=Path, default=Path("engine.jsonl"))
    told = parser.parse_args()
    lines = Path(told.file).read_text("utf-8").splitlines()[: told.first]
    asked = [{"id": f"q{place}", **json.loads(line)} for place, line in enumerate(lines)]
    rows = []
    for each in [*(f"plain {size}" for size in told.plain), *told.runs]:
        if each.startswith("plain "):
            k, n = map(int, each.removeprefix("plain ").split("x"))
            row = asyncio.run(ask_plainly(k, n, told, asked))
        else:
            label, _, options = each.partition("=")
            row = solve(label, options, told, asked)
        with told.out.open("a", encoding="utf-8") as kept:
            kept.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)
        rows.append(row)
    shown = ["label", "accuracy", "wall", "completion_tokens", "tokens_per_second"]
    shown += ["questions_per_second", "p50", "p95", "joules", "errors"]
    print(table(shown, [[row.get(name, "") for name in shown] for row in rows]).markdown())


if __name__ == "__main__":
    main()
