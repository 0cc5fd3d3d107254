"""Files that other programs wrote, what they say, and short ways to import them."""

import gzip
import json
from pathlib import Path
from typing import Any

from aera import Pool, get_task
from aera.lab import import_file
from aera.lab.formats.pools import Imported

DATA = Path(__file__).parent / "data"
APPLES = "Ann has 3 apples and buys 4 more. How many apples has she?"
PENS = "Tom has 3 boxes of 12 pens. How many pens has he?"
TEXTS = {
    APPLES: ["3 + 4 = 7, so \\boxed{7}", "\\boxed{7}", "I am not sure.", "\\boxed{8}"],
    PENS: ["3 x 12 = \\boxed{36}", "\\boxed{36}", "\\boxed{36}", "12 + 3 = \\boxed{15}"],
}


def brought(folder: Path, content: Any, name: str = "rows.jsonl", **options: Any) -> Imported:
    """What an import finds in a file of these rows, or of this content; a second one goes apart."""
    file = folder / name
    if isinstance(content, list):
        content = "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in content)
    data = content if isinstance(content, bytes) else content.encode()
    file.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    out = folder / ("again" if (folder / "pool").exists() else "pool")
    return import_file(file, out, **options)


def imported(path: Path, out: Path, **options: Any) -> Pool:
    return import_file(path, out, task=get_task("numeric"), **options).pool
