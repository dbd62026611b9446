"""Clock, memory, the speed of plain copying, and facts about the machine."""

import multiprocessing
import os
import platform
import resource
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, TypeVar

import torch

from bandits_torch.history import versions

Result = TypeVar("Result")


def clock(device: str) -> float:
    """Seconds, once the device has done all it was asked to."""
    if device == "cuda":
        torch.cuda.synchronize()
    return perf_counter()


def at_work(device: str) -> float:
    """Like ``clock``, but on a CPU the seconds that this process has been at work, whatever else the machine does."""
    return clock(device) if device == "cuda" else process_time()


def median(values: list[float]) -> float:
    """The middle value, as a number that a table can hold."""
    return float(torch.tensor(values, dtype=torch.float64).quantile(0.5))


def copy_seconds(bytes_moved: int, device: str, repeats: int = 30) -> float:
    """Median time of a copy that moves this many bytes, half of them read and half written, from and to buffers as
    large."""
    source = torch.ones(max(1, bytes_moved // 16), dtype=torch.float64, device=device)
    target = torch.empty_like(source)
    seconds = []
    for _ in range(repeats + 3):
        start = clock(device)
        target.copy_(source)
        seconds.append(clock(device) - start)
    return median(seconds[3:])


def peak_mib(device: str) -> float:
    """Most memory this process has held so far, in MiB: of the GPU if that is the device, else resident memory (on
    Linux ``VmHWM``; ``ru_maxrss`` starts at the peak of the process that started this one)."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 2**10
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def alone(function: Callable[..., Result], *arguments: Any) -> Result:
    """What ``function(*arguments)`` gives in a fresh process, with as many threads as this one uses."""
    context = multiprocessing.get_context("spawn")
    threads = torch.get_num_threads()
    with ProcessPoolExecutor(1, context, initializer=torch.set_num_threads, initargs=(threads,)) as pool:
        return pool.submit(function, *arguments).result()


def machine(device: str) -> dict[str, Any]:
    """What figures depend on, beside the code."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "accelerator": torch.cuda.get_device_name() if device == "cuda" else None,
        "system": platform.system(),
        **versions(),
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
