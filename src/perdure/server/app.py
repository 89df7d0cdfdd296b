"""A broker process built from its configuration: the only place that knows concrete classes."""

from __future__ import annotations

import asyncio
import functools
import os
import random
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias, final

from perdure import __version__
from perdure.broker.access.revoking import revoke
from perdure.broker.auth.bans import BanList
from perdure.broker.auth.control import AccessControl, AccessFiles, read_files
from perdure.broker.auth.key_file import KEY_BYTES, KEY_FILE, load_or_create_key
from perdure.broker.broker import Broker
from perdure.clock import SystemClock
from perdure.config.live_settings import LiveSettings
from perdure.config.schema import Config
from perdure.forwarders.applications import Applications
from perdure.forwarders.service import ForwarderService
from perdure.identity.file import IdentityFile
from perdure.identity.ledger import Ledger
from perdure.mqtt.reason_codes import SERVER_SHUTTING_DOWN
from perdure.net.admission import Admission
from perdure.net.listener import Listener
from perdure.observe.logs import get_logger
from perdure.observe.metrics import Metrics
from perdure.observe.metrics_text import MetricsText
from perdure.server import process
from perdure.server.administration.assembly import Administration
from perdure.server.administration.config import CONFIGURATION
from perdure.server.administration.socket import AdminServer
from perdure.server.auth_part import AuthPart
from perdure.server.backup_part import BackupPart
from perdure.server.bans import BanKeeper, ban_file, make_keeper, read_bans
from perdure.server.clock_file import ClockFile
from perdure.server.cluster_part import ClusterStore
from perdure.server.cluster_start import open_cluster
from perdure.server.failures import TaskWatch, loop_failures
from perdure.server.forwarders_part import make_forwarders
from perdure.server.greeting import greeting, say_build
from perdure.server.http_part import HttpPart
from perdure.server.left_cluster import leave_cluster
from perdure.server.lifecycle import Job, Lifecycle, Part, Reload
from perdure.server.listeners import (
    certificate_listeners,
    listener_chains,
    listener_limits,
    make_listeners,
)
from perdure.server.metrics_part import MetricsPart, keep_gauges
from perdure.server.own_files import check_bans, check_own_files, note_own_files
from perdure.server.past_start import past_parts
from perdure.server.preflight import look
from perdure.server.scheduler import LoopScheduler
from perdure.server.startup import bounded_by_files, say_start
from perdure.server.stores import RemoteStore, open_embedded, open_remote
from perdure.server.systemd import Notifier
from perdure.server.trace.traces import Traces
from perdure.storage.contract import Database
from perdure.storage.rocksdb.engine import Engine, EngineFactory

log = get_logger("server")

Store: TypeAlias = Database | RemoteStore | ClusterStore
"""The database, with what has to be closed beside it."""


@final
class BrokerPart:
    """The broker as a part of the process's life."""

    name: str = "broker"

    def __init__(
        self, broker: Broker, scheduler: LoopScheduler, store: Store, bans: BanKeeper
    ) -> None:
        self._broker = broker
        self._scheduler = scheduler
        self._store = store
        self._bans = bans

    async def start(self) -> None:
        """Take up what the last process left."""
        await self._broker.start()
        await self._bans.adopt()

    async def stop(self) -> None:
        """Commit what is open, then close the database."""
        try:
            self._broker.stop_taking(SERVER_SHUTTING_DOWN)
            await self._broker.finish()
        finally:
            await self._scheduler.close()
            await _close(self._store)


async def _close(store: Store) -> None:
    if isinstance(store, RemoteStore | ClusterStore):
        await store.close()
    else:
        store.close()


