"""The options that ``pub`` and ``sub`` share: Mosquitto's, and what they make of a client.

Knows options and the client's constructor; does not connect. A password may stand in a file, on
standard input or, as Mosquitto has it, on the command line, where other users can read it.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar, final
from urllib.parse import unquote, urlsplit

import click

from perdure.cli.exit_codes import CommandFailed, ExitCode
from perdure.cli.mqtt_properties import PacketProperties, parse_properties, split_arguments
from perdure.cli.mqtt_syntax import check_text, check_topic
from perdure.limits import SESSION_EXPIRY_NEVER_S, UTF8_STRING_BYTES_MAX
from perdure.model import Will
from perdure.mqtt.client_protocol import ClientProtocol
from perdure.mqtt.encode import forward_properties
from perdure.mqtt.packets import V5, V311, Properties
from perdure.net.client import Client
from perdure.net.client_link import Endpoint
from perdure.net.tls import client_context

_F = TypeVar("_F", bound=Callable[..., Any])

VERSIONS: Final = {"5": V5, "mqttv5": V5, "311": V311, "mqttv311": V311, "4": V311}
PORTS: Final = {"mqtt": 1883, "mqtts": 8883, "ws": 8083, "wss": 8084}
PROPERTIES_KEY: Final = "perdure.mqtt_properties"


@final
class MqttCommand(click.Command):
    """A command with ``-D``, which takes three or four words, and ``-h`` for the host."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the properties out before the parser sees the rest."""
        valued = {
            name
            for param in self.params
            if isinstance(param, click.Option) and not param.is_flag and not param.count
            for name in param.opts
        }
        rest, properties = split_arguments(args, frozenset(valued))
        ctx.meta[PROPERTIES_KEY] = properties
        return super().parse_args(ctx, rest)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Everything about the client, as given."""

    host: str | None
    port: int | None
    url: str | None
    websocket: bool
    websocket_path: str
    bind: str
    client_id: str
    id_prefix: str
    username: str | None
    password: str | None
    password_file: Path | None
    keep_session: bool
    session_expiry_s: int | None
    keep_alive: int
    version: int
    inflight_max: int
    use_tls: bool
    cafile: str
    certificate: str
    private_key: str
    insecure: bool
    will_topic: str
    will_payload: str
    will_qos: int
    will_retain: bool
    connect_timeout_s: float
    quiet: bool
    properties: PacketProperties

    @property
    def is_v5(self) -> bool:
        """Whether MQTT 5.0 is spoken."""
        return self.version == V5

    @property
    def expiry_s(self) -> int:
        """How long the session outlives the connection; with 3.1.1 for ever or not at all."""
        asked = self.properties.connect.session_expiry_interval
        if self.session_expiry_s is not None:
            return self.session_expiry_s
        if asked is not None:
            return asked
        return SESSION_EXPIRY_NEVER_S if self.keep_session else 0


class _Expiry(click.ParamType[int]):
    """Seconds, or one of Mosquitto's words for ever."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read the number."""
        if isinstance(value, int):
            return value
        if value in ("-1", "∞"):
            return SESSION_EXPIRY_NEVER_S
        if not (value.isascii() and value.isdigit() and int(value) <= SESSION_EXPIRY_NEVER_S):
            self.fail(f"{value!r} is not a number of seconds, -1 or ∞", param, ctx)
        return int(value)


def mqtt_options(command: _F) -> _F:
    """Add the options to a command, which gets them as ``options``."""
    return _added(command, {})


def publisher_options(command: _F) -> _F:
    """Add the options of who has no session that outlives the command: ``-c`` is for it."""
    return _added(command, {"keep_session": False, "session_expiry_s": None})


def _added(command: _F, fixed: dict[str, Any]) -> _F:
    """Add the options but those that are fixed."""

    @functools.wraps(command)
    def with_options(**kwargs: Any) -> Any:
        ctx = click.get_current_context()
        given = {name: kwargs.pop(name) for name in _NAMES if name not in fixed} | fixed
        given["version"] = VERSIONS[given["version"]]
        given["properties"] = parse_properties(ctx.meta.get(PROPERTIES_KEY, ()))
        options = ClientOptions(**given)
        _check(options)
        return command(options=options, **kwargs)

    wrapped: Any = with_options
    for name, option in reversed(list(zip(_NAMES, _OPTIONS, strict=True))):
        if name not in fixed:
            wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return]


