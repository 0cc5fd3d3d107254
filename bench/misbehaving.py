"""Do limits hold against servers that misbehave? What aera says, beside what the server billed.

    python bench/misbehaving.py [--modes "no usage,429s"] [--at-once 2]

`solve`, `sample` and `serve` as processes with limits, against every mode of tests/misbehaving.py;
then `kill -9` in the middle of `sample` and of `solve --out` and the same command again, until what
was on disk can be compared with what was asked for (alone with --kills); and how long `/health` waits while a large vote is weighed. Where nobody could know better (choices beyond
those asked for in the first calls, the last request of a key), "allowed" is more than the limit.
"""

import argparse
import json
import random
import re
import signal
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, product
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from misbehaving import MODES, Gateway, Server, begin, run_apart, write_questions

ROOT = Path(__file__).parents[1]
PRICE, LONGEST, CONCURRENCY = 10.0, 80, 4
TEXTS = [f"how many ways are there to do it, and why? ({i})" for i in range(40)]
TEXTS += [f"{i:02}" * 50 for i in range(40)]
LIMITS = {"tokens": 6_000, "money": 0.1, "responses": 150}
FLAGS = {
    "tokens": ["--max-tokens-total"],
    "money": ["--prices", f"{PRICE},{PRICE}", "--max-money"],
    "responses": ["--max-responses"],
}
SHARED = ["--model", "m", "--task", "numeric", "--seed", 0, "--set", f"max_tokens={LONGEST}"]
COMMANDS: dict[str, list[object]] = {
    "solve": ["solve", "--file", "asked.jsonl", *SHARED],
    "sample": ["sample", "asked.jsonl", "--out", "pool", *SHARED],
}
KEYS = {"tokens": ("tokens_per_minute", 8_000), "money": ("money_per_day", 0.08)}
EACH = 8
"""The most responses of a vote through the gateway."""
KILLS = 20
HEALTH = 100.0
"""Milliseconds that /health may wait."""


class Row(NamedTuple):
    """One line of the table."""

    what: str
    mode: str
    limit: float
    allowed: float
    reported: str
    billed: float

    def __str__(self) -> str:
        ends = "yes" if self.billed <= self.allowed else "NO"
        if self.allowed != self.limit:
            ends += f", {self.allowed:,.4g} allowed"
        if self.billed < self.limit / 4 and "twice" not in self.what and "ms" not in self.what:
            ends += ", little used"
        numbers = f"{self.limit:>8,g} {self.reported:>38} {round(self.billed, 4):>10,g}"
        return f"{self.what:24} {self.mode:32} {numbers}  {ends}"


def billed(server: Server, kind: str) -> float:
    """What a server has billed, in the unit of a limit."""
    money = server.money(PRICE, PRICE)
    return {"tokens": server.completion_tokens, "money": money, "responses": server.choices}[kind]


def said(stderr: str) -> str:
    """What a command says it has spent."""
    solved = re.findall(r"answered for ([\d,]+) responses? and ([\d,]+) tokens?(, \S+)?", stderr)
    if solved:
        responses, tokens, money = solved[-1]
        return f"{responses} responses, {tokens} tokens{money}"
    sampled = re.findall(r"([\d,]+) of [\d,]+ responses of", stderr)
    return f"{sampled[-1]} responses" if sampled else "-"


def spend(verb: str, kind: str, mode: str) -> list[Row]:
    """One command under one limit."""
    with tempfile.TemporaryDirectory() as place, Server(**MODES[mode]) as server:
        folder = Path(place)
        write_questions(folder / "asked.jsonl", TEXTS)
        options = ["--base-url", server.url, "--concurrency", CONCURRENCY, *FLAGS[kind]]
        # Who never answers is waited for as long as the command is: here for six seconds.
        ends = ["--max-seconds", 6] if mode == "hangs" else []
        done = run_apart(folder, *COMMANDS[verb], *options, LIMITS[kind], *ends, timeout=120)
        each = {"tokens": LONGEST, "money": LONGEST * PRICE / 1e6, "responses": 1}[kind]
        allowed = LIMITS[kind] + CONCURRENCY * max(0, server.surplus) * each
        return [
            Row(
                f"{verb} {kind}",
                mode,
                LIMITS[kind],
                allowed,
                said(done.stderr),
                billed(server, kind),
            )
        ]


