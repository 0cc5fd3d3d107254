"""The same work on a simulated cluster of several machines, one of which dies on the way."""

import gzip
import json
import pickle
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from buckets import Address, served_bucket
from sampling.test_gathering import EVERYTHING, PLAN, QUESTIONS, Ledger
from test_workers import dying, refusing, squared

from aera import ASC, ESC, Fixed, Pool, get_task
from aera.errors import RunError, UpstreamError
from aera.evidence.encoder import StaticEncoder
from aera.lab import (
    LossLimit,
    PaperLearner,
    Truths,
    VoteLearner,
    crossfit,
    evaluate,
    export_pool,
    import_jsonl,
    nested,
    open_truths,
)
from aera.lab.learning.paper import PaperTable
from aera.lab.learning.votes import VoteTable
from aera.lab.learning.weigher import WeigherFit
from aera.pools.record import hold
from aera.pools.shards import Shard, Shards
from aera.sampling.gathering import gather
from aera.workers import SERIAL, RayWorkers, Workers

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed"),
    pytest.mark.filterwarnings("ignore"),
]
IMPATIENT = {"initial_delay_ms": "500", "period_ms": "500", "failure_threshold": "4"}
"""After how long a machine counts as dead."""
DEMO = Path(__file__).parents[1] / "aera" / "demo" / "gsm8k.jsonl.gz"
PAPER = PaperLearner(StaticEncoder.load())


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head that does no work, and two machines of one core each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))  # where workers find this module
        for name, value in IMPATIENT.items():
            patch.setenv(f"RAY_health_check_{name}", value)
        yield from _cluster()


def _cluster() -> Iterator[Any]:
    made = import_module("ray.cluster_utils").Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    for _ in range(2):
        made.add_node(num_cpus=1)
    yield made
    import_module("ray").shutdown()
    made.shutdown()


@pytest.fixture(scope="module")
def workers(cluster: Any) -> RayWorkers:
    return RayWorkers(cluster.address)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    """Forty real questions with 16 responses each, in four segments."""
    folder = tmp_path_factory.mktemp("cluster")
    with gzip.open(DEMO, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in islice(lines, 40)]
    cut = ({**row, "responses": row["responses"][:16]} for row in rows)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in cut), "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aera.pools.record.SEGMENT_RESPONSES", 160)
        made = import_jsonl(folder / "rows.jsonl", folder / "pool", task=get_task("gsm8k"))
    assert len(made.segments) == 4
    return made


@pytest.fixture(scope="module")
def truths(pool: Pool) -> Truths:
    found = Truths.open(pool.path)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def bucket() -> Iterator[Address]:
    with served_bucket() as address:
        yield address


@pytest.fixture(scope="module", params=["disk", "s3"])
def shards(request: pytest.FixtureRequest, pool: Pool, bucket: Address) -> Shards:
    """The same pool in ten parts."""
    place = bucket("shards") if request.param == "s3" else pool.path.parent / "its shards"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aera.pools.record.SEGMENT_RESPONSES", 64)
        export_pool(pool, place)
    made = Shards.open(place)
    assert len(made.parts()) == 10
    return made


def read(
    records: Pool | Shards, truths: Truths, workers: Workers, paper: PaperTable, votes: VoteTable
) -> list[Any]:
    """Votes, replay, embeddings, evidence and traits."""
    held = hold(records, workers=workers)
    policies = [Fixed(4), ASC(0.95), ESC(5)]
    known: Any = {"truths": truths, "workers": workers}
    return [
        [record.votes for record in held],
        [point.as_json() for point in evaluate(records, policies, **known).points],
        [point.as_json() for point in evaluate(held, policies, **known).points],
        paper.states.scalars,
        paper.states.centroids,
        *paper.measures.values(),
        votes.responses.traits,
        votes.responses.grades,
    ]


def prepared(
    records: Pool | Shards, truths: Truths, workers: Workers
) -> tuple[PaperTable, VoteTable]:
    known: Any = {"workers": workers}
    return PAPER.prepare(records, truths, **known), VoteLearner().prepare(records, truths, **known)