async def serve(
    config: Config,
    *,
    reload: Callable[[], Config] | None = None,
    greet: Callable[[str], object] | None = None,
    live: LiveSettings | None = None,
    engine: EngineFactory = Engine,
) -> None:
    """Run a broker until a signal stops it.

    Args:
        config: checked configuration.
        reload: reads the configuration again (SIGHUP).
        greet: given a few lines for a person once clients can connect.
        live: settings that can be changed meanwhile, which ``reload`` reads.
        engine: what opens RocksDB.

    Raises:
        PerdureError: it could not start.
    """
    say_build()
    say_start(config, open_files=process.open_files())
    if config.storage.traits.is_kept:
        check_bans(Path(config.storage.path))
    files, bans = await _look(config)
    told = check_own_files(Path(config.storage.path)) if config.storage.traits.is_kept else []
    store = await _open_store(config, engine)
    if not isinstance(store, RemoteStore | ClusterStore) and await leave_cluster(
        store, ban_file(config)
    ):
        bans = read_bans(config)
    watch = TaskWatch()
    scheduler = LoopScheduler(asyncio.get_running_loop(), watch.task_failed)
    if isinstance(store, ClusterStore):
        store.entry.to_loop = scheduler.hand
    metrics = Metrics()
    methods = AuthPart(config, metrics)
    access = _access(config, files, methods)
    broker = _broker(config, store, scheduler=scheduler, access=access, metrics=metrics, bans=bans)
    broker.services.listener_limits = listener_limits(config)
    methods.login_expiry = broker.services.login_expiry
    asyncio.get_running_loop().set_exception_handler(
        loop_failures(watch.task_failed, broker.services.unexpected_errors)
    )
    keeper = make_keeper(config, broker.services, bans)
    admission = Admission(bounded_by_files(config, process.open_files()))
    traces = Traces(broker.services.registry, SystemClock())
    listeners = make_listeners(config, broker, admission, metrics, wrap=traces.factory)
    traces.shells = lambda: [shell for each in listeners for shell in each.shells]
    forwarders, applications = make_forwarders(config, broker)
    administration = Administration(
        broker.services,
        config,
        version=__version__,
        metrics=metrics,
        bans=keeper,
        is_superuser=access.is_superuser,
        phase=lambda: lifecycle.phase,
        traces=traces,
        forwarders=forwarders,
        applications=applications,
        replica=store.database if isinstance(store, ClusterStore) else None,
        ledger=_open_ledger(config),
        access=access,
        listeners=listeners,
        live=live,
        reload=lambda: lifecycle.reload(),
    )
    reloads: dict[str, Reload] = {
        CONFIGURATION: functools.partial(
            _reload_settings,
            reload,
            live=live,
            access=access,
            admission=admission,
            broker=broker,
            bans=keeper,
            forwarders=forwarders,
            others=administration.reload,
        ),
        "auth": methods.reload,
        **{listener.settings.name: listener.reload_tls for listener in listeners},
    }
    jobs: dict[str, Job] = {
        "tasks": watch.run,
        "gauges": functools.partial(keep_gauges, broker.services),
        "history": administration.recorder.run,
        "alarms": administration.alarms.run,
        "pipelines": administration.pipelines.run,
        "traces": traces.run,
    }
    if isinstance(store, ClusterStore):
        jobs["cluster"] = functools.partial(store.keep, broker, metrics)
        jobs["reports"] = administration.tell_nodes
    optional = [
        forwarders,
        *_optional_parts(config, metrics, administration),
        *past_parts(config, broker, store),
        *_registry_parts(config, broker),
    ]
    lifecycle: Lifecycle = Lifecycle(
        [BrokerPart(broker, scheduler, store, keeper), methods, *optional],
        listeners,
        jobs=jobs,
        reloads=reloads,
        notifier=Notifier.from_environment(os.environ, pid=os.getpid()),
        on_ready=functools.partial(_ready, greet, config, listeners, told),
        handover=functools.partial(store.send_on, broker)
        if isinstance(store, ClusterStore)
        else None,
    )
    try:
        await lifecycle.run()
        if config.storage.traits.is_kept:
            note_own_files(Path(config.storage.path))
    finally:
        access.close()
        watch.close()


async def _look(config: Config) -> tuple[AccessFiles, BanList]:
    """Say what is not as it should be, and read the files that are needed.

    Raises:
        ConfigError: the broker cannot start so.
    """
    found = await asyncio.to_thread(look, config, ports=False)
    for warning in found.warnings:
        log.warning("config.doubtful", path=warning.path, reason=warning.message, hint=warning.hint)
    return found.ready()


def _ready(
    greet: Callable[[str], object] | None,
    config: Config,
    listeners: Sequence[Listener],
    told: list[str],
) -> None:
    if config.storage.traits.is_kept:
        note_own_files(Path(config.storage.path), told)
    if greet is None:
        return
    where = [
        (listener.settings.kind, f"{host}:{port}")
        for listener in listeners
        for host, port in listener.addresses
    ]
    greet(greeting(config, __version__, where))


def _open_ledger(config: Config) -> Ledger | None:
    """Users and keys; None = nothing is kept."""
    if not config.storage.traits.is_kept:
        return None
    return Ledger(IdentityFile(Path(config.storage.path)), SystemClock())


async def _open_store(config: Config, engine: EngineFactory) -> Store:
    if config.cluster.kafka:
        return await open_cluster(config, engine=engine)
    if config.storage.traits.is_server:
        return await open_remote(config)
    return open_embedded(config, engine=engine)