def serve(mode: str) -> list[Row]:
    """A key with tokens a minute and one with money a day, each asking until it is refused."""
    keys = "".join(
        f'[[key]]\nname = "{k}"\n{field} = {most}\n' for k, (field, most) in KEYS.items()
    )
    told: Any = {"keys": keys, "limits": f"prices = [{PRICE}, {PRICE}]"}
    told["model"] = 'task = "numeric"\nschedule = "4,8"\n'
    rows = []
    with (
        tempfile.TemporaryDirectory() as place,
        Server(**MODES[mode]) as server,
        Gateway(Path(place), server.url, **told) as gateway,
    ):
        for kind, (field, limit) in KEYS.items():
            before, begun = server.total, time.monotonic()
            tokens, refused = ask_until_refused(gateway, server, kind)
            minutes = (time.monotonic() - begun) / 60 if kind == "tokens" else 0.0
            unit = 1.0 if kind == "tokens" else PRICE / 1e6
            # A request that began within the limit may end beyond it.
            allowed = limit * (1 + minutes) + EACH * (LONGEST + len(TEXTS[-1]) + 150) * unit
            reported = f"{tokens * unit:,.6g} in replies{'' if refused else ', not refused'}"
            spent = (server.total - before) * unit
            rows.append(Row(f"serve {field}", mode, limit, allowed, reported, spent))
    return rows


def ask_until_refused(gateway: Gateway, server: Server, key: str) -> tuple[int, bool]:
    """Votes, plain requests, streams, clients that leave; tokens that replies name, and the end."""
    told = 0
    kinds = cycle(("vote", "plain", "stream", "leave"))
    for text, kind in zip(TEXTS[::2] + TEXTS[1::2], kinds, strict=False):
        calls = server.calls
        fields: dict[str, Any] = {"model": "m" if kind in ("plain", "stream") else "aera/m"}
        fields |= {"stream": True} if kind == "stream" else {}
        until = time.monotonic() + (0.0 if kind == "leave" else 1.5 if server.fault else 20.0)
        how = {"leave": lambda: server.calls > calls and time.monotonic() > until}  # noqa: B023
        status, reply = gateway.chat(text, key=key, how=how, max_tokens=LONGEST, **fields)
        if status == 429 and "limit" in json.dumps(reply):
            return told, True
        if isinstance(reply, dict):
            told += (reply.get("usage") or {}).get("total_tokens", 0)
    return told, False


def kill(verb: str, mode: str) -> list[Row]:
    """kill -9 at random, twenty times, and the same command to its end.

    By the server's ledger nothing that was on disk at a kill is asked for again, and of the rest
    no more than was under way.
    """
    chance, sampling = random.Random(f"{verb} {mode}"), verb == "sample"
    out = ["--responses", 64, "--block", 4] if sampling else ["--out", "answers.jsonl"]
    with tempfile.TemporaryDirectory() as place, Server(**MODES[mode], delay=0.02) as server:
        folder = Path(place)
        write_questions(folder / "asked.jsonl", TEXTS[:16] if sampling else TEXTS)
        options = ["--base-url", server.url, "--concurrency", CONCURRENCY, *out]
        kept: dict[tuple[str, int], int] = {}
        kills = 0
        while kills < KILLS:
            until = server.calls + chance.randint(1, 12)
            work = begin(folder, *COMMANDS[verb], *options)
            while work.poll() is None and server.calls < until:
                time.sleep(0.001)
            time.sleep(chance.uniform(0, 0.05))
            if work.poll() is not None:
                break  # it has ended
            kills += 1
            work.send_signal(signal.SIGKILL)
            work.communicate()
            time.sleep(0.1)  # what was under way reaches the ledger
            for key in on_disk(folder, server):
                kept.setdefault(key, server.asked[key])
        done = run_apart(folder, *COMMANDS[verb], *options, timeout=120)
        each = 1 if mode == "ignores n" else 4 if sampling else 64
        again = sum(server.asked[key] - count for key, count in kept.items())
        most, name = kills * CONCURRENCY * each, f"{verb} {kills} x kill -9:"
        return [
            Row(f"{name} kept, paid twice", mode, 0, 0, f"{len(kept):,} on disk at a kill", again),
            Row(f"{name} paid twice", mode, most, most, said(done.stderr), server.twice),
        ]


