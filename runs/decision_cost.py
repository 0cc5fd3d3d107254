"""What a decision costs: CPU and bytes, beside the tokens it saves.

The bundled questions are asked; the paper's gate is built from the other gsm8k questions, which
also made the bundled controller. CPU time of one process and one thread; OMP_NUM_THREADS=1 keeps it so.
"""

import inspect
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pools import ROOT, interval, paper_table, pools_argument, publish, table
from published import Table

from aera import Controller, Pool, Prefix, Question, Record, Task, default_controller, get_task
from aera.lab import (
    BUILD_SHARES,
    Columns,
    Floats,
    LossLimit,
    PaperGate,
    PaperLearner,
    StaticEncoder,
    Truths,
    describe_question,
    grade,
    import_file,
    learn_and_tune,
    paired_bootstrap,
    policy_of,
    question_reader,
)

DEMO = ROOT / "aera" / "demo"
PASSES = 3
"""Every question is asked so often, and the median counts."""
RATE = 1_000
"""Tokens a second of a model server."""


@dataclass(frozen=True, eq=False)
class Cost:
    """What one controller took on some questions, and what it left unspent."""

    name: str
    seconds: Floats
    """CPU of every block; shape (passes, questions, checkpoints)."""
    stops: Columns
    """The column at which each question stopped."""
    spent: Floats
    """Tokens of each question where it stopped."""
    grades: Floats
    stored: int
    """Bytes, with those of the encoder."""

    @property
    def milliseconds(self) -> float:
        """CPU for a question until it stopped."""
        reached = np.arange(self.seconds.shape[2]) <= self.stops[:, None]
        each = 1000 * (self.seconds * reached).sum(axis=2).mean(axis=1)
        return float(np.median(each))


@dataclass(frozen=True, eq=False)
class Known:
    """What 128 plain votes would have made of the questions."""

    tokens: Floats
    """At every checkpoint."""
    truths: tuple[str, ...]
    task: Task

    def grade(self, answers: Sequence[str | None]) -> Floats:
        """1 for every right answer."""
        pairs = zip(answers, self.truths, strict=True)
        return np.array([grade(answer, truth, task=self.task) for answer, truth in pairs])

    @classmethod
    def of(cls, pool: Pool, records: Sequence[Record]) -> "Known":
        truths = Truths.open(pool.path)
        assert truths is not None
        spent = [np.cumsum([each.tokens for each in record.responses]) for record in records]
        ends = np.array(pool.schedule.checkpoints) - 1
        told = tuple(truths[record.question.id] for record in records)
        return cls(np.array(spent)[:, ends].astype(float), told, pool.task)


@dataclass(frozen=True, eq=False)
class Timed:
    """One question asked once."""

    seconds: Floats
    """CPU at each checkpoint, those after the stop too."""
    stop: int
    """The column at which it stopped."""
    answers: tuple[str | None, ...]
    """At every checkpoint."""


def time_question(controller: Controller, record: Record) -> Timed:
    """Ask it block by block, as it would be live, to the full budget."""
    describe_question.cache_clear()  # a question that arrives is new
    lookout = controller.make_lookout()
    lookout.see(Question("first", "only shows how questions are asked"))
    run, reader = controller.start(record.question), question_reader(controller.task)
    prefix, took, stops, answers = Prefix(record.question, controller.schedule), [], [], []
    for checkpoint in controller.schedule:
        block = record.responses[len(prefix) : checkpoint]
        begun = time.process_time()
        if not len(prefix):
            lookout.see(record.question)  # is it at home?
        votes = [reader.read(response) for response in block]
        if controller.weigher is not None:
            votes = [*controller.weigher.weigh(record.question, block, votes)]
        prefix = prefix.extend(block, votes)
        decision = run.policy.decide(prefix)
        took.append(time.process_time() - begun)
        stops.append(decision.stop)
        answers.append(prefix.tally.leaders.answer)
    stops[-1] = True  # the full budget
    return Timed(np.array(took), stops.index(True), tuple(answers))


def measure(
    name: str, controller: Controller, asked: Sequence[Sequence[Timed]], known: Known
) -> Cost:
    """What the passes took, and what the controller takes up."""
    with tempfile.TemporaryDirectory() as scratch:
        controller.save(scratch)
        stored = sum(file.stat().st_size for file in Path(scratch).iterdir())
        if isinstance(controller.gate, PaperGate):
            stored += (
                (Path(inspect.getfile(StaticEncoder)).parent / "encoder.safetensors").stat().st_size
            )
    seconds = np.array([[each.seconds for each in one] for one in asked])
    stops = np.array([each.stop for each in asked[0]])
    answers = [each.answers[each.stop] for each in asked[0]]
    spent = known.tokens[np.arange(len(stops)), stops]
    return Cost(name, seconds, stops, spent, known.grade(answers), stored)


def build_paper(folder: Path, bundled: Pool) -> Controller:
    """The paper's gate of the gsm8k questions that are not bundled, two points allowed."""
    paper = paper_table(folder, "gsm8k", redo=False)
    rows = np.flatnonzero([each.id not in bundled.questions for each in paper.questions])
    learner = PaperLearner(shares=BUILD_SHARES)
    model, tuning = learn_and_tune(learner, paper, rows, certified=False, seed=0)
    goal = LossLimit(0.02, margin=0.0)
    family = next(iter(model.families(goal).values()))
    choice = goal.choose(family, tuning)
    policy = policy_of(model, choice, family, paper.schedule)
    return Controller(paper.task, paper.schedule, policy, gate=model.gate)


def cost_table(costs: Sequence[Cost], known: Known, full: Floats) -> Table:
    """What a question costs and saves, by controller; `full` are the grades of 128 plain votes."""
    header = ["policy", "against Fixed-128", "tokens saved", "95 %", "CPU ms"]
    header += [f"CPU, % of the server's time at {RATE:,}/s", "KB on disk"]
    rows = []
    for cost in costs:
        gap = paired_bootstrap(100 * cost.grades, 100 * full, seed=0)
        saving = paired_bootstrap(known.tokens[:, -1], cost.spent, seed=0)
        saved, took = saving.value, cost.milliseconds
        rows.append(
            [
                cost.name,
                f"{gap.value:+.2f} {interval(gap.low, gap.high)}",
                f"{saved:,.0f}",
                f"[{saving.low:,.0f}, {saving.high:,.0f}]",
                f"{took:.1f}",
                f"{100 * (took / 1000) / (saved / RATE):.2g}",
                f"{cost.stored / 1e3:,.0f}",
            ]
        )
    return table(header, rows)


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        pool = import_file(
            DEMO / "gsm8k.jsonl.gz", Path(scratch) / "p", task=get_task("gsm8k")
        ).pool
        records, shipped = [*pool], Controller.load(DEMO / "controller")
        paper = build_paper(folder, pool)
        asc = default_controller(pool.task)
        named = {
            f"{shipped.label}, weighted votes": shipped,
            f"{paper.label}, the paper's gate": paper,
            f"{asc.label}, nothing learned": asc,
        }
        passes = [  # by turns, so that a busy machine slows all of them down alike
            {name: [time_question(own, each) for each in records] for name, own in named.items()}
            for _ in range(PASSES)
        ]
        known = Known.of(pool, records)
        costs = [
            measure(name, own, [asked[name] for asked in passes], known)
            for name, own in named.items()
        ]
    plain = passes[0][f"{asc.label}, nothing learned"]
    full = known.grade([each.answers[-1] for each in plain])
    publish("decision-cost", cost_table(costs, known, full))


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
