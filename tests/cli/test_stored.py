"""`aera evaluate` and `aera train` take a pool as Parquet at a URI and give the pool's numbers."""

import json
from pathlib import Path

import pytest
from commands import said as aera
from small_study import Bench


def test_what_is_made_of_an_address_is_that_of_the_pool(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, made = f"memory:/{tmp_path}/{bench.pool.name}", []
    monkeypatch.setattr("aera.pools.pool.SEGMENT_RESPONSES", 640)
    aera("export", bench.pool.path, "--out", address)
    for number, place in enumerate((address, bench.pool.path)):
        out = tmp_path / str(number)
        for name, *options in (
            ("stated", "--policies", "fixed-32,asc-0.9,lead-3"),
            ("learned", "--protocol", "holdout", "--max-loss", "0.1"),
        ):
            (out / name).mkdir(parents=True)
            files = ("--json", out / name / "out.json", "--report", out / name / "page.html")
            aera("evaluate", place, *options, *files)
        aera("train", place, "--out", out / "controller", "--max-loss", 0.5)
        found = (each for each in sorted(out.rglob("*")) if each.is_file())
        made.append({str(each.relative_to(out)): each.read_bytes() for each in found})
    assert made[0] == made[1]
    for name in ("stated", "learned"):
        assert json.loads(made[0][f"{name}/out.json"])["points"][0]["accuracy"] is not None
