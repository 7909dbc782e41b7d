"""`pliant report`: a page from the events that one or several processes have written."""

from __future__ import annotations

import argparse
import sys

from pliant.base.errors import counted
from pliant.base.records import Record, read
from pliant.reports.page import write


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "report",
        help="make an HTML page from files that PLIANT_LOGS_JSON has written",
        description="Make one HTML page from the events of a run: the files that "
        "PLIANT_LOGS_JSON=file has written, of all its processes.",
    )
    parser.add_argument("events", nargs="+", help="a file of events, one line of JSON each")
    parser.add_argument("-o", "--output", default="pliant-report.html", metavar="FILE")
    parser.set_defaults(main=main)


def main(chosen: argparse.Namespace) -> int:
    try:
        records = [record for path in chosen.events for record in _read(path)]
        write(chosen.output, records, ", ".join(chosen.events))
    except (OSError, ValueError) as error:
        print(f"pliant report: {error}", file=sys.stderr)
        return 2
    print(chosen.output)
    return 0


def _read(path: str) -> list[Record]:
    unreadable: list[int] = []
    records = read(path, unreadable)
    if unreadable and not records:
        raise ValueError(f"{path} is not a file that PLIANT_LOGS_JSON has written")
    if unreadable:
        lines = counted(len(unreadable), "line")
        text = f"{lines} of {path} can't be read, the first of them line {unreadable[0]}"
        print(f"pliant report: {text}", file=sys.stderr)
    return records
