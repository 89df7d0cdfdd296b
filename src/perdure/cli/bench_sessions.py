"""``perdure bench sessions``: the layouts of a token store beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
import msgspec

from perdure.bench.errors import BenchError
from perdure.cli.bench_screen import progress
from perdure.cli.counts import Count
from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Column, Output, output_options
from perdure.tokens import LAYOUTS

_COLUMNS: Final = tuple(
    Column(name, right=name != "layout")
    for name in (
        "layout",
        "bytes_each",
        "of_json",
        "seed_bytes",
        "save_us",
        "find_us",
        "saves_per_s",
        "finds_per_s",
    )
)


@click.command(context_settings={"help_option_names": ["--help"]})
@click.option("--count", type=Count(), default=100_000, show_default=True,
              metavar="N", help="Tokens in each layout: 250000, 100k, 10M.")  # fmt: skip
@click.option("--layouts", default=",".join(LAYOUTS), metavar="A,B", help="All by default.")
@click.option("--url", default="", metavar="URL",
              help="A Redis that runs; by default one is started for each layout.")  # fmt: skip
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write a page.")
@click.option("--save", type=click.Path(path_type=Path), metavar="FILE", help="Write all figures.")
@output_options
def sessions(
    count: int, layouts: str, url: str, html: Path | None, save: Path | None, out: Output
) -> None:
    """Login sessions (tokens) in Redis: memory and CPU of the server in each layout.

    \b
    Layouts: json, packed, hash, partitioned:256 and partitioned:65536 are those of the article
    "Optimising session key storage in Redis", whose figures stand beside (seed_bytes, for a
    million); planned is Perdure's.

    \b
    Examples:
      perdure bench sessions --count 1000000 --html sessions.html
      perdure bench sessions --layouts json,planned --url redis://localhost --json
    """
    from perdure.storebench import token_report
    from perdure.storebench.tokens import compare

    names = [name.strip() for name in layouts.split(",") if name.strip()]
    if not names:
        raise click.BadParameter("names no layout", param_hint="--layouts")
    for name in names:
        if name not in LAYOUTS:
            raise click.BadParameter(
                f"there is no layout {name!r}, but {', '.join(LAYOUTS)}", param_hint="--layouts"
            )
    try:
        with progress(wanted=True) as on_progress:
            found = compare(
                count,
                names,
                url=url,
                progress=lambda what, done: (
                    on_progress(what, done, "") if on_progress is not None else None
                ),
            )
    except BenchError as error:
        raise CommandFailed(error.message, ExitCode.UNAVAILABLE, hint=error.hint) from error
    if save is not None:
        save.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
        click.echo(f"wrote {save}", err=True)
    if html is not None:
        html.write_text(token_report.render(found), encoding="utf-8")
        click.echo(f"wrote {html}", err=True)
    if out.is_json:
        out.record(msgspec.to_builtins(found))
    else:
        out.rows(_COLUMNS, (msgspec.to_builtins(row) for row in found.rows))
        out.text(f"{found.server}, hash-max-listpack-entries {found.hash_entries}\n")
