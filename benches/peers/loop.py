#!/usr/bin/env python3
"""Peer side of the loop benchmark: what a turn of an agent costs in OpenRath and LangGraph.

Prints one JSON object per row on stdout, as ledger.py does:

    {"row": id, "peer": "openrath"|"langgraph", "unit": ..., "value": median, "n": ..., "note": ...}

A row id with a suffix (`disk_bytes_per_turn_v1`) is a variant of the row it is
named after: the same work through another door of the same peer.

One turn is an answer of a scripted model that calls a trivial tool, the call,
and the tool's result in the conversation. It is timed from one call of the
model to the next, inside one run of the peer's own loop.

* OpenRath v1: `run_session_loop` with a scripted chat client, in memory or with
  `persist` (one JSONL file per session, flushed, never fsynced).
* OpenRath v2: `LocalRuntime` over `SQLiteRunStore`, the conversation as the
  run's state. It has no agent loop of its own, so the workflow is one: a step
  that asks the model and a step that calls the tool.
* LangGraph: a `StateGraph` with `add_messages`, a model node and a tool node,
  kept by `InMemorySaver` or `SqliteSaver`.

A turn late in a conversation is measured by starting with a conversation that
is already that long.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import decode
from ledger import (
    Bench,
    DiskFloor,
    Result,
    Row,
    as_json,
    bytes_below,
    log,
    rath_home,
    rath_synchronous,
    run_row,
    stopwatch,
    versions,
)

ASKED = "Add one and two, again and again."
ANSWER = "words ".ljust(2048, "w")  # 2 KiB
OUTPUT = "0123456789abcdef" * 256  # 4 KiB
SETTLE = 2  # turns at the start of a run that are not timed
WORKERS = 8  # threads that work on sessions where the peer's door blocks
SLOW_SECONDS = 15.0  # a row is not repeated after so long
TARGET = Path(__file__).resolve().parents[2] / "target"  # the disk that our side measures on


@dataclass(frozen=True)
class Sizes:
    """How much work one run does."""

    early: int  # "turn 10"
    memory: int  # the late turn in memory
    durable: int  # the late turn on disk
    window: int  # turns that are measured in one run
    disk: int  # turns before the disk is measured
    sessions: int  # sessions at once
    slow_sessions: int  # sessions actually run where they are slow; scaled to `sessions`
    each: int  # turns of each of them
    repeats: int
    slow_repeats: int  # of what takes more than some seconds


FULL = Sizes(
    early=10,
    memory=10_000,
    durable=1_000,
    window=20,
    disk=300,
    sessions=1_000,
    slow_sessions=100,
    each=20,
    repeats=5,
    slow_repeats=3,
)
QUICK = Sizes(
    early=10,
    memory=2_000,
    durable=200,
    window=5,
    disk=20,
    sessions=200,
    slow_sessions=5,
    each=20,
    repeats=2,
    slow_repeats=1,
)


class Clock:
    """When the model was called."""

    def __init__(self) -> None:
        self.ticks: list[float] = []

    def tick(self) -> None:
        self.ticks.append(time.perf_counter())

    def turns_us(self) -> list[float]:
        """The time of each turn between the first call and the last, the first turns left out."""
        pairs = list(zip(self.ticks, self.ticks[1:]))
        return [(end - begin) * 1e6 for begin, end in pairs[SETTLE:]]


@dataclass(frozen=True)
class Script:
    """What the model says and the tool gives, for so many turns."""

    turns: int
    answer: str = ""
    output: str | None = None  # the sum, if there is none

    def tool(self, arguments: dict[str, Any]) -> str:
        return str(arguments["a"] + arguments["b"]) if self.output is None else self.output


def weigh(directory: Path) -> int:
    """The bytes in a directory that is not needed any more."""
    total = bytes_below(directory)
    shutil.rmtree(directory)
    return total


Run = Callable[[Script, int], Clock]  # runs a script behind a conversation of so many turns


def turn_us(bench: Bench, before: int, run: Run) -> tuple[float, int]:
    """The median time of a turn behind `before` others, and how many were timed."""
    spans: list[float] = []
    began = time.perf_counter()
    for _ in range(bench.sizes.repeats):
        gc.collect()
        spans += run(Script(bench.sizes.window + SETTLE), before).turns_us()
        if time.perf_counter() - began >= SLOW_SECONDS:
            break
    return statistics.median(spans), len(spans)


# --------------------------------------------------------------------------
# OpenRath


@cache
def rath() -> SimpleNamespace:
    from rath.flow.tool import FlowToolCall
    from rath.llm import Provider
    from rath.llm.chat_response import (
        RathLLMAssistantMessage,
        RathLLMChatChoice,
        RathLLMChatResponse,
        RathLLMToolCallFunction,
        RathLLMToolCallPart,
    )
    from rath.session import Session
    from rath.session.chunk import ChunkTable, assistant_turn_chunk, tool_feedback_chunk, user_text_chunk
    from rath.session.loop import run_session_loop

    logging.getLogger("rath").setLevel(logging.ERROR)

    class Add(FlowToolCall):
        """Adds two numbers, or gives what the script says."""

        name = "add"
        description = "Adds two numbers."
        parameters = {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        }

        def __init__(self, script: Script) -> None:
            self.script = script

        def __call__(self, session: Any, arguments: Any) -> str:
            return self.script.tool(arguments)

    def call(turn: int) -> Any:
        arguments = {"a": 1, "b": 2}
        function = RathLLMToolCallFunction("add", json.dumps(arguments), arguments, False)
        return RathLLMToolCallPart(f"call_{turn}", "function", function)

    def response(message: Any) -> Any:
        finish = "tool_calls" if message.tool_calls else "stop"
        return RathLLMChatResponse("", (RathLLMChatChoice(0, finish, message),), 0, "scripted")

    class Scripted:
        """The loop's executor: a scripted model, and the tool called as the default executor calls it."""

        def __init__(self, script: Script, clock: Clock) -> None:
            self.script, self.clock, self.turn = script, clock, 0

        def tool_schemas(self) -> tuple[()]:
            return ()

        def complete(self, request: Any) -> Any:
            self.clock.tick()
            self.turn += 1
            if self.turn > self.script.turns:
                return response(RathLLMAssistantMessage(content="Goodbye."))
            return response(
                RathLLMAssistantMessage(content=self.script.answer or None, tool_calls=(call(self.turn),))
            )

        def dispatch_tool(self, session: Any, tool: Any, arguments: Any) -> Any:
            return tool(session, dict(arguments))

    class ScriptedAsync(Scripted):
        """The same without a thread for each answer."""

        async def acomplete(self, request: Any) -> Any:
            return self.complete(request)

        async def adispatch_tool(self, session: Any, tool: Any, arguments: Any) -> Any:
            return await asyncio.to_thread(self.dispatch_tool, session, tool, arguments)

    def conversation(turns: int) -> Any:
        rows = [user_text_chunk(ASKED)]
        for turn in range(turns):
            rows.append(assistant_turn_chunk(tool_calls=(call(turn),), content=None))
            rows.append(tool_feedback_chunk(f"call_{turn}", "add", json.dumps("3")))
        return Session(chunk_table=ChunkTable(rows=tuple(rows)))

    prompt = Session.from_agent_prompt("Add.")

    def start(script: Script, before: int, executor: Any, **how: Any) -> Any:
        return run_session_loop(
            conversation(before),
            prompt,
            agent_provider=Provider(model="scripted"),
            tools=[Add(script)],
            executor=executor,
            max_tool_rounds=script.turns + 1,
            **how,
        )

    return SimpleNamespace(start=start, Scripted=Scripted, ScriptedAsync=ScriptedAsync)