def fitted(paper: PaperTable, votes: VoteTable, workers: Workers) -> list[Any]:
    """Fits, features of the vote and weights."""
    replayed = votes.replay(np.arange(len(votes)), None, workers=workers)
    [judged] = nested(PAPER, paper, [LossLimit()], folds=2, workers=workers)
    return [
        crossfit(PAPER, paper, folds=2, workers=workers).p_continue,
        judged.p_continue,
        replayed.evidence,
        replayed.confidence,
        WeigherFit().out_of_fold(votes.responses, groups=votes.groups, seed=0, workers=workers),
    ]


def everything(pool: Pool, truths: Truths, workers: Workers) -> list[Any]:
    """All that can be found out of a pool."""
    for file in pool.path.glob("embeddings-*"):
        file.unlink()
    paper, votes = prepared(pool, truths, workers)
    return [*read(pool, truths, workers, paper, votes), *fitted(paper, votes, workers)]


def test_results_and_errors_come_as_they_would_alone(workers: RayWorkers) -> None:
    assert [*workers.map(squared, range(20))] == [*map(squared, range(20))]
    with pytest.raises(UpstreamError, match=r"^upstream 401: not 0$"):
        [*workers.map(refusing, range(3))]


def test_a_part_that_kills_every_worker_is_given_up_in_one_sentence(workers: RayWorkers) -> None:
    with pytest.raises(RunError, match="workers died 4 times on one part"):
        [*workers.map(dying, range(1))]


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nohost", ":"])
def test_an_address_without_a_cluster_is_refused_at_once(address: str) -> None:
    line = f"from aera.workers import RayWorkers; [*RayWorkers({address!r}).map(abs, [1])]"
    done = subprocess.run(
        [sys.executable, "-c", line], capture_output=True, text=True, timeout=60, check=False
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f'aera.errors.UsageError: there is no Ray cluster at "{address}"')


def test_everything_equals_what_one_process_finds(
    pool: Pool, truths: Truths, workers: RayWorkers
) -> None:
    alone, spread = (everything(pool, truths, each) for each in (SERIAL, workers))
    for one, other in zip(alone, spread, strict=True):
        np.testing.assert_equal(other, one)