_OPTIONS: Final = (
    click.option("-h", "--host", metavar="HOST", help="Broker; localhost if not given."),
    click.option("-p", "--port", type=click.IntRange(1, 65_535), metavar="PORT",
                 help="Port; 1883, 8883 (TLS), 8083 (WebSocket) or 8084 (both) if not given."),
    click.option("-L", "--url", metavar="URL",
                 help="mqtt[s]://[user[:password]@]host[:port]/topic, or ws[s]://host[:port]/path."),
    click.option("--ws", "websocket", is_flag=True, help="Connect over WebSocket."),
    click.option("--ws-path", "websocket_path", default="/mqtt", show_default=True, metavar="PATH",
                 help="HTTP path of the WebSocket."),
    click.option("-A", "bind", default="", metavar="ADDRESS", help="Local address to use."),
    click.option("-i", "--id", "client_id", default="", metavar="ID",
                 help="Client identifier; the broker assigns one if not given."),
    click.option("-I", "--id-prefix", default="", metavar="PREFIX",
                 help="Client identifier: this and the process id."),
    click.option("-u", "--username", metavar="NAME", help="User name."),
    click.option("-P", "--pw", "password", metavar="PASSWORD",
                 help="Password; prefer --password-file, since others can read arguments."),
    click.option("--password-file", type=click.Path(path_type=Path, allow_dash=True),
                 help="Read the password there; - for standard input."),
    click.option("-c", "--disable-clean-session", "keep_session", is_flag=True,
                 help="Keep the session when the connection ends, for ever unless -x is given."),
    click.option("-x", "--session-expiry-interval", "session_expiry_s", type=_Expiry(),
                 metavar="SECONDS", help="How long the session is kept (5.0); -1 = for ever."),
    click.option("-k", "--keepalive", "keep_alive", type=click.IntRange(0, 65_535), default=60,
                 show_default=True, metavar="SECONDS", help="Keep alive; 0 = none."),
    click.option("-V", "--protocol-version", "version", type=click.Choice(list(VERSIONS)),
                 default="5", show_default=True, help="MQTT version."),
    click.option("-M", "--max-inflight", "inflight_max", type=click.IntRange(1, 65_535),
                 default=1000, show_default=True, metavar="COUNT",
                 help="QoS 1 and 2 messages sent and not yet acknowledged."),
    click.option("--tls", "--tls-use-os-certs", "use_tls", is_flag=True,
                 help="Use TLS, with the authorities of the system."),
    click.option("--cafile", default="", metavar="FILE", help="Use TLS; trust these authorities."),
    click.option("--cert", "certificate", default="", metavar="FILE", help="Client certificate."),
    click.option("--key", "private_key", default="", metavar="FILE", help="Its private key."),
    click.option("--insecure", is_flag=True,
                 help="Do not check that the certificate is for this host."),
    click.option("--will-topic", default="", metavar="TOPIC", help="Topic of the will."),
    click.option("--will-payload", default="", metavar="TEXT", help="Payload of the will."),
    click.option("--will-qos", type=click.IntRange(0, 2), default=0, help="QoS of the will."),
    click.option("--will-retain", is_flag=True, help="Retain the will."),
    click.option("--connect-timeout", "connect_timeout_s", type=click.FloatRange(min=0.001),
                 default=10.0, show_default=True, metavar="SECONDS",
                 help="Time for the broker to accept the connection."),
    click.option("--quiet", is_flag=True, help="No messages on standard error but errors."),
)  # fmt: skip
# In the order of ``_OPTIONS``.
_NAMES: Final = tuple(name for name in ClientOptions.__dataclass_fields__ if name != "properties")


