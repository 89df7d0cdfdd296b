"""Rows of the log as rows of one message each; a bundle is taken apart."""

from __future__ import annotations

from perdure.storage import bundle
from perdure.storage.bundle import split_row
from perdure.storage.rocksdb.layout_v1_keys import DATA_HEAD, pack_offset, unpack_data


def of_range(rows: list[bytes], after: int, until: int) -> list[bytes]:
    """Rows as rows of one message each, up to an offset; as they are if they are that."""
    if rows and (unpack_data(rows[-2])[1] > until or _any_bundle(rows)):
        return _singles(rows, after, until)
    return rows


def _singles(rows: list[bytes], after: int, until: int) -> list[bytes]:
    """Rows as rows of one message each, those in ``(after, until]``."""
    found: list[bytes] = []
    for place in range(0, len(rows), 2):
        key = rows[place]
        stream, varying = key[:8], key[DATA_HEAD:]
        for at, single in split_row(unpack_data(key)[1], rows[place + 1], after, until):
            found.append(stream + pack_offset(at) + varying)
            found.append(single)
    return found


def _any_bundle(rows: list[bytes]) -> bool:
    """Whether one of many values may be a bundle's; a call for each would be felt.

    The version comes first in a value, so the greatest value has the latest version.
    """
    return bundle.is_bundle_or_later(max(rows[1::2]))
