-- Who owns a queue, and its end.

-- Become the owner. For each client the epoch that it has now: another one = a later owner's.
CREATE FUNCTION perdure_queue_take(
    clients varchar[],
    names text[],
    epochs bigint[],
    OUT owner_epochs bigint[]
) LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    PERFORM perdure_queue_lock(clients, true);
    INSERT INTO perdure_queue AS q (client_id, epoch, name)
    SELECT c.client_id, c.epoch, c.name FROM unnest(clients, epochs, names) AS c (client_id, epoch, name)
    ON CONFLICT (client_id) DO UPDATE SET epoch = excluded.epoch WHERE q.epoch < excluded.epoch;
    SELECT array_agg(q.epoch ORDER BY c.who) INTO owner_epochs
    FROM unnest(clients) WITH ORDINALITY AS c (client_id, who)
    JOIN perdure_queue AS q ON q.client_id = c.client_id;
END
$$;

-- Forget clients. For each: 1 = forgotten, 0 = unknown, -1 = the epoch is not the owner's.
CREATE FUNCTION perdure_queue_discard(
    clients varchar[],
    epochs bigint[],
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
    theirs varchar[];
BEGIN
    PERFORM perdure_queue_lock(clients, true);
    owned := perdure_queue_owned(clients, epochs);
    SELECT array_agg(c.client_id) INTO theirs
        FROM unnest(clients, owned) AS c (client_id, is_owned) WHERE c.is_owned;
    -- The session first: whoever appends waits for its row, and then begins a new queue.
    DELETE FROM device_session_ctx AS s WHERE s.client_id = ANY (theirs);
    DELETE FROM device_publish_msg AS m WHERE m.client_id = ANY (theirs);
    DELETE FROM perdure_queue_entry AS e WHERE e.client_id = ANY (theirs);
    DELETE FROM perdure_queue AS q WHERE q.client_id = ANY (theirs);
    SELECT array_agg(CASE WHEN o.is_owned THEN 1 WHEN o.is_owned IS NULL THEN 0 ELSE -1 END
        ORDER BY o.who) INTO counts
    FROM unnest(owned) WITH ORDINALITY AS o (is_owned, who);
END
$$;
