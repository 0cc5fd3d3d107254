"""The recipe that puts our results beside the paper's, on a page of a few rows."""

from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
PAGE = """# Results

<!-- begin nested -->
| policy | accuracy % | against Fixed-128 | 95 % | responses |
| --- | ---: | ---: | ---: | ---: |
| gsm8k aera | 71.00 | -2.00 | [-3.00, -1.00] | 20.00 |
| gsm8k asc | 72.00 | -1.00 | [-2.00, +0.10] | 10.00 |
| csqa aera | 55.00 | -2.00 | [-5.00, +1.00] | 12.00 |
| csqa asc | 54.00 | -3.00 | [-6.00, +1.00] | 14.00 |
<!-- end nested -->

<!-- begin live-gsm8k -->
Calibration (50 questions): fine.

| method | responses | accuracy % |
| --- | ---: | ---: |
| Fixed-4 | 4.00 | 58.67 |
| Fixed-8 | 8.00 | 66.00 |
| Fixed-16 | 16.00 | 69.33 |
| Fixed-32 | 32.00 | 69.67 |
| Fixed-64 | 64.00 | 69.00 |
| Fixed-128 | 128.00 | 69.33 |
| AERA, aera-0.70 | 32.00 | 65.67 |
<!-- end live-gsm8k -->

<!-- begin empty -->
<!-- end empty -->
"""


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "runs")
    import paper_claims

    return paper_claims


def test_claims_are_judged_by_the_published_rows(claims: ModuleType) -> None:
    found = claims.nested_claims(claims.Published(PAGE))
    assert [claim.holds for claim in found] == ["**no**", "**no**", "**no**"]
    better = PAGE.replace("[-3.00, -1.00]", "[-3.00, +0.50]").replace("| 54.00", "| 56.00")
    found = claims.nested_claims(claims.Published(better.replace("14.00 |", "9.00 |")))
    assert [claim.holds for claim in found] == ["yes", "**no**", "yes"]


def test_a_table_has_the_papers_number_beside_ours(claims: ModuleType) -> None:
    lines = claims.online_table(claims.Published(PAGE)).splitlines()
    assert lines[-1] == "| AERA | 4.44 | 32.00 | 92.61 | 65.67 | 96.53 | 75.00 |"


def test_a_claim_table_has_one_row_per_claim(claims: ModuleType) -> None:
    found = claims.nested_claims(claims.Published(PAGE))
    assert len(claims.claim_table(found).splitlines()) == 2 + len(found)


@pytest.mark.parametrize("section", ["empty", "missing"])
def test_a_section_that_is_not_there_is_named(claims: ModuleType, section: str) -> None:
    with pytest.raises(SystemExit, match=f"section {section} is not published"):
        claims.Published(PAGE).rows(section)
