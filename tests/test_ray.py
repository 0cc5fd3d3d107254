"""Evaluation and training on a Ray cluster of two workers, to the numbers of one process."""

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from lab_fixtures import Letters
from test_workers import dying, refusing

from aera import ASC, ESC, Fixed, Pool, open_pool
from aera.errors import RunError, UpstreamError, UsageError
from aera.lab import PaperLearner, crossfit, evaluate, export_pool, open_truths
from aera.pools.parquet import ParquetPool
from aera.pools.pool import Records
from aera.workers import SERIAL, RayWorkers

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed"),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def workers() -> Iterator[RayWorkers]:
    ray = import_module("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))  # where workers find this module
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        yield RayWorkers()
        ray.shutdown()


@pytest.fixture(scope="module")
def stored(parted: Pool, tmp_path_factory: pytest.TempPathFactory) -> tuple[Records, ...]:
    """Thirty questions in three parts, as a pool and as Parquet."""
    folder = tmp_path_factory.mktemp("stored")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aera.pools.pool.SEGMENT_RESPONSES", 320)
        export_pool(parted, folder / "export")
    exported = open_pool((folder / "export").as_uri())
    assert isinstance(exported, ParquetPool)
    return parted, exported


def test_an_evaluation_and_a_training_are_those_of_one_process(
    stored: tuple[Records, ...], workers: RayWorkers
) -> None:
    policies, truths = [Fixed(4), ASC(0.95), ESC(5)], open_truths(stored[0])
    alone = [point.as_json() for point in evaluate(stored[0], policies, truths=truths).points]
    for records in stored:
        assert open_truths(records, workers=workers) == truths
        found = evaluate(records, policies, truths=truths, workers=workers)
        assert [point.as_json() for point in found.points] == alone
    learner, (pool, exported) = PaperLearner(Letters()), stored
    table = learner.prepare(pool, truths)
    spread = learner.prepare(exported, truths, workers=workers)
    np.testing.assert_array_equal(
        crossfit(learner, spread, folds=2, workers=workers).p_continue,
        crossfit(learner, table, folds=2, workers=SERIAL).p_continue,
    )


@pytest.mark.nightly
def test_errors_and_deaths_are_said_and_so_is_an_address_without_a_cluster(
    workers: RayWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UpstreamError, match=r"^upstream 401: not 0$"):
        [*workers.map(refusing, range(3))]
    with pytest.raises(RunError, match="workers died 4 times on one part"):
        [*workers.map(dying, range(1))]
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    for address in ("127.0.0.1:1", "nohost", ":"):
        with pytest.raises(UsageError, match=f'there is no Ray cluster at "{address}"'):
            [*RayWorkers(address).map(abs, [1])]
