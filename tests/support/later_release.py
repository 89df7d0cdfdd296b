"""``python -m tests.support.later_release serve ...``: ``perdure`` of a release of tomorrow.

Its records of the shared log have a version more, which says everything in other bytes, and an act
more, with which each of its nodes beats. Where a node of today would meet either it ends.
"""

from __future__ import annotations

import sys
import zlib
from typing import Final, NamedTuple

from perdure.storage.ordered import record

TODAY: Final = record.VERSION
LATER: Final = TODAY + 1
KIND: Final = 99


class Nod(NamedTuple):
    """It says nothing."""


def become() -> None:
    """Be that release in this process; nothing else of ours was imported before."""
    encode_record, decode_record = record.encode_record, record.decode_record
    encode_act, decode_act = record._encode_act, record._decode_act

    def encode(each: record.Record, version: int = LATER) -> bytes:
        if version < LATER:
            return encode_record(each, version)
        acts = (*each.acts, Nod()) if not each.batch else each.acts
        value = encode_record(each._replace(acts=acts), TODAY)  # type: ignore[arg-type]
        return bytes([LATER]) + zlib.compress(value)

    def decode(value: bytes) -> record.Record:
        if value[0] != LATER:
            return decode_record(value)
        found = decode_record(zlib.decompress(value[1:]))
        return found._replace(acts=tuple(each for each in found.acts if not isinstance(each, Nod)))

    def decode_act_too(kind: int, body: bytes) -> object:
        return Nod() if kind == KIND else decode_act(kind, body)

    record.VERSION = LATER  # type: ignore[misc]
    record.encode_record = encode  # type: ignore[assignment]
    record.decode_record = decode
    record._encode_act = lambda act: (KIND, b"") if isinstance(act, Nod) else encode_act(act)
    setattr(record, "_decode_act", decode_act_too)  # noqa: B010 - it gives an act more


if __name__ == "__main__":
    become()
    from perdure.cli.main import run

    sys.exit(run(sys.argv[1:]))
