"""What `aera evaluate` writes: the evaluation as JSON, the page, the figures."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aera.errors import UsageError
from aera.files import write_json

if TYPE_CHECKING:
    from aera.lab.judging.evaluation import Evaluation

JsonOption = Annotated[
    Path | None, typer.Option("--json", help="Write the evaluation to this file, for programs.")
]
ReportOption = Annotated[
    Path | None, typer.Option(help="Write one offline page with figures, as report.html.")
]
FiguresOption = Annotated[
    Path | None, typer.Option(help="Write the figures of the page as SVG into this folder.")
]


@dataclass(frozen=True)
class Outputs:
    """Where each of them goes, None for nowhere."""

    json: Path | None = None
    report: Path | None = None
    figures: Path | None = None

    @property
    def wanted(self) -> bool:
        """Whether there is anything to write."""
        return any((self.json, self.report, self.figures))

    def check(self) -> None:
        """Refuse a place that cannot be written to, before any work is done."""
        for option, file in (("json", self.json), ("report", self.report)):
            if file and not file.absolute().parent.is_dir():
                raise UsageError(f'--{option} cannot write "{file}": there is no such folder')
        if self.report and self.report.suffix.lower() not in (".html", ".htm"):
            raise UsageError(f'--report writes a page, as report.html, but got "{self.report}"')
        if self.figures and self.figures.exists() and not self.figures.is_dir():
            raise UsageError(f'--figures needs a folder, but "{self.figures}" is a file')
        if self.report or self.figures:
            from aera.lab.report.page import converter

            converter()

    def write(self, made: "Evaluation") -> None:
        """Everything that was asked for."""
        from aera.lab.report.page import Report, export_svg, write_report

        if not self.wanted:
            return
        report = Report.of(made)
        if self.json:
            write_json(self.json, report.evaluation)
        if self.report:
            write_report(self.report, report)
        if self.figures:
            export_svg(self.figures, report)
