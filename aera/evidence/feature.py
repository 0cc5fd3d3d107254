"""Feature: one row of a table of evidence; the tables generate their own documentation."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Feature:
    """One row of the table. `neutral` is what it is where there is no predecessor."""

    name: str
    group: str
    neutral: float | None
    meaning: str
