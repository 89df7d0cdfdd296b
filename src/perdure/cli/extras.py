"""Packages that not everybody installs, and the extra that brings each.

Commands import them where they are needed. Most say themselves what is missing; whatever import
fails otherwise is told here, and not as a bug of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EXTRA_OF: Final[Mapping[str, str]] = {
    "argon2": "http",
    "asyncpg": "postgres",
    "bcrypt": "hashes",
    "boto3": "s3",
    "confluent_kafka": "kafka",
    "cryptography": "ocsp",
    "deltalake": "spark",
    "duckdb": "spark,sql",
    "fastavro": "payloads",
    "google": "payloads",
    "grpc": "connect",
    "hiredis": "redis",
    "httpx": "http-auth",
    "jinja2": "http",
    "jwt": "jwt",
    "ldap3": "ldap",
    "numpy": "spark",
    "pandas": "spark",
    "psycopg2": "lake",
    "pyarrow": "spark",
    "pyiceberg": "spark",
    "pyspark": "spark",
    "sqlalchemy": "spark",
    "starlette": "http",
    "thrift": "lake",
    "uvicorn": "http",
    "xxhash": "spark",
    "zstandard": "connect",
}
"""The extra that a command needs by the module that it imports."""


def missing(error: ImportError) -> tuple[str, str] | None:
    """What to say of a package that is not installed, and what to do; None = it is a bug."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    module = error.name.partition(".")[0]
    extra = EXTRA_OF.get(module)
    if extra is None:
        return None
    return f"{module} is not installed", f"pip install 'perdure[{extra}]'"
