"""A pool read part by part, by whomever, gives what its ballots in memory give."""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_study import Bench, Letters

import aera
from aera import ASC, ESC, Controller, Fixed, Pool
from aera.crew import ALONE, Crew, Processes
from aera.errors import PoolError
from aera.lab import Report, Truths, crossfit, evaluate, open_study, read_ballots, summarize
from aera.lab.evaluation import Source, Terms
from aera.lab.learning import open_course
from aera.lab.states import embed_pool
from aera.pool import write_pool

CREWS = [ALONE, Processes(2)]
DEMO_CONTROLLER = Path(aera.__file__).parent / "demo" / "controller"


@pytest.fixture
def pool(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pool:
    """Thirty questions in three segments."""
    monkeypatch.setattr("aera.pool.SEGMENT_RESPONSES", 320)
    made = write_pool(tmp_path, islice(bench.pool, 30), task=bench.pool.task, sampler={})
    Truths({name: bench.truths[name] for name in made.questions}).save(tmp_path)
    assert len(made.segments) == 3
    return made


@pytest.fixture
def truths(pool: Pool) -> Truths:
    found = Truths.open(pool.path)
    assert found is not None
    return found


@pytest.mark.parametrize("crew", CREWS)
def test_votes_and_replay(pool: Pool, truths: Truths, crew: Crew) -> None:
    ballots = read_ballots(list(pool), pool.task)
    assert read_ballots(pool, pool.task, crew=crew) == ballots
    terms: Any = {"task": pool.task, "schedule": pool.schedule, "truths": truths}
    policies = [Fixed(4), ASC(0.95), ESC(5)]
    alone = evaluate(ballots, policies, **terms)
    for source in (pool, ballots):
        found = evaluate(source, policies, **terms, crew=crew)
        assert [p.as_json() for p in found.points] == [p.as_json() for p in alone.points]
        assert found.trajectories.question_ids == alone.trajectories.question_ids


@pytest.mark.parametrize("crew", CREWS)
def test_embeddings_and_evidence(pool: Pool, truths: Truths, crew: Crew) -> None:
    ballots = read_ballots(pool, pool.task)
    alone = open_study(pool, truths, ballots=ballots, encoder=Letters())
    for file in pool.path.glob("embeddings-*"):
        file.unlink()
    found = open_study(pool, truths, encoder=Letters(), crew=crew)
    np.testing.assert_array_equal(found.states.scalars, alone.states.scalars)
    np.testing.assert_array_equal(found.states.centroids, alone.states.centroids)
    for name in alone.dials:
        np.testing.assert_array_equal(found.values[name], alone.values[name])
    assert len([*pool.path.glob("embeddings-*.npy")]) == 3


def test_memory_and_disk_share_the_same_embeddings(pool: Pool, truths: Truths) -> None:
    open_study(pool, truths, encoder=Letters())
    again = Letters()
    embed_pool(pool, read_ballots(pool, pool.task), encoder=again)
    assert again.asked == []


@pytest.mark.parametrize("crew", CREWS)
def test_traits_and_standing(pool: Pool, truths: Truths, crew: Crew) -> None:
    alone = open_course(pool, truths, ballots=read_ballots(pool, pool.task))
    found = open_course(pool, truths, crew=crew)
    np.testing.assert_array_equal(found.marked.traits, alone.marked.traits)
    np.testing.assert_array_equal(found.marked.grades, alone.marked.grades)
    rows = np.arange(20)
    ours, theirs = found.measured(rows, None), alone.measured(rows, None)
    np.testing.assert_array_equal(ours.evidence, theirs.evidence)
    np.testing.assert_array_equal(ours.confidence, theirs.confidence)
    texts = {r.text for ballot in found.marked.ballots for r in ballot.record.responses}
    assert texts == {""}, "texts are not kept"


@pytest.mark.parametrize("crew", CREWS)
def test_a_report_of_a_weighing_controller(pool: Pool, truths: Truths, crew: Crew) -> None:
    controller = Controller.load(DEMO_CONTROLLER)
    label, plain = str(controller.policy), [ASC(0.9), Fixed(4)]

    def told(source: Source, crew: Crew) -> dict[str, Any]:
        terms = Terms(pool.task, pool.schedule, truths, weigher=controller.weigher)
        point = terms.evaluate(source, [controller.policy], crew=crew)[label]
        frontier = replace(terms, weigher=None).evaluate(source, plain, crew=crew)
        frontier = frontier.with_point(point)
        sections = {"controller": {"policy": label, "seen": 0, "status": "unseen"}}
        summary = summarize(frontier, pool, protocol="replay", seed=0, sections=sections)
        known: Any = {"truths": truths, "controller": controller, "crew": crew}
        return Report(summary, frontier, source, pool.task, plain, **known).as_json()

    alone, spread = told(read_ballots(pool, pool.task), ALONE), told(pool, crew)
    assert spread == alone
    own = alone["points"][-1]
    assert own["policy"] == label
    assert own["reasons"] == ["little left to gain", "full budget"]
    first = alone["questions"][0]
    assert first["votes"][0][0] % 1 != 0, "the votes are the weighed ones"
    assert first["p_continue"][0] is not None


def test_fits(pool: Pool, truths: Truths) -> None:
    study = open_study(pool, truths, encoder=Letters())
    alone, spread = (crossfit(study, folds=2, one_shot=False, crew=crew) for crew in CREWS)
    np.testing.assert_array_equal(spread.p_continue, alone.p_continue)


@pytest.mark.parametrize("change", ["lost", "twice"])
def test_a_pool_that_is_not_whole_is_refused_also_part_by_part(
    change: str, pool: Pool, truths: Truths
) -> None:
    first, second, _ = pool.segments
    if change == "lost":
        second.unlink()
    else:
        second.write_bytes(first.read_bytes())
    damaged = Pool.open(pool.path)
    works: list[Callable[[], object]] = [
        lambda: list(damaged),
        lambda: read_ballots(damaged, damaged.task),
        lambda: evaluate(damaged, (), task=damaged.task, schedule=damaged.schedule),
        lambda: open_study(damaged, truths, encoder=Letters()),
        lambda: open_course(damaged, truths),
    ]
    for work in works:
        with pytest.raises(PoolError, match="split question" if change == "twice" else "10 of 30"):
            work()
