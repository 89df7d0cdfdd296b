"""Fuzz the decoder with coverage: what ``decoding`` says holds for any bytes.

Needs atheris, which is not a dependency (``make fuzz`` does without)::

    PYTHONPATH=src:. python tests/fuzz/fuzz_decoder.py -max_total_time=600 CORPUS_DIRECTORY
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports():
    from tests.fuzz.decoding import check_decoder

if __name__ == "__main__":
    atheris.Setup(sys.argv, check_decoder)
    atheris.Fuzz()
