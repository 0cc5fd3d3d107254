"""Many questions under one limit on tokens: python examples/batch.py POOL TOKENS"""

import asyncio
import sys

from aera import ASC, Budget, Controller, Pool, RecordedSampler, solve_many


async def main(path: str, tokens: int) -> None:
    pool = Pool.open(path)
    controller = Controller(pool.task, pool.schedule, ASC(0.95))
    known = {"budget": Budget(tokens=tokens), "shared": True}
    many = solve_many(pool.questions.values(), RecordedSampler(pool), controller, **known)
    done = [each async for each in many]
    for each in sorted(done, key=lambda each: -each.responses):
        print(f"{each.question_id}: {each.responses:3} responses, {each.answer} ({each.reason})")
    spent = sum(each.completion_tokens for each in done)
    print(f"{spent:,} of {tokens:,} tokens on {len(done)} questions")


if len(sys.argv) != 3:
    sys.exit(__doc__)
asyncio.run(main(sys.argv[1], int(sys.argv[2])))