def openrath_v1(executor: str, **how: Any) -> Run:
    def run(script: Script, before: int) -> Clock:
        clock = Clock()
        out = rath().start(script, before, getattr(rath(), executor)(script, clock), **how)
        assert len(out.chunk_table.rows) == 2 * (before + script.turns) + 2
        return clock

    return run


def openrath_turn_memory(bench: Bench, before: int, executor: str, how: str) -> Result:
    value, n = turn_us(bench, before, openrath_v1(executor))
    return Result(value, n, f"v1 run_session_loop in memory, turns from {before} on; {how}")


HOW_THREAD = "the scripted model behind the public, synchronous executor, in a worker thread as its own clients are"
HOW_ASYNC = "the scripted model behind the private asynchronous executor: no thread for the answer, one for the tool"


def openrath_turn_memory_early(bench: Bench) -> Result:
    return openrath_turn_memory(bench, bench.sizes.early, "Scripted", HOW_THREAD)


def openrath_turn_memory_late(bench: Bench) -> Result:
    return openrath_turn_memory(bench, bench.sizes.memory, "Scripted", HOW_THREAD)


def openrath_turn_memory_async(bench: Bench) -> Result:
    return openrath_turn_memory(bench, bench.sizes.early, "ScriptedAsync", HOW_ASYNC)


