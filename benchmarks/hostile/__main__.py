"""``python -m benchmarks.hostile [--seconds N] [NAME...]``: all attacks, or some, as a table.

Exit code 1 if a promise was broken.
"""

from __future__ import annotations

import sys

import click
from rich.console import Console
from rich.table import Table

from benchmarks.ending import end_in_order
from benchmarks.hostile import harness
from benchmarks.hostile.attacker import ATTACKS
from benchmarks.hostile.harness import GROWTH_BYTES_MAX, P99_MS_MAX, Outcome

_NOBODY = "nobody"
_WIDE = 132
"""Columns from which on the table also says what an attack does."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("--seconds", default=6.0, show_default=True, help="How long each attack lasts.")
@click.option("--perdure", "program", default=sys.executable, help="Which perdure serves.")
@click.option("--list", "is_list", is_flag=True, help="Tell what there is.")
def main(names: tuple[str, ...], seconds: float, program: str, is_list: bool) -> None:
    """Attack a broker and look at what others notice.

    Beside each attack, 100 clients send 1,000 messages a second.
    """
    unknown = [name for name in names if name not in ATTACKS and name != _NOBODY]
    if unknown:
        raise click.UsageError(f"no attack {unknown[0]!r}; --list tells what there is")
    if is_list:
        for name, (what, _) in ATTACKS.items():
            click.echo(f"{name:16} {what}")
        return
    outcomes = []
    for name in names or (_NOBODY, *ATTACKS):
        outcome = harness.run("" if name == _NOBODY else name, seconds=seconds, program=program)
        outcomes.append(outcome)
        click.echo(f"{name:16} {', '.join(outcome.faults) or 'kept'}", err=True)
    console = Console(width=None if sys.stdout.isatty() else _WIDE)
    console.print(table(outcomes, is_wide=console.width >= _WIDE))
    broken = [outcome for outcome in outcomes if outcome.faults]
    click.echo(
        f"{len(outcomes) - len(broken)} of {len(outcomes)} kept: p99 at most {P99_MS_MAX:g} ms, "
        f"memory at most {GROWTH_BYTES_MAX >> 20} MiB more, nothing lost, no traceback."
    )
    sys.exit(1 if broken else 0)


def table(outcomes: list[Outcome], *, is_wide: bool) -> Table:
    """What others noticed, a line for each attack."""
    made = Table(caption="times in ms; of 100 clients that sent 1,000 messages a second meanwhile")
    made.add_column("attack", no_wrap=True)
    if is_wide:
        made.add_column("what it does")
    for title in ("done", "ack p50", "p99", "most", "delivered p99", "MiB more", "log lines"):
        made.add_column(title, justify="right")
    made.add_column("broken")
    for outcome in outcomes:
        what = ATTACKS[outcome.name][0] if outcome.name else "no attack, to compare with"
        figures = (outcome.ack_p50_ms, outcome.ack_p99_ms, outcome.ack_max_ms)
        made.add_row(
            outcome.name or _NOBODY,
            *((what,) if is_wide else ()),
            f"{outcome.done:,}",
            *(f"{figure:.0f}" for figure in figures),
            f"{outcome.delivered_p99_ms:.0f}",
            f"{outcome.growth_bytes / 2**20:.0f}",
            f"{outcome.log_lines:,}",
            ", ".join(outcome.faults),
            style="red" if outcome.faults else "",
        )
    return made


if __name__ == "__main__":
    end_in_order()
    main()