def test_shards_stream_through_ray_data_to_the_same_numbers(
    pool: Pool,
    truths: Truths,
    shards: Shards,
    workers: RayWorkers,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert open_truths(shards, workers=workers) == truths
    spread = read(shards, truths, workers, *prepared(shards, truths, workers))
    alone = read(pool, truths, SERIAL, *prepared(pool, truths, SERIAL))
    for one, other in zip(alone, spread, strict=True):
        np.testing.assert_equal(other, one)
    assert capfd.readouterr() == ("", "")


def spoiled(part: Shard) -> int:
    """Work that fails on two of the parts."""
    if part.name in ("part-00003.parquet", "part-00007.parquet"):
        raise UpstreamError(f"not {part.name}", status=401)
    return 1


def test_an_error_on_the_way_through_ray_data_is_the_first_one_as_it_was_raised(
    shards: Shards, workers: RayWorkers
) -> None:
    for each in (SERIAL, workers):
        done = each.map(spoiled, shards.parts())
        assert [next(done) for _ in range(3)] == [1, 1, 1]
        with pytest.raises(UpstreamError, match=r"^upstream 401: not part-00003.parquet$"):
            next(done)


@pytest.mark.parametrize("shards", ["disk"], indirect=True)
def test_a_file_that_kills_every_worker_is_given_up(shards: Shards, workers: RayWorkers) -> None:
    with pytest.raises(RunError, match=r"workers died 4 times on one part, .*part-00000.parquet"):
        [*workers.map(dying, shards.parts()[:1])]


def noted(part: int, *, folder: Path) -> int:
    """Work that takes a while and says where it began."""
    machine = import_module("ray").get_runtime_context().get_node_id()
    with (folder / "begun").open("a") as file:
        file.write(f"{machine}\n")
    time.sleep(1)
    return part


def test_parts_on_a_machine_that_dies_are_worked_on_again(
    cluster: Any, workers: RayWorkers, tmp_path: Path
) -> None:
    doomed = cluster.add_node(num_cpus=2)
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(list, workers.map(partial(noted, folder=tmp_path), range(10)))
        begun = tmp_path / "begun"
        while not begun.exists() or doomed.node_id not in begun.read_text():
            time.sleep(0.02)
        cluster.remove_node(doomed, allow_graceful=False)
        assert done.result(120) == [*range(10)]
    assert len(begun.read_text().split()) > 10, "nothing had to be done again"


def begun_on(machine: str, folder: Path) -> int:
    """How many parts a machine has begun."""
    begun = folder / "begun"
    return begun.read_text().split().count(machine) if begun.exists() else 0


def content(part: Shard) -> bytes:
    """All of a part, and so much of it that Ray leaves it where it was made."""
    return pickle.dumps([*part]) * 10


def noted_content(part: Shard, *, folder: Path, doomed: str) -> bytes:
    """The content, which the other machines have when the doomed one has begun three parts."""
    machine = import_module("ray").get_runtime_context().get_node_id()
    with (folder / "begun").open("a") as file:
        file.write(f"{machine}\n")
    while machine != doomed and begun_on(doomed, folder) < 3:
        time.sleep(0.05)
    time.sleep(0.5)
    return content(part)


def test_files_on_a_machine_that_dies_are_worked_on_again(
    cluster: Any,
    workers: RayWorkers,
    shards: Shards,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also those that were done, but whose result was nowhere else."""
    monkeypatch.delattr(RayWorkers, "_tasks")
    doomed = cluster.add_node(num_cpus=2)
    work = partial(noted_content, folder=tmp_path, doomed=doomed.node_id)
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(list, workers.map(work, shards.parts()))
        while begun_on(doomed.node_id, tmp_path) < 3:
            assert not done.done(), done.result()
            time.sleep(0.02)
        cluster.remove_node(doomed, allow_graceful=False)
        assert done.result(240) == [content(part) for part in shards.parts()]
    assert len((tmp_path / "begun").read_text().split()) > 10, "nothing had to be done again"


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """A slow sampler that notes what it is asked; three parts of two questions each."""
    monkeypatch.setattr("aera.sampling.gathering.SEGMENT_RESPONSES", 16)
    (tmp_path / "ledger").mkdir()
    return Ledger(tmp_path / "ledger", slow=0.2)


def sampled(path: Path, book: Ledger, workers: RayWorkers) -> Pool | None:
    connect = partial(Ledger, book.folder, book.dies_at, slow=book.slow)
    return gather(path, PLAN, QUESTIONS, connect=connect, workers=workers, concurrency=1, block=4)


def test_a_worker_killed_while_sampling_neither_loses_nor_repeats_a_response(
    workers: RayWorkers, book: Ledger, tmp_path: Path
) -> None:
    pool = sampled(tmp_path / "pool", replace(book, dies_at="q1-4"), workers)
    assert pool is not None
    assert book.asked == EVERYTHING
    assert sum(len(record.responses) for record in pool) == len(EVERYTHING)


def test_a_machine_lost_while_sampling_costs_at_most_the_calls_under_way(
    cluster: Any, workers: RayWorkers, book: Ledger, tmp_path: Path
) -> None:
    doomed = cluster.add_node(num_cpus=1)
    (book.folder / "asked").touch()
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(sampled, tmp_path / "pool", replace(book, slow=0.5), workers)
        while not all(f"q{first} 0" in book.asked for first in (0, 2, 4)):  # of all three parts
            time.sleep(0.02)
        cluster.remove_node(doomed, allow_graceful=False)
        pool = done.result(120)
    assert pool is not None
    assert [len(record.responses) for record in pool] == [8] * len(QUESTIONS)
    asked = Counter(book.asked)
    assert sorted(asked) == EVERYTHING
    assert asked.total() - len(EVERYTHING) <= 4, "more than the block under way"
