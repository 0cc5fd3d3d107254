"""Solve one question over HTTP: python examples/solve.py POOL"""

import asyncio
import sys

from aera import ASC, Chat, Controller, Endpoint, OpenAISampler, Pool, RecordedUpstream, solve


async def main(path: str) -> None:
    pool = Pool.open(path)
    question = next(iter(pool.questions.values()))
    controller = Controller(pool.task, pool.schedule, ASC(0.95))
    async with RecordedUpstream(pool) as upstream:  # stands in for a model server
        chat = Chat("recorded", pool.task, {"temperature": 0.6, "seed": 0})
        async with OpenAISampler(Endpoint(upstream.base_url), chat) as sampler:
            done = await solve(question, sampler, controller)
    print(f"{question.text}\n\n{done.answer}, because: {done.reason}")
    print(f"{done.responses} of {pool.schedule.last} responses, {done.completion_tokens} tokens")


asyncio.run(main(sys.argv[1] if sys.argv[1:] else sys.exit(__doc__)))
