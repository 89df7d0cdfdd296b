"""The time for which a certificate holds, read from its PEM file.

The standard library tells it only of the peer of a connection. This reads the few fields on the
way there (RFC 5280 section 4.1) and nothing else.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from typing import Final

_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"


def validity(pem: str) -> tuple[datetime, datetime]:
    """From when and until when the first certificate in a PEM text holds.

    Raises:
        ValueError: there is none, or it is not X.509.
    """
    start = pem.find(_BEGIN)
    end = pem.find(_END, start)
    if start < 0 or end < 0:
        raise ValueError("no certificate")
    der = ssl.PEM_cert_to_DER_cert(pem[start : end + len(_END)])
    try:
        certificate = _content(der, 0, _SEQUENCE)[0]
        fields = _content(certificate, 0, _SEQUENCE)[0]
        position = 0
        # [version], serialNumber, signature, issuer, and then validity.
        for _ in range(4 if fields[0] == _VERSION else 3):
            position = _element(fields, position)[2]
        times = _content(fields, position, _SEQUENCE)[0]
        kind, since, position = _element(times, 0)
        later, until, _ = _element(times, position)
        return _time(kind, since), _time(later, until)
    except IndexError as error:
        raise ValueError("the certificate is cut off") from error


def _content(data: bytes, position: int, kind: int) -> tuple[bytes, int]:
    found, content, end = _element(data, position)
    if found != kind:
        raise ValueError(f"expected type {kind:#x}, found {found:#x}")
    return content, end


def _element(data: bytes, position: int) -> tuple[int, bytes, int]:
    """Type, content and end of the element at a position (X.690 section 8.1)."""
    kind, length = data[position], data[position + 1]
    begin = position + 2
    if length & 0x80:
        count = length & 0x7F
        length = int.from_bytes(data[begin : begin + count], "big")
        begin += count
    if begin + length > len(data):
        raise ValueError("the certificate is cut off")
    return kind, data[begin : begin + length], begin + length


def _time(kind: int, text: bytes) -> datetime:
    # UTCTime has two digits of the year, from 1950 on (RFC 5280 section 4.1.2.5.1).
    shape = "%y%m%d%H%M%SZ" if kind == _UTC_TIME else "%Y%m%d%H%M%SZ"
    found = datetime.strptime(text.decode("ascii"), shape).replace(tzinfo=UTC)
    century = 100 if kind == _UTC_TIME and found.year >= 2050 else 0
    return found.replace(year=found.year - century)
