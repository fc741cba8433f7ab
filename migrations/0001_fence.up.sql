-- The fence of each resource, and the functions through which every client, in
-- any language, raises and enters it. Direct writes to the table are revoked.
CREATE SCHEMA fencing;

CREATE TABLE fencing.fence (
    resource  text COLLATE "C" PRIMARY KEY CHECK (resource <> '' AND octet_length(resource) <= 512),
    token     bigint NOT NULL CHECK (token > 0),
    nonce     text NOT NULL CHECK (nonce <> ''),
    holder    text NOT NULL DEFAULT '',
    raised_at timestamptz NOT NULL
) WITH (fillfactor = 50);

COMMENT ON TABLE fencing.fence IS 'The current fence of each resource. Rows are never deleted: without its row a resource refuses every write.';

-- version is the number of the last migration; protocol changes only when an
-- older client would go wrong.
CREATE FUNCTION fencing.version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 1';
CREATE FUNCTION fencing.protocol() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 1';

-- check_raise refuses what no fence could be made of, and a transaction that is
-- not fit for raising.
CREATE FUNCTION fencing.check_raise(p_resource text, p_nonce text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fencing$
BEGIN
    -- At a higher level the raise would succeed and the reads after it would
    -- still see the data from before it.
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'fencing: a fence is raised in a READ COMMITTED transaction of its own, not at %', upper(current_setting('transaction_isolation'))
            USING ERRCODE = '25001';
    END IF;
    IF p_resource IS NULL OR p_resource = '' OR octet_length(p_resource) > 512 OR p_resource ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'fencing: resource name % is not 1 to 512 bytes without control characters', coalesce(quote_literal(left(p_resource, 64)), 'NULL')
            USING ERRCODE = '22023';
    END IF;
    IF p_nonce IS NULL OR p_nonce = '' OR octet_length(p_nonce) > 128 THEN
        RAISE EXCEPTION 'fencing: the nonce of % is not 1 to 128 bytes', quote_literal(p_resource)
            USING ERRCODE = '22023';
    END IF;
END
$fencing$;

-- close_gate takes the resource's gate alone. The gate is an advisory lock and not
-- the fence's row lock, because a stream of FOR SHARE readers starves the one that
-- waits to update the row.
CREATE FUNCTION fencing.close_gate(p_resource text, p_nonce text, p_lock_timeout integer) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fencing$
DECLARE
    gate     constant bigint := hashtextextended(p_resource, 5070437);
    previous constant text := current_setting('lock_timeout');
    blocker  json;
BEGIN
    PERFORM fencing.check_raise(p_resource, p_nonce);
    -- A raise that is forgotten after a crash lets the earlier holder in again.
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    PERFORM set_config('lock_timeout', p_lock_timeout::text, true);
    BEGIN
        PERFORM pg_advisory_xact_lock(gate);
    EXCEPTION WHEN lock_not_available THEN
        SELECT json_build_object('pid', l.pid, 'application_name', a.application_name, 'xact_start', a.xact_start, 'state', a.state)
          INTO blocker
          FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
         WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
           AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
           AND l.classid = ((gate >> 32) & 4294967295)::oid AND l.objid = (gate & 4294967295)::oid
         ORDER BY a.xact_start NULLS LAST LIMIT 1;
        RAISE EXCEPTION 'fencing: raise of % waited % ms for a transaction of an earlier fence', quote_literal(p_resource), p_lock_timeout
            USING ERRCODE = '55P03', DETAIL = coalesce(blocker::text, '{}'),
                  HINT = 'End the transaction of that backend, for example with pg_terminate_backend(pid).';
    END;
    PERFORM set_config('lock_timeout', previous, true);
END
$fencing$;

-- raise makes a fence the current one of its resource if no fence of an equal or
-- greater token stands there, and returns the fence that is now in force: the
-- caller's own, or the one that it has to give way to, without its nonce, which
-- would let anyone enter in the holder's place. p_lock_timeout is in milliseconds, 0
-- for no limit.
CREATE FUNCTION fencing.raise(
    p_resource text, p_token bigint, p_nonce text, p_holder text DEFAULT '', p_lock_timeout integer DEFAULT 10000,
    OUT token bigint, OUT nonce text, OUT holder text, OUT raised_at timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fencing$
#variable_conflict use_column
BEGIN
    IF p_token IS NULL OR p_token <= 0 THEN
        RAISE EXCEPTION 'fencing: token % is not positive', coalesce(p_token::text, 'NULL') USING ERRCODE = '22023';
    END IF;
    -- What does not change the fence has no transaction to wait for: a repeated
    -- raise beside the holder's own transactions, a stale one.
    SELECT f.token, f.nonce, f.holder, f.raised_at INTO token, nonce, holder, raised_at
      FROM fencing.fence f WHERE f.resource = p_resource;
    IF p_token <= token THEN
        PERFORM fencing.check_raise(p_resource, p_nonce);
        IF nonce <> p_nonce THEN
            nonce := '';
        END IF;
        RETURN;
    END IF;
    PERFORM fencing.close_gate(p_resource, p_nonce, p_lock_timeout);
    SELECT f.token, f.nonce, f.holder, f.raised_at INTO token, nonce, holder, raised_at
      FROM fencing.fence f WHERE f.resource = p_resource;
    IF NOT FOUND THEN
        INSERT INTO fencing.fence AS f (resource, token, nonce, holder, raised_at)
        VALUES (p_resource, p_token, p_nonce, coalesce(p_holder, ''), clock_timestamp())
        RETURNING f.token, f.nonce, f.holder, f.raised_at INTO token, nonce, holder, raised_at;
    ELSIF p_token > token THEN -- strictly: with >= a token handed out twice lets two holders in
        UPDATE fencing.fence f SET token = p_token, nonce = p_nonce, holder = coalesce(p_holder, ''), raised_at = clock_timestamp()
         WHERE f.resource = p_resource
        RETURNING f.token, f.nonce, f.holder, f.raised_at INTO token, nonce, holder, raised_at;
    ELSIF nonce <> p_nonce THEN -- it came while this one waited
        nonce := '';
    END IF;
END
$fencing$;

-- issue mints the resource's next token and raises it in one step. A repeated
-- call with the nonce of the fence in force returns that fence.
CREATE FUNCTION fencing.issue(
    p_resource text, p_nonce text, p_holder text DEFAULT '', p_lock_timeout integer DEFAULT 10000,
    OUT token bigint, OUT nonce text, OUT holder text, OUT raised_at timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fencing$
#variable_conflict use_column
BEGIN
    PERFORM fencing.close_gate(p_resource, p_nonce, p_lock_timeout);
    SELECT f.token, f.nonce, f.holder, f.raised_at INTO token, nonce, holder, raised_at
      FROM fencing.fence f WHERE f.resource = p_resource;
    IF nonce = p_nonce THEN
        RETURN;
    END IF;
    INSERT INTO fencing.fence AS f (resource, token, nonce, holder, raised_at)
    VALUES (p_resource, coalesce(token, 0) + 1, p_nonce, coalesce(p_holder, ''), clock_timestamp())
    ON CONFLICT ON CONSTRAINT fence_pkey DO UPDATE
       SET token = excluded.token, nonce = excluded.nonce, holder = excluded.holder, raised_at = excluded.raised_at
    RETURNING f.token, f.nonce, f.holder, f.raised_at INTO token, nonce, holder, raised_at;
END
$fencing$;

-- enter checks that a fence is the current one of its resource and keeps it so
-- until the transaction ends, by sharing the gate. It is the transaction's first
-- statement, or at least comes before its first savepoint: ROLLBACK TO SAVEPOINT
-- gives up what was entered inside. p_idle_timeout, in milliseconds, bounds how
-- long the transaction may sit idle with the gate.
CREATE FUNCTION fencing.enter(p_resource text, p_token bigint, p_nonce text, p_idle_timeout integer DEFAULT NULL) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fencing$
DECLARE
    current record;
    held    text;
BEGIN
    -- Written as conditions and assignments where PERFORM would do: plpgsql
    -- evaluates those without a query, and this is on the path of every write.
    IF pg_is_in_recovery() OR pg_advisory_xact_lock_shared(hashtextextended(p_resource, 5070437)) IS NULL THEN
        RAISE EXCEPTION 'fencing: enter needs the primary server and a resource' USING ERRCODE = '25006';
    END IF;
    -- This is a statement of its own after the wait, so at READ COMMITTED it
    -- sees the raise that it waited for. Above that the snapshot is older than
    -- the wait; FOR SHARE makes a raise since then a serialization failure.
    -- (FOR KEY SHARE would not: a raise changes no key.)
    IF current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN
        SELECT f.token, f.nonce, f.holder, f.raised_at INTO current FROM fencing.fence f WHERE f.resource = p_resource;
    ELSE
        SELECT f.token, f.nonce, f.holder, f.raised_at INTO current FROM fencing.fence f WHERE f.resource = p_resource FOR SHARE;
    END IF;
    -- NULL is tested first: a missing row is NULL too, and not distinct from it.
    IF p_token IS NULL OR p_nonce IS NULL OR current.token IS DISTINCT FROM p_token OR current.nonce IS DISTINCT FROM p_nonce THEN
        IF current.token IS NULL OR current.token < p_token OR p_token IS NULL THEN
            RAISE EXCEPTION 'fencing: fence of % is not raised: token % is held, the current one is %',
                quote_literal(p_resource), coalesce(p_token::text, 'NULL'), coalesce(current.token::text, 'none')
                USING ERRCODE = 'UF002',
                      DETAIL = json_build_object('resource', p_resource, 'token', current.token::text, 'holder', current.holder, 'raised_at', current.raised_at),
                      HINT = 'Raise the fence in this database before the first transaction.';
        END IF;
        RAISE EXCEPTION 'fencing: fence of % is stale: token % is held, the current one is % of % since %',
            quote_literal(p_resource), p_token, current.token, quote_literal(current.holder), current.raised_at
            USING ERRCODE = 'UF001',
                  DETAIL = json_build_object('resource', p_resource, 'token', current.token::text, 'holder', current.holder, 'raised_at', current.raised_at),
                  HINT = 'Nothing was written. Stop this work and acquire the lock again.';
    END IF;
    held := current_setting('fencing.held', true);
    IF held IS NULL OR held = '' THEN -- '' and not NULL once an earlier transaction has set it
        held := set_config('fencing.held', E'\n' || p_resource || E'\n', true);
    ELSIF strpos(held, E'\n' || p_resource || E'\n') = 0 THEN
        held := set_config('fencing.held', held || p_resource || E'\n', true);
    END IF;
    -- A shorter timeout of the session's own stays.
    IF p_idle_timeout IS NOT NULL AND (current_setting('idle_in_transaction_session_timeout') = '0'
        OR current_setting('idle_in_transaction_session_timeout')::interval > p_idle_timeout * interval '1 millisecond') THEN
        held := set_config('idle_in_transaction_session_timeout', p_idle_timeout::text, true);
    END IF;
END
$fencing$;

-- enter_all enters several fences in the order of their gates, so that two
-- transactions never wait for each other crosswise.
CREATE FUNCTION fencing.enter_all(p_resources text[], p_tokens bigint[], p_nonces text[], p_idle_timeout integer DEFAULT NULL) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fencing$
DECLARE
    f record;
BEGIN
    IF coalesce(cardinality(p_resources), 0) = 0 THEN
        RAISE EXCEPTION 'fencing: enter without a fence' USING ERRCODE = 'UF003';
    END IF;
    FOR f IN SELECT resource, token, nonce FROM unnest(p_resources, p_tokens, p_nonces) AS u (resource, token, nonce)
              ORDER BY hashtextextended(resource, 5070437), resource
    LOOP
        PERFORM fencing.enter(f.resource, f.token, f.nonce, p_idle_timeout);
    END LOOP;
END
$fencing$;

-- refuse_write is the body of the triggers that migrations.Protect writes; their
-- WHEN clauses decide. Its argument, if there is one, is the expression that names
-- the fence of a row. What to do stands in the message too, because most drivers
-- show nothing else.
CREATE FUNCTION fencing.refuse_write() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fencing$
DECLARE
    written  constant text := quote_ident(TG_TABLE_SCHEMA) || '.' || quote_ident(TG_TABLE_NAME);
    resource constant text := TG_ARGV[0];
BEGIN
    IF TG_OP = 'TRUNCATE' AND resource IS NOT NULL THEN
        RAISE EXCEPTION 'fencing: TRUNCATE of %: always refused where rows have their own fences; use DELETE', written
            USING ERRCODE = 'UF004', DETAIL = json_build_object('operation', TG_OP, 'table', written, 'resource', resource);
    END IF;
    RAISE EXCEPTION 'fencing: % of % refused: the transaction has not entered %; write through a guard', TG_OP, written,
            coalesce('the fence that the row needs (' || resource || ')', 'a fence for it')
        USING ERRCODE = 'UF004', DETAIL = json_build_object('operation', TG_OP, 'table', written, 'resource', resource),
              HINT = 'By hand: call issue(resource, nonce) of the fence schema, and enter(resource, token, nonce) first in the transaction.';
END
$fencing$;

-- keep_private takes every right on a table from everyone but its owner: default
-- privileges may have granted some to others the moment it was made. The table is
-- the one that p_row is a row of.
CREATE FUNCTION fencing.keep_private(p_row anyelement) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fencing$
DECLARE
    private constant regclass := (SELECT typrelid FROM pg_type WHERE oid = pg_typeof(p_row));
    other   oid;
BEGIN
    EXECUTE format('REVOKE ALL ON %s FROM PUBLIC', private);
    FOR other IN SELECT DISTINCT a.grantee FROM pg_class c, aclexplode(c.relacl) a
                  WHERE c.oid = private AND a.grantee NOT IN (0, c.relowner)
    LOOP
        EXECUTE format('REVOKE ALL ON %s FROM %s', private, other::regrole);
    END LOOP;
END
$fencing$;

SELECT fencing.keep_private(NULL::fencing.fence);
REVOKE ALL ON FUNCTION fencing.check_raise(text, text), fencing.close_gate(text, text, integer), fencing.keep_private(anyelement) FROM PUBLIC;
GRANT USAGE ON SCHEMA fencing TO PUBLIC;
GRANT EXECUTE ON FUNCTION fencing.version(), fencing.protocol(), fencing.raise(text, bigint, text, text, integer), fencing.issue(text, text, text, integer),
    fencing.enter(text, bigint, text, integer), fencing.enter_all(text[], bigint[], text[], integer), fencing.refuse_write() TO PUBLIC;
