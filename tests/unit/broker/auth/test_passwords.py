"""The password authenticator: outcomes, bounds, the shared check and the memory."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from perdure.broker.auth.authenticate import AuthRequest, AuthResult
from perdure.broker.auth.credentials import CredentialsFile
from perdure.broker.auth.guard import LoginGuard
from perdure.broker.auth.hashes import Pbkdf2Hash, TokenHash
from perdure.broker.auth.passwords import PasswordAuthenticator, verify_password
from perdure.broker.auth.verify_queue import VerifyQueue
from perdure.config.schema import AuthConfig

TOKEN = "t" * 43


def line(user: str, password: str) -> str:
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), b"salt", 1)
    return f"{user}:{Pbkdf2Hash(1, b'salt', digest).encode()}\n"


def token_line(user: str) -> str:
    return f"{user}:{TokenHash(hashlib.sha256(TOKEN.encode()).digest()).encode()}\n"


class ManualPool(Executor):
    """Runs a job when told to, so that a test decides what is under way."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Future[Any], Callable[[], Any]]] = []
        self.run_count = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.jobs.append((future, lambda: fn(*args, **kwargs)))
        return future

    def run(self) -> None:
        """Run all that waits."""
        jobs, self.jobs = self.jobs, []
        for future, job in jobs:
            self.run_count += 1
            future.set_result(job())

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        assert not wait
        assert cancel_futures
        for future, _ in self.jobs:
            future.cancel()


class Bench:
    """An authenticator with a manual pool."""

    def __init__(
        self, path: Path, text: str, *, config: AuthConfig | None = None, **options: Any
    ) -> None:
        self.pool = ManualPool()
        self.guard = LoginGuard(config or AuthConfig(failures_max=0, failures_per_address_max=0))
        queue: VerifyQueue[Any] = VerifyQueue(
            total_max=options.pop("queue_max", 1000),
            address_max=options.pop("address_max", 0),
            user_max=options.pop("user_max", 0),
        )
        self.auth = PasswordAuthenticator(
            self.load(path, text),
            cache_key=b"k" * 32,
            guard=self.guard,
            pool=self.pool,
            queue=queue,
            **options,
        )

    @staticmethod
    def load(path: Path, text: str) -> CredentialsFile:
        path.write_text(text)
        return CredentialsFile.load(path)

    def start(
        self, user: str | None, password: str | None, *, address: str = "a", client_id: str = "c"
    ) -> asyncio.Task[AuthResult]:
        secret = None if password is None else password.encode()
        request = AuthRequest(client_id=client_id, username=user, password=secret, address=address)
        return asyncio.create_task(self.auth.authenticate(request))

    async def login(self, user: str | None, password: str | None) -> AuthResult:
        task = self.start(user, password)
        await settle()
        self.pool.run()
        return await task


