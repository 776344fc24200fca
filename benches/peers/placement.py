#!/usr/bin/env python3
"""Peer side of the placement benchmark: OpenRath's trusted-host backend.

Prints one JSON object per row on stdout, as ledger.py does:

    {"row": id, "peer": "openrath", "unit": ..., "value": median, "n": ..., "note": ...}
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

from rath.backend import (
    BackendSandboxSpec,
    BackendToolCommandRun,
    BackendToolFilesRead,
    BackendToolFilesWrite,
    ToolExecutionFailure,
    TrustedHostBackend,
)


def median_us(work: Callable[[int], object], repeats: int) -> float:
    took = []
    for n in range(repeats):
        start = time.perf_counter()
        result = work(n)
        took.append((time.perf_counter() - start) * 1e6)
        if isinstance(result, ToolExecutionFailure):
            raise RuntimeError(result)
    return statistics.median(took)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    repeats = 20 if parser.parse_args().quick else 300
    backend = TrustedHostBackend()
    data = b"x" * 1024
    with tempfile.TemporaryDirectory() as directory:
        sandbox = backend.open(BackendSandboxSpec(working_dir=directory))
        rows = {
            "exec_true_us": lambda _: backend.dispatch(sandbox, BackendToolCommandRun(cmd=["true"])),
            "file_write_us": lambda n: backend.dispatch(sandbox, BackendToolFilesWrite(path=f"f{n % 16}", data=data)),
            "file_read_us": lambda n: backend.dispatch(sandbox, BackendToolFilesRead(path=f"f{n % 16}")),
        }
        for row, work in rows.items():
            print(f"  {row} …", file=sys.stderr)
            value = median_us(work, repeats)
            note = "through dispatch of the trusted-host backend; nothing is recorded"
            out = {"row": row, "peer": "openrath", "unit": "us", "value": value, "n": repeats, "note": note}
            print(json.dumps(out), flush=True)
        backend.close(sandbox)


if __name__ == "__main__":
    main()
