"""Frames between the runner and a worker: a JSON header and raw bytes, both length-prefixed. No pickle.

A frame is ``<header length: u32><body length: u64><header: UTF-8 JSON object><body>``, little-endian.

    runner -> worker   {"hello": 2, "backend": NAME, "folder": the user's, "environment": {...},
                        "torch": the runner's release}    once
                       "describe_only": true in it asks for no more than what the backend says of itself, and
                       "watch": {"file:name": [HASH, ...], ...} for what of its own runs (``LineTracer``)
    worker -> runner   {"ready": true, "batch": N, "rss": BYTES}    once, or {"failed": MESSAGE} and exit
    runner -> worker   {"case": ID, …} + the case's bytes           any number, answered in order; N at a time welcome
                       "unpatched": true in it asks for PyTorch as it is, "eager": true for eager in the backend's
                       place, "untraced": true for no trace of it where there is one
    worker -> runner   {"case": ID, "verdict": {...}, "rss": BYTES}   with "spent": WHY if it should get no other case,
                       "ran": {"lines": ..., "functions": ..., "changed": ...} if it is watched (``Ran``)
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

VERSION = 2
PREFIX = struct.Struct("<IQ")
MAX_HEADER = 64 << 20
MAX_BODY = 16 << 30

Header = dict[str, Any]


class ProtocolError(Exception):
    """The bytes on the channel are no frame."""


def encode_frame(header: Header, body: bytes = b"") -> bytes:
    """Return the bytes of one frame."""
    text = json.dumps(header, separators=(",", ":"), default=str).encode()
    return PREFIX.pack(len(text), len(body)) + text + body


class FrameDecoder:
    """Turns a stream of chunks, however cut, back into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.broken: str = ""  # what is wrong with the stream, once it has held something that is no frame

    def feed(self, chunk: bytes) -> list[tuple[Header, bytes]]:
        """Return the frames that ``chunk`` completes, up to the first bytes that cannot be one.

        What comes before garbage was sent in good order and counts; ``broken`` then says so, and nothing follows.
        Raises ProtocolError when there is nothing to return but garbage.
        """
        frames: list[tuple[Header, bytes]] = []
        self._buffer += chunk
        while not self.broken and len(self._buffer) >= PREFIX.size:
            header_size, body_size = PREFIX.unpack_from(self._buffer)
            if header_size > MAX_HEADER or body_size > MAX_BODY:
                self.broken = f"frame of {header_size} + {body_size} bytes"
                break
            end = PREFIX.size + header_size + body_size
            if len(self._buffer) < end:
                break
            text = bytes(self._buffer[PREFIX.size : PREFIX.size + header_size])
            body = bytes(self._buffer[PREFIX.size + header_size : end])
            del self._buffer[:end]
            try:
                header = json.loads(text)
            except ValueError as error:
                self.broken = f"frame header is not JSON: {error}"
                break
            if not isinstance(header, dict):
                self.broken = "frame header is not an object"
                break
            frames.append((header, body))
        if self.broken and not frames:
            raise ProtocolError(self.broken)
        return frames


def receive_frame(channel: socket.socket) -> tuple[Header, bytes] | None:
    """Block for one frame on a blocking socket; None when the other side has gone."""
    prefix = _exactly(channel, PREFIX.size)
    if prefix is None:
        return None
    header_size, body_size = PREFIX.unpack(prefix)
    rest = _exactly(channel, header_size + body_size)
    if rest is None:
        return None
    return json.loads(bytes(rest[:header_size])), bytes(rest[header_size:])


def _exactly(channel: socket.socket, size: int) -> bytearray | None:
    data = bytearray(size)
    view = memoryview(data)
    at = 0
    while at < size:
        count = channel.recv_into(view[at:])
        if count == 0:
            return None
        at += count
    return data
