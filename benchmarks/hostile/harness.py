"""One attack against one broker, and what others notice meanwhile."""

from __future__ import annotations

import datetime as dt
import json
import math
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final, final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from perdure.bench import proc
from perdure.bench.ports import free_port
from perdure.bench.process import BrokerProcess, ProcessProbe

HOST: Final = "127.0.0.1"
PAIRS: Final = 50
RATE: Final = 1_000
WARMUP_S: Final = 2.0
LEAD_S: Final = 1.5
"""From the start of the well-behaved clients to that of the attack: they are connected then."""
P99_MS_MAX: Final = 100.0
GROWTH_BYTES_MAX: Final = 64 * 1024 * 1024
PROBE_S_MAX: Final = 2.0
_SAMPLE_S: Final = 0.05
_HEALTHY_S: Final = 60.0
"""How long the HTTP process may take to start."""
_PROBE_EVERY_S: Final = 0.2
WITH_PASSWORDS: Final = ("passwords", "scram")
"""Attacks on a broker that lets nobody in without one."""
_NOTHING: Final = {"p50_ms": math.inf, "p99_ms": math.inf, "max_ms": math.inf}
_USER: Final = "fleet"
_PASSWORD: Final = "correct horse"


@final
class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What an attack did to the others.

    Attributes:
        name: of the attack; empty = none.
        done: packets, connections or requests of the attacker.
        ack_p50_ms, ack_p99_ms, ack_max_ms: PUBACK of the well-behaved clients.
        delivered_p99_ms: to their subscribers, from the intended time of sending.
        growth_bytes: peak of the broker's memory above what it was before the attack.
        probe_max_s: longest answer to a health check; 0 = none was asked.
        log_lines, tracebacks: of the broker, meanwhile.
        faults: what is wrong; empty = every promise was kept.
    """

    name: str
    done: int = 0
    ack_p50_ms: float = 0.0
    ack_p99_ms: float = 0.0
    ack_max_ms: float = 0.0
    delivered_p99_ms: float = 0.0
    growth_bytes: int = 0
    probe_max_s: float = 0.0
    log_lines: int = 0
    tracebacks: int = 0
    faults: tuple[str, ...] = ()


@final
class _Watch(threading.Thread):
    """Samples the broker's memory, and asks for its health as an orchestrator would."""

    def __init__(self, pid: int, http_port: int) -> None:
        super().__init__(daemon=True)
        self._probe = ProcessProbe(pid)
        self._url = _health(http_port)
        self._over = threading.Event()
        self.before = self._probe.memory_bytes()[0]
        self.peak = self.before
        self.slowest_s = 0.0
        self._next_s = 0.0

    def run(self) -> None:
        """Until ``stop``."""
        while not self._over.wait(_SAMPLE_S):
            self.peak = max(self.peak, self._probe.memory_bytes()[0])
            now_s = time.monotonic()
            if now_s >= self._next_s:
                self._next_s = now_s + _PROBE_EVERY_S
                self.slowest_s = max(self.slowest_s, self._ask())

    def stop(self) -> None:
        """End and wait."""
        self._over.set()
        self.join()

    def _ask(self) -> float:
        begun = time.monotonic()
        try:
            with urllib.request.urlopen(self._url, timeout=2 * PROBE_S_MAX) as answer:
                answer.read()
        except urllib.error.HTTPError:
            return 2 * PROBE_S_MAX
        except OSError:
            return 2 * PROBE_S_MAX
        return time.monotonic() - begun


def _health(http_port: int) -> str:
    return f"http://{HOST}:{http_port}/api/v1/livez"


def _until_healthy(http_port: int) -> None:
    """Wait for the HTTP process, which is there later than the broker: what it takes for itself is
    no growth."""
    until_s = time.monotonic() + _HEALTHY_S
    while True:
        try:
            with urllib.request.urlopen(_health(http_port), timeout=PROBE_S_MAX) as answer:
                answer.read()
            return
        except OSError:
            if time.monotonic() > until_s:
                raise
            time.sleep(_SAMPLE_S)


def run(name: str, *, seconds: float, program: str = sys.executable) -> Outcome:
    """Let one attack happen.

    Args:
        name: of the attack; empty = none, to compare with.
        seconds: how long.
        program: the interpreter, or the installed ``perdure``, that serves.
    """
    with tempfile.TemporaryDirectory(prefix="perdure-hostile-") as made:
        directory = Path(made)
        ports = {kind: free_port() for kind in ("tcp", "ws", "tls", "proxy", "http", "metrics")}
        process = BrokerProcess(
            _serve(program, directory, ports, authenticated=name in WITH_PASSWORDS),
            host=HOST,
            port=ports["tcp"],
            directory=directory,
        )
        process.start()
        try:
            _until_healthy(ports["http"])
            return _measure(name, directory, process, ports, seconds)
        finally:
            process.stop()


