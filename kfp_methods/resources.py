"""What a run took at most: its process's memory, and its GPUs' where torch has used one."""

from __future__ import annotations

import resource
import sys

_BYTES_PER_MAXRSS = 1 if sys.platform == "darwin" else 1024
_MEGABYTE = 1e6  # as in the names of MLflow's system metrics


def peaks() -> dict[str, float]:
    """Megabytes so far, by name: the resident set of this process, and what torch held of its fullest GPU.

    Samples in between may miss a peak; the operating system and torch's allocator keep it.
    """
    found = {"peak_memory_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _BYTES_PER_MAXRSS}
    torch = sys.modules.get("torch")  # not imported for this
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        devices = range(torch.cuda.device_count())
        found["gpu_peak_memory_megabytes"] = max(torch.cuda.max_memory_reserved(device) for device in devices)
    return {name: round(size / _MEGABYTE, 1) for name, size in found.items()}
