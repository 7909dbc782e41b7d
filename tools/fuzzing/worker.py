"""The process that checks programs: a line of JSON in, lines of JSON out.

It says which stage it is in, so that the one who waits knows what crashed or hangs.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from dataclasses import asdict
from typing import Any

os.environ.setdefault("PLIANT_CACHE", "0")

import torch

from tools.fuzzing.check import Invalid, check
from tools.fuzzing.generate import generate
from tools.fuzzing.program import Program


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # for the campaign, which ends its workers
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(1)
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what programs print is not for the channel

    def say(**message: Any) -> None:
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    say(stage="ready")
    for line in sys.stdin:
        request = json.loads(line)
        say(stage="generate")
        if "seed" in request:
            program = generate(request["seed"], request.get("backend"))
            say(program=program.to_json())
        else:
            program = Program.from_json(request["program"])
        try:
            finding = check(program, stage=lambda name: say(stage=name))
            say(finding=None if finding is None else asdict(finding))
        except Invalid:
            say(finding=None)
        except Exception:  # of the fuzzer itself
            say(finding={"kind": "fuzzer", "text": traceback.format_exc(), "call": 0, "place": ""})


if __name__ == "__main__":
    main()
