"""A node of the transfers alone: `FileIntake` and `FileOffer` over plain TCP, no engine.

    plain_node.py offer FOLDER ADDRESS CAP SIZE...       prints a content id a file, serves
    plain_node.py pull FOLDER SOURCE CAP NAME:SIZE...    prints JSON: seconds, and the order

A cap of 0 is none. Messages have a length of 4 bytes before them.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hetpool.files.content import ContentStore
from hetpool.files.intake import EnginePeers, FileIntake, FileOffer

if TYPE_CHECKING:
    from collections.abc import Sequence

PORT = 9000
QUOTA = 1 << 30
LENGTH = struct.Struct("!I")


async def send(writer: asyncio.StreamWriter, message: bytes) -> None:
    writer.write(LENGTH.pack(len(message)) + message)
    await writer.drain()


async def receive(reader: asyncio.StreamReader) -> bytes:
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    return await reader.readexactly(length)


class Connections:
    """Asks a node over as many connections as there are questions at a time."""

    def __init__(self) -> None:
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, name: str, message: bytes, node: str = "") -> bytes:
        assert name == "read"
        if self._idle:
            reader, writer = self._idle.pop()
        else:
            reader, writer = await asyncio.open_connection(node, PORT)
        await send(writer, message)
        answer = await receive(reader)
        self._idle.append((reader, writer))
        return answer


async def offer(folder: str, address: str, cap: float, sizes: Sequence[str]) -> None:
    store = ContentStore(Path(folder), QUOTA)
    names = [_made(store, int(size)) for size in sizes]
    files = FileOffer(store, cap)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await send(writer, await files.answer(await receive(reader)))
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    server = await asyncio.start_server(serve, address, PORT)
    print(json.dumps(names), flush=True)
    await server.serve_forever()


def _made(store: ContentStore, size: int) -> str:
    with tempfile.NamedTemporaryFile() as file:
        file.write(os.urandom(size))
        file.flush()
        return store.add(Path(file.name))


async def pull(folder: str, source: str, cap: float, files: Sequence[str]) -> None:
    store = ContentStore(Path(folder), QUOTA)
    intake = FileIntake(store, EnginePeers(Connections()), cap)
    ended: list[int] = []
    began = time.perf_counter()

    async def one(order: int, name: str, size: int) -> None:
        await intake.fetch(name, size, [source], order)
        ended.append(order)

    named = (file.split(":") for file in files)
    await asyncio.gather(
        *(one(order, name, int(size)) for order, (name, size) in enumerate(named))
    )
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "ended": ended, "goodput": intake.goodput()}))


def main() -> None:
    verb, folder, address, cap, *rest = sys.argv[1:]
    work = {"offer": offer, "pull": pull}[verb]
    asyncio.run(work(folder, address, float(cap) or math.inf, rest))


if __name__ == "__main__":
    main()
