"""``perdure config check | show | diff | reference | schema``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from perdure.admin.records.config import GetConfig
from perdure.cli.config_diff import Shown, differences, shown
from perdure.cli.exit_codes import ExitCode
from perdure.cli.output import Column, Output, error_line, output_options
from perdure.cli.running_broker import running_broker
from perdure.cli.settings_options import config_options
from perdure.config.bind import Problem
from perdure.config.fields import settings
from perdure.config.json_schema import json_schema
from perdure.config.load import Loaded, effective, examine, load
from perdure.config.reference import default_text, reference
from perdure.config.schema import Config
from perdure.config.units import format_duration, format_size

if TYPE_CHECKING:
    from perdure.server.preflight import Finding


@click.group()
def command() -> None:
    """Check and show the configuration.

    \b
    Examples:
      perdure config check --config perdure.yaml
      perdure config show --origin storage
      perdure config diff --config perdure.yaml
      perdure config reference > configuration.md
      perdure config schema > perdure.schema.json
    """


@command.command()
@config_options
@click.option("--connect", is_flag=True, help="Also ask the servers that it names: do they answer?")
@output_options
def check(config_path: Path | None, sets: tuple[str, ...], connect: bool, out: Output) -> int:
    """Tell all that `serve` would refuse, and what is doubtful; exit 78 if there is a problem.

    Looks at the files, the directory, the packages and the addresses that the configuration names,
    as the user who runs it: run it as the broker's. With --connect it also connects to the servers
    of `storage`, `auth` and `registry`, beside a running broker too: of storage, which `serve`
    waits for, no answer is a problem; of the others, which may come later, it is a warning.
    """
    loaded, problems = examine(config_path, environ=os.environ, sets=sets)
    warnings = list(loaded.warnings) if loaded else []
    unasked: list[str] = []
    if loaded is not None:
        findings, unasked = _look(loaded.config, connect=connect)
        problems = [
            Problem(each.path, each.message, _where(loaded, each.path), each.hint)
            for each in findings
            if each.severity == "problem"
        ]
        warnings += [
            f"{each} ({each.hint})" if each.hint else str(each)
            for each in findings
            if each.severity == "warning"
        ]
    rows = [
        {
            "where": problem.where,
            "path": problem.path,
            "message": problem.message,
            "hint": problem.hint,
        }
        for problem in problems
    ]
    if out.is_json:
        out.record({"ok": not rows, "problems": rows, "warnings": warnings, "not_asked": unasked})
    elif rows:
        out.rows((Column("where"), Column("path"), Column("message"), Column("hint")), rows)
    if not out.is_json:
        for warning in warnings:
            error_line(f"warning: {warning}")
        if unasked:
            error_line(f"not asked whether they answer: {', '.join(unasked)} (--connect asks)")
        click.echo(_verdict(config_path, len(rows)), err=True)
    return ExitCode.CONFIG if rows else ExitCode.OK


def _look(config: Config, *, connect: bool) -> tuple[list[Finding], list[str]]:
    """What was found, and which settings name a server that was not asked."""
    # Imported late: the other commands do without what the server needs.
    from perdure.server.answering import ask, named
    from perdure.server.preflight import look

    found = look(config, ports=True)
    if connect and not found.problems:
        return [*found.findings, *asyncio.run(ask(config))], []
    return list(found.findings), named(config)


def _where(loaded: Loaded, path: str) -> str:
    origin = loaded.origins.get(path)
    return origin.where if origin is not None else ""


def _verdict(path: Path | None, count: int) -> str:
    what = str(path) if path else "configuration"
    if count == 0:
        return f"{what}: ok"
    return f"{what}: {count} {'problem' if count == 1 else 'problems'}"


@command.command()
@config_options
@click.argument("prefix", default="")
@click.option("--origin", is_flag=True, help="Show where each value comes from.")
@click.option("--changed", is_flag=True, help="Only what is not a default.")
@output_options
def show(
    config_path: Path | None,
    sets: tuple[str, ...],
    prefix: str,
    origin: bool,
    changed: bool,
    out: Output,
) -> None:
    """Show the settings in force, all or those that begin with PREFIX."""
    loaded = load(config_path, environ=os.environ, sets=sets)
    for warning in loaded.warnings:
        error_line(f"warning: {warning}")

    def rows() -> Iterator[dict[str, Any]]:
        for item in effective(loaded):
            if not item.path.startswith(prefix) or (changed and item.origin.kind == "default"):
                continue
            row: dict[str, Any] = {"setting": item.path, "value": item.value}
            if not out.is_json:
                row["value"] = _text(item.value, item.setting.unit)
            if origin or out.is_json:
                row["origin"] = str(item.origin)
            if out.is_json:
                row |= {"unit": item.setting.unit, "reload": item.setting.reload}
            yield row

    columns = [Column("setting"), Column("value"), *([Column("origin")] if origin else [])]
    out.rows(columns, rows())


@command.command()
@config_options
@click.option(
    "--against",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Compare with this file, and not with the broker that runs.",
)
@output_options
def diff(config_path: Path | None, sets: tuple[str, ...], against: Path | None, out: Output) -> int:
    """Show what differs from what the running broker has in force; exit 1 if something does.

    `before` is in force, `after` is what file, environment and --set say now, and `takes` what
    puts that in force: a `reload`, a `restart`, or, where the value was changed by the API, that
    this is taken back. Of secrets it is seen only whether there is one.

    \b
    Examples:
      perdure config diff --config perdure.yaml
      perdure config diff --config new.yaml --against /etc/perdure/perdure.yaml
    """
    loaded = load(config_path, environ=os.environ, sets=sets)
    for warning in loaded.warnings:
        error_line(f"warning: {warning}")
    after = shown(loaded)
    if against is not None:
        before = shown(load(against, environ=os.environ))
    else:
        with running_broker(Path(loaded.config.storage.path)) as client:
            page = client.call(GetConfig())
        before = {row.setting: Shown(row.value, row.origin, row.reload) for row in page.items}
    rows = differences(before, after)
    columns = (Column("setting"), Column("before"), Column("after"), Column("takes"))
    out.rows(columns, rows)
    return ExitCode.EXPECTATION if rows else ExitCode.OK


def _text(value: object, unit: str) -> object:
    """A value as the operator would write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value and value != 0xFFFF_FFFF:
        if unit == "bytes":
            return format_size(value)
        if unit in {"s", "ms", "us"}:
            return format_duration(value, unit)
    return value


@command.command("reference")
@output_options
def show_reference(out: Output) -> None:
    """Print the reference page of all settings (Markdown), or the list of them (--json)."""
    if not out.is_json:
        out.text(reference())
        return
    out.rows(
        (),
        (
            {
                "setting": setting.path,
                "type": setting.kind.__name__,
                "choices": [choice for choice in setting.choices if choice],
                "default": setting.default,
                "default_text": default_text(setting).strip("`"),
                "unit": setting.unit,
                "reload": setting.reload,
                "minimum": setting.minimum,
                "maximum": setting.maximum,
                "description": setting.description,
            }
            for setting in settings(Config)
        ),
    )


@command.command("schema")
def show_schema() -> None:
    """Print what a file may hold as JSON Schema, for editors and checks."""
    click.echo(msgspec.json.format(msgspec.json.encode(json_schema()), indent=2))
