"""Fuzz the decoder with coverage: what ``decoding`` says holds for any bytes.

``make fuzz-decoder FUZZ_SECONDS=600`` installs what it needs and runs it; what reached new code is
kept in ``build/corpus``, what failed in ``build/crash-*``.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports():
    from tests.fuzz.decoding import check_decoder

if __name__ == "__main__":
    atheris.Setup(sys.argv, check_decoder)
    atheris.Fuzz()