@cache
def rath2() -> SimpleNamespace:
    from rath.context import RunContext
    from rath.definition import EffectClass, step
    from rath.flow.workflow import Workflow
    from rath.runtime import LocalRuntime, SQLiteRunStore

    def answer(script: Script, turn: int) -> dict[str, Any]:
        call = {"id": f"call_{turn}", "name": "add", "arguments": '{"a": 1, "b": 2}'}
        return {"role": "assistant", "content": script.answer, "tool_calls": [call]}

    def result(script: Script, asked: dict[str, Any]) -> dict[str, Any]:
        call = asked["tool_calls"][0]
        return {"role": "tool", "tool_call_id": call["id"], "content": script.tool(json.loads(call["arguments"]))}

    class Agent(Workflow):
        """Model and tool by turns; the worker stops it after its number of steps."""

        __slots__ = ("script", "clock")

        def __init__(self, script: Script, clock: Clock) -> None:
            super().__init__("bench")
            self.script, self.clock = script, clock

    class TwoSteps(Agent):
        """A checkpoint for the answer and one for the tool's result."""

        __slots__ = ()

        @step(entry=True, successors=("call",), effects=EffectClass.NONE)
        def ask(self, state: dict[str, Any], context: Any) -> dict[str, Any]:
            self.clock.tick()
            state["messages"].append(answer(self.script, len(state["messages"])))
            return state

        @step(successors=("ask",), effects=EffectClass.NONE)
        def call(self, state: dict[str, Any], context: Any) -> dict[str, Any]:
            state["messages"].append(result(self.script, state["messages"][-1]))
            return state

    class OneStep(Agent):
        """One checkpoint for both."""

        __slots__ = ()

        @step(entry=True, successors=("turn",), effects=EffectClass.NONE)
        def turn(self, state: dict[str, Any], context: Any) -> dict[str, Any]:
            self.clock.tick()
            state["messages"].append(answer(self.script, len(state["messages"])))
            state["messages"].append(result(self.script, state["messages"][-1]))
            return state

    def conversation(script: Script, turns: int) -> dict[str, Any]:
        messages: list[Any] = [{"role": "user", "content": ASKED}]
        for turn in range(turns):
            messages.append(answer(script, turn))
            messages.append(result(script, messages[-1]))
        return {"messages": messages}

    def runtime(store: Any, agent: Agent, conversations: list[dict[str, Any]]) -> Any:
        """A runtime that has a run of a new session for each conversation in its queue."""
        made = LocalRuntime(store)
        context = RunContext.local(revision_id=uuid4())
        for state in conversations:
            made.submit(agent, session_id=uuid4(), context=context, state=state)
        return made

    def run(store: Any, script: Script, before: int, steps: int) -> Clock:
        """One run, from submission to its last turn."""
        clock = Clock()
        agent = AGENTS[steps](script, clock)
        done = runtime(store, agent, [conversation(script, before)]).work_once(
            worker_id="bench", max_steps=script.turns * steps
        )
        assert len(done.state["messages"]) == 1 + 2 * (before + script.turns)
        return clock

    def many(store: Any, script: Script, sessions: int) -> None:
        """So many runs in so many threads as there are workers."""
        queue = runtime(store, OneStep(script, Clock()), [conversation(script, 0)] * sessions)
        with ThreadPoolExecutor(WORKERS) as pool:
            work = [
                pool.submit(queue.work_once, worker_id=f"bench-{n}", max_steps=script.turns) for n in range(sessions)
            ]
        for done in work:
            assert len(done.result().state["messages"]) == 1 + 2 * script.turns

    AGENTS = {1: OneStep, 2: TwoSteps}
    return SimpleNamespace(run=run, many=many, SQLiteRunStore=SQLiteRunStore)


