"""Voting inside vLLM's own process, on vLLM itself: what it takes, and that it decides as replay does.

    python bench/engine.py MODEL QUESTIONS [--controller C] [--async] [--limit N] [--set max_tokens=1024]

MODEL is anything vLLM loads; QUESTIONS is a JSONL of id, question and, to be judged, answer. Every
response that the engine gave is kept, and every question is then decided once more from these alone.
"""

import argparse
import asyncio
import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from aera import (
    Allocation,
    Chat,
    Controller,
    Question,
    Response,
    default_controller,
    get_task,
    solve_many,
)
from aera.adapters.vllm import VLLMSampler
from aera.lab import grade


class Kept:
    """A sampler that keeps what it gave."""

    def __init__(self, sampler: VLLMSampler) -> None:
        self.sampler, self.chat = sampler, sampler.chat
        self.got: dict[str, list[Response]] = defaultdict(list)

    async def sample(self, question: Question, n: int, **how: Any) -> list[Response]:
        """As the sampler does."""
        got = await self.sampler.sample(question, n, **how)
        self.got[question.id] += got
        return got


def replay(
    controller: Controller, question: Question, got: list[Response], lookout: Any
) -> Allocation:
    """Decide from recorded responses alone, the questions in their order for the drift check."""
    drifts = lookout.home is not None and lookout.see(question)
    run = (controller.plain if drifts else controller).start(question)
    while run.want:
        run.feed(got[run.delivered : run.delivered + run.want])
    return run.allocation


async def measure(engine: Any, asked: argparse.Namespace) -> None:
    """Ask all questions at once, then decide again."""
    controller = Controller.load(asked.controller) if asked.controller else default_controller()
    rows = [json.loads(line) for line in asked.questions.read_text("utf-8").splitlines()]
    rows = rows[: asked.limit]
    questions = [Question(str(row["id"]), row["question"]) for row in rows]
    settings = {name: json.loads(value) for name, _, value in (s.partition("=") for s in asked.set)}
    task = controller.task if asked.controller else get_task("numeric")
    chat = Chat("m", task, {"temperature": 0.6, "top_p": 0.95, "seed": 0, **settings})
    kept = Kept(VLLMSampler(engine, chat))
    begun = time.perf_counter()
    many = solve_many(questions, kept, controller, concurrency=len(questions))
    told = {made.question_id: made async for made in many}
    took = time.perf_counter() - begun
    lookout = controller.make_lookout()
    again = {q.id: replay(controller, q, kept.got[q.id], lookout) for q in questions}
    differ = [
        name
        for name, made in told.items()
        if (made.answer, made.responses, made.reason)
        != (again[name].answer, again[name].responses, again[name].reason)
    ]
    tokens = sum(each.tokens for got in kept.got.values() for each in got)
    right = {str(row["id"]): str(row["answer"]) for row in rows if "answer" in row}
    hits = sum(grade(told[name].answer, truth, task=task) for name, truth in right.items())
    row = {
        "engine": "AsyncLLM" if asked.asynchronous else "LLM",
        "questions": len(told),
        "right": f"{100 * hits / len(right):.1f} %" if right else None,
        "seconds": round(took, 1),
        "tokens": tokens,
        "tokens a second": round(tokens / took),
        "responses a question": round(sum(a.responses for a in told.values()) / len(told), 1),
        "decided otherwise by replay": differ,
    }
    print(json.dumps(row), flush=True)


def main() -> None:
    """Load the engine and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("questions", type=Path)
    parser.add_argument("--controller")
    parser.add_argument("--async", dest="asynchronous", action="store_true")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--engine", default="{}", help="settings of vLLM itself, as JSON")
    asked = parser.parse_args()
    settings = {"model": asked.model, **json.loads(asked.engine)}
    if not asked.asynchronous:
        from vllm import LLM

        asyncio.run(measure(LLM(**settings), asked))
        return

    async def both() -> None:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**settings))
        await measure(engine, asked)
        engine.shutdown()

    asyncio.run(both())


if __name__ == "__main__":
    main()
