"""Perdure: an MQTT 3.1.1 and 5.0 broker that does not forget."""

import os as _os

__version__ = "0.1.0"

if _os.environ.get("PERDURE_PURE_PYTHON") == "1":
    from perdure.pure import use_source as _use_source

    _use_source()
