"""The paper's frozen-threshold test with real generation, upstream = the recorded pool.

50 questions calibrate, the threshold is frozen, then disjoint test questions are generated over HTTP
and stop decisions really end generation. The gate is fitted on the remaining questions.
"""

import asyncio
from pathlib import Path

import numpy as np
from pools import interval, open_pool, paper_table, publish, table

from aera.arrays import Columns
from aera.lab import Choice, LiveTest, LossLimit, PaperLearner, Truths, live_test, paired_bootstrap
from aera.lab.calibrating.families import GATE_FAMILY
from aera.lab.learning.folds import split_rows
from aera.lab.learning.learner import policy_of
from aera.lab.learning.paper import PaperModel, PaperTable
from aera.lab.replay.frontier import fixed_points
from aera.pools.pool import Pool
from aera.sampling.fake import RecordedUpstream
from aera.sampling.sampler import Chat, OpenAISampler
from aera.sampling.upstream import Endpoint
from aera.solving.controller import Controller, question_hashes

CALIBRATION = 50
HEADER = ["method", "responses", "accuracy %", "against Fixed-128", "95 %", "tokens saved %"]


def freeze(data: PaperTable, pool: Pool, rest: Columns) -> tuple[Controller, PaperModel, Choice]:
    """Fit and calibrate on everything that is not the test."""
    tune, others = rest[:CALIBRATION], rest[CALIBRATION:]
    fit, stop = split_rows(others, (0.8, 0.2), groups=data.groups, seed=0)
    model = PaperLearner().fit(data, fit, held=stop, seed=0)
    choice = model.values(data, tune).choose(GATE_FAMILY, LossLimit(), seed=0)
    policy = policy_of(model, choice, GATE_FAMILY, data.schedule)
    ids = data.trajectories.question_ids
    hashes = [question_hashes(pool.questions[ids[i]])[0] for i in rest]
    controller = Controller(
        pool.task,
        data.trajectories.schedule,
        policy,
        model.gate,
        fitted=frozenset(hashes[CALIBRATION:]),
        calibrated=frozenset(hashes[:CALIBRATION]),
    )
    return controller, model, choice


async def generate(controller: Controller, pool: Pool, test: list[str]) -> LiveTest:
    """Ask the recorded upstream over HTTP; the reference shares its responses."""
    truths = Truths.open(pool.path)
    assert truths is not None
    async with RecordedUpstream(pool) as upstream:
        chat = Chat("recorded", pool.task, {"seed": 0})
        async with OpenAISampler(Endpoint(upstream.base_url), chat) as sampler:
            questions = [pool.questions[key] for key in test]
            return await live_test(controller, questions, truths, sampler=sampler)


def deal(data: PaperTable, test_size: int) -> tuple[Columns, Columns]:
    """The untouched test questions, and the rest in the order in which it is used."""
    shares = (test_size / len(data), 1 - test_size / len(data))
    test, rest = split_rows(np.arange(len(data)), shares, groups=data.groups, seed=0)
    return test, np.random.default_rng(0).permutation(rest)


def run(folder: Path, name: str, test_size: int) -> None:
    data, pool = paper_table(folder, name), open_pool(folder, name, redo=True)
    test, rest = deal(data, test_size)
    controller, model, choice = freeze(data, pool, rest)
    live = asyncio.run(
        generate(controller, pool, [data.trajectories.question_ids[i] for i in test])
    )
    trajectories = data.trajectories.subset(test)
    rows = []
    for point in fixed_points(trajectories):
        gap = paired_bootstrap(100 * point.scores, 100 * live.reference_scores, seed=0)
        rows.append(
            [point.policy.capitalize(), f"{point.responses:.2f}", f"{point.accuracy:.2f}",
             f"{gap.difference:+.2f}", interval(gap.low, gap.high), f"{point.token_saving:.2f}"]
        )  # fmt: skip
    gap, saved = live.difference(), live.token_saving(prompts=False)
    net = live.token_saving(prompts=True)
    responses = np.mean([a.responses for a in live.allocations])
    rows.append(
        [f"AERA, {controller.policy}", f"{responses:.2f}", f"{100 * live.scores.mean():.2f}",
         f"{gap.difference:+.2f}", interval(gap.low, gap.high), f"{saved.percent:.2f}"]
    )  # fmt: skip
    values = model.values(data, test).values[GATE_FAMILY.name]
    replayed = GATE_FAMILY.stops(values, choice.setting or 0.0)
    agreed = _agreement(live, replayed, trajectories.schedule.checkpoints, choice)
    first = sum(a.responses == trajectories.schedule.first for a in live.allocations)
    publish(
        f"live-{name}",
        "\n".join(
            [
                f"Calibration ({CALIBRATION} questions): {choice.summary}.\n",
                table(HEADER, rows),
                f"\nHigher than Fixed-128 on {gap.higher} questions, lower on {gap.lower}, equal on "
                f"{gap.equal}; {first} of {len(test)} stopped at the first checkpoint. Completion tokens "
                f"saved {saved.percent:.2f} % (95 % [{saved.low:.2f}, {saved.high:.2f}]); net of prompts, "
                f"billed again for every block, {net.percent:.2f} % [{net.low:.2f}, {net.high:.2f}]. "
                f"The full-budget reference {'shares the recorded responses' if live.shared else 'is a second generation'}. "
                f"Live and replayed stops agree on {agreed} of {len(test)} questions.",
            ]
        ),
    )


def _agreement(
    live: LiveTest, replayed: Columns, checkpoints: tuple[int, ...], choice: Choice
) -> int:
    """Questions on which generation ended where replay says it must."""
    if choice.setting is None:
        return sum(a.responses == checkpoints[-1] for a in live.allocations)
    pairs = zip(live.allocations, replayed, strict=True)
    # Live answering never stops without a vote, which the paper's protocol allows.
    return sum(a.responses == checkpoints[column] or not a.votes for a, column in pairs)