def openrath_turn_durable_of(bench: Bench, before: int, steps: int) -> Result:
    floor = DiskFloor(bench)
    store = rath2().SQLiteRunStore(bench.fresh_dir("openrath-v2-turn") / "runs.db")
    value, n = turn_us(bench, before, lambda *script: rath2().run(store, *script, steps))
    how = {1: "answer and result in one step", 2: "a step for the answer and one for the result"}[steps]
    return Result(
        value,
        n,
        f"v2 LocalRuntime on SQLiteRunStore, {how} with a checkpoint each, the conversation as the run's state, turns "
        f"from {before} on, fsynced (WAL, synchronous={rath_synchronous(store)}); {floor.note()}",
    )


def openrath_turn_durable_early(bench: Bench) -> Result:
    return openrath_turn_durable_of(bench, bench.sizes.early, 1)


def openrath_turn_durable_late(bench: Bench) -> Result:
    return openrath_turn_durable_of(bench, bench.sizes.durable, 1)


def openrath_turn_durable_two_steps(bench: Bench) -> Result:
    return openrath_turn_durable_of(bench, bench.sizes.early, 2)


def openrath_turn_persisted(bench: Bench) -> Result:
    rath_home(bench.fresh_dir("openrath-v1-turn"))
    value, n = turn_us(bench, bench.sizes.early, openrath_v1("Scripted", persist=True))
    note = f"v1 run_session_loop with persist, turns from {bench.sizes.early} on: a JSONL file, NEVER fsynced"
    return Result(value, n, note)


def openrath_disk_of(bench: Bench, turns: int, before: int) -> int:
    directory = bench.fresh_dir("openrath-v2-disk")
    store = rath2().SQLiteRunStore(directory / "runs.db")
    rath2().run(store, Script(turns, ANSWER, OUTPUT), before, 1)
    store.close()
    return weigh(directory)


def openrath_disk(bench: Bench) -> Result:
    turns = bench.sizes.disk
    return Result(
        openrath_disk_of(bench, turns, 0) / turns,
        1,
        f"v2 SQLiteRunStore after {turns} turns with a 2 KiB answer and a 4 KiB output, divided by {turns}, after "
        "closing; one checkpoint a turn, each holds the whole conversation, so this grows with the turns",
    )


def openrath_disk_late(bench: Bench) -> Result:
    before, few = bench.sizes.durable, 5
    grown = openrath_disk_of(bench, 2 * few, before) - openrath_disk_of(bench, few, before)
    return Result(grown / few, 1, f"what one turn more takes behind {before} turns; as disk_bytes_per_turn otherwise")


def openrath_disk_v1(bench: Bench) -> Result:
    turns = bench.sizes.durable
    home = bench.fresh_dir("openrath-v1-disk")
    rath_home(home)
    openrath_v1("Scripted", persist=True)(Script(turns, ANSWER, OUTPUT), 0)
    note = f"v1 JSONL file after {turns} turns with a 2 KiB answer and a 4 KiB output, divided by {turns}"
    return Result(weigh(home) / turns, 1, f"{note}; NEVER fsynced")


def openrath_sessions(bench: Bench, **how: Any) -> tuple[float, int]:
    """Seconds for all sessions, started together and waited for."""
    r, script = rath(), Script(bench.sizes.each)

    def once() -> float:
        with stopwatch() as seconds:
            started = [r.start(script, 0, r.Scripted(script, Clock()), **how) for _ in range(bench.sizes.sessions)]
            for session in started:
                assert len(session.chunk_table.rows) == 2 * script.turns + 2
        return seconds()

    return bench.repeat(once)


