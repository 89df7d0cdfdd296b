"""Device queues on PostgreSQL; needs the extra ``postgres``. asyncpg is known here alone."""

from perdure.storage.postgres.device_queue import PostgresDeviceQueue
from perdure.storage.postgres.pool import Pool, Statement

__all__ = ["Pool", "PostgresDeviceQueue", "Statement"]
