"""Fields of certificates, and of the lists of those that were revoked (RFC 5280).

The standard library tells the time for which a certificate holds only of the peer of a connection,
and nothing of a list. This reads the few fields on the way there and nothing else; signatures are
OpenSSL's matter.
"""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias

_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"
_CRL: Final = re.compile(r"-----BEGIN X509 CRL-----(.*?)-----END X509 CRL-----", re.DOTALL)
_INTEGER: Final = 0x02
_TIMES: Final = (_UTC_TIME, 0x18)

Named: TypeAlias = tuple[bytes, bytes]
"""What names a certificate: its issuer and its serial number, as encoded."""


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
        fields, position = _body(der)
        for _ in range(3):  # serialNumber, signature, issuer, and then validity
            position = _element(fields, position)[2]
        times = _content(fields, position, _SEQUENCE)[0]
        kind, since, position = _element(times, 0)
        later, until, _ = _element(times, position)
        return _time(kind, since), _time(later, until)
    except IndexError as error:
        raise ValueError("the certificate is cut off") from error


def name_of(der: bytes) -> Named:
    """What names a certificate.

    Raises:
        ValueError: it is not X.509.
    """
    try:
        fields, position = _body(der)
        _, serial, position = _element(fields, position)
        issuer = _element(fields, position)[2]
        return fields[issuer : _element(fields, issuer)[2]], serial
    except IndexError as error:
        raise ValueError("the certificate is cut off") from error


def revoked(pem: str) -> frozenset[Named]:
    """The certificates that the lists in a PEM text revoke (RFC 5280 section 5.1).

    Raises:
        ValueError: a list is none.
    """
    found: set[Named] = set()
    for text in _CRL.findall(pem):
        try:
            found.update(_revoked(base64.b64decode(text)))
        except IndexError as error:
            raise ValueError("the list is cut off") from error
    return frozenset(found)


def read_revoked(file: str) -> frozenset[Named]:
    """The certificates that a file of revocation lists names.

    Raises:
        OSError, ValueError: it cannot be read, or a list is none.
    """
    return revoked(Path(file).read_text(encoding="ascii", errors="replace"))


def _revoked(der: bytes) -> Iterator[Named]:
    fields = _content(_content(der, 0, _SEQUENCE)[0], 0, _SEQUENCE)[0]
    position = 0
    if fields[0] == _INTEGER:
        position = _element(fields, position)[2]  # version
    begin = _element(fields, position)[2]  # signature
    position = _element(fields, begin)[2]
    issuer = fields[begin:position]
    while position < len(fields) and fields[position] in _TIMES:
        position = _element(fields, position)[2]  # thisUpdate, [nextUpdate]
    if position >= len(fields) or fields[position] != _SEQUENCE:
        return  # nothing is revoked
    listed, position = _content(fields, position, _SEQUENCE)[0], 0
    while position < len(listed):
        entry, position = _content(listed, position, _SEQUENCE)
        yield issuer, _element(entry, 0)[1]


def _body(der: bytes) -> tuple[bytes, int]:
    """The fields of a certificate, and where the serial number begins."""
    fields = _content(_content(der, 0, _SEQUENCE)[0], 0, _SEQUENCE)[0]
    return fields, _element(fields, 0)[2] if fields[0] == _VERSION else 0


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
