"""What is written appears whole or not at all."""

from pathlib import Path

import pytest

from aera.errors import UsageError
from aera.files import whole_file, whole_folder


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
