-- What the owner of a queue does with its entries. Every request is one client's, in arrays as
-- long as "clients" (each once); a result of -1 = refused, for the epoch is not the owner's.
--
-- Calls of owners hold a shared lock of the clients' slots, and a change of owner the exclusive
-- one: once "take" has returned, nothing of the owner before is on its way.
CREATE FUNCTION perdure_queue_lock(clients varchar[], is_exclusive boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    slot integer;
BEGIN
    FOR slot IN SELECT DISTINCT hashtext(c.id) & 63 FROM unnest(clients) AS c (id) ORDER BY 1 LOOP
        IF is_exclusive THEN
            PERFORM pg_advisory_xact_lock(1346720341, slot);
        ELSE
            PERFORM pg_advisory_xact_lock_shared(1346720341, slot);
        END IF;
    END LOOP;
END
$$;

-- For each client: NULL = unknown, true = the epoch is the owner's.
CREATE FUNCTION perdure_queue_owned(clients varchar[], epochs bigint[]) RETURNS boolean[]
LANGUAGE sql
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
    SELECT array_agg(
        CASE
            WHEN q.client_id IS NOT NULL THEN q.epoch = c.epoch
            WHEN EXISTS (SELECT FROM device_session_ctx AS s WHERE s.client_id = c.client_id)
                OR EXISTS (SELECT FROM device_publish_msg AS m WHERE m.client_id = c.client_id)
                THEN c.epoch = 0
        END ORDER BY c.who)
    FROM unnest(clients, epochs) WITH ORDINALITY AS c (client_id, epoch, who)
    LEFT JOIN perdure_queue AS q ON q.client_id = c.client_id
$$;

-- PUBACK and PUBCOMP: of several entries with one identifier the oldest goes.
CREATE FUNCTION perdure_queue_acknowledge(
    clients varchar[],
    epochs bigint[],
    owners integer[],
    packet_ids integer[],
    OUT counts integer[]
) LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    owned boolean[];
BEGIN
    PERFORM perdure_queue_lock(clients, false);
    owned := perdure_queue_owned(clients, epochs);
    WITH gone AS (
        DELETE FROM device_publish_msg AS m
        USING (
            SELECT DISTINCT e.who, clients[e.who] AS client_id, (
                -- "+ 0": by the index of packet identifiers, not along the whole queue.
                SELECT n.serial_number FROM device_publish_msg AS n
                WHERE n.client_id = clients[e.who] AND n.packet_id = e.packet_id
                ORDER BY n.serial_number + 0 LIMIT 1
            ) AS serial_number
            FROM unnest(owners, packet_ids) AS e (who, packet_id)
            WHERE owned[e.who]
        ) AS t
        WHERE m.client_id = t.client_id AND m.serial_number = t.serial_number
        RETURNING t.who, m.client_id, m.serial_number, m.packet_type
    ), beside AS (
        DELETE FROM perdure_queue_entry AS e USING gone AS g
        WHERE e.client_id = g.client_id AND e.serial_number = g.serial_number
    ), sums AS (
        SELECT g.who, g.client_id, count(*)::integer AS count,
            count(*) FILTER (WHERE g.packet_type IS DISTINCT FROM 'PUBREL')::integer AS publishes
        FROM gone AS g GROUP BY g.who, g.client_id
    ), fewer AS (
        UPDATE perdure_queue AS q
        SET publish_count = CASE
            WHEN q.publish_count - s.publishes >= 16 THEN q.publish_count - s.publishes
        END
        FROM sums AS s
        WHERE q.client_id = s.client_id AND q.publish_count IS NOT NULL AND s.publishes > 0
    )
    SELECT array_agg(
        CASE WHEN owned[r.who] THEN r.count WHEN owned[r.who] IS NULL THEN 0 ELSE -1 END
        ORDER BY r.who)
    INTO counts
    FROM (
        SELECT u.who, sum(u.count)::integer AS count FROM (
            SELECT s.who, s.count FROM sums AS s
            UNION ALL SELECT generate_subscripts(clients, 1), 0
        ) AS u GROUP BY u.who
    ) AS r;
END
$$;

-- PUBREC: a PUBLISH becomes the PUBREL that is owed, in its place, without payload and expiry,
-- and with a lifetime of its own (0 = for ever). Counts the entries that are PUBREL now.
CREATE FUNCTION perdure_queue_release(
    clients varchar[],
    epochs bigint[],
    forget_at_us bigint[],
    owners integer[],
    packet_ids integer[],
    OUT counts integer[]
) LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    owned boolean[];
BEGIN
    PERFORM perdure_queue_lock(clients, false);
    owned := perdure_queue_owned(clients, epochs);
    WITH named AS (
        SELECT e.who, clients[e.who] AS client_id, (
            SELECT n.serial_number FROM device_publish_msg AS n
            WHERE n.client_id = clients[e.who] AND n.packet_id = e.packet_id
            ORDER BY n.serial_number + 0 LIMIT 1
        ) AS serial_number
        FROM unnest(owners, packet_ids) AS e (who, packet_id)
        WHERE owned[e.who]
    ), turned AS (
        UPDATE device_publish_msg AS m
        SET packet_type = 'PUBREL', payload = '', msg_expiry_interval = NULL
        FROM (SELECT DISTINCT n.who, n.client_id, n.serial_number FROM named AS n) AS t
        WHERE m.client_id = t.client_id AND m.serial_number = t.serial_number
            AND m.packet_type IS DISTINCT FROM 'PUBREL'
        RETURNING t.who, m.client_id, m.serial_number, m.time
    ), for_ever AS (
        UPDATE perdure_queue_entry AS e SET forget_at_us = NULL FROM turned AS t
        WHERE e.client_id = t.client_id AND e.serial_number = t.serial_number
            AND perdure_queue_release.forget_at_us[t.who] = 0 AND e.forget_at_us IS NOT NULL
    ), for_a_time AS (
        INSERT INTO perdure_queue_entry AS e (client_id, serial_number, time, forget_at_us)
        SELECT t.client_id, t.serial_number, t.time, perdure_queue_release.forget_at_us[t.who]
        FROM turned AS t WHERE perdure_queue_release.forget_at_us[t.who] > 0
        ON CONFLICT (client_id, serial_number) DO UPDATE SET
            time = excluded.time,
            forget_at_us = excluded.forget_at_us,
            record = CASE WHEN e.time = excluded.time THEN e.record END
    ), changed AS (
        SELECT t.client_id, count(*)::integer AS publishes FROM turned AS t GROUP BY t.client_id
    ), fewer AS (
        UPDATE perdure_queue AS q
        SET publish_count = CASE
            WHEN q.publish_count - s.publishes >= 16 THEN q.publish_count - s.publishes
        END
        FROM changed AS s
        WHERE q.client_id = s.client_id AND q.publish_count IS NOT NULL
    ), sums AS (
        SELECT n.who, count(n.serial_number)::integer AS count FROM named AS n GROUP BY n.who
    )
    SELECT array_agg(
        CASE WHEN owned[r.who] THEN r.count WHEN owned[r.who] IS NULL THEN 0 ELSE -1 END
        ORDER BY r.who)
    INTO counts
    FROM (
        SELECT u.who, sum(u.count)::integer AS count FROM (
            SELECT s.who, s.count FROM sums AS s
            UNION ALL SELECT generate_subscripts(clients, 1), 0
        ) AS u GROUP BY u.who
    ) AS r;
END
$$;

-- Delete all up to a serial number, inclusive.
CREATE FUNCTION perdure_queue_trim(
    clients varchar[],
    epochs bigint[],
    through bigint[],
    OUT counts integer[]
) LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    owned boolean[];
BEGIN
    PERFORM perdure_queue_lock(clients, false);
    owned := perdure_queue_owned(clients, epochs);
    WITH gone AS (
        DELETE FROM device_publish_msg AS m
        USING unnest(clients, owned, through) WITH ORDINALITY
            AS t (client_id, is_owned, serial_number, who)
        WHERE t.is_owned AND m.client_id = t.client_id AND m.serial_number <= t.serial_number
        RETURNING t.who, m.client_id, m.serial_number, m.packet_type
    ), beside AS (
        DELETE FROM perdure_queue_entry AS e USING gone AS g
        WHERE e.client_id = g.client_id AND e.serial_number = g.serial_number
    ), sums AS (
        SELECT g.who, g.client_id, count(*)::integer AS count,
            count(*) FILTER (WHERE g.packet_type IS DISTINCT FROM 'PUBREL')::integer AS publishes
        FROM gone AS g GROUP BY g.who, g.client_id
    ), fewer AS (
        UPDATE perdure_queue AS q
        SET publish_count = CASE
            WHEN q.publish_count - s.publishes >= 16 THEN q.publish_count - s.publishes
        END
        FROM sums AS s
        WHERE q.client_id = s.client_id AND q.publish_count IS NOT NULL AND s.publishes > 0
    )
    SELECT array_agg(
        CASE WHEN owned[r.who] THEN r.count WHEN owned[r.who] IS NULL THEN 0 ELSE -1 END
        ORDER BY r.who)
    INTO counts
    FROM (
        SELECT u.who, sum(u.count)::integer AS count FROM (
            SELECT s.who, s.count FROM sums AS s
            UNION ALL SELECT generate_subscripts(clients, 1), 0
        ) AS u GROUP BY u.who
    ) AS r;
END
$$;

-- Whether a message is past its Message Expiry Interval, in seconds from its time (Java keeps the
-- upper half of the range as negative numbers). A PUBREL is session state and has none.
CREATE FUNCTION perdure_queue_is_past(
    now_us bigint, kept_ms bigint, packet_type varchar, stored_ms bigint, expiry_interval integer
) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT packet_type IS DISTINCT FROM 'PUBREL' AND CASE
        WHEN expiry_interval IS NOT NULL THEN
            stored_ms + (expiry_interval::bigint & 4294967295) * 1000 <= now_us / 1000
        WHEN kept_ms > 0 THEN stored_ms + kept_ms <= now_us / 1000
        ELSE false
    END
$$;

-- Delete entries that are past their time, if they still are: a message may have become a PUBREL
-- meanwhile. "kept_ms" is how long a message without an expiry of its own is kept, 0 = for ever.
CREATE FUNCTION perdure_queue_expire(
    now_us bigint,
    kept_ms bigint,
    entry_clients varchar[],
    serials bigint[],
    OUT count integer
) LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    WITH due AS (
        SELECT m.client_id, m.serial_number
        FROM unnest(entry_clients, serials) AS e (client_id, serial_number)
        JOIN device_publish_msg AS m
            ON m.client_id = e.client_id AND m.serial_number = e.serial_number
        LEFT JOIN perdure_queue_entry AS b
            ON b.client_id = m.client_id AND b.serial_number = m.serial_number
            AND b.time = m.time
        WHERE b.forget_at_us <= now_us OR perdure_queue_is_past(
            now_us, kept_ms, m.packet_type, m.time, m.msg_expiry_interval)
    ), gone AS (
        DELETE FROM device_publish_msg AS m USING due AS d
        WHERE m.client_id = d.client_id AND m.serial_number = d.serial_number
        RETURNING m.client_id, m.serial_number, m.packet_type
    ), beside AS (
        DELETE FROM perdure_queue_entry AS e USING gone AS g
        WHERE e.client_id = g.client_id AND e.serial_number = g.serial_number
    ), sums AS (
        SELECT g.client_id, count(*) AS count,
            count(*) FILTER (WHERE g.packet_type IS DISTINCT FROM 'PUBREL')::integer AS publishes
        FROM gone AS g GROUP BY g.client_id
    ), fewer AS (
        UPDATE perdure_queue AS q
        SET publish_count = CASE
            WHEN q.publish_count - s.publishes >= 16 THEN q.publish_count - s.publishes
        END
        FROM sums AS s
        WHERE q.client_id = s.client_id AND q.publish_count IS NOT NULL AND s.publishes > 0
    )
    SELECT coalesce(sum(s.count), 0) INTO count FROM sums AS s;
END
$$;