def on_disk(folder: Path, server: Server) -> set[tuple[str, int]]:
    """Prompt and seed of every response that stands in a log."""
    prompts = {}
    for (prompt, _), text in product(server.asked, TEXTS):
        if text in prompt:
            prompts[text] = prompt
    names = [json.loads(line) for line in (folder / "asked.jsonl").read_text().splitlines()]
    texts = {row["id"]: prompts.get(row["question"], "") for row in names}
    logs = [*folder.glob("pool/open-*.jsonl"), *folder.glob("answers.jsonl.pool/open-*.jsonl")]
    lines = [line for log in logs for line in log.read_text().splitlines(keepends=True)]
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return {(texts[row["question_id"]], row["seed"]) for row in rows}


def health(size: int) -> list[Row]:
    """How long /health waits at most while a vote of 64 is weighed by the demo's controller."""
    controller = ROOT / "aera" / "demo" / "controller"
    told = {
        "model": f'controller = "{controller}"\nmin_samples = 64\nmax_samples = 64\ntrust = true\n'
    }
    with (
        tempfile.TemporaryDirectory() as place,
        Server(tokens=size // 4) as server,
        Gateway(Path(place), server.url, **told) as gateway,
    ):
        over, worst = threading.Event(), 0.0

        def vote() -> None:
            gateway.chat(TEXTS[0], how={"timeout": 60})
            over.set()

        asking = threading.Thread(target=vote)
        asking.start()
        while not over.is_set():
            begun = time.perf_counter()
            gateway.ask("/health")
            worst = max(worst, 1000 * (time.perf_counter() - begun))
        asking.join()
        mode = f"64 replies of {size // 1000} kB"
        return [Row("serve /health waits, ms", mode, HEALTH, HEALTH, "-", round(worst))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--modes", help="some of them, separated by commas; all if nobody says")
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--kills", action="store_true", help="nothing but kill -9")
    chosen = parser.parse_args()
    modes = [m for m in MODES if not chosen.modes or m in chosen.modes]
    jobs: list[tuple[Any, ...]] = []
    if not chosen.kills:
        jobs += [
            (spend, verb, kind, mode) for mode in modes for verb in COMMANDS for kind in LIMITS
        ]
        jobs += [(serve, mode) for mode in modes]
    if not chosen.modes:
        jobs += [(kill, verb, mode) for verb in COMMANDS for mode in ("well-behaved", "ignores n")]
    print(f"{'what':24} {'mode':32} {'limit':>8} {'aera reported':>38} {'billed':>10}  holds")
    begun, passed = time.monotonic(), 0
    with ThreadPoolExecutor(chosen.at_once) as many:
        for job, asked in [(job, many.submit(*job)) for job in jobs]:
            try:
                rows = asked.result()
            except OSError as error:  # a process that did not come up says nothing of limits
                print(f"{job[0].__name__} {job[1:]}: not run, {error}", flush=True)
                continue
            for row in rows:
                passed += row.billed > row.allowed
                print(row, flush=True)
    for size in () if chosen.modes or chosen.kills else (32_000, 100_000):
        for row in health(size):
            passed += row.billed > row.allowed
            print(row, flush=True)
    print(f"{passed} do not hold; {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
