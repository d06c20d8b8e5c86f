"""Frames survive any cut of the stream; what is no frame is refused."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.conformance.runner.frames import PREFIX, FrameDecoder, ProtocolError, encode_frame, receive_frame

headers = st.dictionaries(st.text(max_size=8), st.one_of(st.none(), st.integers(), st.text(max_size=20)), max_size=4)
frames = st.lists(st.tuples(headers, st.binary(max_size=200)), max_size=5)


@given(frames, st.lists(st.integers(1, 50), min_size=1))
def test_any_chunking_gives_the_frames_back(sent, cuts):
    stream = b"".join(encode_frame(header, body) for header, body in sent)
    decoder, got, at, turn = FrameDecoder(), [], 0, 0
    while at < len(stream):
        size = cuts[turn % len(cuts)]
        got += decoder.feed(stream[at : at + size])
        at, turn = at + size, turn + 1
    assert got == sent


@pytest.mark.parametrize(
    "data",
    [b"\xff" * 100, PREFIX.pack(3, 0) + b"{x}", PREFIX.pack(2, 0) + b"[]", PREFIX.pack(2, 0) + b"\xff\xff"],
)
def test_garbage_is_refused(data):
    with pytest.raises(ProtocolError):
        FrameDecoder().feed(data)


def test_what_comes_before_garbage_still_counts():
    decoder = FrameDecoder()
    assert decoder.feed(encode_frame({"verdict": 1}) + b"\xff" * 100) == [({"verdict": 1}, b"")]
    assert decoder.broken
    with pytest.raises(ProtocolError):
        decoder.feed(encode_frame({"verdict": 2}))


def test_receive_reads_one_frame_and_knows_the_end():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(encode_frame({"a": 1}, b"xyz") + encode_frame({"b": 2}))
        assert receive_frame(theirs) == ({"a": 1}, b"xyz")
        assert receive_frame(theirs) == ({"b": 2}, b"")
        ours.sendall(encode_frame({"c": 3})[:-2])
        ours.close()
        assert receive_frame(theirs) is None
