"""Bounds of requests, and the types that carry them into the schema."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from msgspec import Meta

PAGE_MAX: Final = 1_000
"""Items of a page."""

BULK_MAX: Final = 500
"""Sessions that one request acts on."""

CURSOR_CHARS_MAX: Final = 100_000
"""A cursor holds a client id or a topic, of up to 65,535 bytes."""

Limit: TypeAlias = Annotated[int, Meta(ge=1, le=PAGE_MAX, description="items of a page")]
Cursor: TypeAlias = Annotated[
    str, Meta(max_length=CURSOR_CHARS_MAX, description="next_cursor of the page before")
]
Revision: TypeAlias = Annotated[
    str,
    Meta(
        max_length=100,
        description="revision of the record that was read; empty = whatever it is now",
    ),
]
ClientId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=65_535)]
Topic: TypeAlias = Annotated[str, Meta(min_length=1, max_length=65_535)]
Filter: TypeAlias = Annotated[str, Meta(min_length=1, max_length=65_535)]
Qos: TypeAlias = Annotated[int, Meta(ge=0, le=2)]
