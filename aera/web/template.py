"""Look: the style and the drawing code that the gateway's page and the evaluation report share."""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

HERE = Path(__file__).parent
NONE: Mapping[str, str] = MappingProxyType({})


def fill_template(template: Path, parts: Mapping[str, str] = NONE) -> str:
    """A page with {{style.css}}, {{charts.js}} and its own parts put in."""
    shared = {name: (HERE / name).read_text("utf-8") for name in ("style.css", "charts.js")}
    known = {**shared, **parts}
    return re.sub(r"\{\{([a-z.]+)\}\}", lambda hole: known[hole[1]], template.read_text("utf-8"))


def palette() -> dict[str, str]:
    """The colours on light paper by name, for files that cannot ask a page for them."""
    light = (HERE / "style.css").read_text("utf-8").partition("@media")[0]
    return dict(re.findall(r"(--[a-z]+): (#[0-9a-f]{6});", light))
