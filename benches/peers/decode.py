"""What it costs the vendors' own Python clients to read recorded streams.

The streams are those that our side reads: `decode --write DIR` puts them there.
The client gets each of them from a transport in memory, as a response that is
whole already, so that no network is measured. Making the request is part of it,
which weighs on short streams; the client itself is made once.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ledger import Bench, Result

MEGABYTE = 1 << 20
DECODE = Path(__file__).resolve().parents[2] / "target/release/decode"


def written(bench: Bench) -> Path:
    folder = bench.fresh_dir("streams")
    subprocess.run([DECODE, "--write", folder], check=True)
    return folder


Read = Callable[[], Iterable[Any]]


def measured(bench: Bench, api: str, make: Callable[[Any], Read]) -> Result:
    """Times the client that `make` makes over a transport; it is made once, for all streams."""
    import httpx2

    streams = [path.read_bytes() for path in sorted(bench.fixture(written).glob(f"{api}-*"))]
    if not streams:
        return Result(None, 0, "nothing is recorded")
    headers = {"content-type": "text/event-stream"}
    now = b""
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, headers=headers, content=now))
    read = make(httpx2.Client(transport=transport))
    events = 0

    def once() -> float:
        nonlocal now, events
        begun = time.perf_counter()
        for now in streams:
            # Streams that hold an error raise it: they are read up to there.
            try:
                for _ in read():
                    events += 1
            except Exception:
                pass
        return (time.perf_counter() - begun) * 1000 * MEGABYTE / sum(map(len, streams))

    once()
    if not events:
        return Result(None, 0, "the client reads none of the streams")
    value, n = bench.repeat(once)
    return Result(value, n, f"{len(streams)} streams, {events // (n + 1)} events")


def anthropic_messages(bench: Bench) -> Result:
    import anthropic

    def make(http: Any) -> Read:
        client = anthropic.Anthropic(api_key="none", max_retries=0, http_client=http)
        asked = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "?"}]}
        return lambda: client.messages.create(stream=True, **asked)

    return measured(bench, "messages", make)


def openai_chat(bench: Bench) -> Result:
    import openai

    def make(http: Any) -> Read:
        client = openai.OpenAI(api_key="none", max_retries=0, http_client=http)
        asked = {"model": "m", "messages": [{"role": "user", "content": "?"}]}
        return lambda: client.chat.completions.create(stream=True, **asked)

    return measured(bench, "chat", make)


def openai_responses(bench: Bench) -> Result:
    import openai

    def make(http: Any) -> Read:
        client = openai.OpenAI(api_key="none", max_retries=0, http_client=http)
        return lambda: client.responses.create(stream=True, model="m", input="?")

    return measured(bench, "responses", make)