def _broker(
    config: Config,
    store: Store,
    *,
    scheduler: LoopScheduler,
    access: AccessControl,
    metrics: Metrics,
    bans: BanList,
) -> Broker:
    return Broker(
        config,
        store.database if isinstance(store, RemoteStore | ClusterStore) else store,
        scheduler=scheduler,
        clock=store.clock if isinstance(store, ClusterStore) else SystemClock(),
        # Client ids and shares need chance, not secrecy; tests need a seed.
        chance=random.Random(secrets.randbits(128)),  # noqa: S311
        authenticator=access,
        methods=access.methods,
        authorizer=access.authorizer,
        metrics=metrics,
        log=get_logger("broker"),
        version=__version__,
        bans=bans,
        clock_memory=ClockFile(Path(config.storage.path))
        if config.storage.traits.is_kept and not config.cluster.kafka
        else None,
        standing=access,
        guard=access.guard,
    )


def _reload_settings(
    reload: Callable[[], Config] | None,
    *,
    live: LiveSettings | None = None,
    access: AccessControl,
    admission: Admission,
    broker: Broker,
    bans: BanKeeper,
    forwarders: ForwarderService | None = None,
    others: Callable[[Config], None] = lambda _: None,
) -> None:
    """Read the configuration again, and hand out what takes effect without a restart."""
    if reload is None:
        return
    in_force = live.loaded if live is not None else None
    fresh = reload()
    # All that may fail is read first: a reload happens whole or not at all.
    try:
        files, file = read_files(fresh.auth), ban_file(fresh)
        listed = bans.read(file)
        if forwarders is not None:
            forwarders.reload({**fresh.forwarders, **Applications(fresh.applications).configured()})
    except Exception:
        if live is not None and in_force is not None:
            live.loaded = in_force
        raise
    access.reload(fresh.auth, files)
    services = broker.services
    services.auth_config = fresh.auth
    services.limits_config = fresh.limits
    services.listener_limits = listener_limits(fresh)
    closed = revoke(services, services.registry, services.shared_subscriptions)
    if closed:
        log.warning("server.access_withdrawn", closed=closed)
    bans.reload(file, listed)
    admission.configure(bounded_by_files(fresh, process.open_files()))
    services.retention.config = fresh.retention
    services.refusal_log.config = fresh.log
    others(fresh)


def _access(config: Config, files: AccessFiles, methods: AuthPart) -> AccessControl:
    """Authentication and authorisation, with the secret that belongs to the data directory."""
    decoy_key = secrets.token_bytes(KEY_BYTES)
    if config.storage.traits.is_kept:
        decoy_key = load_or_create_key(Path(config.storage.path) / KEY_FILE, decoy_key)
    return AccessControl(
        config.auth,
        files,
        certificate_listeners=certificate_listeners(config),
        random_bytes=secrets.token_bytes,
        decoy_key=decoy_key,
        guard=methods.guard,
        methods=methods.methods,
        listener_chains=listener_chains(config),
    )


def _registry_parts(config: Config, broker: Broker) -> list[Part]:
    """Who is connected, for workers of other systems."""
    if not config.registry.url:
        return []
    # The driver is an extra.
    from perdure.server.registry_part import RegistryPart

    return [RegistryPart(config.registry, broker.services, worker=config.node.name)]


def _optional_parts(config: Config, metrics: Metrics, administration: Administration) -> list[Part]:
    """The admin socket beside the data, Prometheus, and HTTP, which asks that socket."""
    parts: list[Part] = []
    if config.storage.traits.is_kept:
        parts.extend(administration.parts)
        parts.append(AdminServer(administration.service, Path(config.storage.path)))
    if config.metrics.bind:
        text = MetricsText(metrics, version=__version__, backend=config.storage.backend)
        parts.append(MetricsPart(metrics, config.metrics, text))
    if config.backup.every:
        parts.append(
            BackupPart(
                config.backup,
                Path(config.storage.path),
                rocksdb=config.storage.rocksdb,
                metrics=metrics,
                clock=SystemClock(),
            )
        )
    if config.http.bind:
        parts.append(
            HttpPart(
                config.http,
                Path(config.storage.path),
                version=__version__,
                metrics=metrics,
                login_store=config.storage.redis.url if config.storage.backend == "redis" else "",
                storage=config.storage if config.storage.traits.is_server else None,
                tokens=config.auth.token_store,
            )
        )
    return parts


def run(
    config: Config,
    *,
    reload: Callable[[], Config] | None = None,
    greet: Callable[[str], object] | None = None,
    live: LiveSettings | None = None,
    engine: EngineFactory = Engine,
) -> int:
    """Run a broker in the foreground; returns the exit code."""
    process.raise_open_files()
    process.settle_allocator()
    process.settle_threads()
    process.run(serve(config, reload=reload, greet=greet, live=live, engine=engine))
    return 0
