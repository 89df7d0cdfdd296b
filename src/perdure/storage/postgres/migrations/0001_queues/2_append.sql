-- Append entries to the queues of any number of clients: one call, one transaction.
--
-- The entries come as one array for each column (NULL = all NULL). "clients" are the distinct
-- client ids, sorted, so that callers lock in one order and never wait for each other in a ring;
-- "owners" says for each entry which of them it belongs to. The caller sees to it that for each
-- client either all packet identifiers are given, each once, or none, and that there are no more
-- than "queue_limit" entries; so no entry of a call has to go for another one of it.
--
-- Returns one element for each entry: serial and packet identifier, NULL for a repeat; and the
-- entries that had to go, each with the index of the one that it went for.
--
-- Plans are made once and for any size of table: every access is by a client's index.
CREATE FUNCTION perdure_queue_append(
    now_ms bigint,
    queue_limit integer,
    clients varchar[],
    names text[],
    owners integer[],
    entry_clients varchar[],
    given_serials bigint[],
    given_packet_ids integer[],
    positions bigint[],
    topics varchar[],
    times bigint[],
    packet_types varchar[],
    qoses integer[],
    payloads bytea[],
    user_properties varchar[],
    retains boolean[],
    expiry_intervals integer[],
    format_indicators integer[],
    content_types varchar[],
    response_topics varchar[],
    correlation_data bytea[],
    forget_at_us bigint[],
    records bytea[],
    OUT serials bigint[],
    OUT packet_ids integer[],
    OUT trimmed_by integer[],
    OUT trimmed_serials bigint[],
    OUT trimmed_packet_ids integer[],
    OUT trimmed_types varchar[]
) LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    -- Where each client's queue stands; "counted" = its row in perdure_queue has the count.
    last_serials bigint[];
    last_packets integer[];
    last_positions bigint[];
    held_counts integer[];
    counted boolean[];
    final_counts integer[];
    crowded integer[];
    who integer;
    held integer;
    locked integer;
    coming record;
    gone record;
