"""``perdure registry``: subscriptions and devices on Redis, in the keys of nexxus-redis."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.output import Column, Output, output_options
from perdure.cli.registry_options import place_options
from perdure.clock import SystemClock
from perdure.config.units import parse_duration

if TYPE_CHECKING:
    from perdure.registry import Registry

_T = TypeVar("_T")

_SUBSCRIPTION: Final = (Column("device"), Column("channel"), Column("filter_id"))


_channel = click.argument("channel", metavar="CHANNEL")
_device = click.argument("device", metavar="DEVICE")


@click.group()
def command() -> None:
    """Which devices want a change, and what is known of them.

    A channel is app:APP[:user:USER]:model:MODEL[:id:ID]; a device is DEVICE|TRANSPORT, such as
    pump-7|mqtt.

    \b
    Examples:
      perdure registry subscribe 'pump-7|mqtt' app:plant:model:task --where '{"priority": "high"}'
      perdure registry wanting app:plant:user:ada:model:task:id:9 --document '{"priority": "high"}'
      perdure registry device pump-7
      perdure registry sweep --url redis://localhost
    """


@command.command("patterns")
@_channel
@output_options
def show_patterns(channel: str, out: Output) -> None:
    """List the channels whose subscribers hear of a change."""
    from perdure.registry import Channel, patterns

    rows = [{"channel": each.key} for each in patterns(Channel.parse(channel))]
    out.rows((Column("channel"),), rows)


@command.command()
@_device
@_channel
@place_options
@click.option("--where", default="", metavar="FILTER", help="A content filter, as JSON.")
@click.option("--filter-id", default="", help="The filter's id, or of one that is there.")
@click.option("--expires", metavar="DURATION", help="When it ends, from now (30d).")
@output_options
def subscribe(
    device: str,
    channel: str,
    where: str,
    filter_id: str,
    expires: str | None,
    out: Output,
    **place: Any,
) -> None:
    """Subscribe a device to a channel."""
    from perdure.registry import Channel, DeviceTransport

    who, what = DeviceTransport.parse(device), Channel.parse(channel)
    until_s = 0
    if expires is not None:
        try:
            until_s = _now_us() // 1_000_000 + parse_duration(expires, "s")
        except ValueError as error:
            raise click.UsageError(str(error)) from None

    async def work(registry: Registry) -> str:
        return await registry.subscribe(
            who, what, where=where, filter_id=filter_id, until_s=until_s
        )

    made = _with(place, work)
    out.rows(_SUBSCRIPTION, [{"device": device, "channel": channel, "filter_id": made or None}])


@command.command()
@_device
@_channel
@place_options
@click.option("--filter-id", default="", help="Of the subscription with this filter.")
@output_options
def unsubscribe(device: str, channel: str, filter_id: str, out: Output, **place: Any) -> None:
    """Take a subscription back."""
    from perdure.registry import Channel, DeviceTransport

    who, what = DeviceTransport.parse(device), Channel.parse(channel)
    if not _with(place, lambda registry: registry.unsubscribe(who, what, filter_id)):
        raise CommandFailed(f"{device} does not subscribe to that", ExitCode.NOT_FOUND)
    out.rows(
        _SUBSCRIPTION, [{"device": device, "channel": channel, "filter_id": filter_id or None}]
    )


@command.command()
@_channel
@place_options
@click.option("--document", default="{}", show_default=True, help="The object, as JSON.")
@output_options
def wanting(channel: str, document: str, out: Output, **place: Any) -> None:
    """List the devices that want a change."""
    import msgspec

    from perdure.registry import Channel

    try:
        value = msgspec.json.decode(document)
    except ValueError as error:
        raise click.UsageError(f"--document: {error}") from None
    change = Channel.parse(channel)
    found = _with(place, lambda registry: registry.wanting(change, value))
    columns = (Column("device"), Column("transport"))
    out.rows(
        columns,
        [{"device": each.device_id, "transport": each.transport} for each in found.devices],
    )
    for channel_key, filter_id in found.unreadable:
        click.echo(f"perdure: filter {filter_id} of {channel_key} cannot be read", err=True)


@command.command("device")
@click.argument("device_id")
@place_options
@output_options
def show_device(device_id: str, out: Output, **place: Any) -> None:
    """Show a device: its connections and subscriptions."""

    async def work(registry: Registry) -> Any:
        return await registry.device(device_id), await registry.subscriptions(device_id)

    known, subscriptions = _with(place, work)
    if known is None and not subscriptions:
        raise CommandFailed(f"nothing is known of {device_id!r}", ExitCode.NOT_FOUND)
    rows: list[dict[str, Any]] = []
    if known is not None:
        rows += [{"what": "user", "value": known.user_id or None}] if known.user_id else []
        rows += [
            {
                "what": f"connection {name}",
                "value": f"{'connected' if each.connected else 'disconnected'} since {each.since}",
            }
            for name, each in sorted(known.connections.items())
        ]
        rows.append({"what": "last seen", "value": known.last_seen_at})
    rows += [
        {
            "what": f"subscription {each.transport}",
            "value": each.channel.key + (f" filter {each.filter_id}" if each.filter_id else ""),
        }
        for each in subscriptions
    ]
    out.rows((Column("what"), Column("value")), rows)


@command.command()
@click.argument("device_id")
@place_options
@output_options
def forget(device_id: str, out: Output, **place: Any) -> None:
    """Forget a device and what it subscribes to."""
    count = _with(place, lambda registry: registry.forget(device_id))
    out.rows(
        (Column("device"), Column("subscriptions", right=True)),
        [{"device": device_id, "subscriptions": count}],
    )


@command.command()
@place_options
@click.option("--orphans", is_flag=True, help="Subscriptions of devices that nobody knows, too.")
@click.option("--worker", default="", help="A worker that is gone: its devices are disconnected.")
@output_options
def sweep(orphans: bool, worker: str, out: Output, **place: Any) -> None:
    """Take out what has expired, and what workers or devices have left."""
    from perdure.registry import Upkeep

    async def work(registry: Registry) -> dict[str, int]:
        upkeep = Upkeep(registry)
        now_us = _now_us()
        row = {"expired": (await upkeep.sweep(now_us // 1_000_000)).expired}
        row["disconnected"] = await upkeep.leave(worker, now_us=now_us) if worker else 0
        row["orphans"] = (await upkeep.orphans(remove=True)).found if orphans else 0
        return row

    names = ("expired", "disconnected", "orphans")
    out.rows(tuple(Column(name, right=True) for name in names), [_with(place, work)])


@command.command()
@place_options
@click.option("--for", "since", required=True, metavar="DURATION", help="Since when (30d).")
@click.option("--forget", "forgets", is_flag=True, help="Take them out, with what they want.")
@click.option("--limit", type=click.IntRange(1), default=1_000, show_default=True,
              help="Devices at once.")  # fmt: skip
@output_options
def idle(since: str, limit: int, out: Output, *, forgets: bool, **place: Any) -> None:
    """List, or forget, devices of which nothing was heard for long."""
    from perdure.registry import Upkeep
    from perdure.registry.device import iso

    try:
        before = iso(_now_us() - parse_duration(since, "s") * 1_000_000)
    except ValueError as error:
        raise click.UsageError(str(error)) from None

    async def work(registry: Registry) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        async for device in Upkeep(registry).idle(before):
            if len(rows) == limit:
                break
            rows.append(
                {
                    "device": device.device_id,
                    "user": device.user_id or None,
                    "last_seen_at": device.last_seen_at,
                }
            )
        if forgets and rows:
            await registry.forget(*(row["device"] for row in rows))
        return rows

    out.rows((Column("device"), Column("user"), Column("last_seen_at")), _with(place, work))


@command.command()
@click.argument("to", type=click.IntRange(1, 1 << 20))
@place_options
@output_options
def repartition(to: int, out: Output, **place: Any) -> None:
    """Move subscriptions to where they are with TO partitions (give --partitions of now)."""
    from perdure.registry import Upkeep

    moved = _with(place, lambda registry: Upkeep(registry).repartition(to))
    out.rows((Column("moved", right=True),), [{"moved": moved}])


@command.command()
@place_options
@output_options
def stats(out: Output, **place: Any) -> None:
    """Count channels, subscriptions and devices, and name the busiest channels."""
    from perdure.registry import Upkeep

    found = _with(place, lambda registry: Upkeep(registry).statistics())
    rows = [
        {"what": name, "count": getattr(found, name)}
        for name in ("channels", "subscriptions", "filtered", "devices", "connected")
    ]
    rows += [{"what": key, "count": count} for key, count in found.busiest]
    out.rows((Column("what"), Column("count", right=True)), rows)


def _with(place: dict[str, Any], work: Callable[[Registry], Awaitable[_T]]) -> _T:
    """Open the registry, do something, close it."""
    from perdure.registry import Registry

    async def run() -> _T:
        registry = await Registry.open(
            place["url"], partitions=place["partitions"], prefix=place["prefix"]
        )
        try:
            return await work(registry)
        finally:
            await registry.close()

    return asyncio.run(run())


def _now_us() -> int:
    return SystemClock().now_us()
