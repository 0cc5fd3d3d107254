"""Write docs/evidence.md from the feature table."""

from pools import ROOT, table

from aera.evidence import FEATURES
from aera.lab.audit import PROVENANCE

PAGE = ROOT / "docs" / "evidence.md"
INTRODUCTION = """# Evidence

The 55 numbers a gate sees at a checkpoint, generated from the table in `aera/evidence.py` by
`runs/evidence_page.py`. *First checkpoint* is the neutral value where there is no predecessor. A
quantity that does not exist (the cosine over pairs of one response) is missing and replaced by the
training median. Nothing outside the prefix, the question and the schedule enters.
"""


def render() -> str:
    """The page as it should be."""
    parts = [INTRODUCTION]
    groups = dict.fromkeys(feature.group for feature in FEATURES)
    for group in groups:
        members = [feature for feature in FEATURES if feature.group == group]
        rows = [
            [f"`{f.name}`", "" if f.neutral is None else f"{f.neutral:g}", f.meaning]
            for f in members
        ]
        parts.append(f"## {group.capitalize()} ({len(members)})\n\nFrom {PROVENANCE[group]}.\n")
        parts.append(table(["feature", "first checkpoint", "meaning"], rows) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(render(), "utf-8")
