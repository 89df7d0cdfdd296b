"""Databases as the releases of TBMQ 1.x left them, in plain SQL."""

from __future__ import annotations

from typing import Final

from perdure.storage.postgres import Pool

SESSIONS: Final = """
CREATE TABLE device_session_ctx (
    client_id varchar(255) NOT NULL,
    last_updated_time bigint NOT NULL,
    last_serial_number bigint,
    last_packet_id int,
    CONSTRAINT device_session_ctx_pkey PRIMARY KEY (client_id)
)
"""
V1_0: Final = """
CREATE TABLE device_publish_msg (
    client_id varchar(255) NOT NULL,
    serial_number bigint NOT NULL,
    topic varchar NOT NULL,
    time bigint NOT NULL,
    packet_id int,
    packet_type varchar(255),
    qos int NOT NULL,
    payload bytea NOT NULL,
    user_properties varchar,
    retain boolean,
    CONSTRAINT device_publish_msg_pkey PRIMARY KEY (client_id, serial_number)
)
"""
V1_2: Final = """
ALTER TABLE device_publish_msg ADD COLUMN msg_expiry_interval int;
ALTER TABLE device_publish_msg ADD COLUMN payload_format_indicator int;
ALTER TABLE device_publish_msg ADD COLUMN content_type varchar(255)
"""
V1_3: Final = """
ALTER TABLE device_publish_msg ADD COLUMN response_topic varchar(255);
ALTER TABLE device_publish_msg ADD COLUMN correlation_data bytea
"""
INDEX: Final = """
CREATE INDEX idx_device_publish_msg_packet_id ON device_publish_msg (client_id, packet_id)
"""
SCHEMAS: Final = {
    "1.0": (SESSIONS, V1_0, INDEX),
    "1.2": (SESSIONS, V1_0, V1_2, INDEX),
    "1.3": (SESSIONS, V1_0, V1_2, V1_3, INDEX),
}

TIME_MS: Final = 1_690_000_000_000

# A client past the wrap, its newest message a PUBREL; one whose identifiers repeat and are NULL;
# messages without a session, and sessions without messages.
DATA: Final = (
    f"""
    INSERT INTO device_session_ctx VALUES
        ('wrapped', {TIME_MS}, 65536, 2),
        ('repeated', {TIME_MS}, 3, 7),
        ('empty', {TIME_MS}, 41, 42),
        ('new', {TIME_MS}, NULL, NULL)
    """,
    f"""
    INSERT INTO device_publish_msg (client_id, serial_number, topic, time, packet_id,
        packet_type, qos, payload, user_properties, retain)
    VALUES
        ('wrapped', 65533, 'a/b', {TIME_MS}, 65534, 'PUBLISH', 1, 'w1', NULL, false),
        ('wrapped', 65534, 'a/b', {TIME_MS}, 65535, 'PUBLISH', 1, 'w2',
            '{{"props":[{{"k":"unit","v":"K"}}]}}', true),
        ('wrapped', 65535, 'a/b', {TIME_MS}, 1, 'PUBLISH', 2, 'w3', NULL, NULL),
        ('wrapped', 65536, 'a/b', {TIME_MS}, 2, 'PUBREL', 2, 'w4', NULL, NULL),
        ('repeated', 0, 'r', {TIME_MS}, 7, 'PUBLISH', 1, 'r0', NULL, NULL),
        ('repeated', 1, 'r', {TIME_MS}, NULL, 'PUBLISH', 1, 'r1', NULL, NULL),
        ('repeated', 2, 'r', {TIME_MS}, 7, NULL, 1, 'r2', NULL, NULL),
        ('repeated', 3, 'r', {TIME_MS}, 6, 'PUBLISH', 1, 'r3', NULL, NULL),
        ('orphan {{x}}/ü', 10, 'o', {TIME_MS}, 11, 'PUBLISH', 1, 'o10', NULL, NULL),
        ('orphan {{x}}/ü', 11, 'o', {TIME_MS}, 12, 'PUBLISH', 1, 'o11', NULL, NULL)
    """,
)


async def create(pool: Pool, version: str) -> None:
    """The tables of a release, and what stands in them."""
    for sql in (*SCHEMAS[version], *DATA):
        async with pool.connection() as connection:
            await connection.execute(sql)
