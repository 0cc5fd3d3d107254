"""Write docs/policies.md from the table of policy labels."""

from pools import ROOT, table

from aera import Schedule, standard_policies
from aera.lab import DESCRIPTIONS, LIMITS

PAGE = ROOT / "docs" / "policies.md"
INTRODUCTION = """# Policies

Which stopping rules can I name? A policy looks at the responses so far and says stop or continue. Its label is used
by `aera evaluate --policies`, by the `policy` field of a gateway request, and in every table. `aera policies` prints
this list.

    aera evaluate POOL --policies fixed-16,asc-0.9,esc-5+min8+max64,majority-0.8+vote

`runs/policies_page.py` writes this page from `aera/policies/rules.py`.
"""
LIMITS_TEXT = """## Limits and endings

A limit is added to a label, in any number: `esc-5+min8+max64`.
"""
ROWS_TEXT = """## Other rows of a table

| row | is |
| --- | --- |
| `weighted-N` | N responses for every question, with a controller's learned vote weights |
| `aera-calibrated`, `asc-calibrated` | the setting was chosen on other questions (nested and holdout) |
| `one-shot` | a number of responses named once, after the first checkpoint (crossfit) |
| `oracle` | hindsight: the cheapest checkpoint with the best grade, question by question |
| `matched-random` | the gate's stops given to other questions by chance: does it matter who stops? |
"""


def render() -> str:
    """The page as it should be."""
    rows = [[f"`{label}`", *told] for label, told in DESCRIPTIONS.items()]
    limits = [[f"`{limit}`", meaning] for limit, meaning in LIMITS.items()]
    usual = ", ".join(f"`{policy}`" for policy in standard_policies(Schedule()))
    shown = f"Without `--policies` an evaluation shows {usual}.\n"
    parts = [
        INTRODUCTION,
        table(["label", "stops", "from"], rows).markdown(words=True) + "\n",
        shown,
    ]
    parts += [
        LIMITS_TEXT,
        table(["ending", "means"], limits).markdown(words=True) + "\n",
        ROWS_TEXT,
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(render(), "utf-8")
