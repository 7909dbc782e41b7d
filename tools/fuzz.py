"""Random tensor programs, compiled and eagerly: finds what differs and shrinks it.

    python tools/fuzz.py --minutes 10 --jobs 2 --report fuzz.txt
    python tools/fuzz.py --seed 1234 --count 1      # one program again
    python tools/fuzz.py --seed 1234 --show         # its script
    python tools/fuzz.py --minutes 10 --backend triton_interpreter  # kernels of GPUs

A program follows from its seed. Each is called several times, with other sizes, values, dtypes and
aliasing; every call is compared with eager PyTorch in values, strides, dtypes, aliasing, mutation
and exceptions. Programs run in worker processes: a crash or a hang is a finding, too. When the
minutes are over, or at Ctrl-C, what runs is stopped; the report is renewed all the time. Ends with
status 1 if anything was found that is not listed in docs/differences.md.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.fuzzing.campaign import Campaign, Worker, report

SUMMARY = 10_000  # characters


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, help="the first one; the time of day if not given")
    parser.add_argument("--count", type=int, help="how many programs; without end if not given")
    parser.add_argument("--backend", help="of all programs, for instance triton_interpreter")
    parser.add_argument("--minutes", type=float, help="how long; 1 if there is no --count")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument(
        "--timeout", type=float, default=60.0, help="processor seconds for a program"
    )
    parser.add_argument("--shrink", type=float, default=60.0, help="seconds to shrink a finding")
    parser.add_argument("--report", type=Path, help="a file for all findings, with scripts")
    parser.add_argument("--show", action="store_true", help="print the script of the seed")
    parser.add_argument("--quiet", action="store_true", help="only the summary at the end")
    options = parser.parse_args(arguments)
    seed = int(time.time()) * 1000 if options.seed is None else options.seed
    if options.show:
        print(Worker(options.timeout).check(seed=seed, backend=options.backend)[0].script())
        return 0
    minutes = options.minutes
    if minutes is None and options.count is None:
        minutes = 1.0
    stop = None if options.count is None else seed + options.count
    campaign = Campaign(options.timeout, options.shrink, options.backend, report=options.report)
    campaign.tell = (lambda text: None) if options.quiet else _tell
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # of `timeout`: as Ctrl-C
    print(f"from seed {seed}, {options.jobs} jobs of {os.cpu_count()} processors", flush=True)
    campaign.run(
        itertools.takewhile(lambda s: s != stop, itertools.count(seed)), options.jobs, minutes
    )
    print(report(campaign, SUMMARY))
    return 1 if campaign.cases else 0


def _tell(text: str) -> None:
    print(text + "\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