async def settle() -> None:
    """Let tasks run until they wait."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "users"


@pytest.mark.parametrize(
    ("user", "password", "reason"),
    [
        ("ada", "pw", 0x00),
        ("ada", "no", 0x86),
        ("ada", "", 0x86),
        ("ada", None, 0x86),
        ("eve", "pw", 0x86),
        ("", "pw", 0x86),
        ("pump", TOKEN, 0x00),
        ("pump", "no", 0x86),
        ("ada", TOKEN, 0x86),
    ],
)
async def test_outcomes(path: Path, user: str, password: str | None, reason: int) -> None:
    bench = Bench(path, line("ada", "pw") + token_line("pump"))
    result = await bench.login(user, password)
    assert (result.ok, result.reason_code) == (reason == 0, reason)
    assert result.username == (user if result.ok else None)
    assert result.method == "password"
    assert not result.undecided


async def test_no_user_name_is_not_ours_to_judge(path: Path) -> None:
    assert (await Bench(path, line("ada", "pw")).login(None, None)).undecided


async def test_superusers(path: Path) -> None:
    bench = Bench(path, line("ada", "pw") + line("bob", "pw"), superusers=["ada"])
    assert (await bench.login("ada", "pw")).superuser
    assert not (await bench.login("bob", "pw")).superuser


async def test_whoever_has_no_password_costs_a_check_and_a_token_that_fits_none(
    path: Path,
) -> None:
    bench = Bench(path, line("ada", "pw") + token_line("pump"))
    await bench.login("eve", "guess")
    assert bench.pool.run_count == 1
    await bench.login("pump", "guess")
    assert bench.pool.run_count == 2
    await bench.login("pump", TOKEN)
    assert bench.pool.run_count == 2
    tokens_only = Bench(path, token_line("pump"))
    assert (await tokens_only.login("eve", "guess")).reason_code == 0x86
    assert tokens_only.pool.run_count == 0


async def test_good_password_is_remembered_and_a_bad_one_is_not(path: Path) -> None:
    bench = Bench(path, line("ada", "pw"))
    for _ in range(3):
        assert (await bench.login("ada", "pw")).ok
    assert bench.pool.run_count == 1
    for _ in range(2):
        assert not (await bench.login("ada", "no")).ok
    assert bench.pool.run_count == 3
    assert (await bench.login("ada", "pw")).ok
    assert bench.pool.run_count == 3


async def test_memory_is_bounded_and_can_be_off(path: Path) -> None:
    text = "".join(line(user, "pw") for user in "abc")
    bench = Bench(path, text, cache_max=2)
    for user in "abcbc":
        await bench.login(user, "pw")
    assert bench.pool.run_count == 3
    await bench.login("a", "pw")
    assert bench.pool.run_count == 4
    off = Bench(path, text, cache_max=0)
    await off.login("a", "pw")
    await off.login("a", "pw")
    assert off.pool.run_count == 2


async def test_clients_with_the_same_question_share_a_check(path: Path) -> None:
    bench = Bench(path, line("ada", "pw"), queue_max=1)
    tasks = [bench.start("ada", "pw") for _ in range(100)]
    await settle()
    assert bench.auth.pending_count == 1
    bench.pool.run()
    assert all(result.ok for result in await asyncio.gather(*tasks))
    assert bench.pool.run_count == 1


async def test_full_queue_is_busy_but_what_is_remembered_still_passes(path: Path) -> None:
    text = line("ada", "pw") + line("bob", "pw") + token_line("pump")
    bench = Bench(path, text, queue_max=1, threads=1)
    await bench.login("ada", "pw")
    waiting = bench.start("bob", "pw")
    await settle()
    older, newer = bench.start("bob", "no"), bench.start("bob", "nor this")
    await settle()
    found = await older
    assert (found.reason_code, found.limit) == (0x89, "auth.verify_queue_max")
    assert (await bench.auth.authenticate(_request("ada", "pw"))).ok
    assert (await bench.auth.authenticate(_request("pump", TOKEN))).ok
    bench.pool.run()
    assert (await waiting).ok
    await settle()
    bench.pool.run()
    assert (await newer).reason_code == 0x86
    assert bench.auth.pending_count == 0


async def test_a_burst_of_wrong_passwords_holds_nobody_else_up(path: Path) -> None:
    """Three hundred at once: a few are checked, the others refused at once and not counted; who
    comes meanwhile is next, also from the same address."""
    bench = Bench(
        path,
        line("ada", "pw") + line("bob", "pw"),
        config=AuthConfig(),
        address_max=100,
        user_max=8,
        threads=2,
    )
    burst = [bench.start("ada", f"wrong {number}") for number in range(300)]
    await settle()
    assert sum(task.done() for task in burst) == 290
    assert {task.result().reason_code for task in burst if task.done()} == {0x97}
    bob = bench.start("bob", "pw")
    await settle()
    bench.pool.run()  # the two that were under way
    await settle()
    bench.pool.run()
    await settle()
    assert (await bob).ok
    while bench.auth.pending_count:
        bench.pool.run()
        await settle()
    results = [await task for task in burst]
    assert [found.reason_code for found in results].count(0x86) == 10
    assert bench.guard.bans(0) == []


async def test_an_address_that_fails_again_and_again_leaves_a_thread_to_the_others(
    path: Path,
) -> None:
    bench = Bench(path, line("ada", "pw"), config=AuthConfig(failures_max=0), threads=2)
    for number in range(9):
        await bench.login("eve", f"guess {number}")
    for number in range(6):
        bench.start("eve", f"more {number}")
    await settle()
    assert len(bench.pool.jobs) == 2
    for _ in range(2):
        bench.pool.run()  # the tenth failure is among the first
        await settle()
    assert len(bench.pool.jobs) == 1
    ada = bench.start("ada", "pw", address="b")
    await settle()
    assert len(bench.pool.jobs) == 2
    bench.pool.run()
    assert (await ada).ok


async def test_who_is_refused_where_too_many_are_hears_it_later(path: Path) -> None:
    bench = Bench(path, line("ada", "pw"), config=AuthConfig(failures_max=20), user_max=1)
    first = await bench.login("eve", "guess")
    assert first.delay_us == 0
    tasks = [bench.start("eve", f"guess {number}") for number in range(4)]
    await settle()
    beyond = next(task.result() for task in tasks if task.done())
    assert (beyond.reason_code, beyond.delay_us) == (0x97, 2_000_000)
    while bench.auth.pending_count:
        bench.pool.run()
        await settle()
    for number in range(9):
        last = await bench.login("eve", f"more {number}")
    assert (last.reason_code, last.delay_us) == (0x86, 2_000_000)
    assert (await bench.login("ada", "pw")).delay_us == 0


async def test_who_fails_too_often_is_kept_out_before_a_check(path: Path) -> None:
    """By name and address: neither the owner elsewhere nor the neighbour is kept out, and not
    the owner's own client that has logged in from there before."""
    bench = Bench(path, line("ada", "pw") + line("bob", "pw"), config=AuthConfig(failures_max=3))
    own = bench.start("ada", "pw", client_id="own")
    await settle()
    bench.pool.run()
    assert (await own).ok
    made = [(await bench.login("ada", f"guess {number}")).ban for number in range(3)]
    assert [ban is not None for ban in made] == [False, False, True]
    count = bench.pool.run_count
    found = await bench.auth.authenticate(_request("ada", "pw"))
    assert (found.reason_code, found.limit) == (0x8A, "auth.failures_max")
    assert bench.pool.run_count == count
    assert (await bench.login("bob", "pw")).ok
    elsewhere = bench.start("ada", "pw", address="b")
    again = bench.start("ada", "pw", client_id="own")
    await settle()
    assert (await elsewhere).ok
    assert (await again).ok


