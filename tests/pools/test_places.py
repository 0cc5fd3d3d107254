from pathlib import Path

import pytest

from aera.errors import UsageError
from aera.files import whole_file, whole_folder
from aera.pools.places import Place, locate


def test_a_folder_and_a_file_appear_when_they_are_whole(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "folder") as folder, whole_file(tmp_path / "file") as file:
        (folder / "inside").touch()
        file.write_text("all")
        assert not (tmp_path / "folder").exists()
        assert not (tmp_path / "file").exists()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder", "inside"]


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    def fill() -> None:
        with whole_folder(tmp_path / "folder") as folder, whole_file(tmp_path / "file") as file:
            (folder / "inside").touch()
            file.write_text("half")
            raise RuntimeError("cut")

    with pytest.raises(RuntimeError, match="cut"):
        fill()
    assert list(tmp_path.iterdir()) == []


def test_a_place_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    for place in (whole_folder, whole_file):
        with pytest.raises(UsageError, match="exists already"), place(tmp_path / "mine"):
            pass
    assert (tmp_path / "mine").read_text() == "mine"


def test_an_address_is_a_path_or_a_place(tmp_path: Path) -> None:
    spaced = tmp_path / "a b"
    assert locate(str(spaced)) == locate(spaced) == locate(spaced.as_uri()) == spaced
    place = locate("s3://key:hush@bucket/a%20b/?endpoint_override=localhost:9&scheme=http")
    assert isinstance(place, Place)
    assert locate(place) is place
    assert str(place / "part.parquet") == "s3://bucket/a b/part.parquet"
    assert ((place / "part.parquet").name, (place / "part.parquet").suffix) == (
        "part.parquet",
        ".parquet",
    )


@pytest.mark.parametrize("address", ["what://hush@is/this", "s3://hush@bucket/%zz"])
def test_an_address_that_pyarrow_does_not_know_is_refused_without_repeating_it(
    address: str,
) -> None:
    with pytest.raises(UsageError, match="pyarrow cannot open this address") as caught:
        locate(address)
    assert "hush" not in str(caught.value)
