"""A whole broker with a chain: tokens by an issuer's keys, a service, a listener of its own."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.bounds import HANG_S
from tests.wire.harness import Options
from tests.wire.packets import V5, Kind, Reason
from tests.wire.peer import SUBJECT, Peer
from tests.wire.process_broker import ProcessBroker

pytestmark = [
    pytest.mark.skipif(SUBJECT != "perdure", reason="methods are Perdure's own"),
    pytest.mark.sockets(only=True),  # a process is told to reload, and asks other servers
]


class Site:
    """An issuer of tokens and a service that knows users."""

    def __init__(self) -> None:
        self.keys: dict[str, rsa.RSAPrivateKey] = {}
        self.rights: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.nonsense: list[object] = []
        """Said in place of the keys, each once."""
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                algorithm = jwt.algorithms.get_default_algorithms()["RS256"]
                if site.nonsense:
                    self._answer(site.nonsense.pop())
                    return
                self._answer(
                    {
                        "keys": [
                            dict(algorithm.to_jwk(key.public_key(), as_dict=True)) | {"kid": kid}
                            for kid, key in site.keys.items()
                        ]
                    }
                )

            def do_POST(self) -> None:
                said = json.loads(self.rfile.read(int(self.headers["content-length"])))
                user = said["username"]
                site.asked.append(self.path)
                known = said.get("password") in ("pw", None) and user in site.rights
                self._answer(site.rights[user] if known else {"result": "deny"})

            def _answer(self, answer: object) -> None:
                data = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def new_key(self, kid: str) -> None:
        self.keys[kid] = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def token(self, kid: str, user: str, *, lives_s: float = 600, **claims: object) -> str:
        said = {"sub": user, "exp": time.time() + lives_s} | claims
        return jwt.encode(said, self.keys[kid], algorithm="RS256", headers={"kid": kid})

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    site = Site()
    site.new_key("one")
    yield site
    site.close()


@pytest.fixture(scope="module")
def process_broker(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessBroker]:
    options = Options(
        settings={
            "auth.chain": "[jwt, http]",
            "auth.jwt.jwks_url": f"{site.url}/keys",
            "auth.jwt.refresh_min_s": "1",
            "auth.jwt.acl_claim": "acl",
            "auth.http.url": f"{site.url}/auth",
            "auth.http.acl_url": f"{site.url}/acl",
            "auth.http.recheck_s": "3600",
        }
    )
    broker = ProcessBroker(tmp_path_factory.mktemp("broker"), options)
    broker.start()
    yield broker
    broker.close()


def reload(broker: ProcessBroker) -> None:
    os.kill(broker._running().pid, signal.SIGHUP)


def disconnected(peer: Peer) -> int:
    left = peer.receive()
    assert left is not None
    assert left.kind == Kind.DISCONNECT
    peer.expect_closed()
    return int(left.reason)


def test_a_token_and_what_it_allows(broker: ProcessBroker, site: Site, name: str) -> None:
    token = site.token("one", "ada", acl=[f"readwrite {name}/%u/#"])
    peer = broker.connect(name, username="whoever", password=token)
    peer.subscribe((f"{name}/ada/#", 1))
    peer.publish(f"{name}/ada/x", b"1", qos=1)
    peer.receive_publish(f"{name}/ada/x", b"1")
    peer.subscribe((f"{name}/bob/#", 1), codes=(Reason.NOT_AUTHORIZED,))


def test_a_token_that_does_not_hold(broker: ProcessBroker, site: Site, name: str) -> None:
    for token in (
        site.token("one", "ada", lives_s=-1),
        site.token("one", "ada") + "x",
        site.token("one", ""),
    ):
        peer = broker.peer()
        peer.send(V5.connect(name, username="x", password=token))
        peer.expect_refused_connect(Reason.BAD_CREDENTIALS)


def test_the_end_of_a_token_is_the_end_of_the_connection(
    broker: ProcessBroker, site: Site, name: str
) -> None:
    peer = broker.connect(name, username="x", password=site.token("one", "ada", lives_s=1.5))
    assert disconnected(peer) == 0xA0


def connected(broker: ProcessBroker, name: str, token: str) -> Peer:
    """A client whose token names a key that the broker may not have fetched yet."""
    deadline = time.monotonic() + HANG_S
    while True:
        peer = broker.peer()
        peer.send(V5.connect(name, username="x", password=token))
        found = peer.receive()
        assert found is not None
        if found.reason == 0:
            return peer
        # Somebody has caused a fetch within the last second.
        assert time.monotonic() < deadline


def test_a_new_key_is_fetched_when_a_token_names_it(
    broker: ProcessBroker, site: Site, name: str
) -> None:
    site.new_key("two")
    connected(broker, name, site.token("two", "ada"))


def test_keys_rotate_and_whom_the_old_one_has_let_in_leaves(
    broker: ProcessBroker, site: Site, name: str
) -> None:
    """Both are published for a while, as issuers do; then the old one is not any more."""
    site.new_key("before")
    before = connected(broker, f"{name}-before", site.token("before", "ada"))
    site.new_key("after")
    rights = [f"readwrite {name}/#"]
    after = connected(broker, f"{name}-after", site.token("after", "ada", acl=rights))
    old = site.token("before", "ada")
    del site.keys["before"]
    reload(broker)
    assert disconnected(before) == 0x87
    peer = broker.peer()
    peer.send(V5.connect(f"{name}-late", username="x", password=old))
    peer.expect_refused_connect(Reason.BAD_CREDENTIALS)
    after.subscribe((f"{name}/#", 1))
    after.publish(f"{name}/a", b"1", qos=1)
    after.receive_publish(f"{name}/a", b"1")


def test_an_issuer_that_talks_nonsense_is_asked_again(
    broker: ProcessBroker, site: Site, name: str
) -> None:
    """A document that was no object ended the asking for good."""
    site.new_key("kept")
    kept = connected(broker, f"{name}-kept", site.token("kept", "ada"))
    site.nonsense += [[], None, {"keys": [{"kty": "RSA", "alg": ["RS256"]}]}]
    reload(broker)
    deadline = time.monotonic() + HANG_S
    while site.nonsense:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    site.new_key("later")
    connected(broker, f"{name}-later", site.token("later", "ada"))
    kept.subscribe((f"{name}/#", 1), codes=(Reason.NOT_AUTHORIZED,))  # it is still there


def test_a_service_is_asked_and_a_reload_asks_again(
    broker: ProcessBroker, site: Site, name: str
) -> None:
    site.asked.clear()
    site.rights["eva"] = {"result": "allow", "acl": {"all": [f"{name}/#"]}}
    site.rights["tom"] = {"result": "allow", "acl": {"all": [f"{name}/#"]}}
    eva = broker.connect(f"{name}-eva", username="eva", password="pw")
    tom = broker.connect(f"{name}-tom", version=4, username="tom", password="pw")
    eva.subscribe((f"{name}/#", 1))
    tom.publish(f"{name}/a", b"1", qos=1)
    eva.receive_publish(f"{name}/a", b"1")
    site.rights["eva"] = {"result": "allow", "acl": {"all": [f"{name}/b"]}}
    del site.rights["tom"]
    reload(broker)
    tom.expect_closed()
    deadline = time.monotonic() + HANG_S
    while True:
        packet_id = eva.next_packet_id()
        eva.send(V5.subscribe((f"{name}/a", 1), packet_id=packet_id))
        if eva.take(Kind.SUBACK, packet_id).reasons[0] == Reason.NOT_AUTHORIZED:
            break
        assert time.monotonic() < deadline
    assert site.asked.count("/auth") == 2


def test_a_wrong_password_and_a_stranger(broker: ProcessBroker, name: str) -> None:
    for user, password in (("eva", "no"), ("nobody", "pw"), (None, None)):
        peer = broker.peer()
        peer.send(V5.connect(name, username=user, password=password))
        peer.expect_refused_connect(Reason.BAD_CREDENTIALS, Reason.NOT_AUTHORIZED)
