#!/usr/bin/env python3
"""Peer side of the compose benchmark: a fan-out over branches in LangGraph.

Prints one JSON object per row on stdout, as ledger.py does:

    {"row": id, "peer": "langgraph", "unit": ..., "value": median, "n": ..., "note": ...}

A branch is a `Send` to a node that gives a scripted answer. The answers of all
branches are collected in one list, which a last node reads. The state is kept
by `SqliteSaver` as it comes, with `durability="sync"`.
"""

from __future__ import annotations

import argparse
import gc
import operator
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypedDict
from uuid import uuid4

from ledger import Bench, DiskFloor, Result, Row, as_json, log, run_row, stopwatch, versions

AT_MOST = 64  # branches at the same time
TARGET = Path(__file__).resolve().parents[2] / "target"  # the disk that our side measures on


@dataclass(frozen=True)
class Sizes:
    """How much work one run does."""

    branches: int
    memory_branches: int
    repeats: int
    slow_repeats: int


FULL = Sizes(branches=1_000, memory_branches=10_000, repeats=3, slow_repeats=1)
QUICK = Sizes(branches=200, memory_branches=2_000, repeats=1, slow_repeats=1)


class State(TypedDict):
    items: list[int]
    answers: Annotated[list[Any], operator.add]


class Item(TypedDict):
    item: int


@cache
def builder() -> Any:
    from langchain_core.messages import AIMessage
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import Send

    def work(item: Item) -> dict[str, Any]:
        return {"answers": [AIMessage(content="The answer.")]}

    def join(state: State) -> dict[str, Any]:
        return {}

    def fan_out(state: State) -> Any:
        return [Send("work", {"item": item}) for item in state["items"]]

    graph = StateGraph(State)
    graph.add_node("work", work)
    graph.add_node("join", join)
    graph.add_conditional_edges(START, fan_out, ["work"])
    graph.add_edge("work", "join")
    graph.add_edge("join", END)
    return graph


def run(saver: Any, branches: int) -> float:
    """Seconds for all branches and their join."""
    graph = builder().compile(checkpointer=saver)
    config = {"configurable": {"thread_id": str(uuid4())}, "max_concurrency": AT_MOST}
    with stopwatch() as seconds:
        done = graph.invoke({"items": list(range(branches)), "answers": []}, config, durability="sync")
    assert len(done["answers"]) == branches
    return seconds()


def langgraph_durable(bench: Bench) -> Result:
    from langgraph.checkpoint.sqlite import SqliteSaver

    floor = DiskFloor(bench)
    with SqliteSaver.from_conn_string(str(bench.fresh_dir("langgraph-send") / "checkpoints.db")) as saver:
        saver.setup()
        value, n = bench.repeat(lambda: run(saver, bench.sizes.branches))
    return Result(
        value,
        n,
        f"{bench.sizes.branches} Sends, {AT_MOST} at once, SqliteSaver as it comes, durability='sync', fsynced; "
        f"{floor.note()}",
    )


def langgraph_memory(bench: Bench) -> Result:
    from langgraph.checkpoint.memory import InMemorySaver

    value, n = bench.repeat(lambda: run(InMemorySaver(), bench.sizes.memory_branches))
    return Result(value, n, f"{bench.sizes.memory_branches} Sends, {AT_MOST} at once, InMemorySaver")


ROWS = [
    Row("branches_durable_s", "langgraph", "s", langgraph_durable),
    Row("branches_memory_s", "langgraph", "s", langgraph_memory),
]


def main() -> int:
    parser = argparse.ArgumentParser(description="Peer side of the compose benchmark.")
    parser.add_argument("--quick", action="store_true", help="smoke run with small sizes")
    parser.add_argument("--only", metavar="ROW[,ROW]", help="only these rows")
    parser.add_argument("--dir", type=Path, default=TARGET, help="where to put the temporary stores")
    arguments = parser.parse_args()
    arguments.dir.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="compose-peers-", dir=arguments.dir))
    results, sys.stdout = sys.stdout, sys.stderr  # nothing but rows on stdout
    os.environ["LANGSMITH_TRACING"] = "false"
    os.environ["LANGCHAIN_TRACING_V2"] = "false"
    try:
        log(versions())
        bench = Bench(root, QUICK if arguments.quick else FULL)
        for row in ROWS:
            if arguments.only and not row.matches(arguments.only.split(",")):
                continue
            gc.collect()
            began = time.perf_counter()
            result = run_row(row, bench)
            print(as_json(row, result, arguments.quick), file=results, flush=True)
            log(f"{row.peer} {row.id}: {result.value} {row.unit} ({time.perf_counter() - began:.1f} s)")
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
