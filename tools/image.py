"""Builds the image in a clean root where no container engine is: ``python -m tools.image ROOT``.

The base image is a minimal Debian with Python (mmdebstrap), each stage a copy of it, each RUN a
command in a chroot. Needs root, mmdebstrap, and the registries of Debian and Python. The base is
kept in ``build/image/base`` for the next time.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.dockerfile import Stage, expand, pairs, parse

SOURCE: Final = Path(__file__).parents[1]
DOCKERFILE: Final = SOURCE / "deploy/docker/Dockerfile"
BASE: Final = SOURCE / "build/image/base"
PACKAGES: Final = "python3-venv,ca-certificates"
PASSED: Final = re.compile(r"(?i)(pip_.*|.*_proxy|ssl_cert_file|requests_ca_bundle)")
"""Variables of this machine that say where its registries are."""

BORROWED: Final = (
    "etc/resolv.conf",
    "etc/hosts",
    "etc/pip.conf",
    "etc/ssl/certs/ca-certificates.crt",
)
"""Files of this machine without which a build reaches no registry; taken away again after it."""

CHROOT: Final = shutil.which("chroot") or "/usr/sbin/chroot"

STEP_S: Final = 900
"""Seconds that one step may take."""


@dataclass
class Image:
    """A root, and what the Dockerfile says about running it."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    user: str = "0:0"
    directory: str = "/"
    programs: dict[str, list[str]] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)

    def command(self, program: list[str]) -> list[str]:
        """What runs a program in it, as its user and in its directory."""
        inside = f"cd {shlex.quote(self.directory)} && exec {shlex.join(program)}"
        shell = ["/bin/sh", "-c", inside]
        return [CHROOT, f"--userspec={self.user}", "--groups=", str(self.root), *shell]


def make_base(target: Path) -> None:
    """A minimal Debian with Python, unless it is there."""
    if (target / "usr/bin/python3").exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    release = Path("/etc/os-release").read_text(encoding="utf-8")
    codename = re.search(r"^VERSION_CODENAME=(\w+)", release, re.MULTILINE)
    assert codename, "this is no Debian"
    partial = target.with_name(f"{target.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    options = ["--variant=minbase", f"--include={PACKAGES}", "--mode=root"]
    subprocess.run(
        ["mmdebstrap", "--quiet", *options, codename[1], str(partial)],
        check=True,
        timeout=STEP_S,
    )
    partial.rename(target)


def build(target: Path, base: Path = BASE, arguments: Mapping[str, str] | None = None) -> Image:
    """Run all stages below ``target``; returns the last one.

    Args:
        target: an empty directory.
        base: root of the base image.
        arguments: build arguments, in place of the defaults.
    """
    defaults, stages = parse(DOCKERFILE.read_text(encoding="utf-8"))
    given = {**defaults, **(arguments or {})}
    built: dict[str, Image] = {}
    image = Image(target)
    for number, stage in enumerate(stages):
        image = Image(target / (stage.name or str(number)))
        subprocess.run(["cp", "-a", str(base), str(image.root)], check=True, timeout=STEP_S)
        _borrow(image.root)
        for step in stage.steps:
            _step(image, step.word, step.text, given, built)
        _give_back(image.root, base)
        image.programs, image.metadata = stage.programs, stage.metadata
        built[stage.name or str(number)] = image
    assert not _unused(stages, built)
    return image


def _unused(stages: list[Stage], built: dict[str, Image]) -> set[str]:
    """Stages that nothing is copied from."""
    texts = " ".join(step.text for stage in stages for step in stage.steps)
    return {name for name in list(built)[:-1] if f"--from={name} " not in texts}


def _step(
    image: Image, word: str, text: str, given: Mapping[str, str], built: Mapping[str, Image]
) -> None:
    print(f"{image.root.name}: {word} {text[:90]}", file=sys.stderr, flush=True)
    if word == "ENV":
        image.environment.update(pairs(expand(text, image.environment)))
    elif word == "ARG":
        name, _, default = text.partition("=")
        image.environment.setdefault(name, given.get(name, default))
    elif word == "WORKDIR":
        image.directory = text
        (image.root / text.lstrip("/")).mkdir(parents=True, exist_ok=True)
    elif word == "USER":
        image.user = text
    elif word == "COPY":
        _copy(image, text, built)
    else:
        passed = {name: value for name, value in os.environ.items() if PASSED.fullmatch(name)}
        subprocess.run(
            image.command(["/bin/sh", "-ec", text]),
            env={"PATH": os.defpath + ":/usr/sbin:/sbin", **passed, **image.environment},
            check=True,
            timeout=STEP_S,
        )


def _copy(image: Image, text: str, built: Mapping[str, Image]) -> None:
    words = text.split()
    source = SOURCE
    if words[0].startswith("--from="):
        source = built[words.pop(0).removeprefix("--from=")].root
    *names, last = words
    target = image.root / Path(image.directory, last).relative_to("/")
    for name in names:
        found = source / name.lstrip("/")
        # A directory's content is copied, a file into a directory or under a new name.
        if found.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
            shutil.copytree(
                found, target, symlinks=True, dirs_exist_ok=True,
                ignore=ignored if source == SOURCE else None,
            )  # fmt: skip
        else:
            whole = target / found.name if last.endswith("/") else target
            whole.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(found, whole)


def _borrow(root: Path) -> None:
    for name in BORROWED:
        if Path("/", name).exists():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).unlink(missing_ok=True)
            shutil.copy(Path("/", name), root / name)


def _give_back(root: Path, base: Path) -> None:
    for name in BORROWED:
        (root / name).unlink(missing_ok=True)
        if (base / name).exists():
            shutil.copy(base / name, root / name, follow_symlinks=False)


if __name__ == "__main__":
    make_base(BASE)
    finished = build(Path(sys.argv[1]).resolve(), arguments={"PERDURE_PURE": "1"})
    print(finished.root)
