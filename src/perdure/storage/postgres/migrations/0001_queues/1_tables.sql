-- The two tables of TBMQ 1.3 and later, to the column and index; those of 1.0 to 1.2 get the
-- columns that they lack. Nothing else is ever added to them.
CREATE TABLE IF NOT EXISTS device_session_ctx (
    client_id varchar(255) NOT NULL CONSTRAINT device_session_ctx_pkey PRIMARY KEY,
    last_updated_time bigint NOT NULL,
    last_serial_number bigint,
    last_packet_id integer
);

CREATE TABLE IF NOT EXISTS device_publish_msg (
    client_id varchar(255) NOT NULL,
    serial_number bigint NOT NULL,
    topic varchar NOT NULL,
    time bigint NOT NULL,
    packet_id integer,
    packet_type varchar(255),
    qos integer NOT NULL,
    payload bytea NOT NULL,
    user_properties varchar,
    retain boolean,
    msg_expiry_interval integer,
    payload_format_indicator integer,
    content_type varchar(255),
    response_topic varchar(255),
    correlation_data bytea,
    CONSTRAINT device_publish_msg_pkey PRIMARY KEY (client_id, serial_number)
);

ALTER TABLE device_publish_msg
    ADD COLUMN IF NOT EXISTS user_properties varchar,
    ADD COLUMN IF NOT EXISTS retain boolean,
    ADD COLUMN IF NOT EXISTS msg_expiry_interval integer,
    ADD COLUMN IF NOT EXISTS payload_format_indicator integer,
    ADD COLUMN IF NOT EXISTS content_type varchar(255),
    ADD COLUMN IF NOT EXISTS response_topic varchar(255),
    ADD COLUMN IF NOT EXISTS correlation_data bytea;

CREATE INDEX IF NOT EXISTS idx_device_publish_msg_packet_id
    ON device_publish_msg (client_id, packet_id);

-- Rows of sessions are replaced with each append, and none of that is indexed: with room on the
-- page a row is replaced in place, without a new entry in the index.
ALTER TABLE device_session_ctx SET (fillfactor = 40);

-- What the two tables have no place for. A queue has a row here once somebody owns it, appends
-- with log positions, or it is deep; publish_count is NULL while counting is cheap.
CREATE TABLE perdure_queue (
    client_id varchar(255) NOT NULL PRIMARY KEY,
    epoch bigint NOT NULL DEFAULT 0,
    last_position bigint NOT NULL DEFAULT 0,
    publish_count integer,
    name text
) WITH (fillfactor = 60);

-- An entry has a row here only if its columns do not say all of it. Whoever deletes a message
-- without us leaves the row behind: "time" tells that it is not that of a later message.
CREATE TABLE perdure_queue_entry (
    client_id varchar(255) NOT NULL,
    serial_number bigint NOT NULL,
    time bigint NOT NULL,
    forget_at_us bigint,
    record bytea,
    PRIMARY KEY (client_id, serial_number)
);

CREATE INDEX perdure_queue_entry_forget_at
    ON perdure_queue_entry (forget_at_us) WHERE forget_at_us IS NOT NULL;
