"""`python -m examples.demo`: see ``--help``. Exit 1 if a promise broke, 69 without a broker."""

from __future__ import annotations

import argparse
import asyncio
import errno
import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

from examples.demo.screen import Screen
from examples.demo.story import Options, Story
from perdure.bench.errors import BenchError
from tests.support.process import ProcessError


async def tell(options: Options, directory: Path, screen: Screen) -> bool:
    """The story, on a loop that passes over one known noise."""
    asyncio.get_running_loop().set_exception_handler(_pass_over_dead_sockets)
    return await Story(options, directory, screen).run()


def _pass_over_dead_sockets(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    # aiomqtt may ask the loop to watch a socket that the kill has closed a moment before.
    error = context.get("exception")
    if not (isinstance(error, OSError) and error.errno == errno.EBADF):
        loop.default_exception_handler(context)


def main() -> int:
    """Run the demo on a temporary directory."""
    parser = argparse.ArgumentParser(
        prog="make demo",
        description="Real MQTT clients lose nothing through a kill -9 of the broker.",
    )
    parser.add_argument("--messages", type=int, help="how many (50000; 10000 on a cluster)")
    parser.add_argument("--topics", type=int, default=1000, help="over how many topics (1000)")
    parser.add_argument("--seed", default="perdure", help="of the order of the topics")
    parser.add_argument("--no-kill", action="store_true", help="the same without kill -9")
    parser.add_argument("--plain", action="store_true", help="no progress bars")
    parser.add_argument(
        "--broker",
        choices=("perdure", "mosquitto", "cluster"),
        default="perdure",
        help="whom to put to the test; mosquitto (persistence on) shows that the test can fail; "
        "cluster is three nodes on three Kafka brokers (Java and Maven are needed)",
    )
    chosen = parser.parse_args()
    if chosen.messages is None:
        chosen.messages = 10_000 if chosen.broker == "cluster" else 50_000
    if chosen.messages < 1 or chosen.topics < 1:
        parser.error("at least one message and one topic")
    # aiomqtt logs what it thinks of lost connections; the demo counts their effects instead.
    logging.getLogger("mqtt").setLevel(logging.CRITICAL)
    options = Options(
        chosen.broker, chosen.messages, chosen.topics, chosen.seed, not chosen.no_kill
    )
    with (
        tempfile.TemporaryDirectory(prefix="perdure-demo-") as directory,
        Screen(plain=chosen.plain) as screen,
    ):
        try:
            kept = asyncio.run(tell(options, Path(directory), screen))
        except (BenchError, ProcessError) as error:
            screen.console.print(f"{error}", markup=False)
            return 69
        except KeyboardInterrupt:
            return 130
        screen.console.print(
            "\n[bold green]Every promise was kept.[/bold green]"
            if kept
            else "\n[bold red]A promise was broken.[/bold red]"
        )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
