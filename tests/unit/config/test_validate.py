"""Relations between settings."""

from __future__ import annotations

import pytest

from perdure.config.document import Origin
from perdure.config.listener_kinds import LISTENER_KINDS
from perdure.config.schema import (
    AuthConfig,
    Config,
    HttpConfig,
    Listener,
    ListenersConfig,
    MetricsConfig,
    RocksdbConfig,
    StorageConfig,
)
from perdure.config.validate import enabled_listeners, validate

LOOPBACK = AuthConfig()
PASSWORDS = AuthConfig(password_file="users")
OPEN = AuthConfig(allow_anonymous="always")
NOBODY = AuthConfig(allow_anonymous="never")


def found(config: Config, *given: str) -> list[tuple[str, str]]:
    origins = {path: Origin("file", "f:1") for path in given}
    return [(problem.path, problem.message) for problem in validate(config, origins)]


def listening(auth: AuthConfig = LOOPBACK, **kinds: Listener) -> Config:
    settings = {"tcp": (), **{kind: (listener,) for kind, listener in kinds.items()}}
    return Config(listeners=ListenersConfig(**settings), auth=auth)


def test_defaults_hold() -> None:
    assert found(Config()) == []
    assert [path for _, path, _ in enabled_listeners(Config())] == ["listeners.tcp.0"]
    assert set(LISTENER_KINDS) == set(ListenersConfig.__struct_fields__)


@pytest.mark.parametrize("bind", ["0.0.0.0:1883", ":1883", "[::]:1883", "10.1.2.3:1", "lan:1"])
def test_no_address_is_open_to_strangers_by_accident(bind: str) -> None:
    tcp = Listener(bind=bind)
    ((path, message),) = found(listening(tcp=tcp))
    assert path == "listeners.tcp.0.bind"
    assert "open to other machines" in message
    assert found(listening(OPEN, tcp=tcp)) == []
    assert found(listening(PASSWORDS, tcp=tcp)) == []


def test_the_hint_tells_both_ways_out() -> None:
    (problem,) = validate(listening(tcp=Listener(bind=":1")), {})
    assert "auth.password_file" in problem.hint
    assert "auth.allow_anonymous=always" in problem.hint


def test_a_listener_for_nobody_is_refused() -> None:
    ((path, message),) = found(listening(NOBODY, tcp=Listener()))
    assert path == "listeners.tcp.0.bind"
    assert "nobody could connect" in message


def test_client_certificates_are_authentication() -> None:
    tls = Listener(
        bind=":8883",
        certificate="c",
        private_key="k",
        client_ca="a",
        username_from_certificate=True,
    )
    assert found(listening(tls=tls)) == []


def test_tls_needs_its_files() -> None:
    assert found(listening(tls=Listener())) == [
        ("listeners.tls.0.certificate", "a tls listener needs it"),
        ("listeners.tls.0.private_key", "a tls listener needs it"),
    ]
    wss = Listener(
        certificate="c",
        private_key="k",
        require_client_certificate=True,
        username_from_certificate=True,
    )
    assert found(listening(wss=wss)) == [
        ("listeners.wss.0.require_client_certificate", "needs client_ca"),
        ("listeners.wss.0.username_from_certificate", "needs client_ca"),
    ]


def test_settings_of_another_kind_are_refused_where_given() -> None:
    config = listening(tcp=Listener(certificate="c", path="/x"))
    given = ("listeners.tcp.0.certificate", "listeners.tcp.0.path")
    assert found(config, *given) == [(path, "a tcp listener does not have it") for path in given]
    (first, _) = validate(config, {path: Origin("file", "f:9") for path in given})
    assert first.where == "f:9"


def test_a_websocket_path_is_absolute() -> None:
    assert found(listening(ws=Listener(path="mqtt"))) == [
        ("listeners.ws.0.path", "must begin with /")
    ]


def test_web_origins() -> None:
    good = ("https://app.example", "http://localhost:8000", "https://[::1]:9", "null")
    assert found(listening(ws=Listener(origins=good))) == []
    for bad in (
        "app.example",
        "https://App.example",
        "https://app.example/",
        "https://app.example:443",
        "http://app.example:80",
        "*",
        "",
    ):
        (problem,) = found(listening(ws=Listener(origins=(bad,))))
        assert problem == ("listeners.ws.0.origins", f"{bad!r} is no web origin")
    path = "listeners.tcp.0.origins"
    config = listening(tcp=Listener(origins=good))
    assert found(config, path) == [(path, "a tcp listener does not have it")]


def test_two_listeners_need_two_addresses() -> None:
    same = ListenersConfig(tcp=(Listener(), Listener()))
    assert found(Config(listeners=same)) == [
        ("listeners.tcp.1.bind", "127.0.0.1:1883 is the address of listeners.tcp.0 too")
    ]
    every = ListenersConfig(tcp=(Listener(),), ws=(Listener(bind=":1883"),))
    assert (
        "listeners.ws.0.bind",
        ":1883 and 127.0.0.1:1883, the address of listeners.tcp.0, share a port",
    ) in found(Config(listeners=every))
    assert found(Config(metrics=MetricsConfig(bind="127.0.0.1:1883"))) == [
        ("metrics.bind", "127.0.0.1:1883 is the address of listeners.tcp.0 too")
    ]
    any_port = Listener(bind="127.0.0.1:0")
    assert found(Config(listeners=ListenersConfig(tcp=(any_port, any_port)))) == []


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "is empty"),
        (" \t", "is empty"),
        ("/", "/ is the root of the file system"),
        ("//", "// is the root of the file system"),
        ("/var/..", "/var/.. is the root of the file system"),
    ],
)
def test_a_data_directory_is_the_brokers_own(path: str, message: str) -> None:
    assert found(Config(storage=StorageConfig(path=path))) == [("storage.path", message)]


def test_some_listener_must_be_enabled() -> None:
    assert found(listening(tcp=Listener(enabled=False))) == [
        ("listeners", "no listener is enabled: nobody could connect")
    ]


@pytest.mark.parametrize("thresholds", [(), (100, 0)])
def test_thresholds(thresholds: tuple[int, ...]) -> None:
    config = Config(storage=StorageConfig(rocksdb=RocksdbConfig(learn_thresholds=thresholds)))
    assert [path for path, _ in found(config)] == ["storage.rocksdb.learn_thresholds"]


def test_metrics_need_a_port() -> None:
    assert found(Config(metrics=MetricsConfig(bind="[::1]"))) == [("metrics.bind", "has no port")]
    assert found(Config(metrics=MetricsConfig(bind="[::1]:9100"))) == []


def test_http_needs_a_log_beside_the_broker_and_whole_certificates() -> None:
    http = HttpConfig(bind="127.0.0.1:0")
    for backend in ("rocksdb", "redis", "postgres"):
        problems = found(Config(http=http, storage=StorageConfig(backend=backend)))
        assert "http.bind" not in [path for path, _ in problems]
    problems = found(Config(http=http, storage=StorageConfig(backend="memory")))
    assert "http.bind" in [path for path, _ in problems]
    for given, missing in (("certificate", "private_key"), ("private_key", "certificate")):
        half = Config(http=HttpConfig(**{given: "x.pem"}))
        assert found(half) == [(f"http.{missing}", "certificate and private_key go together")]
