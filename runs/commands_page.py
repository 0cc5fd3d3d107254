"""Write docs/commands.md from the commands themselves."""

from typing import Any

from pools import ROOT, table
from typer.main import get_command

from aera.cli import app

PAGE = ROOT / "docs" / "commands.md"
INTRODUCTION = """# Commands

Which command does what, with which options? `aera COMMAND --help` says the same. Where an environment variable
stands in brackets, it sets the option too. Exit codes: 0 done, 1 the work failed, 2 the call was wrong,
3 some questions have no answer, 130 interrupted.

`runs/commands_page.py` writes this page from the commands.
"""


def render() -> str:
    """The page as it should be."""
    root: Any = get_command(app)
    parts = [INTRODUCTION]
    for name, command in root.commands.items():
        parts += [f"## {name}\n", f"{command.help}\n"]
        rows = [_row(each) for each in command.params if each.name != "help"]
        if rows:
            parts.append(table(["option", "default", "meaning"], rows).markdown(words=True) + "\n")
    return "\n".join(parts).rstrip() + "\n"


def _row(parameter: Any) -> list[str]:
    """An argument in capitals, or an option with what it does."""
    named = parameter.opts[0] if parameter.opts[0].startswith("-") else parameter.name.upper()
    default = getattr(parameter.default, "value", parameter.default)
    shown = "" if default is None or default is False else f"`{default}`"
    shown = "required" if parameter.required else shown
    variable = f" (`{parameter.envvar}`)" if getattr(parameter, "envvar", None) else ""
    return [f"`{named}`", shown, f"{parameter.help}{variable}"]


if __name__ == "__main__":
    PAGE.write_text(render(), "utf-8")
