"""The documentation does what it shows: its transcripts run, its commands and settings exist."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import click
import pytest

from perdure.bench.ports import free_port
from perdure.cli.main import cli
from perdure.cli.mqtt_properties import split_arguments
from perdure.config.fields import settings
from perdure.config.schema import Config
from tests.support.bounds import HANG_S
from tests.support.needs import missing
from tests.support.process import perdure_command

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("docs/**/*.md"), ROOT / "README.md", *ROOT.glob("deploy/**/*.md")])
PAGES = [page for page in PAGES if "adr" not in page.parts and "internals" not in page.parts]
MARK = "<!-- snippets: run -->"
NOT_RUN = re.compile(r"<!-- snippets: not run: (.{10,}?) -->")
FIRST = re.compile(r"<!-- snippets: first\n(.*?)-->", re.DOTALL)
"""Commands that make what the reader of a page has already; their output is nobody's matter."""
RUN = [page for page in PAGES if MARK in page.read_text(encoding="utf-8")]
FENCE = re.compile(
    r"(?:^ *<!-- snippets: not run: (?P<reason>.{10,}?) -->\n+)?"
    r"^(?P<indent> *)```(?P<language>\w+)[^\n]*\n(?P<text>.*?)^(?P=indent)```",
    re.MULTILINE | re.DOTALL,
)
SHOWN = ("sh", "console", "python")
"""What a reader copies."""


def blocks(page: Path, *languages: str) -> Iterator[str]:
    """The code blocks of a page in some languages."""
    for found in FENCE.finditer(page.read_text(encoding="utf-8")):
        if found["language"] in languages:
            yield found["text"]


def run_blocks(page: Path) -> Iterator[str]:
    """The blocks of a page that runs, but for those that say why they do not."""
    for found in FENCE.finditer(page.read_text(encoding="utf-8")):
        if found["language"] == "console" and found["reason"] is None:
            yield textwrap.dedent(found["text"])


def unaccounted(text: str) -> list[str]:
    """Blocks of a page's text that are not run, and of which nothing says why."""
    is_run = MARK in text
    if not is_run and NOT_RUN.search(text):
        return []
    return [
        found["text"]
        for found in FENCE.finditer(text)
        if found["language"] in SHOWN
        and found["reason"] is None
        and not (is_run and found["language"] == "console")
    ]


def expected(text: str) -> re.Pattern[str]:
    """A transcript's output as a pattern: … stands for anything."""
    return re.compile(".*".join(map(re.escape, text.strip("\n").split("…"))), re.DOTALL)


def steps(block: str) -> Iterator[tuple[str, str]]:
    """(command, output) of a console block."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        while command.endswith("\\"):
            more, _, output = output.partition("\n")
            command = f"{command[:-1]} {more.removeprefix('> ')}"
        yield command, output


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a shell whose `perdure` finds a broker that runs; one for all pages."""
    base = tmp_path_factory.mktemp("docs")
    port, http = free_port(), free_port()
    programs = base / "bin"
    programs.mkdir()
    # As on the reader's machine, but for the ports: the usual ones may be in use here.
    perdure = f"""case $1 in pub|sub) name=$1; shift; set -- "$name" -p {port} "$@";; esac
exec {shlex.quote(sys.executable)} -m perdure "$@\""""
    curl = f"""for word; do shift; set -- "$@" "$(echo "$word" | sed s/:18083/:{http}/)"; done
exec {shutil.which("curl")} "$@\""""
    for name, text in (("perdure", perdure), ("curl", curl)):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    script = programs / "perdure"
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PERDURE__STORAGE__PATH": str(base / "perdure-data"),
    }
    command = perdure_command(base / "perdure-data", port)
    if find_spec("starlette") is not None:
        command += ["--set", f"http.bind=127.0.0.1:{http}"]
    with (base / "log").open("w") as log:
        process = subprocess.Popen(command, stderr=log, cwd=base)
    try:
        until = time.monotonic() + HANG_S
        while subprocess.run(
            [str(script), "health"], env=environment, capture_output=True, check=False
        ).returncode:
            assert process.poll() is None, (base / "log").read_text(encoding="utf-8")
            assert time.monotonic() < until
        yield {**environment, "PERDURE_DOCS": str(base)}
    finally:
        process.terminate()
        process.wait(HANG_S)


