"""Files of the dashboard: in memory, compressed once, named by their content and kept for good."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from perdure.web.problems import ApiError
from perdure.web.routing import WebRoute

FOLDER: Final = Path(__file__).parent / "static"
PREFIX: Final = "/ui/static"
TYPES: Final[Mapping[str, str]] = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
COMPRESSED_FROM_BYTES: Final = 600


@final
class Asset(msgspec.Struct, frozen=True):
    """One file.

    Attributes:
        url: with a part of its hash, so that it can be kept for ever.
        kind: its media type.
        plain, compressed: its bytes.
    """

    url: str
    kind: str
    plain: bytes
    compressed: bytes


def load_assets(folder: Path = FOLDER) -> dict[str, Asset]:
    """All files, by name."""
    found = {}
    for path in sorted(folder.iterdir()):
        kind = TYPES.get(path.suffix)
        if kind is None:
            continue
        plain = path.read_bytes()
        tag = hashlib.blake2b(plain, digest_size=6).hexdigest()
        found[path.name] = Asset(
            f"{PREFIX}/{tag}/{path.name}", kind, plain, gzip.compress(plain, 9, mtime=0)
        )
    return found


def compressed(request: Request, body: bytes) -> tuple[bytes, dict[str, str]]:
    """A body as the client takes it, with its headers."""
    headers = {"Vary": "Accept-Encoding"}
    if len(body) < COMPRESSED_FROM_BYTES or not takes_gzip(request):
        return body, headers
    return gzip.compress(body, 5, mtime=0), {**headers, "Content-Encoding": "gzip"}


def takes_gzip(request: Request) -> bool:
    """Whether the client takes compressed bodies."""
    return "gzip" in request.headers.get("accept-encoding", "")


def asset_routes(assets: Mapping[str, Asset]) -> list[WebRoute]:
    """The files, for everybody: they tell nothing."""

    async def static(request: Request) -> Response:
        asset = assets.get(request.path_params["name"])
        if asset is None:
            raise ApiError("not_found", "there is no such file")
        is_current = asset.url.split("/")[3] == request.path_params["tag"]
        headers = {
            "Cache-Control": "public, max-age=31536000, immutable" if is_current else "no-store",
            "X-Content-Type-Options": "nosniff",
            "Vary": "Accept-Encoding",
        }
        body = asset.plain
        if takes_gzip(request):
            body, headers["Content-Encoding"] = asset.compressed, "gzip"
        return Response(body, headers=headers, media_type=asset.kind)

    return [WebRoute(method="GET", path=f"{PREFIX}/{{tag}}/{{name}}", endpoint=static, right=None)]
