"""The machine that measures."""
import collections
import os
import pathlib
import platform


def value_of(path, key, separator):
    """What stands behind `key` and `separator` in a file of such lines; "" where nothing does."""
    try:
        lines = pathlib.Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(separator)[2].strip(' \t"\r') for line in lines
                 if line.startswith(key) and separator in line), "")


def gpus():
    """By the driver's account, which needs no CUDA: "3 x NVIDIA H200, 1 x NVIDIA L4"."""
    found = collections.Counter(value_of(gpu / "information", "Model", ":") or "unknown GPU"
                                for gpu in pathlib.Path("/proc/driver/nvidia/gpus").glob("*"))
    return ", ".join(f"{count} x {model}" for model, count in sorted(found.items()))


def cpu():
    return value_of("/proc/cpuinfo", "model name", ":") or platform.machine()


def cores():
    """How many this process may use."""
    return len(os.sched_getaffinity(0))


def this_machine():
    return {"cpu": cpu(), "cores": cores(),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "system": value_of("/etc/os-release", "PRETTY_NAME", "="),
            "kernel": f"{platform.system()} {platform.release()}", "gpus": gpus()}