async def test_every_wrong_password_pays_for_each_kind_of_entry(path: Path) -> None:
    """So the time tells neither who exists nor what entries somebody has."""
    verified: list[object] = []

    class Entry:
        def __init__(self, iterations: int) -> None:
            self.iterations = iterations

        def verify(self, password: bytes) -> bool:
            verified.append(self.iterations)
            return False

    cheap, dear = Entry(1), Entry(1000)
    decoys: Any = (cheap, dear)
    own: list[Any] = [(), (cheap,), (dear,), (cheap, dear), (dear, cheap)]
    for hashes in own:
        verified.clear()
        assert verify_password(hashes, decoys, b"guess") is None
        assert sorted(verified) == [1, 1000]  # type: ignore[type-var]


async def test_a_check_that_cannot_be_made_lets_nobody_in_and_nobody_wait(path: Path) -> None:
    bench = Bench(path, line("ada", "pw"))
    task = bench.start("ada", "pw")
    await settle()
    ((future, _),) = bench.pool.jobs
    future.set_exception(MemoryError())
    assert (await task).reason_code == 0x88
    assert bench.auth.pending_count == 0


async def test_check_survives_a_client_that_hangs_up(path: Path) -> None:
    bench = Bench(path, line("ada", "pw"))
    task = bench.start("ada", "pw")
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bench.auth.pending_count == 1
    bench.pool.run()
    await settle()
    assert (await bench.auth.authenticate(_request("ada", "pw"))).ok
    assert bench.pool.run_count == 1


async def test_reload_forgets_and_a_check_of_before_is_not_remembered(path: Path) -> None:
    bench = Bench(path, line("ada", "pw"))
    await bench.login("ada", "pw")
    before = bench.start("ada", "other")
    await settle()
    bench.auth.reload(bench.load(path, line("ada", "new")), superusers=["ada"])
    assert bench.auth.credentials.users == ("ada",)
    assert (await bench.login("ada", "pw")).reason_code == 0x86
    result = await bench.login("ada", "new")
    assert (result.ok, result.superuser) == (True, True)
    assert not (await before).ok


async def test_answer_found_under_old_credentials_is_not_believed(path: Path) -> None:
    bench = Bench(path, line("ada", "pw"))
    old = bench.start("ada", "pw")
    await settle()
    bench.auth.reload(bench.load(path, line("ada", "new")))
    bench.pool.run()
    await settle()
    bench.pool.run()
    assert (await old).reason_code == 0x86
    assert bench.auth.pending_count == 0


async def test_close_turns_away_those_who_wait_and_those_who_come(path: Path) -> None:
    bench = Bench(path, line("ada", "pw"))
    waiting = bench.start("ada", "pw")
    await settle()
    bench.auth.close()
    assert (await waiting).reason_code == 0x88
    assert (await bench.auth.authenticate(_request("ada", "pw"))).reason_code == 0x88


async def test_real_threads(path: Path) -> None:
    path.write_text(line("ada", "pw"))
    guard = LoginGuard(AuthConfig())
    auth = PasswordAuthenticator(CredentialsFile.load(path), cache_key=b"k" * 32, guard=guard)
    try:
        assert (await auth.authenticate(_request("ada", "pw"))).ok
        assert not (await auth.authenticate(_request("ada", "no"))).ok
    finally:
        auth.close()


def _request(user: str, password: str) -> AuthRequest:
    secret = password.encode()
    return AuthRequest(client_id="c", username=user, password=secret, address="a")