def resolve_url(options: ClientOptions) -> tuple[ClientOptions, str]:
    """Put what ``-L`` says into the other options; also returns its topic.

    Raises:
        click.UsageError: it is no such URL, or says what another option says too.
    """
    if options.url is None:
        return options, ""
    if options.host or options.port or options.websocket:
        raise click.UsageError("-L says host, port and transport already")
    try:
        parts = urlsplit(options.url)
        port = parts.port
    except ValueError as error:
        raise click.UsageError(f"-L: {error}") from None
    if parts.scheme not in PORTS or not parts.hostname:
        raise click.UsageError(f"-L: take {', '.join(f'{name}://host' for name in PORTS)}")
    websocket = parts.scheme in ("ws", "wss")
    topic = "" if websocket else unquote(parts.path[1:])
    path = parts.path or options.websocket_path
    changed = replace(
        options,
        url=None,
        host=parts.hostname,
        port=port or PORTS[parts.scheme],
        websocket=websocket,
        websocket_path=path if websocket else options.websocket_path,
        use_tls=options.use_tls or parts.scheme in ("mqtts", "wss"),
        username=options.username or (unquote(parts.username) if parts.username else None),
        password=options.password or (unquote(parts.password) if parts.password else None),
    )
    return changed, topic


def make_client(options: ClientOptions, *, manual_acks: bool = False) -> Client:
    """The client that the options describe, not yet connected.

    Raises:
        ConfigError: a certificate file is unusable.
        CommandFailed: the password file is unusable.
    """
    secure = bool(options.use_tls or options.cafile or options.certificate)
    context = None
    if secure:
        context = client_context(
            cafile=options.cafile,
            certificate=options.certificate,
            private_key=options.private_key,
            insecure=options.insecure,
        )
    scheme = ("ws" if options.websocket else "mqtt") + ("s" if secure else "")
    endpoint = Endpoint(
        host=options.host or "localhost",
        port=options.port or PORTS[scheme],
        transport="ws" if options.websocket else "tcp",
        path=options.websocket_path,
        tls=context,
        bind=options.bind,
    )
    client_id = options.client_id
    if options.id_prefix:
        client_id = f"{options.id_prefix}{os.getpid()}"
    properties = options.properties.connect
    if options.is_v5 and options.expiry_s:
        properties = properties.copy()
        properties.session_expiry_interval = options.expiry_s
    protocol = ClientProtocol(
        options.version,
        client_id,
        clean_start=not options.keep_session,
        keep_alive=options.keep_alive,
        username=options.username,
        password=_password(options),
        will=_will(options),
        properties=properties,
        manual_acks=manual_acks,
        inflight_max=options.inflight_max,
    )
    return Client(protocol, endpoint)


def _check(options: ClientOptions) -> None:
    if options.client_id and options.id_prefix:
        raise click.UsageError("take one of -i and -I")
    if options.keep_session and not (options.client_id or options.id_prefix):
        raise click.UsageError("-c keeps the session of a client: name it with -i")
    if options.password is not None and options.password_file is not None:
        raise click.UsageError("take one of -P and --password-file")
    with_password = options.password is not None or options.password_file is not None
    in_url = options.url is not None and "@" in options.url
    if with_password and options.username is None and not in_url and not options.is_v5:
        raise click.UsageError("MQTT 3.1.1 has no password without a user name: give -u")
    if bool(options.certificate) != bool(options.private_key):
        raise click.UsageError("--cert and --key go together")
    if options.will_topic == "" and (
        options.will_payload or options.will_qos or options.will_retain
    ):
        raise click.UsageError("a will needs --will-topic")
    if options.will_topic:
        check_topic(options.will_topic, "--will-topic")
    if options.client_id:
        check_text(options.client_id, "-i")
    if not options.is_v5:
        if options.session_expiry_s is not None:
            raise click.UsageError("-x needs MQTT 5.0")
        if options.properties != PacketProperties():
            raise click.UsageError("-D needs MQTT 5.0")


def _password(options: ClientOptions) -> bytes | None:
    if options.password is not None:
        return options.password.encode()
    if options.password_file is None:
        return None
    if str(options.password_file) == "-":
        secret = sys.stdin.buffer.readline(UTF8_STRING_BYTES_MAX + 3)
    else:
        try:
            secret = options.password_file.read_bytes()
        except OSError as error:
            raise CommandFailed(
                f"cannot read {options.password_file}: {error.strerror}", ExitCode.DATA
            ) from error
    return secret.removesuffix(b"\n").removesuffix(b"\r")


def _will(options: ClientOptions) -> Will | None:
    if not options.will_topic:
        return None
    properties: Properties = options.properties.will
    return Will(
        topic=options.will_topic,
        payload=options.will_payload.encode(),
        qos=options.will_qos,
        retain=options.will_retain,
        properties=forward_properties(properties),
        delay_s=properties.will_delay_interval or 0,
        expiry_s=properties.message_expiry_interval,
    )
