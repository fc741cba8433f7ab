-- Leases, for the lock back end pglock. Every time in here is this server's.
--
-- The fillfactor of the table is 100: a page is pruned when a look at one of its
-- rows finds it full, so that insertions must go on to where the looks are. At 50 a
-- release and an acquisition use up 20 times as much of the file until autovacuum
-- comes by.
CREATE TABLE fencing.lease (
    resource   text COLLATE "C" PRIMARY KEY CHECK (resource <> '' AND octet_length(resource) <= 512),
    nonce      text NOT NULL CHECK (nonce <> ''),
    token      bigint NOT NULL CHECK (token >= 0),
    holder     text NOT NULL,
    members    text[] NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);

COMMENT ON TABLE fencing.lease IS 'Who holds what. A release deletes the row. That of a holder who died stays until its resource is acquired again, or is swept a day later.';
COMMENT ON COLUMN fencing.lease.members IS 'The nonce of the one who acquired, and those who joined.';

-- The tokens of all resources come from these counters, so that a resource that
-- nobody locks leaves nothing behind. Rows and not a SEQUENCE: after a crash
-- nextval can repeat values that it has already handed out.
CREATE TABLE fencing.lease_counter (
    shard integer PRIMARY KEY,
    token bigint NOT NULL CHECK (token >= 0)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);

INSERT INTO fencing.lease_counter SELECT shard, 0 FROM generate_series(0, 1023) AS shard;

-- Unlogged: after a crash the waiters queue again.
CREATE UNLOGGED TABLE fencing.lease_queue (
    resource text COLLATE "C",
    nonce    text,
    place    bigint NOT NULL,
    gone_at  timestamptz NOT NULL,
    PRIMARY KEY (resource, nonce)
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);

COMMENT ON COLUMN fencing.lease_queue.gone_at IS 'When the contender, unless it asks again, is taken to have gone.';

-- A call that was given up can arrive after the release that undoes it, whoever had the
-- resource in between. An hour is more than TCP takes to give up what it has sent.
CREATE TABLE fencing.lease_spent (
    resource text COLLATE "C",
    nonce    text,
    member   text,
    spent_at timestamptz NOT NULL,
    PRIMARY KEY (resource, nonce, member)
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);

COMMENT ON TABLE fencing.lease_spent IS 'Who released, or left, what it did not have: it neither acquires nor joins any more. Swept an hour later.';

-- The helpers up to lease_token are called by the functions after them alone, whose
-- search_path and rights they have. One of their own would keep Postgres from
-- inlining them.

-- lease_hash identifies a name in notifications, which every role may hear. sha256
-- and not hashtext, because clients compute it too, and counters are found by it
-- in every version of Postgres.
CREATE FUNCTION fencing.lease_hash(p_name text) RETURNS bytea LANGUAGE sql IMMUTABLE AS
    $fencing$SELECT substr(sha256(convert_to(p_name, 'UTF8')), 1, 16)$fencing$;

-- lease_gate is the advisory lock under which a resource is granted, or an acquisition made.
CREATE FUNCTION fencing.lease_gate(p_resource text) RETURNS bigint LANGUAGE sql IMMUTABLE AS
    $fencing$SELECT hashtextextended(p_resource, 5070438)$fencing$;

-- lease_left is the time to p_end in milliseconds.
CREATE FUNCTION fencing.lease_left(p_end timestamptz) RETURNS bigint LANGUAGE sql VOLATILE AS
    $fencing$SELECT ceil(extract(epoch FROM p_end - clock_timestamp()) * 1000)::bigint$fencing$;

-- lease_durable makes the transaction wait until it is on disk, or not.
CREATE FUNCTION fencing.lease_durable(p_durable boolean) RETURNS void
LANGUAGE plpgsql VOLATILE AS $fencing$
BEGIN
    IF NOT p_durable THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    ELSIF current_setting('synchronous_commit') IN ('off', 'local') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END
$fencing$;