def openrath_sessions_note(bench: Bench) -> str:
    return f"v1 run_session_loop, {bench.sizes.sessions} sessions of {bench.sizes.each} turns started together (lazy)"


def openrath_sessions_persisted(bench: Bench) -> Result:
    rath_home(bench.fresh_dir("openrath-v1-sessions"))
    value, n = openrath_sessions(bench, persist=True)
    return Result(value, n, f"{openrath_sessions_note(bench)}; persist: a JSONL file each, NEVER fsynced")


def openrath_sessions_memory(bench: Bench) -> Result:
    value, n = openrath_sessions(bench)
    return Result(value, n, f"{openrath_sessions_note(bench)}; in memory")


def openrath_sessions_v2(bench: Bench) -> Result:
    floor = DiskFloor(bench)
    sizes = bench.sizes
    run = max(sizes.slow_sessions // 5, 1)
    store = rath2().SQLiteRunStore(bench.fresh_dir("openrath-v2-sessions") / "runs.db")

    def once() -> float:
        with stopwatch() as seconds:
            rath2().many(store, Script(sizes.each), run)
        return seconds() * sizes.sessions / run

    value, n = bench.repeat(once)
    return Result(
        value,
        n,
        f"v2 LocalRuntime on SQLiteRunStore, {run} runs of {sizes.each} turns on {WORKERS} worker threads, one step a "
        f"turn, scaled to {sizes.sessions}, fsynced; {floor.note()}",
    )


# --------------------------------------------------------------------------
# LangGraph


@cache
def lang() -> SimpleNamespace:
    from typing import Annotated, TypedDict

    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import END, START, StateGraph
    from langgraph.graph.message import add_messages

    def answer(script: Script, turn: int) -> Any:
        call = {"name": "add", "args": {"a": 1, "b": 2}, "id": f"call_{turn}"}
        return AIMessage(content=script.answer, tool_calls=[call])

    def result(script: Script, asked: Any) -> Any:
        call = asked.tool_calls[0]
        return ToolMessage(content=script.tool(call["args"]), name=call["name"], tool_call_id=call["id"])

    def builder(script: Script, clock: Clock, before: int) -> Any:
        def model(state: dict[str, Any]) -> dict[str, Any]:
            clock.tick()
            turn = len(state["messages"]) // 2
            more = turn < before + script.turns
            return {"messages": [answer(script, turn) if more else AIMessage(content="Goodbye.")]}

        def tool(state: dict[str, Any]) -> dict[str, Any]:
            return {"messages": [result(script, state["messages"][-1])]}

        def route(state: dict[str, Any]) -> str:
            return "tool" if state["messages"][-1].tool_calls else END

        graph = StateGraph(TypedDict("State", {"messages": Annotated[list, add_messages]}))
        graph.add_node("model", model)
        graph.add_node("tool", tool)
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", route, ["tool", END])
        graph.add_edge("tool", "model")
        return graph

    def conversation(script: Script, turns: int) -> dict[str, Any]:
        messages: list[Any] = [HumanMessage(content=ASKED)]
        for turn in range(turns):
            messages.append(answer(script, turn))
            messages.append(result(script, messages[-1]))
        return {"messages": messages}

    def config(script: Script) -> dict[str, Any]:
        return {"configurable": {"thread_id": str(uuid4())}, "recursion_limit": 2 * script.turns + 5}

    def converse(graph: Any, script: Script, before: int, durability: str) -> None:
        """A conversation on a new thread, from its first message to the last answer."""
        done = graph.invoke(conversation(script, before), config(script), durability=durability)
        assert len(done["messages"]) == 2 * (before + script.turns) + 2

    def run(saver: Any, script: Script, before: int, durability: str) -> Clock:
        clock = Clock()
        converse(builder(script, clock, before).compile(checkpointer=saver), script, before, durability)
        return clock

    def many(saver: Any, script: Script, sessions: int) -> None:
        """So many threads of conversation in so many threads as there are workers."""
        graph = builder(script, Clock(), 0).compile(checkpointer=saver)
        with ThreadPoolExecutor(WORKERS) as pool:
            work = [pool.submit(converse, graph, script, 0, "sync") for _ in range(sessions)]
        for done in work:
            done.result()

    return SimpleNamespace(run=run, many=many, InMemorySaver=InMemorySaver, SqliteSaver=SqliteSaver)


@contextmanager
def lang_saver(path: Path) -> Iterator[Any]:
    with lang().SqliteSaver.from_conn_string(str(path)) as saver:
        saver.setup()
        yield saver


def langgraph_turn_memory(bench: Bench, before: int) -> Result:
    value, n = turn_us(bench, before, lambda *script: lang().run(lang().InMemorySaver(), *script, "async"))
    return Result(value, n, f"StateGraph, add_messages, model and tool node, InMemorySaver, turns from {before} on")


def langgraph_turn_memory_early(bench: Bench) -> Result:
    return langgraph_turn_memory(bench, bench.sizes.early)


def langgraph_turn_memory_late(bench: Bench) -> Result:
    return langgraph_turn_memory(bench, bench.sizes.memory)


def langgraph_turn_durable(bench: Bench, before: int) -> Result:
    floor = DiskFloor(bench)
    with lang_saver(bench.fresh_dir("langgraph-turn") / "checkpoints.db") as saver:
        value, n = turn_us(bench, before, lambda *script: lang().run(saver, *script, "sync"))
        synchronous = saver.conn.execute("PRAGMA synchronous").fetchone()[0]
    return Result(
        value,
        n,
        f"StateGraph, add_messages, model and tool node, SqliteSaver as it comes (WAL, synchronous={synchronous}: "
        f"2 is FULL, fsynced), durability='sync', turns from {before} on, two checkpoints a turn; its default "
        f"durability 'async' goes on before a turn is written; {floor.note()}",
    )


def langgraph_turn_durable_early(bench: Bench) -> Result:
    return langgraph_turn_durable(bench, bench.sizes.early)


def langgraph_turn_durable_late(bench: Bench) -> Result:
    return langgraph_turn_durable(bench, bench.sizes.durable)


def langgraph_disk_of(bench: Bench, turns: int, before: int) -> int:
    directory = bench.fresh_dir("langgraph-disk")
    with lang_saver(directory / "checkpoints.db") as saver:
        saver.conn.execute("PRAGMA synchronous = OFF")  # only bytes are counted
        lang().run(saver, Script(turns, ANSWER, OUTPUT), before, "sync")
    return weigh(directory)


def langgraph_disk(bench: Bench) -> Result:
    turns = bench.sizes.disk
    return Result(
        langgraph_disk_of(bench, turns, 0) / turns,
        1,
        f"SqliteSaver file after {turns} turns with a 2 KiB answer and a 4 KiB output, divided by {turns}, after "
        "closing; add_messages: each of the two checkpoints a turn holds all messages, so this grows with the turns",
    )


def langgraph_disk_late(bench: Bench) -> Result:
    before, few = bench.sizes.durable, 5
    grown = langgraph_disk_of(bench, 2 * few, before) - langgraph_disk_of(bench, few, before)
    return Result(grown / few, 1, f"what one turn more takes behind {before} turns; as disk_bytes_per_turn otherwise")


def langgraph_sessions(bench: Bench, saver: Any) -> tuple[float, int]:
    """Seconds for all sessions."""
    sizes = bench.sizes

    def once() -> float:
        with stopwatch() as seconds:
            lang().many(saver, Script(sizes.each), sizes.slow_sessions)
        return seconds() * sizes.sessions / sizes.slow_sessions

    return bench.repeat(once)


def langgraph_sessions_note(bench: Bench) -> str:
    sizes = bench.sizes
    return (
        f"{sizes.slow_sessions} threads of conversation of {sizes.each} turns on {WORKERS} worker threads, one graph, "
        f"scaled to {sizes.sessions}"
    )


def langgraph_sessions_durable(bench: Bench) -> Result:
    floor = DiskFloor(bench)
    with lang_saver(bench.fresh_dir("langgraph-sessions") / "checkpoints.db") as saver:
        value, n = langgraph_sessions(bench, saver)
    note = f"{langgraph_sessions_note(bench)}; one SqliteSaver, durability='sync', fsynced; {floor.note()}"
    return Result(value, n, note)


def langgraph_sessions_memory(bench: Bench) -> Result:
    value, n = langgraph_sessions(bench, lang().InMemorySaver())
    return Result(value, n, f"{langgraph_sessions_note(bench)}; InMemorySaver")


# --------------------------------------------------------------------------
# Rows

# Peer next to peer, so that both see the same state of a shared machine.
ROWS = [
    Row("turn_memory_us_at_10", "openrath", "us", openrath_turn_memory_early),
    Row("turn_memory_us_at_10_async", "openrath", "us", openrath_turn_memory_async),
    Row("turn_memory_us_at_10", "langgraph", "us", langgraph_turn_memory_early),
    Row("turn_memory_us_at_10000", "openrath", "us", openrath_turn_memory_late),
    Row("turn_memory_us_at_10000", "langgraph", "us", langgraph_turn_memory_late),
    Row("turn_durable_us_at_10", "openrath", "us", openrath_turn_durable_early),
    Row("turn_durable_us_at_10_two_steps", "openrath", "us", openrath_turn_durable_two_steps),
    Row("turn_durable_us_at_10_v1", "openrath", "us", openrath_turn_persisted),
    Row("turn_durable_us_at_10", "langgraph", "us", langgraph_turn_durable_early),
    Row("turn_durable_us_at_1000", "openrath", "us", openrath_turn_durable_late),
    Row("turn_durable_us_at_1000", "langgraph", "us", langgraph_turn_durable_late),
    Row("disk_bytes_per_turn", "openrath", "B", openrath_disk),
    Row("disk_bytes_per_turn_at_1000", "openrath", "B", openrath_disk_late),
    Row("disk_bytes_per_turn_v1", "openrath", "B", openrath_disk_v1),
    Row("disk_bytes_per_turn", "langgraph", "B", langgraph_disk),
    Row("disk_bytes_per_turn_at_1000", "langgraph", "B", langgraph_disk_late),
    Row("sessions_1000_s", "openrath", "s", openrath_sessions_persisted),
    Row("sessions_1000_s_memory", "openrath", "s", openrath_sessions_memory),
    Row("sessions_1000_s_v2", "openrath", "s", openrath_sessions_v2),
    Row("sessions_1000_s", "langgraph", "s", langgraph_sessions_durable),
    Row("sessions_1000_s_memory", "langgraph", "s", langgraph_sessions_memory),
    Row("decode_messages_ms", "anthropic", "ms", decode.anthropic_messages),
    Row("decode_chat_ms", "openai", "ms", decode.openai_chat),
    Row("decode_responses_ms", "openai", "ms", decode.openai_responses),
]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Peer side of the loop benchmark.")
    parser.add_argument("--quick", action="store_true", help="smoke run with small sizes")
    parser.add_argument("--only", metavar="ROW[,ROW]", help="only these rows and their variants")
    parser.add_argument("--peer", choices=["openrath", "langgraph", "anthropic", "openai", "all"], default="all")
    parser.add_argument("--dir", type=Path, default=TARGET, help="where to put the temporary stores")
    return parser.parse_args()


def selected(arguments: argparse.Namespace) -> list[Row]:
    rows = [row for row in ROWS if arguments.peer in ("all", row.peer)]
    return [row for row in rows if not arguments.only or row.matches(arguments.only.split(","))]


def main() -> int:
    arguments = parse_arguments()
    arguments.dir.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="loop-peers-", dir=arguments.dir))
    results, sys.stdout = sys.stdout, sys.stderr  # nothing but rows on stdout
    rath_home(root)
    os.environ["LANGSMITH_TRACING"] = "false"
    os.environ["LANGCHAIN_TRACING_V2"] = "false"
    try:
        log(versions())
        bench = Bench(root, QUICK if arguments.quick else FULL)
        for row in selected(arguments):
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
