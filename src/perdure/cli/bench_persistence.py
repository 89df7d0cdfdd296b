"""``perdure bench persistence``: stores beside each other, not brokers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from perdure.cli.bench_screen import progress
from perdure.cli.exit_codes import ExitCode
from perdure.cli.output import Column, Output, output_options

if TYPE_CHECKING:
    from perdure.storebench.run import Comparison

_LEFT: Final = frozenset(("durability", "shape", "contestant", "what", "wanted", "kept", "where"))


@click.command(context_settings={"help_option_names": ["--help"]})
@click.option("--start", is_flag=True, help="Start a PostgreSQL and a Redis for the comparison.")
@click.option("--redis", default="", metavar="URL", help="A Redis that runs already.")
@click.option("--postgres", default="", metavar="URL", help="An empty database that runs already.")
@click.option("--clients", type=click.IntRange(1), default=1_000, show_default=True)
@click.option("--size", type=click.IntRange(0), default=64, show_default=True, metavar="BYTES")
@click.option("--seconds", type=click.FloatRange(0.05), default=3.0, show_default=True,
              help="Of each stretch.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--shape", "shapes", multiple=True, type=click.Choice(["single", "batched"]),
              help="One message to a call, or 128; both by default.")  # fmt: skip
@click.option("--durability", "durabilities", multiple=True,
              type=click.Choice(["durable", "relaxed"]), help="Both by default.")  # fmt: skip
@click.option(
    "--only", "names", multiple=True, metavar="NAME", help="A contestant; all by default."
)
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write a page.")
@click.option("--save", type=click.Path(path_type=Path), metavar="FILE", help="Write all figures.")
@click.option("--check", is_flag=True, help="End with 1 if a ratio is not what it should be.")
@output_options
def persistence(
    start: bool,
    redis: str,
    postgres: str,
    clients: int,
    size: int,
    seconds: float,
    rounds: int,
    shapes: tuple[str, ...],
    durabilities: tuple[Any, ...],
    names: tuple[str, ...],
    html: Path | None,
    save: Path | None,
    check: bool,
    out: Output,
) -> int:
    """PostgreSQL, Redis and the embedded log beside each other: persist, fetch, acknowledge.

    \b
    Contestants: postgres-unbatched, postgres-batched, redis-sync (redis-py), redis-async (TBMQ's
    layout), compact (Perdure's layout), embedded. They take turns; ratios are taken by round.

    \b
    Examples:
      perdure bench persistence --start --html persistence.html
      perdure bench persistence --start --only compact --only redis-async --shape batched
    """
    from perdure.storebench.contestants import Servers
    from perdure.storebench.run import Settings, compare

    _check_servers({"redis": redis, "postgres": postgres}, names, start=start)
    if (redis or postgres) and len(durabilities) != 1:
        raise click.UsageError("say with --durability how the server that runs is set")
    settings = Settings(
        clients,
        size,
        seconds,
        rounds,
        shapes=shapes or Settings().shapes,
        durabilities=durabilities or Settings().durabilities,
        contestants=names,
    )
    with progress(wanted=True) as on_progress:
        found = compare(
            settings,
            Servers(redis, postgres),
            progress=lambda what, done: (
                on_progress(what, done, "") if on_progress is not None else None
            ),
        )
    _write(found, save=save, html=html)
    _show(found, out)
    if check and not all(ratio.is_met for ratio in found.ratios):
        return ExitCode.EXPECTATION
    return ExitCode.OK


def _check_servers(given: dict[str, str], names: tuple[str, ...], *, start: bool) -> None:
    """Refuse contestants whose server is neither given nor to be started."""
    from perdure.storebench.contestants import choose

    wanted = {one.server for one in choose(names)} - {"embedded"}
    absent = sorted(name for name in wanted if not given[name])
    if absent and not start:
        raise click.UsageError(f"take --start, or name a server with --{absent[0]}")


def _write(found: Comparison, *, save: Path | None, html: Path | None) -> None:
    """The files that were asked for."""
    from perdure.storebench import report

    if save is not None:
        save.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
        click.echo(f"wrote {save}", err=True)
    if html is not None:
        html.write_text(report.render(found), encoding="utf-8")
        click.echo(f"wrote {html}", err=True)


def _show(found: Comparison, out: Output) -> None:
    from perdure.storebench import report

    if out.is_json:
        out.record({**msgspec.to_builtins(found), "notes": list(report.NOTES)})
    else:
        for fields, rows in (
            (report.ROW_FIELDS, report.row_fields(found)),
            (report.MEMORY_FIELDS, report.memory_fields(found)),
            (report.RATIO_FIELDS, report.ratio_fields(found.ratios)),
        ):
            out.rows([Column(name, right=name not in _LEFT) for name in fields], rows)
            out.text("\n")
        for note in report.NOTES:
            out.text(f"{note}\n")
