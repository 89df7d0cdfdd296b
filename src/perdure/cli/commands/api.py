"""``perdure api``: any operation of the API by its name, here or on the broker of a context."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from perdure.admin.described import fields_of
from perdure.admin.operation import Operation
from perdure.admin.table import OPERATIONS
from perdure.admin.wire import decode_given
from perdure.cli.data import data_options
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Column, Output, output_options
from perdure.cli.running_broker import running_broker

INPUT_BYTES_MAX: Final = 16 * 1024 * 1024

_OPERATIONS: Final = (
    Column("operation"),
    Column("right"),
    Column("http"),
    Column("summary"),
)
_FIELDS: Final = (Column("field"), Column("type"), Column("required"))


@click.command()
@data_options
@click.argument("operation", required=False)
@click.argument("fields", nargs=-1, metavar="[FIELD=VALUE]...")
@click.option("--input", "input_", metavar="FILE", help="Fields as a JSON object; - = standard "
              "input. For secrets, which do not belong on a command line.")  # fmt: skip
@click.option("--all", "all_pages", is_flag=True, help="All pages of a list, not one.")
@click.option("--describe", is_flag=True, help="Show the fields of the operation.")
@output_options
def command(
    data: Path,
    operation: str | None,
    fields: tuple[str, ...],
    input_: str | None,
    all_pages: bool,
    describe: bool,
    out: Output,
) -> None:
    """Ask for OPERATION with its fields, and print the answer as the HTTP API has it (JSON).

    Without one: lists all operations. The names, fields and answers are those of the HTTP API. A
    value that is an object or a list is JSON.

    \b
    Examples:
      perdure api
      perdure api sessions.list --describe
      perdure api sessions.list connected=true limit=5
      perdure api config.patch 'settings={"log.level": "debug"}'
      perdure api credentials.put user=ada --input secret.json
    """
    if operation is None:
        out.rows(_OPERATIONS, [_operation_row(each) for each in OPERATIONS.values()])
        return
    known = OPERATIONS.get(operation)
    if known is None:
        raise CommandFailed(
            f"there is no operation {operation!r}", ExitCode.USAGE, hint="perdure api lists them"
        )
    if describe:
        out.rows(_FIELDS, _field_rows(known))
        return
    request = _request(known, _given(fields, input_))
    with running_broker(data) as client:
        while True:
            answer = client.ask(known.name, msgspec.json.encode(request))
            if not all_pages:
                out.text(f"{_readable(answer)}\n")
                return
            page: Any = msgspec.json.decode(answer)
            if not isinstance(page, dict) or "items" not in page:
                raise click.UsageError(f"{known.name} is no list: leave --all out")
            for item in page["items"]:
                out.text(f"{msgspec.json.encode(item).decode()}\n")
            if page.get("next_cursor") is None:
                return
            request = msgspec.structs.replace(request, cursor=page["next_cursor"])


def _given(fields: tuple[str, ...], input_: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if input_ is not None:
        try:
            raw = (
                sys.stdin.buffer.read(INPUT_BYTES_MAX + 1)
                if input_ == "-"
                else Path(input_).read_bytes()
            )
            found = decode_given(raw, dict[str, Any])
        except OSError as error:
            raise CommandFailed(f"cannot read {input_}: {error.strerror}", ExitCode.DATA) from error
        except ValueError as error:
            raise CommandFailed(f"{input_} is no JSON object: {error}", ExitCode.DATA) from error
    for each in fields:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{each!r}: expected field=value")
        found[name] = _value(value)
    return found


def _value(text: str) -> Any:
    if text[:1] in ("{", "["):
        try:
            return decode_given(text, object)
        except ValueError as error:
            raise click.UsageError(f"{text[:80]!r} is no JSON: {error}") from error
    return text


def _request(operation: Operation, fields: dict[str, Any]) -> Any:
    try:
        return msgspec.convert(fields, operation.request, strict=False)
    except msgspec.ValidationError as error:
        raise CommandFailed(
            f"{operation.name}: {error}",
            ExitCode.DATA,
            hint=f"perdure api {operation.name} --describe",
        ) from error


def _readable(answer: bytes) -> str:
    return msgspec.json.format(answer, indent=2 if sys.stdout.isatty() else 0).decode()


def _operation_row(operation: Operation) -> dict[str, Any]:
    http = operation.http
    return {
        "operation": operation.name,
        "right": operation.right,
        "http": f"{http.method} {http.path}" if http is not None else None,
        "summary": operation.summary,
    }


def _field_rows(operation: Operation) -> list[dict[str, Any]]:
    return [
        {"field": name, "type": kind, "required": required}
        for name, kind, required in fields_of(operation)
    ]
