#!/usr/bin/env python3
"""Makes the session files that the tests of `rath import openrath` read, by running OpenRath itself.

    venv/bin/python openrath_files.py crates/rath/tests/data/openrath

`plain` and `forked` are files as its writer leaves them; the others are what a crash, a retry or a text with another
line separator leaves, and its own loader refuses or cuts short what it finds in most of them. The words in them are ours.
Ids and times are fixed, so that running this again gives the same files.
"""
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from uuid import UUID

from rath.llm.chat_response import RathLLMToolCallFunction as Function
from rath.llm.chat_response import RathLLMToolCallPart as ToolCall
from rath.session import Session
from rath.session.chunk import (
    ChunkTable,
    assistant_turn_chunk,
    system_text_chunk,
    tool_feedback_chunk,
    user_text_chunk,
)
from rath.session.graph.kind import LineageKind
from rath.session.persistence import SessionWriter, load_session

IDS = {name: UUID(int=0x0198_0000_0000_7000_8000_0000_0000_0000 + at) for at, name in enumerate(
    ["plain", "forked", "separators", "crashed", "retried", "gaps"])}
TIME = re.compile(r'"(created_at|closed_at)": "[^"]*"')


def conversation():
    function = Function("run_shell", '{"command":"ls"}', {"command": "ls"}, None)
    call = ToolCall(id="call_1", type="function", function=function)
    return [
        system_text_chunk("You are careful."),
        user_text_chunk("Which files are here?"),
        assistant_turn_chunk(tool_calls=(call,), content="I look."),
        tool_feedback_chunk("call_1", "run_shell", json.dumps({"exit_code": 0, "stdout": "a.txt\n"})),
        assistant_turn_chunk(tool_calls=None, content="One: a.txt."),
    ]


def session(name, rows, **lineage):
    made = Session(chunk_table=ChunkTable(rows=tuple(rows)), **lineage)
    made.id = IDS[name]
    return made


def write(path, made, rows, close=True, indexes=None):
    writer = SessionWriter(made, path=path)
    for index, row in zip(indexes or range(len(rows)), rows):
        writer.write_chunk(index, row)
    writer.close() if close else writer.abandon()
    return path if close else writer.partial_path


def loads(path):
    try:
        return f"its loader reads {len(load_session('', path=path).chunk_table)} chunks"
    except Exception as error:
        return f"its loader says {error}".replace(str(path), path.name)


def main():
    into, rows = Path(sys.argv[1]), conversation()
    into.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp())
    os.environ["OPENRATH_HOME"] = str(work)
    made = {"plain": write(work / "plain.jsonl", session("plain", rows), rows)}

    more = [*rows, user_text_chunk("And hidden ones?")]
    fork = session("forked", more, parent_session_ids=(IDS["plain"],), lineage_operator="fork",
                   lineage_kind=LineageKind.OP_FORK)
    made["forked"] = write(work / "forked.jsonl", fork, more)

    odd = [user_text_chunk("one\u2028two\u0085three"), assistant_turn_chunk(tool_calls=None, content="four\u2029five")]
    made["separators"] = write(work / "separators.jsonl", session("separators", odd), odd)

    crashed = write(work / "crashed.jsonl", session("crashed", rows), rows, close=False)
    text = crashed.read_bytes()
    crashed.write_bytes(text[: len(text) - 12])  # killed while it wrote the last line
    made["crashed"] = crashed

    first = session("retried", rows)
    partial = write(work / "retried.jsonl", first, rows[:3], close=False)
    again = [*rows[:2], assistant_turn_chunk(tool_calls=None, content="Let me think."), *rows[4:]]
    made["retried"] = write(work / "retried.jsonl", session("retried", again), again)
    assert not partial.exists()

    made["gaps"] = write(work / "gaps.jsonl", session("gaps", rows), [*rows[:2], rows[1], rows[4]],
                         indexes=[0, 1, 1, 4])
    for name, path in made.items():
        fixed = TIME.sub(r'"\1": "2026-11-16T08:00:00+00:00"', path.read_text(encoding="utf-8"))
        (into / f"{name}.jsonl").write_bytes(fixed.encode("utf-8"))
        print(f"{name}: {loads(into / f'{name}.jsonl')}")


if __name__ == "__main__":
    main()
