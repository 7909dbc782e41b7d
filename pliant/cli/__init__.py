"""The command `pliant`: `pliant run`, `pliant report`, `pliant doctor`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import pliant
from pliant.cli import doctor, report, run

COMMANDS = (run, report, doctor)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (that of the process if not given); the exit status."""
    parser = argparse.ArgumentParser(
        prog="pliant", description="A just-in-time compiler for PyTorch programs."
    )
    parser.add_argument("--version", action="version", version=f"pliant {pliant.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(commands)
    chosen = parser.parse_args(arguments)
    status: int = chosen.main(chosen)
    return status