-- lease_wake tells those who wait for a resource that it is free; of those who
-- queue, the first.
CREATE FUNCTION fencing.lease_wake(p_resource text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $fencing$
DECLARE
    turn text;
BEGIN
    SELECT q.nonce INTO turn FROM fencing.lease_queue q
     WHERE q.resource = p_resource AND q.gone_at > clock_timestamp() ORDER BY q.place, q.nonce LIMIT 1;
    PERFORM pg_notify('fencing_lease', encode(fencing.lease_hash(p_resource), 'hex') || coalesce(' ' || encode(fencing.lease_hash(turn), 'hex'), ''));
END
$fencing$;

-- lease_primary refuses at a standby, where the queue cannot even be read.
CREATE FUNCTION fencing.lease_primary() RETURNS void
LANGUAGE plpgsql VOLATILE AS $fencing$
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'fencing: this server is a standby; the queue of a lease is at the primary' USING ERRCODE = '25006';
    END IF;
END
$fencing$;

-- lease_sweep removes, once in 500 calls, what nobody needs any more.
CREATE FUNCTION fencing.lease_sweep() RETURNS void
LANGUAGE plpgsql VOLATILE AS $fencing$
BEGIN
    IF random() >= 0.002 THEN
        RETURN;
    END IF;
    DELETE FROM fencing.lease x WHERE x.resource IN (
        SELECT y.resource FROM fencing.lease y WHERE y.expires_at < clock_timestamp() - interval '1 day' ORDER BY y.resource LIMIT 1000 FOR UPDATE SKIP LOCKED);
    DELETE FROM fencing.lease_queue q WHERE q.gone_at < clock_timestamp() - interval '1 day';
    DELETE FROM fencing.lease_spent x WHERE (x.resource, x.nonce, x.member) IN (
        SELECT y.resource, y.nonce, y.member FROM fencing.lease_spent y WHERE y.spent_at < clock_timestamp() - interval '1 hour' LIMIT 1000 FOR UPDATE SKIP LOCKED);
END
$fencing$;

-- lease_spend notes that a member has not the lease of a nonce, and returns false.
CREATE FUNCTION fencing.lease_spend(p_resource text, p_nonce text, p_member text) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $fencing$
BEGIN
    INSERT INTO fencing.lease_spent VALUES (p_resource, p_nonce, p_member, clock_timestamp()) ON CONFLICT ON CONSTRAINT lease_spent_pkey DO NOTHING;
    PERFORM fencing.lease_sweep();
    RETURN false;
END
$fencing$;

-- lease_unspent refuses an acquisition that was released before (UF006).
CREATE FUNCTION fencing.lease_unspent(p_resource text, p_nonce text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $fencing$
BEGIN
    IF EXISTS (SELECT FROM fencing.lease_spent s WHERE s.resource = p_resource AND s.nonce = p_nonce AND s.member = p_nonce) THEN
        RAISE EXCEPTION 'fencing: this acquisition of % was released before it arrived', quote_literal(p_resource) USING ERRCODE = 'UF006';
    END IF;
END
$fencing$;

-- lease_token mints a token above p_after and above every earlier one of the
-- resource. A p_after that is more than p_max_jump ahead is refused (UF005): one
-- poisoned fence must not use up the counter. A counter that is gone, as after TRUNCATE or
-- a restore of the schema alone, is not begun anew (UF007): it would repeat tokens.
CREATE FUNCTION fencing.lease_token(p_resource text, p_after bigint, p_max_jump bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $fencing$
DECLARE
    hash   constant bytea := fencing.lease_hash(p_resource);
    chosen constant integer := get_byte(hash, 0) * 4 + get_byte(hash, 1) / 64;
    minted bigint;
    last   bigint;
BEGIN
    UPDATE fencing.lease_counter c SET token = greatest(c.token, p_after) + 1
     WHERE c.shard = chosen AND p_after - c.token <= p_max_jump RETURNING c.token INTO minted;
    IF FOUND THEN
        RETURN minted;
    END IF;
    SELECT c.token INTO last FROM fencing.lease_counter c WHERE c.shard = chosen;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'fencing: the counter % of the leases is gone', chosen
            USING ERRCODE = 'UF007', HINT = 'Restore the rows of lease_counter from a backup. Or insert shards 0 to 1023 with a token above every one that was ever handed out, the greatest of table fence among them.';
    END IF;
    RAISE EXCEPTION 'fencing: a token of % above % is asked for, more than % ahead of the counter at %',
        quote_literal(p_resource), p_after, p_max_jump, last
        USING ERRCODE = 'UF005', HINT = 'The fence in the store is probably poisoned; an operator must run "fencectl rebase".';
END
$fencing$;

-- lease_acquire grants a resource that is free, for p_ttl milliseconds, and returns
-- the token; or it returns NULL, who has the resource and for how many milliseconds
-- yet. The nonce that has it already prolongs it and gets the same token, or a
-- greater one if that is not above p_after. With p_raise_timeout, in milliseconds,
-- the fence is raised in the same step, and the token is above that of the fence
-- in force.
CREATE FUNCTION fencing.lease_acquire(
    p_resource text, p_nonce text, p_holder text, p_ttl bigint, p_after bigint DEFAULT 0,
    p_max_jump bigint DEFAULT 72057594037927936, p_raise_timeout integer DEFAULT NULL,
    OUT token bigint, OUT holder text, OUT remaining bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fencing$
DECLARE
    l        fencing.lease;
    f        record;
    found_it boolean;
    floor    bigint := greatest(p_after, 0);
BEGIN
    -- At a higher level a statement would not see what it has waited for.
    PERFORM fencing.check_raise(p_resource, p_nonce);
    IF p_ttl IS NULL OR p_ttl < 1 OR p_ttl > 31536000000 THEN
        RAISE EXCEPTION 'fencing: a lease of % for % ms is not from a millisecond to a year', quote_literal(p_resource), coalesce(p_ttl::text, 'NULL')
            USING ERRCODE = '22023';
    END IF;

    -- A contender that is refused locks nothing and writes nothing.
    SELECT * INTO l FROM fencing.lease x WHERE x.resource = p_resource;
    IF l.nonce <> p_nonce AND l.expires_at > clock_timestamp() THEN
        holder := l.holder;
        remaining := fencing.lease_left(l.expires_at);
        RETURN;
    END IF;
    -- Whoever is here too may be waiting for a transaction of an earlier fence.
    IF NOT pg_try_advisory_xact_lock(fencing.lease_gate(p_resource)) THEN
        holder := 'another contender';
        RETURN;
    END IF;
    -- A release of this nonce waits for this, and for nobody else's acquisition.
    PERFORM pg_advisory_xact_lock(fencing.lease_gate(p_resource || chr(1) || p_nonce));
    -- Before the row: the holder who lost it can still say that it releases.
    IF p_raise_timeout IS NOT NULL THEN
        PERFORM fencing.lease_unspent(p_resource, p_nonce); -- or it would wait, and close the gate to others, for nothing
        PERFORM fencing.close_gate(p_resource, p_nonce, p_raise_timeout);
        SELECT x.token INTO f FROM fencing.fence x WHERE x.resource = p_resource;
        floor := greatest(floor, f.token);
    END IF;
    SELECT * INTO l FROM fencing.lease x WHERE x.resource = p_resource FOR UPDATE;
    found_it := FOUND;
    PERFORM fencing.lease_unspent(p_resource, p_nonce); -- nor released while it waited
    IF l.nonce <> p_nonce AND l.expires_at > clock_timestamp() THEN -- renewed just in time
        holder := l.holder;
        remaining := fencing.lease_left(l.expires_at);
        RETURN;
    END IF;

    PERFORM fencing.lease_durable(true);
    IF l.nonce = p_nonce AND l.expires_at > clock_timestamp() THEN
        token := l.token;
        IF p_raise_timeout IS NOT NULL THEN
            SELECT x.token INTO f FROM fencing.fence x WHERE x.resource = p_resource AND x.token = l.token AND x.nonce = p_nonce;
            IF FOUND THEN -- its own raise is no reason for another token
                floor := greatest(p_after, 0);
            END IF;
        END IF;
    ELSE
        l.members := ARRAY[p_nonce];
        l.expires_at := '-infinity';
    END IF;
    IF token IS NULL OR token <= floor THEN
        token := fencing.lease_token(p_resource, floor, p_max_jump);
    END IF;
    holder := coalesce(p_holder, '');
    l.expires_at := greatest(CASE WHEN cardinality(l.members) > 1 THEN l.expires_at END, clock_timestamp() + p_ttl * interval '1 ms');
    IF found_it THEN
        UPDATE fencing.lease x SET nonce = p_nonce, token = lease_acquire.token, holder = lease_acquire.holder, members = l.members, expires_at = l.expires_at
         WHERE x.resource = p_resource;
    ELSE
        INSERT INTO fencing.lease VALUES (p_resource, p_nonce, token, holder, l.members, l.expires_at);
    END IF;
    remaining := p_ttl;
    IF p_raise_timeout IS NOT NULL THEN
        SELECT * INTO f FROM fencing.raise(p_resource, token, p_nonce, holder, p_raise_timeout);
        IF f.token <> token OR f.nonce <> p_nonce THEN
            RAISE EXCEPTION 'fencing: the fence of % was raised to % in between', quote_literal(p_resource), f.token USING ERRCODE = '40001';
        END IF;
    END IF;
END
$fencing$;

-- lease_acquire_in_turn is lease_acquire for contenders that queue: the resource
-- is granted to the first. One that does not ask again within p_patience
-- milliseconds is taken to have gone.
CREATE FUNCTION fencing.lease_acquire_in_turn(
    p_resource text, p_nonce text, p_holder text, p_ttl bigint, p_after bigint, p_max_jump bigint, p_raise_timeout integer, p_patience bigint,
    OUT token bigint, OUT holder text, OUT remaining bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fencing$
DECLARE
    l     fencing.lease;
    first text;
BEGIN
    PERFORM fencing.lease_primary();
    SELECT * INTO l FROM fencing.lease x WHERE x.resource = p_resource AND x.expires_at > clock_timestamp();
    SELECT q.nonce INTO first FROM fencing.lease_queue q
     WHERE q.resource = p_resource AND (q.nonce = p_nonce OR q.gone_at > clock_timestamp()) ORDER BY q.place, q.nonce LIMIT 1;
    IF first IS NULL OR p_nonce IN (first, l.nonce) THEN
        SELECT a.token, a.holder, a.remaining INTO token, holder, remaining
          FROM fencing.lease_acquire(p_resource, p_nonce, p_holder, p_ttl, p_after, p_max_jump, p_raise_timeout) a;
        IF token IS NOT NULL THEN
            IF first IS NOT NULL THEN
                DELETE FROM fencing.lease_queue q WHERE q.resource = p_resource AND (q.nonce = p_nonce OR q.gone_at <= clock_timestamp());
            END IF;
            RETURN;
        END IF;
    ELSIF l.nonce IS NOT NULL THEN
        holder := l.holder;
        remaining := fencing.lease_left(l.expires_at);
    ELSE
        holder := 'an earlier waiter';
        remaining := p_patience;
    END IF;
    PERFORM fencing.lease_unspent(p_resource, p_nonce); -- nobody would ask in its place
    INSERT INTO fencing.lease_queue AS q (resource, nonce, place, gone_at)
    SELECT p_resource, p_nonce, coalesce(max(x.place), 0) + 1, clock_timestamp() + p_patience * interval '1 ms'
      FROM fencing.lease_queue x WHERE x.resource = p_resource
    ON CONFLICT ON CONSTRAINT lease_queue_pkey DO UPDATE SET gone_at = excluded.gone_at;
END
$fencing$;

-- lease_withdraw takes a nonce out of the queue of a resource.
CREATE FUNCTION fencing.lease_withdraw(p_resource text, p_nonce text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fencing$
BEGIN
    PERFORM fencing.lease_primary();
    DELETE FROM fencing.lease_queue q WHERE q.resource = p_resource AND q.nonce = p_nonce;
    IF FOUND THEN
        PERFORM fencing.lease_wake(p_resource);
    END IF;
END
$fencing$;

-- lease_renew prolongs each lease that its nonce still has, adds the member if one
-- is named and has not left before, and returns which those are. It never creates a
-- lease. The rows are locked in order, so that two batches never wait for each other
-- crosswise.
CREATE FUNCTION fencing.lease_renew(
    p_resources text[], p_nonces text[], p_ttls bigint[], p_member text DEFAULT NULL, OUT renewed text, OUT renewed_by text) RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fencing$
BEGIN
    -- A renewal that a crash forgets would let the next one in too early.
    PERFORM fencing.lease_durable(true);
    PERFORM FROM fencing.lease l WHERE l.resource = ANY (p_resources) ORDER BY l.resource FOR NO KEY UPDATE;
    RETURN QUERY UPDATE fencing.lease l
       SET members = CASE WHEN p_member IS NULL OR p_member = ANY (l.members) THEN l.members ELSE l.members || p_member END,
           -- Members count on the longest TTL among them.
           expires_at = greatest(clock_timestamp() + r.ttl * interval '1 ms',
               CASE WHEN cardinality(l.members) > 1 OR p_member <> ALL (l.members) THEN l.expires_at END)
      FROM (SELECT u.resource, u.nonce, max(u.ttl) AS ttl FROM unnest(p_resources, p_nonces, p_ttls) AS u (resource, nonce, ttl) GROUP BY 1, 2) r
     WHERE l.resource = r.resource AND l.nonce = r.nonce AND l.expires_at > clock_timestamp()
       AND (p_member IS NULL OR NOT EXISTS (SELECT FROM fencing.lease_spent s WHERE s.resource = l.resource AND s.nonce = l.nonce AND s.member = p_member))
     RETURNING l.resource, l.nonce;
END
$fencing$;

-- lease_release takes a member out of the lease that a nonce has and returns true;
-- the last one out frees the resource. The commit need not be on disk: a release
-- that a crash forgets costs others the rest of the TTL.
CREATE FUNCTION fencing.lease_release(p_resource text, p_nonce text, p_member text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fencing$
DECLARE
    l fencing.lease;
BEGIN
    PERFORM fencing.lease_durable(false);
    -- The gate comes before any row, as in lease_acquire. So this looks without a lock:
    -- FOR UPDATE that has waited locks the row of the one who has it by now.
    PERFORM FROM fencing.lease x WHERE x.resource = p_resource AND x.nonce = p_nonce;
    IF NOT FOUND THEN
        -- The acquisition that this is to undo may be on its way: in another
        -- session, or not even here yet. Then it finds that its nonce is spent.
        PERFORM pg_advisory_xact_lock(fencing.lease_gate(p_resource || chr(1) || p_nonce));
    END IF;
    SELECT * INTO l FROM fencing.lease x WHERE x.resource = p_resource AND x.nonce = p_nonce FOR UPDATE;
    IF NOT FOUND OR p_member <> ALL (l.members) THEN
        RETURN fencing.lease_spend(p_resource, p_nonce, p_member);
    END IF;
    IF l.expires_at <= clock_timestamp() THEN
        DELETE FROM fencing.lease x WHERE x.resource = p_resource;
        RETURN fencing.lease_spend(p_resource, p_nonce, p_member);
    END IF;
    IF cardinality(l.members) > 1 THEN
        UPDATE fencing.lease x SET members = array_remove(l.members, p_member) WHERE x.resource = p_resource;
        RETURN true;
    END IF;
    DELETE FROM fencing.lease x WHERE x.resource = p_resource;
    PERFORM fencing.lease_wake(p_resource);
    PERFORM fencing.lease_sweep();
    RETURN true;
END
$fencing$;

-- lease_holding returns who has a resource, if anyone has.
CREATE FUNCTION fencing.lease_holding(p_resource text) RETURNS TABLE (token bigint, holder text, members integer, remaining bigint)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fencing$
    SELECT l.token, l.holder, cardinality(l.members), fencing.lease_left(l.expires_at)
      FROM fencing.lease l WHERE l.resource = p_resource AND l.expires_at > clock_timestamp()
$fencing$;

SELECT fencing.keep_private(NULL::fencing.lease);
SELECT fencing.keep_private(NULL::fencing.lease_counter);
SELECT fencing.keep_private(NULL::fencing.lease_queue);
SELECT fencing.keep_private(NULL::fencing.lease_spent);
REVOKE ALL ON FUNCTION fencing.lease_hash(text), fencing.lease_gate(text), fencing.lease_left(timestamptz), fencing.lease_durable(boolean), fencing.lease_wake(text),
    fencing.lease_primary(), fencing.lease_sweep(), fencing.lease_spend(text, text, text), fencing.lease_unspent(text, text), fencing.lease_token(text, bigint, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION fencing.lease_acquire(text, text, text, bigint, bigint, bigint, integer),
    fencing.lease_acquire_in_turn(text, text, text, bigint, bigint, bigint, integer, bigint), fencing.lease_withdraw(text, text),
    fencing.lease_renew(text[], text[], bigint[], text), fencing.lease_release(text, text, text), fencing.lease_holding(text) TO PUBLIC;
CREATE OR REPLACE FUNCTION fencing.version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 4';
