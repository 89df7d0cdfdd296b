"""Records of RocksDB's log format: written, read back, damaged, and found again behind damage."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.storage.rocksdb.frames import BLOCK_BYTES, CHECKSUM, CUT, ZEROS, Frames, frame

SIZES = st.lists(
    st.one_of(
        st.integers(1, 100),
        st.sampled_from([BLOCK_BYTES - 14, BLOCK_BYTES - 7, BLOCK_BYTES, 3 * BLOCK_BYTES]),
    ),
    min_size=1,
    max_size=8,
)


def build(payloads: list[bytes]) -> tuple[bytes, list[int]]:
    """A file of records, and where each ends."""
    data, ends = b"", []
    for payload in payloads:
        data += frame(payload, len(data))
        ends.append(len(data))
    return data, ends


def payloads_of(sizes: list[int]) -> list[bytes]:
    return [bytes([number + 1]) * size for number, size in enumerate(sizes)]


def read(frames: Frames) -> list[bytes]:
    found = []
    while frames.next():
        found.append(frames.payload())
        assert frames.head(5) == found[-1][:5]
    return found


@settings(max_examples=25)
@given(SIZES)
def test_what_is_written_is_read(sizes: list[int]) -> None:
    payloads = payloads_of(sizes)
    data, _ = build(payloads)
    frames = Frames(data)
    assert read(frames) == payloads
    assert (frames.problem, frames.at) == ("", len(data))


@settings(max_examples=25)
@given(SIZES, st.data())
def test_a_cut_end(sizes: list[int], data: st.DataObject) -> None:
    whole, ends = build(payloads_of(sizes))
    cut = data.draw(st.integers(1, len(whole) - 1))
    frames = Frames(whole[:cut])
    kept = sum(end <= cut for end in ends)
    assert len(read(frames)) == kept
    # Between two records, or in the zeros that fill a block, nothing is missing.
    assert frames.problem in ("", CUT)
    assert not frames.resume() or frames.problem == CUT


@settings(max_examples=25)
@given(SIZES, st.integers(1, 3 * BLOCK_BYTES))
def test_zeros_behind_the_end(sizes: list[int], count: int) -> None:
    whole, _ = build(payloads_of(sizes))
    frames = Frames(whole + bytes(count))
    assert len(read(frames)) == len(sizes)
    assert frames.problem in ("", ZEROS)


@settings(max_examples=25)
@given(st.lists(st.integers(1, 200), min_size=3, max_size=8), st.data())
def test_a_flipped_bit_costs_one_record(sizes: list[int], data: st.DataObject) -> None:
    payloads = payloads_of(sizes)
    whole, ends = build(payloads)
    at = data.draw(st.integers(0, len(whole) - 1))
    broken = bytearray(whole)
    broken[at] ^= 1 << data.draw(st.integers(0, 7))
    hit = sum(end <= at for end in ends)
    frames = Frames(bytes(broken))
    assert read(frames) == payloads[:hit]
    assert frames.problem
    assert frames.at == (ends[hit - 1] if hit else 0)
    found = []
    while frames.problem and frames.resume():
        found += read(frames)
    assert found == payloads[hit + 1 :]


def test_checksums_from_a_byte_on() -> None:
    whole, ends = build([b"a" * 50, b"b" * 50, b"c" * 50])
    broken = bytearray(whole)
    broken[20] ^= 1
    assert len(read(Frames(bytes(broken), ends[0]))) == 3
    frames = Frames(bytes(broken), 0)
    assert read(frames) == []
    assert frames.problem == CHECKSUM
