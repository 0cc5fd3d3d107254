from collections.abc import Callable

import numpy as np
import pytest
from small_study import Bench

from aera.gate import Gated
from aera.lab import replay
from aera.lab.dials import GATE, answer_dials, consensus_dial
from aera.lab.protocols import chances
from aera.lab.training import Fit
from aera.policy import Policy
from aera.response import Prefix

ANSWER_DIALS = ("asc", "esc", "lead", "majority", "entropy")
DIALS = (*ANSWER_DIALS, "consensus")


@pytest.fixture(scope="module")
def chains(bench: Bench) -> list[list[Prefix]]:
    return [ballot.prefixes(bench.pool.schedule) for ballot in bench.ballots]


def replayed(chains: list[list[Prefix]], policy: Policy, bench: Bench) -> list[int]:
    """The columns at which a policy stops when it is shown one prefix after the other."""
    column = {checkpoint: place for place, checkpoint in enumerate(bench.pool.schedule)}
    runs = [replay(chain, policy, task=bench.pool.task) for chain in chains]
    return [column[len(run.prefix)] for run in runs]


def test_a_study_measures_every_dial(bench: Bench) -> None:
    assert tuple(bench.study.dials) == DIALS
    assert [dial.name for dial in answer_dials()] == [*ANSWER_DIALS]
    assert consensus_dial(bench.study.encoder).name == "consensus"


@pytest.mark.parametrize("name", DIALS)
def test_a_dial_stops_where_its_policy_stops_at_every_setting(
    name: str, bench: Bench, chains: list[list[Prefix]]
) -> None:
    dial, values = bench.study.dials[name], bench.study.values[name]
    assert dial.make is not None
    seen = set()
    for setting in dial.settings:
        stops = dial.stops(values, setting).tolist()
        assert stops == replayed(chains, dial.make(setting), bench), setting
        seen.add(tuple(stops))
    assert len(seen) > 3, "the settings differ in what they do"


@pytest.mark.parametrize("name", DIALS)
def test_a_dial_names_its_settings_as_the_policy_does(name: str, bench: Bench) -> None:
    dial = bench.study.dials[name]
    assert dial.make is not None
    for setting in (*dial.settings, *dial.fine):
        assert dial.label(setting) == str(dial.make(setting))


@pytest.mark.parametrize("name", DIALS)
def test_settings_go_from_the_safest_to_the_boldest(name: str, bench: Bench) -> None:
    dial, values = bench.study.dials[name], bench.study.values[name]
    for grid in (dial.settings, dial.fine):
        stops = np.stack([dial.stops(values, setting) for setting in grid])
        assert (np.diff(stops, axis=0) <= 0).all()
        assert len(set(grid)) == len(grid)


@pytest.mark.parametrize("name", DIALS)
def test_no_dial_stops_without_a_vote(
    name: str, bench: Bench, prefixes_of: Callable[[str], list[Prefix]]
) -> None:
    dial, silent = bench.study.dials[name], prefixes_of("." * 8)
    values = np.array([[dial.value(prefix) for prefix in silent]])
    assert not dial.ready(values, dial.fine[-1]).any()
    assert dial.make is not None
    assert not any(dial.make(dial.fine[-1]).decide(prefix).stop for prefix in silent)


def test_the_last_checkpoint_always_stops() -> None:
    never = np.full((3, 4), 1.0)
    assert GATE.stops(never, 0.5).tolist() == [3, 3, 3]
    assert GATE.stops(np.zeros((3, 4)), 0.5).tolist() == [0, 0, 0]


def test_asking_for_stops_leaves_the_values_alone() -> None:
    values = np.full((3, 4), 1.0)
    GATE.stops(values, 0.5)
    assert (values == 1.0).all()


def test_the_gates_grid_is_the_papers() -> None:
    assert GATE.settings == (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    assert [GATE.label(t) for t in GATE.settings[:2]] == ["aera-0.10", "aera-0.20"]


def test_the_gates_bulk_chances_are_its_live_chances(
    bench: Bench, chains: list[list[Prefix]], fitted: Fit
) -> None:
    rows = np.arange(0, 60, 4)
    bulk = chances(bench.study, fitted.gate, rows)
    live = [[fitted.gate.p_continue(prefix) for prefix in chains[row]] for row in rows]
    np.testing.assert_allclose(bulk, live, atol=1e-9)
    assert bulk.std() > 0.01


def test_the_gates_dial_stops_where_the_gated_policy_stops(
    bench: Bench, chains: list[list[Prefix]], fitted: Fit
) -> None:
    rows = np.arange(0, 60, 4)
    bulk = chances(bench.study, fitted.gate, rows)
    some = [chains[row] for row in rows]
    seen = set()
    for threshold in GATE.settings:
        stops = GATE.stops(bulk, threshold).tolist()
        assert stops == replayed(some, Gated(fitted.gate, threshold), bench)
        assert GATE.label(threshold) == str(Gated(fitted.gate, threshold))
        seen.add(tuple(stops))
    assert len(seen) > 1
