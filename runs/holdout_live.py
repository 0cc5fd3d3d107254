"""The paper's frozen-threshold test with real generation, upstream = the recorded pool.

50 questions calibrate, in the vote or in the paper's mean score, the threshold is frozen, then
disjoint test questions are generated over HTTP and stop decisions really end generation. The gate is
fitted on the remaining questions.
"""

import asyncio
from pathlib import Path

import numpy as np
from paper_runs import METRICS, QUALITY, RULES, against_full, in_goal, quality_cells
from pools import open_pool, paper_table, pools_argument, publish, table

from aera import Chat, Controller, Endpoint, OpenAISampler, Pool, RecordedUpstream
from aera.lab import (
    GATE_FAMILY,
    Choice,
    Columns,
    LiveTest,
    PaperLearner,
    PaperModel,
    PaperTable,
    Point,
    Trajectories,
    Truths,
    fixed_points,
    live_test,
    policy_of,
    question_hashes,
    split_rows,
)

CALIBRATION = 50
TESTED = {"gsm8k": 300, "csqa": 100}
"""How many untouched questions are generated."""
HEADER = ["method", "responses", *QUALITY, "tokens saved %"]


def freeze(
    data: PaperTable, pool: Pool, rest: Columns, metric: str
) -> tuple[Controller, PaperModel, Choice]:
    """Fit and calibrate on everything that is not the test."""
    tune, others = rest[:CALIBRATION], rest[CALIBRATION:]
    fit, stop = split_rows(others, (0.8, 0.2), groups=data.groups, seed=0)
    model = PaperLearner().fit(data, fit, held=stop, seed=0)
    goal = in_goal(RULES["2 points"], metric)
    choice = goal.choose(GATE_FAMILY, model.values(data, tune), seed=0)
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
    tested = data.trajectories.take(test)
    rows = [
        [point.policy.capitalize(), f"{point.responses:.2f}", *quality_cells([point]),
         f"{point.token_saving:.2f}"]
        for point in fixed_points(tested)
    ]  # fmt: skip
    told = []
    for metric in METRICS:
        controller, model, choice = freeze(data, pool, rest, metric)
        live = asyncio.run(generate(controller, pool, list(tested.question_ids)))
        values = model.values(data, test).values[GATE_FAMILY.name]
        agreed = _agreement(live, choice.stops(GATE_FAMILY, values), tested)
        point = generated(live, tested)
        saved = live.token_saving(prompts=False)
        label = f"AERA by {metric}, {controller.policy}"
        cells = [f"{point.responses:.2f}", *quality_cells([point]), f"{saved.value:.2f}"]
        rows.append([label, *cells])
        told.append(_tell(metric, choice, live, point, agreed))
    publish(f"live-{name}", table(HEADER, rows), *told)


def generated(live: LiveTest, tested: Trajectories) -> Point:
    """Where generation ended, to be graded in either metric."""
    ends = [tested.schedule.checkpoints.index(a.responses) for a in live.allocations]
    return Point("live", np.array(ends, dtype=np.int64), tested)


def _tell(metric: str, choice: Choice, live: LiveTest, point: Point, agreed: int) -> str:
    """What a table does not say of one generation test."""
    gap, saved = against_full([point], metric), live.token_saving(prompts=False)
    net = live.token_saving(prompts=True)
    first, tested = int((point.columns == 0).sum()), len(point.columns)
    lead = 100 * (choice.accuracy - choice.reference)
    equal = gap.questions - gap.better - gap.worse
    return (
        f"By {metric}, calibration ({CALIBRATION} questions): {choice.summary}; there {lead:+.2f} "
        f"against Fixed-128. In the test higher than Fixed-128 on {gap.better} questions, lower on "
        f"{gap.worse}, equal on {equal}; {first} of {tested} stopped at the first checkpoint. "
        f"Completion tokens saved {saved.value:.2f} % (95 % [{saved.low:.2f}, {saved.high:.2f}]); "
        f"net of prompts, billed again for every block, {net.value:.2f} % [{net.low:.2f}, "
        f"{net.high:.2f}]. The full-budget reference "
        f"{'shares the recorded responses' if live.shared else 'is a second generation'}. "
        f"Live and replayed stops agree on {agreed} of {tested} questions."
    )


def _agreement(live: LiveTest, replayed: Columns, tested: Trajectories) -> int:
    """Questions on which generation ended where replay says it must."""
    pairs = zip(live.allocations, replayed, strict=True)
    checkpoints = tested.schedule.checkpoints
    # Live answering never stops without a vote, which the paper's protocol allows.
    return sum(a.responses == checkpoints[column] or not a.votes for a, column in pairs)


if __name__ == "__main__":
    folder = pools_argument(__doc__ or "")
    for pool, questions in TESTED.items():
        run(folder, pool, questions)
