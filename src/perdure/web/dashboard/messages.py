"""Messages that are kept: retained ones, and those of the log."""

from __future__ import annotations

from typing import Final, final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from perdure.admin.records.messages import GetRetained, ListRetained, MessageRow, ReadLog
from perdure.web.dashboard.desk import Desk, is_part
from perdure.web.dashboard.forms import asked, given
from perdure.web.routing import WebRoute

PAGE: Final = 50

SHOWN_BYTES_MAX: Final = 16 * 1024
"""Of a payload on a page; the API has all of it."""

PREVIEW_CHARS: Final = 120
HEX_ROW: Final = 16
HEX_BYTES_MAX: Final = 2 * 1024


@final
class PayloadView(msgspec.Struct, frozen=True):
    """A payload for people.

    Attributes:
        text: as text, indented if it is JSON; None = it is none.
        is_json: it is.
        hexadecimal: its first bytes in rows, with offsets.
        is_cut: it is longer than what is shown.
        preview: its beginning, in a line.
    """

    text: str | None
    is_json: bool
    hexadecimal: str
    is_cut: bool
    preview: str


def view(payload: bytes) -> PayloadView:
    """A payload as text, JSON and bytes."""
    cut = payload[:SHOWN_BYTES_MAX]
    is_cut = len(payload) > len(cut)
    text: str | None
    try:
        # The last character may have been cut within.
        text = cut.decode(errors="strict" if not is_cut else "ignore")
    except UnicodeDecodeError:
        text = None
    if text is not None and any(each < " " and each not in "\t\n\r" for each in text):
        text = None  # control characters: bytes that happen to be UTF-8
    is_json = False
    if text is not None and not is_cut and payload[:1] in b'{["-0123456789tfn' and payload:
        try:
            text = msgspec.json.format(payload, indent=2).decode()
            is_json = payload[:1] in b"{["
        except ValueError:
            pass
    preview = _preview(text) if text is not None else cut[:40].hex(" ")
    return PayloadView(text, is_json, hex_rows(payload[:HEX_BYTES_MAX]), is_cut, preview)


def hex_rows(data: bytes) -> str:
    """Offset, bytes and characters, sixteen in a row."""
    rows = []
    for at in range(0, len(data), HEX_ROW):
        row = data[at : at + HEX_ROW]
        characters = "".join(chr(each) if 32 <= each < 127 else "." for each in row)
        rows.append(f"{at:06x}  {row.hex(' '):<{HEX_ROW * 3 - 1}}  {characters}")
    return "\n".join(rows)


def _preview(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= PREVIEW_CHARS else line[:PREVIEW_CHARS] + "…"


def message_routes(desk: Desk) -> list[WebRoute]:
    """Retained messages, and the log."""

    async def retained(request: Request) -> Response:
        filters = given(request, "filter")
        fields = {**filters, "limit": 100, "cursor": request.query_params.get("cursor", "")}
        page = await desk.look(request, asked(ListRetained, fields))
        template = "retained_rows.html" if is_part(request) else "retained.html"
        return desk.page(request, template, current="retained", page=page, filters=filters)

    async def one_retained(request: Request) -> Response:
        message = await desk.ask(request, GetRetained(topic=request.path_params["topic"]))
        return desk.page(
            request,
            "retained_one.html",
            current="retained",
            message=message,
            payload=view(message.payload),
        )

    async def messages(request: Request) -> Response:
        filters = given(request, "filter", "from", "until")
        fields = {
            "filter": filters["filter"],
            "from": filters["from"] or "10m",
            "until": filters["until"],
            "limit": PAGE,
            "cursor": request.query_params.get("cursor", ""),
        }
        page = await desk.look(request, asked(ReadLog, fields))
        template = "messages_rows.html" if is_part(request) else "messages.html"
        rows: list[tuple[MessageRow, PayloadView]] = [
            (each, view(each.payload)) for each in page.items
        ]
        return desk.page(
            request, template, current="messages", page=page, rows=rows, filters=filters
        )

    return [
        desk.route("/ui/retained", retained),
        desk.route("/ui/retained/{topic}", one_retained),
        desk.route("/ui/messages", messages),
    ]
