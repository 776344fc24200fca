#!/usr/bin/env python3
"""Peer side of the ledger benchmark: OpenRath and LangGraph.

    python -m venv venv && venv/bin/pip install -r requirements.txt
    venv/bin/python ledger.py > peers.jsonl

Prints one JSON object per row on stdout and progress on stderr:

    {"row": id, "peer": "openrath"|"langgraph", "unit": ..., "value": median,
     "n": repetitions, "note": what exactly was measured}

A row that a peer cannot do, or that failed, has the value null and says why in
its note. A row id with a suffix (`append_durable_ms_v1`) is a variant of the
row it is named after: the same work through another door of the same peer.

What counts as a "session" and an "append":

* OpenRath v1: a `Session` with its `ChunkTable` in memory, one JSONL file per
  session on disk (flushed, never fsynced).
* OpenRath v2: a `Run` with its event log in `SQLiteRunStore`, the default store
  of its durable runtime (WAL, one fsynced transaction per event).
* LangGraph: a thread whose state is a list of messages with the `add_messages`
  reducer, kept by `InMemorySaver` or `SqliteSaver`.

Every record carries 500 bytes of text. Files are read from a warm page cache.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

RECORD_BYTES = 500
WRITERS = 8
SLOW_SECONDS = 5.0  # a repetition slower than this is repeated less often


# --------------------------------------------------------------------------
# Harness


@dataclass(frozen=True)
class Sizes:
    """How much work one run does."""

    big: int  # records in the long session ("100,000")
    middle: int  # records in the session that is forked many times ("10,000")
    small: int  # "1,000"
    forks: int  # forks of the middle session
    slow_forks: int  # forks actually made where they are slow; scaled to `forks`
    listed: int  # stored sessions to list
    listed_length: int  # messages in each of them
    disk_records: int  # appends before the disk is measured
    window_s: float  # length of one repetition of a durable append loop
    repeats: int
    slow_repeats: int


FULL = Sizes(
    big=100_000,
    middle=10_000,
    small=1_000,
    forks=1_000,
    slow_forks=20,
    listed=10_000,
    listed_length=10,
    disk_records=1_000,
    window_s=0.5,
    repeats=5,
    slow_repeats=3,
)
QUICK = Sizes(
    big=2_000,
    middle=500,
    small=100,
    forks=50,
    slow_forks=5,
    listed=200,
    listed_length=10,
    disk_records=50,
    window_s=0.1,
    repeats=3,
    slow_repeats=2,
)


@dataclass(frozen=True)
class Result:
    value: float | None
    n: int
    note: str


class Bench:
    """Sizes, temporary directories and fixtures shared by the rows."""

    def __init__(self, root: Path, sizes: Sizes) -> None:
        self.root = root
        self.sizes = sizes
        self._fixtures: dict[str, Any] = {}

    def fresh_dir(self, name: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.root))

    def fixture(self, build: Callable[[Bench], Any]) -> Any:
        """Build something on disk once; later rows reuse it."""
        key = build.__name__
        if key not in self._fixtures:
            log(f"    preparing {key}")
            self._fixtures[key] = build(self)
        return self._fixtures[key]

    def repeat(self, once: Callable[[], float]) -> tuple[float, int]:
        """Median of what `once` returns, and how often it ran."""
        samples: list[float] = []
        wanted = self.sizes.repeats
        while len(samples) < wanted:
            began = time.perf_counter()
            samples.append(once())
            if time.perf_counter() - began >= SLOW_SECONDS:
                wanted = self.sizes.slow_repeats
        return statistics.median(samples), len(samples)

    def append_loop_ms(self, append: Callable[[], object]) -> float:
        """Milliseconds per call of `append`, called for one window of time."""
        count = 0
        began = time.perf_counter()
        while True:
            append()
            count += 1
            elapsed = time.perf_counter() - began
            if elapsed >= self.sizes.window_s and count >= 5:
                return elapsed / count * 1e3

    def parallel_per_second(self, appends: list[Callable[[], object]]) -> float:
        """Calls per second overall when each function loops in its own thread."""
        counts = [0] * len(appends)
        failures: list[BaseException] = []
        barrier = threading.Barrier(len(appends) + 1)
        stop = threading.Event()

        def work(slot: int) -> None:
            barrier.wait()
            try:
                while not stop.is_set():
                    appends[slot]()
                    counts[slot] += 1
            except BaseException as exc:  # handed to the main thread below
                failures.append(exc)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(appends))]
        for thread in threads:
            thread.start()
        barrier.wait()
        began = time.perf_counter()
        stop.wait(self.sizes.window_s * 2)
        stop.set()
        for thread in threads:
            thread.join()
        elapsed = time.perf_counter() - began
        if failures:
            raise failures[0]
        return sum(counts) / elapsed


def log(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def text(index: int) -> str:
    """A message of exactly RECORD_BYTES bytes."""
    return f"message {index:08d} ".ljust(RECORD_BYTES, "x")


@contextmanager
def stopwatch() -> Iterator[Callable[[], float]]:
    """Yields a function that gives the seconds the block took."""
    began = time.perf_counter()
    ended: list[float] = []
    yield lambda: ended[0] - began
    ended.append(time.perf_counter())


def bytes_below(directory: Path) -> int:
    return sum(f.stat().st_size for f in directory.rglob("*") if f.is_file())


class DiskFloor:
    """The machine's own cost of a durable write, before and after a row.

    The disk of a shared machine can be tens of times slower a minute later, so
    every durable row says what a bare write and fdatasync cost at its time.
    """

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._before = self._measure_ms()

    def _measure_ms(self) -> float:
        samples = []
        with tempfile.TemporaryFile(dir=self._bench.root) as file:
            for _ in range(50):
                with stopwatch() as seconds:
                    file.write(b"x" * RECORD_BYTES)
                    file.flush()
                    os.fdatasync(file.fileno())
                samples.append(seconds() * 1e3)
        return statistics.median(samples)

    def note(self) -> str:
        return (
            f"bare write+fdatasync of {RECORD_BYTES} B just before / after: "
            f"{self._before:.2f} / {self._measure_ms():.2f} ms"
        )


# --------------------------------------------------------------------------
# OpenRath


@cache
def rath() -> SimpleNamespace:
    from rath.runtime import Run, SQLiteRunStore
    from rath.session import Session
    from rath.session.chunk import ChunkTable, chunk_table_to_messages, user_text_chunk
    from rath.session.persistence import (
        SessionWriter,
        list_persisted_sessions,
        load_session,
    )

    return SimpleNamespace(
        Run=Run,
        SQLiteRunStore=SQLiteRunStore,
        Session=Session,
        ChunkTable=ChunkTable,
        chunk_table_to_messages=chunk_table_to_messages,
        user_text_chunk=user_text_chunk,
        SessionWriter=SessionWriter,
        list_persisted_sessions=list_persisted_sessions,
        load_session=load_session,
    )


def rath_session(length: int) -> Any:
    r = rath()
    rows = tuple(r.user_text_chunk(text(i)) for i in range(length))
    return r.Session(chunk_table=r.ChunkTable(rows=rows))


def rath_appends(sessions: list[Any]) -> float:
    """Append one chunk to each session in turn; seconds for all of them."""
    user_text_chunk, content = rath().user_text_chunk, text(0)
    with stopwatch() as seconds:
        for session in sessions:
            session.chunk_table = session.chunk_table.extend(user_text_chunk(content))
    return seconds()


def rath_forks(base: Any, count: int) -> float:
    """Fork `count` times, append one chunk to each fork, keep all; seconds."""
    user_text_chunk, content = rath().user_text_chunk, text(0)
    kept = []
    with stopwatch() as seconds:
        for _ in range(count):
            fork = base.fork()
            fork.chunk_table = fork.chunk_table.extend(user_text_chunk(content))
            kept.append(fork)
    return seconds()


def rath_save(session: Any) -> None:
    """Write a session to its v1 JSONL file, from header to trailer."""
    with rath().SessionWriter(session) as writer:
        for index, row in enumerate(session.chunk_table):
            writer.write_chunk(index, row)


def rath_home(directory: Path) -> None:
    """Where the v1 session files are; OpenRath looks it up at every call."""
    os.environ["OPENRATH_HOME"] = str(directory)


def rath_new_run() -> Any:
    return rath().Run.create(plan_id=uuid4(), revision_id=uuid4(), session_id=uuid4(), tenant_id="bench")


def rath_appender(store: Any) -> Callable[[], object]:
    """A function that appends one event to a new run of the v2 store."""
    run_id = store.create_run(rath_new_run()).id
    data = {"content": text(0)}
    return lambda: store.append_run_event(run_id, "message", data)


def rath_synchronous(store: Any) -> int:
    connection = store._connect()
    try:
        return connection.execute("PRAGMA synchronous").fetchone()[0]
    finally:
        connection.close()


def openrath_long_file(bench: Bench) -> tuple[Path, UUID]:
    home = bench.fresh_dir("openrath-v1-long")
    rath_home(home)
    session = rath_session(bench.sizes.big)
    rath_save(session)
    return home, session.id


def openrath_long_run(bench: Bench) -> tuple[Path, UUID]:
    # All events in one transaction of the store: one each would take minutes.
    path = bench.fresh_dir("openrath-v2-long") / "runs.db"
    store = rath().SQLiteRunStore(path)
    run_id = store.create_run(rath_new_run()).id
    with store._transaction() as connection:
        for index in range(bench.sizes.big):
            store._append_event(connection, run_id, "message", {"content": text(index)})
    store.close()
    return path, run_id


def openrath_many_files(bench: Bench) -> Path:
    home = bench.fresh_dir("openrath-v1-many")
    rath_home(home)
    for _ in range(bench.sizes.listed):
        rath_save(rath_session(bench.sizes.listed_length))
    return home


def openrath_many_runs(bench: Bench) -> Path:
    class UnsyncedStore(rath().SQLiteRunStore):  # type: ignore[name-defined]
        """Only to fill the database quickly; the timed store is the real one."""

        def _connect(self) -> Any:
            connection = super()._connect()
            connection.execute("PRAGMA synchronous = OFF")
            return connection

    path = bench.fresh_dir("openrath-v2-many") / "runs.db"
    store = UnsyncedStore(path)
    held_open = store._connect()  # else each close of the last connection checkpoints
    held_open.execute("SELECT count(*) FROM runs").fetchone()
    for _ in range(bench.sizes.listed):
        store.create_run(rath_new_run())
    held_open.close()
    return path


def openrath_append_memory_short(bench: Bench, length: int) -> Result:
    sessions = 1_000
    base = rath_session(length)

    def once() -> float:
        batch = [base.fork() for _ in range(sessions)]
        return rath_appends(batch) / sessions * 1e6

    value, n = bench.repeat(once)
    return Result(
        value,
        n,
        f"session.chunk_table = session.chunk_table.extend(user_text_chunk(500 B)), one append "
        f"to each of {sessions} sessions of {length} chunks, per append",
    )


def openrath_append_memory_at_10(bench: Bench) -> Result:
    return openrath_append_memory_short(bench, 10)


def openrath_append_memory_at_1000(bench: Bench) -> Result:
    return openrath_append_memory_short(bench, bench.sizes.small)


def openrath_append_memory_at_100000(bench: Bench) -> Result:
    appends = 50
    base = rath_session(bench.sizes.big)

    value, n = bench.repeat(lambda: rath_appends([base.fork()] * appends) / appends * 1e6)
    return Result(
        value,
        n,
        f"session.chunk_table = session.chunk_table.extend(user_text_chunk(500 B)), {appends} "
        f"appends to a session of {bench.sizes.big} chunks, per append (copies the row tuple)",
    )


def openrath_append_durable(bench: Bench) -> Result:
    floor = DiskFloor(bench)
    store = rath().SQLiteRunStore(bench.fresh_dir("openrath-v2") / "runs.db")
    append = rath_appender(store)
    value, n = bench.repeat(lambda: bench.append_loop_ms(append))
    return Result(
        value,
        n,
        "v2 SQLiteRunStore.append_run_event, 500 B, one run, one thread, fsynced (WAL, "
        f"synchronous={rath_synchronous(store)}; it opens and closes a connection per append, "
        f"and the last close checkpoints the WAL); {floor.note()}",
    )


def openrath_append_durable_v1(bench: Bench) -> Result:
    rath_home(bench.fresh_dir("openrath-v1"))
    chunk = rath().user_text_chunk(text(0))

    def once() -> float:
        with rath().SessionWriter(rath().Session.create("empty")) as writer:
            return bench.append_loop_ms(lambda: writer.write_chunk(writer.chunks_written, chunk))

    value, n = bench.repeat(once)
    return Result(
        value,
        n,
        "v1 SessionWriter.write_chunk, 500 B, one JSONL file, one thread: flushed to the kernel "
        "but NEVER fsynced, so not durable against power loss",
    )


def openrath_append_durable_8(bench: Bench) -> Result:
    floor = DiskFloor(bench)
    store = rath().SQLiteRunStore(bench.fresh_dir("openrath-v2-parallel") / "runs.db")
    appends = [rath_appender(store) for _ in range(WRITERS)]
    value, n = bench.repeat(lambda: bench.parallel_per_second(appends))
    return Result(
        value,
        n,
        f"v2 SQLiteRunStore.append_run_event, 500 B, {WRITERS} runs in {WRITERS} threads on one "
        f"store, appends/s overall, fsynced; {floor.note()}",
    )


def openrath_disk(bench: Bench) -> Result:
    records = bench.sizes.disk_records
    empty = bench.fresh_dir("openrath-v2-empty")
    rath_appender(rath().SQLiteRunStore(empty / "runs.db"))

    def once() -> float:
        directory = bench.fresh_dir("openrath-v2-disk")
        append = rath_appender(rath().SQLiteRunStore(directory / "runs.db"))
        for _ in range(records):
            append()
        return bytes_below(directory) / records

    value, n = bench.repeat(once)
    return Result(
        value,
        n,
        f"v2 SQLiteRunStore file after {records} append_run_event of 500 B, divided by {records}; "
        f"includes the empty schema of {bytes_below(empty)} B",
    )


def openrath_disk_v1(bench: Bench) -> Result:
    records = bench.sizes.disk_records

    def once() -> float:
        home = bench.fresh_dir("openrath-v1-disk")
        rath_home(home)
        rath_save(rath_session(records))
        return bytes_below(home) / records

    value, n = bench.repeat(once)
    return Result(value, n, f"v1 JSONL file of {records} chunks of 500 B, divided by {records}")


def openrath_fork_memory(bench: Bench) -> Result:
    base = rath_session(bench.sizes.big)
    forks = 20
    value, n = bench.repeat(lambda: statistics.median(rath_forks(base, 1) for _ in range(forks)) * 1e6)
    kept, _ = bench.repeat(lambda: rath_forks(base, forks) / forks * 1e6)
    return Result(
        value,
        n,
        f"Session.fork of {bench.sizes.big} chunks plus the first append, median of {forks} forks, each "
        "dropped before the next (the fork shares the row tuple, the append copies it); with all "
        f"forks kept alive, so that none reuses freed memory: {kept:.0f} us",
    )


def openrath_fork_durable(bench: Bench) -> Result:
    rath_home(bench.fresh_dir("openrath-v1-fork"))
    base = rath_session(bench.sizes.big)

    def once() -> float:
        with stopwatch() as seconds:
            rath_save(base.fork())
        return seconds() * 1e3

    value, n = bench.repeat(once)
    return Result(
        value,
        n,
        f"v1: Session.fork of a loaded session of {bench.sizes.big} chunks of 500 B, then "
        "SessionWriter writes every chunk into the fork's own file (no fsync); v2 has no fork",
    )


def openrath_forks_many(bench: Bench) -> Result:
    base = rath_session(bench.sizes.middle)
    value, n = bench.repeat(lambda: rath_forks(base, bench.sizes.forks) * 1e3)
    return Result(
        value,
        n,
        f"{bench.sizes.forks} x Session.fork of {bench.sizes.middle} chunks plus one append each, "
        "all kept alive, total",
    )


def openrath_load(bench: Bench) -> Result:
    home, session_id = bench.fixture(openrath_long_file)
    rath_home(home)

    def once() -> float:
        with stopwatch() as seconds:
            session, _agent = rath().load_session(session_id).to_resumable_pair()
        assert len(session.chunk_table) == bench.sizes.big
        return seconds() * 1e3

    value, n = bench.repeat(once)
    return Result(
        value,
        n,
        f"v1 load_session + to_resumable_pair, {bench.sizes.big} chunks of 500 B: gives a session that "
        "can be appended to in memory; a closed file cannot be appended to, going on durably "
        "rewrites everything into a new file (not counted)",
    )


def openrath_write_and_load(bench: Bench) -> Result:
    session = rath_session(bench.sizes.big)

    def once() -> float:
        home = bench.fresh_dir("openrath-v1-there-and-back")
        rath_home(home)
        with stopwatch() as seconds:
            rath_save(session)
            loaded = rath().load_session(session.id)
        assert len(loaded.chunk_table) == bench.sizes.big
        # As on our side: the next round gets the memory of this one back.
        shutil.rmtree(home)
        return seconds() * 1e3

    value, n = bench.repeat(once)
    return Result(
        value,
        n,
        f"v1 SessionWriter (header, {bench.sizes.big} chunks of 500 B, trailer; flushed, never fsynced) + load_session; "
        "nothing is hashed or verified",
    )


def openrath_load_v2(bench: Bench) -> Result:
    path, run_id = bench.fixture(openrath_long_run)

    def once() -> float:
        with stopwatch() as seconds:
            rath().SQLiteRunStore(path).get_run(run_id)
        return seconds() * 1e3

    value, n = bench.repeat(once)
    return Result(
        value,
        n,
        f"v2: open SQLiteRunStore + get_run of a run with {bench.sizes.big} events; the run can take "
        "append_run_event, no event is read (the event log is not its conversation)",
    )


def openrath_context(bench: Bench) -> Result:
    home, session_id = bench.fixture(openrath_long_file)
    rath_home(home)

    def once() -> float:
        with stopwatch() as seconds:
            table = rath().load_session(session_id).chunk_table
            messages = rath().chunk_table_to_messages(table)
        assert len(messages) == bench.sizes.big
        return seconds() * 1e3

    value, n = bench.repeat(once)
    return Result(
        value,
        n,
        f"v1 load_session + chunk_table_to_messages, {bench.sizes.big} chunks of 500 B, from the JSONL "
        "file to the messages for the model",
    )


def openrath_context_v2(bench: Bench) -> Result:
    path, run_id = bench.fixture(openrath_long_run)

    def once() -> float:
        with stopwatch() as seconds:
            events = rath().SQLiteRunStore(path).list_run_events(run_id)
        assert len(events) > bench.sizes.big
        return seconds() * 1e3

    value, n = bench.repeat(once)
    return Result(
        value,
        n,
        f"v2: open SQLiteRunStore + list_run_events, {bench.sizes.big} events of 500 B (events written "
        "beforehand in one transaction)",
    )


def openrath_list(bench: Bench) -> Result:
    rath_home(bench.fixture(openrath_many_files))

    def once() -> float:
        with stopwatch() as seconds:
            found = rath().list_persisted_sessions()
        assert len(found) == bench.sizes.listed
        return seconds() * 1e3

    value, n = bench.repeat(once)
    return Result(
        value,
        n,
        f"v1 list_persisted_sessions, {bench.sizes.listed} files of {bench.sizes.listed_length} chunks of "
        "500 B each; it parses every line of every file, so longer sessions list slower",
    )


def openrath_list_v2(bench: Bench) -> Result:
    path = bench.fixture(openrath_many_runs)

    def once() -> float:
        with stopwatch() as seconds:
            found = rath().SQLiteRunStore(path).list_runs(tenant_id="bench")
        assert len(found) == bench.sizes.listed
        return seconds() * 1e3

    value, n = bench.repeat(once)
    return Result(
        value,
        n,
        f"v2: open SQLiteRunStore + list_runs, {bench.sizes.listed} runs with empty state",
    )


# --------------------------------------------------------------------------
# LangGraph


@cache
def lang() -> SimpleNamespace:
    from typing import Annotated, TypedDict

    from langchain_core.messages import HumanMessage
    from langgraph.channels.delta import DeltaChannel
    from langgraph.checkpoint.base import empty_checkpoint
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import START, StateGraph
    from langgraph.graph.message import add_messages

    def build(reducer: Any) -> Any:
        # `TypedDict` in functional form: annotations of a class in a function
        # are strings in this module and could not be resolved.
        state = TypedDict("State", {"messages": Annotated[list, reducer]})
        graph = StateGraph(state)
        graph.add_node("speak", lambda _state: {})
        graph.add_edge(START, "speak")
        return graph

    def extend(messages: list[Any], writes: Sequence[list[Any]]) -> list[Any]:
        return [*messages, *(message for write in writes for message in write)]

    return SimpleNamespace(
        HumanMessage=HumanMessage,
        InMemorySaver=InMemorySaver,
        SqliteSaver=SqliteSaver,
        empty_checkpoint=empty_checkpoint,
        builder=build(add_messages),
        delta_builder=build(DeltaChannel(extend)),
    )


def lang_memory_graph() -> Any:
    return lang().builder.compile(checkpointer=lang().InMemorySaver())


@contextmanager
def lang_saver(path: Path) -> Iterator[Any]:
    with lang().SqliteSaver.from_conn_string(str(path)) as saver:
        saver.setup()
        yield saver


@contextmanager
def lang_graph(path: Path, builder: Any = None) -> Iterator[Any]:
    with lang_saver(path) as saver:
        yield (builder or lang().builder).compile(checkpointer=saver)


def lang_thread() -> dict[str, Any]:
    return {"configurable": {"thread_id": str(uuid4())}}


def lang_append(graph: Any, config: dict[str, Any], first: int, count: int = 1) -> dict[str, Any]:
    """Add messages to a thread; with a checkpoint id in `config`, fork there."""
    messages = [lang().HumanMessage(text(first + i)) for i in range(count)]
    return graph.update_state(config, {"messages": messages}, as_node="speak")


def lang_putter(saver: Any) -> Callable[[], object]:
    """A function that puts one checkpoint, holding one event, on a new thread."""
    config = lang_thread()
    config["configurable"]["checkpoint_ns"] = ""
    step = 0

    def put() -> None:
        nonlocal config, step
        step += 1
        checkpoint = lang().empty_checkpoint()
        checkpoint["channel_values"] = {"event": text(step)}
        checkpoint["channel_versions"] = {"event": step}
        config = saver.put(
            config,
            checkpoint,
            {"source": "update", "step": step, "parents": {}},
            {"event": step},
        )

    return put


def lang_synchronous(saver: Any) -> int:
    return saver.conn.execute("PRAGMA synchronous").fetchone()[0]


def langgraph_long_thread(bench: Bench) -> tuple[Path, dict[str, Any]]:
    path = bench.fresh_dir("langgraph-long") / "checkpoints.db"
    thread = lang_thread()
    with lang_graph(path) as graph:
        lang_append(graph, thread, 0, bench.sizes.big)
    return path, thread


def langgraph_many_threads(bench: Bench) -> Path:
    path = bench.fresh_dir("langgraph-many") / "checkpoints.db"
    with lang_graph(path) as graph:
        # Only to fill the database quickly.
        graph.checkpointer.conn.execute("PRAGMA synchronous = OFF")
        for _ in range(bench.sizes.listed):
            lang_append(graph, lang_thread(), 0, bench.sizes.listed_length)
    return path


def lang_update_state_s(bench: Bench, graph: Any, length: int, appends: int) -> tuple[float, int]:
    """Seconds per update_state on a thread that already has `length` messages."""

    def once() -> float:
        thread = lang_thread()
        lang_append(graph, thread, 0, length)
        with stopwatch() as seconds:
            for index in range(appends):
                lang_append(graph, thread, length + index)
        return seconds() / appends

    return bench.repeat(once)


def langgraph_append_memory_short(bench: Bench, length: int) -> Result:
    appends = 10
    value, n = lang_update_state_s(bench, lang_memory_graph(), length, appends)
    return Result(
        value * 1e6,
        n,
        f"update_state with one 500 B HumanMessage, InMemorySaver, add_messages, {appends} appends "
        f"from length {length} on, per append",
    )


def langgraph_append_memory_at_10(bench: Bench) -> Result:
    return langgraph_append_memory_short(bench, 10)


def langgraph_append_memory_at_1000(bench: Bench) -> Result:
    return langgraph_append_memory_short(bench, bench.sizes.small)


def langgraph_append_memory_at_100000(bench: Bench) -> Result:
    graph = lang_memory_graph()
    thread = lang_thread()
    lang_append(graph, thread, 0, bench.sizes.big)

    def once() -> float:
        with stopwatch() as seconds:
            lang_append(graph, thread, 0)
        return seconds() * 1e6

    value, n = bench.repeat(once)
    return Result(
        value,
        n,
        f"update_state with one 500 B HumanMessage, InMemorySaver, add_messages, on a thread of "
        f"{bench.sizes.big} messages (decodes and encodes the whole list)",
    )


def langgraph_append_durable(bench: Bench) -> Result:
    floor = DiskFloor(bench)
    with lang_saver(bench.fresh_dir("langgraph-put") / "checkpoints.db") as saver:
        put = lang_putter(saver)
        value, n = bench.repeat(lambda: bench.append_loop_ms(put))
        synchronous = lang_synchronous(saver)
    return Result(
        value,
        n,
        "SqliteSaver.put of a checkpoint that holds only one 500 B event, one thread, fsynced (WAL, "
        f"synchronous={synchronous}): the cheapest durable write it has, not what a growing "
        f"conversation costs (see the update_state variants); {floor.note()}",
    )


def langgraph_append_durable_update_state(bench: Bench, length: int) -> Result:
    floor = DiskFloor(bench)
    appends = 10
    with lang_graph(bench.fresh_dir("langgraph-update") / "checkpoints.db") as graph:
        value, n = lang_update_state_s(bench, graph, length, appends)
    return Result(
        value * 1e3,
        n,
        f"update_state with one 500 B HumanMessage, SqliteSaver, add_messages, {appends} appends from "
        f"length {length} on, per append, fsynced; {floor.note()}",
    )


def langgraph_append_durable_update_state_at_10(bench: Bench) -> Result:
    return langgraph_append_durable_update_state(bench, 10)


def langgraph_append_durable_update_state_at_1000(bench: Bench) -> Result:
    return langgraph_append_durable_update_state(bench, bench.sizes.small)


def langgraph_append_durable_8(bench: Bench) -> Result:
    floor = DiskFloor(bench)
    with lang_saver(bench.fresh_dir("langgraph-parallel") / "checkpoints.db") as saver:
        puts = [lang_putter(saver) for _ in range(WRITERS)]
        value, n = bench.repeat(lambda: bench.parallel_per_second(puts))
    return Result(
        value,
        n,
        f"SqliteSaver.put of one 500 B event each, {WRITERS} threads on one saver (it holds one lock "
        f"and one connection), appends/s overall, fsynced; {floor.note()}",
    )


def langgraph_disk(bench: Bench) -> Result:
    records = bench.sizes.disk_records

    def once() -> float:
        directory = bench.fresh_dir("langgraph-disk")
        with lang_saver(directory / "checkpoints.db") as saver:
            put = lang_putter(saver)
            for _ in range(records):
                put()
        return bytes_below(directory) / records

    value, n = bench.repeat(once)
    return Result(
        value,
        n,
        f"SqliteSaver file after {records} put of a checkpoint holding only one 500 B event, divided "
        f"by {records}, after closing",
    )


def langgraph_disk_conversation(bench: Bench, builder: Any, how: str) -> Result:
    records = bench.sizes.disk_records
    directory = bench.fresh_dir("langgraph-disk-conversation")
    with lang_graph(directory / "checkpoints.db", builder) as graph:
        thread = lang_thread()
        for index in range(records):
            lang_append(graph, thread, index)
        assert len(graph.get_state(thread).values["messages"]) == records
    value = bytes_below(directory) / records
    shutil.rmtree(directory)
    return Result(
        value,
        1,
        f"SqliteSaver file after {records} update_state, one 500 B message each on one growing thread, "
        f"divided by {records}, after closing; {how}; run once, a byte count does not vary",
    )


def langgraph_disk_update_state(bench: Bench) -> Result:
    how = "add_messages: every checkpoint holds the whole list"
    return langgraph_disk_conversation(bench, lang().builder, how)


def langgraph_disk_delta_channel(bench: Bench) -> Result:
    how = "DeltaChannel (beta): most checkpoints hold only the new messages"
    return langgraph_disk_conversation(bench, lang().delta_builder, how)


def langgraph_fork_memory(bench: Bench) -> Result:
    graph = lang_memory_graph()
    base = lang_append(graph, lang_thread(), 0, bench.sizes.big)

    def once() -> float:
        with stopwatch() as seconds:
            lang_append(graph, base, 0)
        return seconds() * 1e6

    value, n = bench.repeat(once)
    return Result(
        value,
        n,
        f"update_state at the checkpoint id of a {bench.sizes.big}-message thread (fork and first append "
        "in one call), InMemorySaver",
    )


def langgraph_fork_durable(bench: Bench) -> Result:
    floor = DiskFloor(bench)
    with lang_graph(bench.fresh_dir("langgraph-fork") / "checkpoints.db") as graph:
        base = lang_append(graph, lang_thread(), 0, bench.sizes.big)

        def once() -> float:
            with stopwatch() as seconds:
                lang_append(graph, base, 0)
            return seconds() * 1e3

        value, n = bench.repeat(once)
    return Result(
        value,
        n,
        f"update_state at the checkpoint id of a {bench.sizes.big}-message thread (fork and first append "
        f"in one call), SqliteSaver, 500 B messages, fsynced; {floor.note()}",
    )


def langgraph_forks_many(bench: Bench) -> Result:
    made, wanted = bench.sizes.slow_forks, bench.sizes.forks

    def once() -> float:
        graph = lang_memory_graph()
        base = lang_append(graph, lang_thread(), 0, bench.sizes.middle)
        with stopwatch() as seconds:
            for index in range(made):
                lang_append(graph, base, index)
        return seconds() * 1e3 * wanted / made

    value, n = bench.repeat(once)
    return Result(
        value,
        n,
        f"update_state at the checkpoint id of a {bench.sizes.middle}-message thread, InMemorySaver: "
        f"{made} forks measured and scaled to {wanted}, total",
    )


def langgraph_load(bench: Bench) -> Result:
    path, thread = bench.fixture(langgraph_long_thread)

    def once() -> float:
        with stopwatch() as seconds, lang_graph(path) as graph:
            state = graph.get_state(thread)
        assert len(state.values["messages"]) == bench.sizes.big
        return seconds() * 1e3

    value, n = bench.repeat(once)
    return Result(
        value,
        n,
        f"open SqliteSaver, compile the graph, get_state of a thread of {bench.sizes.big} messages of "
        "500 B; the next update_state decodes it all again",
    )


def langgraph_context(bench: Bench) -> Result:
    path, thread = bench.fixture(langgraph_long_thread)
    with lang_graph(path) as graph:

        def once() -> float:
            with stopwatch() as seconds:
                messages = graph.get_state(thread).values["messages"]
                total = sum(len(message.content) for message in messages)
            assert total == bench.sizes.big * RECORD_BYTES
            return seconds() * 1e3

        value, n = bench.repeat(once)
    return Result(
        value,
        n,
        f"get_state on an open SqliteSaver and reading the content of all {bench.sizes.big} messages of "
        "500 B",
    )


def langgraph_list(bench: Bench) -> Result:
    path = bench.fixture(langgraph_many_threads)

    def once() -> float:
        with stopwatch() as seconds, lang_saver(path) as saver:
            found = {item.config["configurable"]["thread_id"] for item in saver.list(None)}
        assert len(found) == bench.sizes.listed
        return seconds() * 1e3

    value, n = bench.repeat(once)
    return Result(
        value,
        n,
        f"open SqliteSaver + list(None) over {bench.sizes.listed} threads of one checkpoint with "
        f"{bench.sizes.listed_length} messages of 500 B each; there is no list of threads, it lists and "
        "decodes all checkpoints, so a thread stored turn by turn lists slower",
    )


# --------------------------------------------------------------------------
# Rows


@dataclass(frozen=True)
class Row:
    id: str
    peer: str
    unit: str
    run: Callable[[Bench], Result]

    def matches(self, names: list[str]) -> bool:
        """A name selects its own row and the variants named after it."""
        return any(self.id == name or self.id.startswith(f"{name}_") for name in names)


# Peer next to peer, so that both see the same state of a shared machine.
ROWS = [
    Row("append_memory_us_at_10", "openrath", "us", openrath_append_memory_at_10),
    Row("append_memory_us_at_1000", "openrath", "us", openrath_append_memory_at_1000),
    Row("append_memory_us_at_100000", "openrath", "us", openrath_append_memory_at_100000),
    Row("append_memory_us_at_10", "langgraph", "us", langgraph_append_memory_at_10),
    Row("append_memory_us_at_1000", "langgraph", "us", langgraph_append_memory_at_1000),
    Row("append_memory_us_at_100000", "langgraph", "us", langgraph_append_memory_at_100000),
    Row("append_durable_ms", "openrath", "ms", openrath_append_durable),
    Row("append_durable_ms_v1", "openrath", "ms", openrath_append_durable_v1),
    Row("append_durable_ms", "langgraph", "ms", langgraph_append_durable),
    Row(
        "append_durable_ms_update_state_at_10",
        "langgraph",
        "ms",
        langgraph_append_durable_update_state_at_10,
    ),
    Row(
        "append_durable_ms_update_state_at_1000",
        "langgraph",
        "ms",
        langgraph_append_durable_update_state_at_1000,
    ),
    Row("append_durable_8_per_s", "openrath", "1/s", openrath_append_durable_8),
    Row("append_durable_8_per_s", "langgraph", "1/s", langgraph_append_durable_8),
    Row("disk_bytes_per_record", "openrath", "B", openrath_disk),
    Row("disk_bytes_per_record_v1", "openrath", "B", openrath_disk_v1),
    Row("disk_bytes_per_record", "langgraph", "B", langgraph_disk),
    Row("disk_bytes_per_record_update_state", "langgraph", "B", langgraph_disk_update_state),
    Row("disk_bytes_per_record_delta_channel", "langgraph", "B", langgraph_disk_delta_channel),
    Row("fork_memory_us", "openrath", "us", openrath_fork_memory),
    Row("fork_memory_us", "langgraph", "us", langgraph_fork_memory),
    Row("fork_durable_ms", "openrath", "ms", openrath_fork_durable),
    Row("fork_durable_ms", "langgraph", "ms", langgraph_fork_durable),
    Row("forks_1000_ms", "openrath", "ms", openrath_forks_many),
    Row("forks_1000_ms", "langgraph", "ms", langgraph_forks_many),
    Row("load_100000_ms", "openrath", "ms", openrath_load),
    Row("load_100000_ms_v2", "openrath", "ms", openrath_load_v2),
    Row("write_and_load_100000_ms", "openrath", "ms", openrath_write_and_load),
    Row("load_100000_ms", "langgraph", "ms", langgraph_load),
    Row("context_100000_ms", "openrath", "ms", openrath_context),
    Row("context_100000_ms_v2", "openrath", "ms", openrath_context_v2),
    Row("context_100000_ms", "langgraph", "ms", langgraph_context),
    Row("list_10000_ms", "openrath", "ms", openrath_list),
    Row("list_10000_ms_v2", "openrath", "ms", openrath_list_v2),
    Row("list_10000_ms", "langgraph", "ms", langgraph_list),
]


def run_row(row: Row, bench: Bench) -> Result:
    """Run one row; whatever goes wrong in it becomes its note."""
    try:
        return row.run(bench)
    except Exception as exc:
        return Result(None, 0, f"{type(exc).__name__}: {exc}")


def as_json(row: Row, result: Result, quick: bool) -> str:
    value = None if result.value is None else float(f"{result.value:.4g}")
    note = f"QUICK RUN, smaller than the row says: {result.note}" if quick else result.note
    return json.dumps(
        {
            "row": row.id,
            "peer": row.peer,
            "unit": row.unit,
            "value": value,
            "n": result.n,
            "note": note,
        }
    )


def versions() -> str:
    import sqlite3

    found = [f"python {sys.version.split()[0]}", f"sqlite {sqlite3.sqlite_version}"]
    for package in ("openrath", "langgraph", "langgraph-checkpoint-sqlite"):
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            found.append(f"{package} missing")
    return ", ".join(found)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Peer side of the ledger benchmark.")
    parser.add_argument("--quick", action="store_true", help="smoke run with small sizes")
    parser.add_argument("--only", metavar="ROW[,ROW]", help="only these rows and their variants")
    parser.add_argument("--peer", choices=["openrath", "langgraph", "all"], default="all")
    parser.add_argument("--dir", type=Path, help="where to put the temporary stores")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    selected = [row for row in ROWS if arguments.peer in ("all", row.peer)]
    if arguments.only:
        names = [name.strip() for name in arguments.only.split(",") if name.strip()]
        unknown = [name for name in names if not any(row.matches([name]) for row in ROWS)]
        if unknown:
            log(f"unknown rows: {', '.join(unknown)}")
            return 2
        selected = [row for row in selected if row.matches(names)]

    if arguments.dir:
        arguments.dir.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="ledger-peers-", dir=arguments.dir))
    results, sys.stdout = sys.stdout, sys.stderr  # nothing but rows on stdout
    rath_home(root)
    os.environ["LANGSMITH_TRACING"] = "false"
    os.environ["LANGCHAIN_TRACING_V2"] = "false"
    try:
        log(versions())
        bench = Bench(root, QUICK if arguments.quick else FULL)
        for row in selected:
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