BEGIN
    INSERT INTO device_session_ctx (client_id, last_updated_time)
        SELECT c.client_id, now_ms FROM unnest(clients) AS c (client_id)
        ON CONFLICT DO NOTHING;
    PERFORM FROM device_session_ctx AS c
        WHERE c.client_id = ANY (clients) ORDER BY c.client_id FOR UPDATE;
    GET DIAGNOSTICS locked = ROW_COUNT;
    IF locked < cardinality(clients) THEN
        RAISE EXCEPTION 'a queue was discarded meanwhile' USING ERRCODE = 'serialization_failure';
    END IF;

    -- How many a queue holds: what was counted, or at most as many as there are serials from its
    -- first to its last entry, if even so many do no harm, or what a short count finds.
    SELECT
        array_agg(greatest(s.last_serial_number, z.last_serial, 0) ORDER BY c.who),
        array_agg(coalesce(s.last_packet_id, CASE WHEN s.last_packet_id IS NULL THEN (
            SELECT m.packet_id FROM device_publish_msg AS m
            WHERE m.client_id = c.client_id AND m.packet_id IS NOT NULL
            ORDER BY m.serial_number DESC LIMIT 1
        ) END, 0) ORDER BY c.who),
        array_agg(coalesce(q.last_position, 0) ORDER BY c.who),
        array_agg(CASE
            WHEN z.last_serial IS NULL THEN 0
            -- Somebody may have deleted messages without telling us.
            WHEN q.publish_count IS NOT NULL
                THEN least(q.publish_count, z.last_serial - z.first_serial + 1)
            WHEN z.last_serial - z.first_serial < queue_limit - cardinality(owners)
                THEN z.last_serial - z.first_serial + 1
            ELSE (
                SELECT CASE WHEN count(*) < 65
                    THEN count(*) FILTER (WHERE m.packet_type IS DISTINCT FROM 'PUBREL')
                END
                FROM (
                    SELECT n.packet_type FROM device_publish_msg AS n
                    WHERE n.client_id = c.client_id ORDER BY n.serial_number LIMIT 65
                ) AS m
            )
        END ORDER BY c.who),
        array_agg(q.publish_count IS NOT NULL ORDER BY c.who)
    INTO last_serials, last_packets, last_positions, held_counts, counted
    FROM unnest(clients) WITH ORDINALITY AS c (client_id, who)
    JOIN device_session_ctx AS s ON s.client_id = c.client_id
    LEFT JOIN perdure_queue AS q ON q.client_id = c.client_id
    CROSS JOIN LATERAL (
        SELECT
            (SELECT m.serial_number FROM device_publish_msg AS m
                WHERE m.client_id = c.client_id ORDER BY m.serial_number LIMIT 1) AS first_serial,
            (SELECT m.serial_number FROM device_publish_msg AS m
                WHERE m.client_id = c.client_id ORDER BY m.serial_number DESC LIMIT 1
            ) AS last_serial
        -- Else each use of a column would look it up again.
        OFFSET 0
    ) AS z;

    FOR who IN
        SELECT c.who FROM unnest(held_counts) WITH ORDINALITY AS c (held, who)
        WHERE c.held IS NULL ORDER BY c.who
    LOOP
        SELECT count(*) INTO held FROM device_publish_msg AS m
            WHERE m.client_id = clients[who] AND m.packet_type IS DISTINCT FROM 'PUBREL';
        INSERT INTO perdure_queue (client_id, publish_count, name)
            VALUES (clients[who], held, names[who])
            ON CONFLICT (client_id) DO UPDATE SET publish_count = excluded.publish_count;
        held_counts[who] := held;
        counted[who] := true;
    END LOOP;

    -- With r counting a client's entries that are no repeats, a serial is r plus the greatest of
    -- what the last one was and of (given - r) so far.
    SELECT array_agg(n.serial ORDER BY n.entry), array_agg(n.packet_id ORDER BY n.entry)
    INTO serials, packet_ids
    FROM (
        SELECT k.entry,
            CASE WHEN k.kept THEN k.r + greatest(
                last_serials[k.who],
                max(CASE WHEN k.kept AND k.serial > 0 THEN k.serial - k.r END)
                    OVER (PARTITION BY k.who ORDER BY k.entry))
            END AS serial,
            CASE
                WHEN NOT k.kept THEN NULL
                WHEN k.packet_id > 0 THEN k.packet_id
                ELSE (last_packets[k.who] - 1 + k.r::integer) % 65535 + 1
            END AS packet_id
        FROM (
            SELECT e.entry, e.who, e.serial, e.packet_id,
                e.position = 0 OR e.position > last_positions[e.who] AS kept,
                count(*) FILTER (WHERE e.position = 0 OR e.position > last_positions[e.who])
                    OVER (PARTITION BY e.who ORDER BY e.entry) AS r
            FROM unnest(owners, given_serials, given_packet_ids, positions) WITH ORDINALITY
                AS e (who, serial, packet_id, position, entry)
        ) AS k
    ) AS n;
    IF EXISTS (
        SELECT FROM unnest(serials, given_serials) AS e (serial, given)
        WHERE e.given > 0 AND e.serial <> e.given
    ) THEN
        RAISE EXCEPTION 'a serial number does not follow the last one' USING ERRCODE = 'PD001';
    END IF;

    SELECT array_agg(w.coming + held_counts[w.who] ORDER BY w.who) INTO final_counts
    FROM (
        SELECT e.who, count(e.serial) FILTER (WHERE e.packet_type = 'PUBLISH') AS coming
        FROM unnest(owners, serials, packet_types) AS e (who, serial, packet_type)
        GROUP BY e.who
    ) AS w;

    -- What goes, and for which entry, as if the entries came one by one.
    trimmed_by := '{}';
    trimmed_serials := '{}';
    trimmed_packet_ids := '{}';
    trimmed_types := '{}';
    FOR who IN
        SELECT c.who FROM unnest(final_counts) WITH ORDINALITY AS c (final, who)
            WHERE c.final > queue_limit
        UNION
        SELECT e.who FROM unnest(owners, entry_clients, packet_ids) AS e (who, client_id, packet_id)
            WHERE EXISTS (
                SELECT FROM device_publish_msg AS m
                WHERE m.client_id = e.client_id AND m.packet_id = e.packet_id
            )
    LOOP
        held := held_counts[who];
        FOR coming IN
            SELECT e.entry, e.packet_id, e.packet_type = 'PUBLISH' AS is_publish
            FROM unnest(owners, packet_ids, packet_types) WITH ORDINALITY
                AS e (who_of, packet_id, packet_type, entry)
            WHERE e.who_of = who AND e.packet_id IS NOT NULL ORDER BY e.entry
        LOOP
            FOR gone IN
                DELETE FROM device_publish_msg AS m
                WHERE m.client_id = clients[who] AND m.packet_id = coming.packet_id
                RETURNING m.serial_number, m.packet_id,
                    coalesce(m.packet_type, 'PUBLISH') AS packet_type
            LOOP
                trimmed_by := trimmed_by || coming.entry::integer;
                trimmed_serials := trimmed_serials || gone.serial_number;
                trimmed_packet_ids := trimmed_packet_ids || gone.packet_id;
                trimmed_types := trimmed_types || gone.packet_type;
                IF gone.packet_type <> 'PUBREL' THEN
                    held := held - 1;
                END IF;
            END LOOP;
            IF coming.is_publish THEN
                held := held + 1;
            END IF;
            CONTINUE WHEN held <= queue_limit;
            FOR gone IN
                DELETE FROM device_publish_msg AS m
                USING (
                    SELECT n.serial_number FROM device_publish_msg AS n
                    WHERE n.client_id = clients[who] AND n.packet_type IS DISTINCT FROM 'PUBREL'
                    ORDER BY n.serial_number LIMIT held - queue_limit
                ) AS o
                WHERE m.client_id = clients[who] AND m.serial_number = o.serial_number
                RETURNING m.serial_number, m.packet_id
            LOOP
                trimmed_by := trimmed_by || coming.entry::integer;
                trimmed_serials := trimmed_serials || gone.serial_number;
                trimmed_packet_ids := trimmed_packet_ids || gone.packet_id;
                trimmed_types := trimmed_types || 'PUBLISH'::varchar;
                held := held - 1;
            END LOOP;
        END LOOP;
        final_counts[who] := held;
    END LOOP;
    IF cardinality(trimmed_by) > 0 THEN
        DELETE FROM perdure_queue_entry AS e
        USING unnest(trimmed_by, trimmed_serials) AS g (entry, serial_number)
        WHERE e.client_id = entry_clients[g.entry] AND e.serial_number = g.serial_number;
    END IF;

    INSERT INTO device_publish_msg (
        client_id, serial_number, topic, time, packet_id, packet_type, qos, payload,
        user_properties, retain, msg_expiry_interval, payload_format_indicator, content_type,
        response_topic, correlation_data)
    SELECT e.client_id, e.serial, e.topic, e.time, e.packet_id, e.packet_type, e.qos, e.payload,
        e.user_properties, e.retain, e.expiry_interval, e.format_indicator, e.content_type,
        e.response_topic, e.correlation_data
    FROM unnest(
        entry_clients, serials, topics, times, packet_ids, packet_types, qoses, payloads,
        user_properties, retains, expiry_intervals, format_indicators, content_types,
        response_topics, correlation_data
    ) AS e (
        client_id, serial, topic, time, packet_id, packet_type, qos, payload,
        user_properties, retain, expiry_interval, format_indicator, content_type,
        response_topic, correlation_data)
    WHERE e.serial IS NOT NULL;

    IF records IS NOT NULL OR forget_at_us IS NOT NULL THEN
        INSERT INTO perdure_queue_entry (client_id, serial_number, time, forget_at_us, record)
        SELECT e.client_id, e.serial, e.time, e.forget_at_us, e.record
        FROM unnest(entry_clients, serials, times, forget_at_us, records)
            AS e (client_id, serial, time, forget_at_us, record)
        WHERE e.serial IS NOT NULL AND (e.forget_at_us IS NOT NULL OR e.record IS NOT NULL)
        ON CONFLICT (client_id, serial_number) DO UPDATE SET
            time = excluded.time,
            forget_at_us = excluded.forget_at_us,
            record = excluded.record;
    END IF;

    UPDATE device_session_ctx AS c
    SET last_updated_time = now_ms, last_serial_number = l.serial, last_packet_id = l.packet_id
    FROM (
        SELECT DISTINCT ON (e.client_id) e.client_id, e.serial, e.packet_id
        FROM unnest(entry_clients, serials, packet_ids) AS e (client_id, serial, packet_id)
        WHERE e.serial IS NOT NULL ORDER BY e.client_id, e.serial DESC
    ) AS l
    WHERE c.client_id = l.client_id;

    -- The count is changed by a difference: the owner may settle entries at the same time.
    INSERT INTO perdure_queue AS q (client_id, last_position, publish_count, name)
    SELECT clients[p.who], p.position,
        CASE WHEN counted[p.who] THEN final_counts[p.who] - held_counts[p.who] END, names[p.who]
    FROM (
        SELECT e.who, max(e.position) AS position
        FROM unnest(owners, positions) AS e (who, position) GROUP BY e.who ORDER BY e.who
    ) AS p
    WHERE p.position > last_positions[p.who]
        OR names[p.who] IS NOT NULL
        OR counted[p.who] AND final_counts[p.who] <> held_counts[p.who]
    ON CONFLICT (client_id) DO UPDATE SET
        last_position = greatest(q.last_position, excluded.last_position),
        publish_count = q.publish_count + coalesce(excluded.publish_count, 0);
END
$$;
