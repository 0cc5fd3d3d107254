from typing import Any

import numpy as np
import pytest
from lab_fixtures import Bench
from streams import prefixes_of

from aera.core import Prefix
from aera.lab.calibrating.families import ONE_SHOT_FAMILY
from aera.lab.learning.paper import PaperModel
from aera.policies.rules import Policy
from aera.solving.run import replay

FAMILIES = ("asc", "esc", "lead", "majority", "entropy", "consensus")


@pytest.fixture(scope="module")
def chains(bench: Bench) -> list[list[Prefix]]:
    return [record.prefixes(bench.pool.schedule) for record in bench.records]


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest, bench: Bench) -> Any:
    return bench.table.families[request.param]


def replayed(chains: list[list[Prefix]], policy: Policy, bench: Bench) -> list[int]:
    """The columns at which a policy stops when it is shown one prefix after the other."""
    column = {checkpoint: place for place, checkpoint in enumerate(bench.pool.schedule)}
    runs = [replay(chain, policy, task=bench.pool.task) for chain in chains]
    return [column[len(run.prefix)] for run in runs]


def test_a_table_measures_every_family(bench: Bench) -> None:
    assert tuple(bench.table.families) == tuple(bench.table.trajectories.values) == FAMILIES


def test_a_family_stops_where_its_policy_stops_at_every_setting(
    family: Any, bench: Bench, chains: list[list[Prefix]]
) -> None:
    values = bench.table.trajectories.values[family.name]
    seen = set()
    for setting in family.settings:
        stops = family.stops(values, setting).tolist()
        assert stops == replayed(chains, family.make(setting), bench), setting
        seen.add(tuple(stops))
    assert len(seen) > 3, "the settings differ in what they do"


def test_a_family_names_its_settings_as_the_policy_does(family: Any) -> None:
    for setting in (*family.settings, *family.fine):
        assert family.label(setting) == str(family.make(setting))


def test_settings_go_from_the_safest_to_the_boldest(family: Any, bench: Bench) -> None:
    values = bench.table.trajectories.values[family.name]
    for grid in (family.settings, family.fine):
        stops = np.stack([family.stops(values, setting) for setting in grid])
        assert (np.diff(stops, axis=0) <= 0).all()
        assert len(set(grid)) == len(grid)


def test_no_family_stops_without_a_vote(family: Any) -> None:
    silent = prefixes_of("." * 8)
    assert not any(family.make(family.fine[-1]).decide(prefix).stop for prefix in silent)


def test_the_gates_bulk_chances_are_its_live_chances(
    bench: Bench, chains: list[list[Prefix]], fitted: PaperModel
) -> None:
    rows = np.arange(0, 60, 4)
    bulk = fitted.values(bench.table, rows).values["aera"]
    live = [[fitted.gate.p_continue(prefix) for prefix in chains[row]] for row in rows]
    np.testing.assert_allclose(bulk, live, atol=1e-9)
    assert bulk.std() > 0.01


def test_one_shot_stops_at_the_checkpoint_that_was_named() -> None:
    named = np.array([[0.0, 1.0, 1.0], [1.0, 1.0, 1.0], [0.0, 0.0, 1.0]])
    assert ONE_SHOT_FAMILY.stops(named, 1.0).tolist() == [1, 0, 2]
