"""How much memory a call takes, as PyTorch's allocator reports it: the same in each run."""

import os
from itertools import accumulate

from torch.profiler import ProfilerActivity, profile


def memory(call) -> list[int]:
    """Bytes of tensors, beyond those from before, after each change of them in a call."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # it says when it starts and stops
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        result = call()
    events = profiled.profiler.kineto_results.events()
    changes = sorted([e for e in events if e.name() == "[memory]"], key=lambda e: e.start_ns())
    del result  # which is in memory up to here
    return list(accumulate([change.nbytes() for change in changes], initial=0))


def peak_memory(call) -> int:
    return max(memory(call))