def _serve(
    program: str, directory: Path, ports: dict[str, int], *, authenticated: bool
) -> list[str]:
    command = [program, "-m", "perdure"] if program == sys.executable else [program]
    tls = _certificate(directory)
    sets = [
        f"listeners.ws.bind={HOST}:{ports['ws']}",
        f"listeners.tls.bind={HOST}:{ports['tls']}",
        f"listeners.tls.certificate={tls}",
        f"listeners.tls.private_key={tls}",
        f"http.bind={HOST}:{ports['http']}",
        f"metrics.bind={HOST}:{ports['metrics']}",
    ]
    if authenticated:
        users = directory / "users"
        subprocess.run(
            [*command, "passwd", str(users), _USER, "--stdin", "--scram"],
            input=_PASSWORD.encode(),
            check=True,
            capture_output=True,
        )
        sets += [f"auth.password_file={users}", "auth.allow_anonymous=never"]
    (directory / "password").write_text(_PASSWORD)
    plain, proxied = ({"bind": f"{HOST}:{ports[kind]}"} for kind in ("tcp", "proxy"))
    listeners = {"listeners": {"tcp": [plain, proxied | {"proxy_protocol": True}]}}
    (directory / "perdure.yaml").write_text(json.dumps(listeners))
    serve = ["serve", "--data", str(directory / "data"), "-c", str(directory / "perdure.yaml")]
    return [*command, *serve, *(part for one in sets for part in ("--set", one))]


def _certificate(directory: Path) -> Path:
    """Make a key and a certificate that it signs itself; one file with both."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path = directory / "tls.pem"
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


def _measure(
    name: str, directory: Path, process: BrokerProcess, ports: dict[str, int], seconds: float
) -> Outcome:
    log = directory / "broker.log"
    bystanders = _bystanders(directory, ports["tcp"], seconds, login=name in WITH_PASSWORDS)
    time.sleep(LEAD_S)
    begun_at = log.stat().st_size
    watch = _Watch(process.pid, ports["http"])
    watch.start()
    attacker = _attacker(name, ports, WARMUP_S - LEAD_S + seconds) if name else None
    out, error = bystanders.communicate(timeout=120 + seconds)
    watch.stop()
    done = 0
    if attacker is not None:
        done = int(attacker.communicate(timeout=60)[0] or 0)
    text = log.read_bytes()[begun_at:].decode(errors="replace")
    faults = [] if proc.lives(process.pid) else ["the broker has ended"]
    if bystanders.returncode not in (0, 1) or not out:
        return Outcome(name=name, done=done, faults=(*faults, _last_line(error)))
    result = json.loads(out)
    outcome = judge(
        name,
        done,
        result,
        growth_bytes=watch.peak - watch.before,
        probe_max_s=watch.slowest_s,
        log=text,
    )
    return msgspec.structs.replace(outcome, faults=(*faults, *outcome.faults))


def judge(
    name: str,
    done: int,
    result: dict[str, Any],
    *,
    growth_bytes: int,
    probe_max_s: float,
    log: str,
) -> Outcome:
    """What a run says of the promises.

    Args:
        name: of the attack.
        done: what the attacker did.
        result: of ``perdure bench``, as JSON.
        growth_bytes: of the broker's memory.
        probe_max_s: longest answer to a health check.
        log: of the broker, meanwhile.
    """
    faults: list[str] = []
    phase, totals = result["phases"][0], result["totals"]
    # None where nothing came in all that time.
    ack, delivery = phase["ack"] or _NOTHING, phase["delivery"] or _NOTHING
    tracebacks = log.count("Traceback (most recent call last)")
    if max(ack["p99_ms"], delivery["p99_ms"]) > P99_MS_MAX:
        faults.append("slow")
    if phase["done_per_s"] < RATE * 0.9:
        faults.append(f"{phase['done_per_s']:.0f} messages/s")
    if growth_bytes > GROWTH_BYTES_MAX:
        faults.append("memory")
    if probe_max_s > PROBE_S_MAX:
        faults.append("health")
    if tracebacks:
        faults.append(f"{tracebacks} tracebacks")
    wrong = {
        what: totals[what]
        for what in ("lost", "repeated", "out_of_order", "refused", "unacknowledged")
        if totals[what]
    }
    faults += [f"{count} {what}" for what, count in wrong.items()]
    return Outcome(
        name=name,
        done=done,
        ack_p50_ms=ack["p50_ms"],
        ack_p99_ms=ack["p99_ms"],
        ack_max_ms=ack["max_ms"],
        delivered_p99_ms=delivery["p99_ms"],
        growth_bytes=growth_bytes,
        probe_max_s=probe_max_s,
        log_lines=log.count("\n"),
        tracebacks=tracebacks,
        faults=tuple(faults),
    )


def _bystanders(
    directory: Path, port: int, seconds: float, *, login: bool
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "perdure", "bench", "p2p", "-h", HOST, "-p", str(port)]
    command += ["--pairs", str(PAIRS), "--rate", str(RATE), "--warmup", str(WARMUP_S)]
    command += ["--duration", str(seconds), "--json", "--no-progress"]
    if login:
        command += ["--username", _USER, "--password-file", str(directory / "password")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _attacker(name: str, ports: dict[str, int], seconds: float) -> subprocess.Popen[bytes]:
    module = [sys.executable, "-m", "benchmarks.hostile.attacker"]
    return subprocess.Popen(
        [*module, name, HOST, str(seconds), json.dumps(ports)], stdout=subprocess.PIPE
    )


def _last_line(error: bytes) -> str:
    lines = error.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "the well-behaved clients were cut off"
