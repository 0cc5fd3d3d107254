"""What is written appears whole or not at all."""

from contextlib import suppress
from pathlib import Path

import pytest

from aera.errors import UsageError
from aera.files import whole_file, whole_folder


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_written_appears_whole_or_leaves_nothing(tmp_path: Path, fails: bool) -> None:
    out = tmp_path / "out"
    with (
        suppress(InterruptedError),
        whole_folder(out / "folder") as folder,
        whole_file(out / "file") as file,
    ):
        (folder / "inside").touch()
        file.write_text("all")
        assert not {out / "folder", out / "file"} & {*out.iterdir()}
        if fails:
            raise InterruptedError
    made = sorted(path.name for path in out.rglob("*"))
    assert made == ([] if fails else ["file", "folder", "inside"])


def test_a_place_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    for place in (whole_folder, whole_file):
        with pytest.raises(UsageError, match="exists already"), place(tmp_path / "mine"):
            pass
    assert (tmp_path / "mine").read_text() == "mine"