def run(command: str, environment: dict[str, str]) -> str:
    """What a command prints, in a shell that knows what those before it have exported."""
    state = Path(environment["PERDURE_DOCS"]) / "exported"
    state.touch()
    done = subprocess.run(
        ["bash", "-c", f". {state}; {command}\nexport -p > {state}"],
        env=environment, cwd=environment["PERDURE_DOCS"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=HANG_S, check=False,
    )  # fmt: skip
    return done.stdout.strip("\n")


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_transcripts_are_true(page: Path, broker: dict[str, str]) -> None:
    text = page.read_text(encoding="utf-8")
    if "curl" in text and (find_spec("starlette") is None or shutil.which("curl") is None):
        missing("the page asks the HTTP process with curl")
    for first in FIRST.findall(text):
        for command in first.strip().splitlines():
            run(command, broker)
    count = 0
    for block in run_blocks(page):
        for command, output in steps(block):
            got = run(command, broker)
            assert expected(output).fullmatch(got), f"$ {command}\n{got}\n--- and not\n{output}"
            count += 1
    assert count > 3


def test_each_block_runs_or_says_why_not() -> None:
    """Pages for users: transcripts run, or a reason stands in the page or above the block."""
    silent = {page.name: found for page in PAGES if (found := unaccounted(page.read_text("utf-8")))}
    assert silent == {}, "add '<!-- snippets: run -->' or '<!-- snippets: not run: why -->'"


def test_a_block_without_a_reason_is_noticed() -> None:
    block = "```sh\nmake coffee\n```\n"
    assert unaccounted(f"# Page\n\n{block}") == ["make coffee\n"]
    assert unaccounted(f"# Page\n\n{MARK}\n\n{block}") == ["make coffee\n"]
    assert unaccounted(f"{MARK}\n{block.replace('sh', 'console')}") == []
    reason = "<!-- snippets: not run: there is no kettle -->\n"
    assert unaccounted(f"{MARK}\n{reason}\n{block}") == []
    assert unaccounted(f"{MARK}\n{reason}\n{block}\n{block}") == ["make coffee\n"]
    assert unaccounted(f"{reason}\n# Page\n{block}\n{block}") == []


def test_python_in_pages_is_python() -> None:
    """What cannot run everywhere can at least be read, and imports what is there."""
    wrong = []
    for page in PAGES:
        for block in blocks(page, "python"):
            try:
                tree = ast.parse(textwrap.dedent(block))
            except SyntaxError as error:
                wrong.append(f"{page.name}: {error}")
                continue
            for node in ast.walk(tree):
                module = node.module if isinstance(node, ast.ImportFrom) else None
                if module and module.split(".")[0] == "perdure":
                    wrong += [f"{page.name}: {module}"] * (not source_of(module).exists())
    assert wrong == []
    assert not source_of("perdure.no.such").exists()


def source_of(module: str) -> Path:
    """Where a module of ours is: its file, or its folder."""
    path = ROOT / "src" / Path(*module.split("."))
    return path if path.is_dir() else path.with_suffix(".py")


def test_a_wrong_transcript_is_noticed() -> None:
    ((command, output),) = steps("$ perdure \\\n> status\nstorage\tok …\n")
    assert command == "perdure  status"
    assert expected(output).fullmatch("storage\tok 5\nmore")
    assert not expected(output).fullmatch("storage\tfailed")


def commands() -> Iterator[tuple[str, list[str]]]:
    """(page, arguments) of each `perdure ...` in a block."""
    for page in PAGES:
        for block in blocks(page, "sh", "console"):
            for line in re.sub(r"\\\n\s*", " ", block).splitlines():
                for part in re.split(r"\|\||&&|;|\||\$\(", line.split(" #")[0].removeprefix("$ ")):
                    found = re.match(
                        r"\s*(?:\S+=\S+ |sudo |exec |docker run .*? )*perdure (.+)", part
                    )
                    if found is None:
                        continue
                    try:
                        words = shlex.split(re.sub(r"[<>]\s*\S+|\)", "", found[1]))
                    except ValueError:
                        continue
                    yield page.name, words


def mistake(words: list[str]) -> str:
    """What click does not know of a command line, or nothing."""
    command: click.Command = cli
    context = click.Context(cli, info_name="perdure")
    while isinstance(command, click.Group):
        if not words or words[0].startswith("-"):
            return ""
        inner = command.get_command(context, words[0])
        if inner is None:
            return f"no command {words[0]}"
        context = click.Context(inner, info_name=words[0], parent=context)
        command, words = inner, words[1:]
    try:
        if context.info_name in ("pub", "sub"):
            words, _ = split_arguments(words, valued=frozenset())
        command.make_parser(context).parse_args([word for word in words if word != "..."])
    except click.UsageError as error:
        return error.format_message()
    return ""


def test_every_command_that_a_sentence_names_exists() -> None:
    wrong = [
        f"{page.name}: perdure{named}: {told}"
        for page in PAGES
        for named in re.findall(r"`perdure((?: [a-z][a-z-]+)+)", page.read_text(encoding="utf-8"))
        if (told := mistake_of_path(named.split()))
    ]
    assert wrong == []
    assert mistake_of_path(["storage", "burn"])


def mistake_of_path(words: list[str]) -> str:
    """As ``mistake``, of the command alone: a sentence leaves out what it takes."""
    command: click.Command = cli
    context = click.Context(cli, info_name="perdure")
    for word in words:
        if not isinstance(command, click.Group):
            break
        inner = command.get_command(context, word)
        if inner is None:
            return f"no command {word}"
        command = inner
    return ""


def test_every_command_exists() -> None:
    found = list(commands())
    assert len(found) > 60
    wrong = [
        f"{page}: perdure {shlex.join(words)}: {mistake(words)}"
        for page, words in found
        if mistake(words)
    ]
    assert wrong == []
    assert mistake(["sub", "--no-such-thing"])
    assert mistake(["storage", "burn"])


def test_every_setting_exists() -> None:
    known = {setting.path for setting in settings(Config)}
    tops = {path.split(".")[0] for path in known} - {"node", "log"}
    known |= {path.replace("[]", "") for path in known}
    source = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("src/**/*.py"))
    wrong = []
    for page in PAGES:
        if "reference" in page.parts:
            continue
        text = page.read_text(encoding="utf-8")
        if page.stem.startswith("migrate-from"):
            # The first column is the other broker's.
            text = re.sub(r"^\|[^|]*\|", "|", text, flags=re.MULTILINE)
        for name in re.findall(r"`((?:[a-z]\w*\.)+[a-z_]+[a-z0-9_]*)(?:: [^`]*)?`", text):
            top, *rest = name.split(".")
            if (
                top not in tops
                or f'"{name}"' in source
                or rest[-1] in {"md", "yaml", "py", "sock", "token", "key"}
            ):
                continue
            plain = re.sub(r"^listeners\.(tcp|tls|ws|wss)\b", "listeners.tcp", name)
            if plain not in known and not any(each.startswith(f"{plain}.") for each in known):
                wrong.append(f"{page.name}: {name}")
    assert wrong == []
