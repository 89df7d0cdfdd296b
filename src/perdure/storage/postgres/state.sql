-- The state of a broker whose profile is "postgres": rows, and who writes them.
--
-- Applied at each start, so every statement may be repeated. What the rows mean is drawn in
-- storage/remote/rows.py; "kind" is the table there.

CREATE TABLE IF NOT EXISTS perdure_state (
    kind smallint NOT NULL,
    owner bytea NOT NULL,
    key bytea NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (kind, owner, key)
) WITH (fillfactor = 80);

-- Cursors and counters are replaced all the time and none of it is indexed: room on the page lets
-- them be replaced in place, and what is dead is cleaned up before it is much.
ALTER TABLE perdure_state SET (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE perdure_state ALTER COLUMN value SET STORAGE EXTERNAL;

-- Rows whose owner and key are too long for an index of PostgreSQL (2,704 bytes): few, and looked
-- for by their hash or all of them.
CREATE TABLE IF NOT EXISTS perdure_state_long (
    id bytea PRIMARY KEY,
    kind smallint NOT NULL,
    owner bytea NOT NULL,
    key bytea NOT NULL,
    value bytea NOT NULL
);

-- One row. "token" is the claim that may write, "number" the last transaction.
CREATE TABLE IF NOT EXISTS perdure_writer (
    id smallint PRIMARY KEY CHECK (id = 1),
    format integer NOT NULL,
    token bigint NOT NULL,
    number bigint NOT NULL
) WITH (fillfactor = 10);
INSERT INTO perdure_writer VALUES (1, 1, 0, 0) ON CONFLICT DO NOTHING;

-- Begin a transaction of the broker: true = apply it, false = it was applied before.
CREATE OR REPLACE FUNCTION perdure_begin(my_token bigint, my_number bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    stored record;
BEGIN
    UPDATE perdure_writer SET number = my_number
        WHERE id = 1 AND token = my_token AND number = my_number - 1;
    IF FOUND THEN
        RETURN true;
    END IF;
    SELECT token, number INTO stored FROM perdure_writer WHERE id = 1;
    IF stored.token IS DISTINCT FROM my_token THEN
        RAISE EXCEPTION 'another broker has become the writer' USING ERRCODE = 'PD002';
    END IF;
    IF stored.number >= my_number THEN
        RETURN false;
    END IF;
    RAISE EXCEPTION 'transaction % follows %', my_number, stored.number USING ERRCODE = 'PD003';
END
$$;

-- The rows of a transaction, in the order that Transaction says. Arrays go in parallel.
CREATE OR REPLACE FUNCTION perdure_rows(
    drop_kinds smallint[], drop_owners bytea[],
    trim_kinds smallint[], trim_owners bytea[], trim_keys bytea[],
    gone_kinds smallint[], gone_owners bytea[], gone_keys bytea[],
    put_kinds smallint[], put_owners bytea[], put_keys bytea[], put_values bytea[]
) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
BEGIN
    IF drop_kinds IS NOT NULL THEN
        DELETE FROM perdure_state AS s USING unnest(drop_kinds, drop_owners) AS d (kind, owner)
            WHERE s.kind = d.kind AND s.owner = d.owner;
    END IF;
    IF trim_kinds IS NOT NULL THEN
        DELETE FROM perdure_state AS s
            USING unnest(trim_kinds, trim_owners, trim_keys) AS t (kind, owner, key)
            WHERE s.kind = t.kind AND s.owner = t.owner AND s.key <= t.key;
    END IF;
    IF gone_kinds IS NOT NULL THEN
        DELETE FROM perdure_state AS s
            USING unnest(gone_kinds, gone_owners, gone_keys) AS g (kind, owner, key)
            WHERE s.kind = g.kind AND s.owner = g.owner AND s.key = g.key;
    END IF;
    IF put_kinds IS NOT NULL THEN
        INSERT INTO perdure_state AS s (kind, owner, key, value)
            SELECT p.kind, p.owner, p.key, p.value
            FROM unnest(put_kinds, put_owners, put_keys, put_values) AS p (kind, owner, key, value)
            ON CONFLICT (kind, owner, key) DO UPDATE SET value = excluded.value;
    END IF;
END
$$;

-- A whole transaction in one call.
CREATE OR REPLACE FUNCTION perdure_commit(
    my_token bigint, my_number bigint,
    drop_kinds smallint[], drop_owners bytea[],
    trim_kinds smallint[], trim_owners bytea[], trim_keys bytea[],
    gone_kinds smallint[], gone_owners bytea[], gone_keys bytea[],
    put_kinds smallint[], put_owners bytea[], put_keys bytea[], put_values bytea[]
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF NOT perdure_begin(my_token, my_number) THEN
        RETURN false;
    END IF;
    PERFORM perdure_rows(
        drop_kinds, drop_owners, trim_kinds, trim_owners, trim_keys,
        gone_kinds, gone_owners, gone_keys, put_kinds, put_owners, put_keys, put_values);
    RETURN true;
END
$$;

-- The same with what happens to queues, and the first part of what is appended to them. The
-- arguments from "append_limit" on are those of perdure_queue_append after its time.
CREATE OR REPLACE FUNCTION perdure_commit_with_queues(
    my_token bigint, my_number bigint,
    drop_kinds smallint[], drop_owners bytea[],
    trim_kinds smallint[], trim_owners bytea[], trim_keys bytea[],
    gone_kinds smallint[], gone_owners bytea[], gone_keys bytea[],
    put_kinds smallint[], put_owners bytea[], put_keys bytea[], put_values bytea[],
    discarded varchar[], trimmed varchar[], trimmed_through bigint[],
    now_ms bigint, append_limit integer,
    clients varchar[], names text[], owners integer[], entry_clients varchar[],
    given_serials bigint[], given_packet_ids integer[], positions bigint[],
    topics varchar[], times bigint[], packet_types varchar[], qoses integer[],
    payloads bytea[], user_properties varchar[], retains boolean[], expiry_intervals integer[],
    format_indicators integer[], content_types varchar[], response_topics varchar[],
    correlation_data bytea[], forget_at_us bigint[], records bytea[]
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF NOT perdure_commit(
        my_token, my_number, drop_kinds, drop_owners, trim_kinds, trim_owners, trim_keys,
        gone_kinds, gone_owners, gone_keys, put_kinds, put_owners, put_keys, put_values)
    THEN
        RETURN false;
    END IF;
    -- Nobody takes these queues: the claim of the whole state stands for their owner, epoch 0.
    IF discarded IS NOT NULL THEN
        PERFORM perdure_queue_discard(discarded, array_fill(0::bigint, ARRAY[cardinality(discarded)]));
    END IF;
    IF trimmed IS NOT NULL THEN
        PERFORM perdure_queue_trim(
            trimmed, array_fill(0::bigint, ARRAY[cardinality(trimmed)]), trimmed_through);
    END IF;
    IF clients IS NOT NULL THEN
        PERFORM perdure_queue_append(
            now_ms, append_limit, clients, names, owners, entry_clients, given_serials,
            given_packet_ids, positions, topics, times, packet_types, qoses, payloads,
            user_properties, retains, expiry_intervals, format_indicators, content_types,
            response_topics, correlation_data, forget_at_us, records);
    END IF;
    RETURN true;
END
$$;
