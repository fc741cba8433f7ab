-- A way back after a poisoned fence: one with a token so great that no lock gets a
-- greater one (S18).
--
-- Lowering a fence must not let anyone in who once had a token above the new one. A
-- token of the poisoned range would win the next raise, so those are given up for
-- good: ceiling bounds every later write to the row, whoever makes it.
ALTER TABLE fencing.fence ADD COLUMN ceiling bigint;

COMMENT ON COLUMN fencing.fence.ceiling IS 'Tokens from here on were given up by rebase, and are never raised again. NULL: none were.';

CREATE FUNCTION fencing.refuse_given_up() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fencing$
BEGIN
    RAISE EXCEPTION 'fencing: fence of % is stale: token % is held, those from % on were given up in a rebase; the current one is % of % since %',
        quote_literal(OLD.resource), NEW.token, OLD.ceiling, OLD.token, quote_literal(OLD.holder), OLD.raised_at
        USING ERRCODE = 'UF001',
              DETAIL = json_build_object('resource', OLD.resource, 'token', OLD.token::text, 'holder', OLD.holder, 'raised_at', OLD.raised_at),
              HINT = 'Nothing was written. Stop this work and acquire the lock again; if its counter still hands out such tokens, an operator runs "fencectl rebase".';
END
$fencing$;

CREATE TRIGGER fence_given_up BEFORE UPDATE ON fencing.fence FOR EACH ROW
    WHEN (NEW.token >= OLD.ceiling)
    EXECUTE FUNCTION fencing.refuse_given_up();

ALTER TABLE fencing.fence ENABLE ALWAYS TRIGGER fence_given_up;

-- rebase brings a resource back into use, and returns what it changed. A fence that
-- is 2^56 or more above p_to is lowered to p_to, once for each resource: the tokens
-- up to p_to, and those from p_to + 2^56 on, are refused from then on. p_to is at
-- least every other token that was ever raised for the resource, or an earlier holder
-- could come back with one. A fence below that stays, with its holder. Then the
-- counters of next_token and of the leases go back to it, if they are above what may be
-- raised, or near the end of the integers.
--
-- It runs with the rights of its caller, so that only the owner can use it, even where
-- default privileges hand out EXECUTE. It waits p_lock_timeout ms at most for open
-- transactions under the fence, and refuses while a lease of pglock is held.
CREATE FUNCTION fencing.rebase(p_resource text, p_to bigint, p_lock_timeout integer DEFAULT 10000)
RETURNS TABLE (what text, token_before bigint, token_after bigint)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $fencing$
DECLARE
    room     constant bigint := 72057594037927936; -- as far as a fence may be ahead of a counter
    poisoned constant bigint := 4611686018427387904; -- no counter counts as far
    hash     constant bytea := fencing.lease_hash(p_resource);
    place    constant integer := get_byte(hash, 0) * 4 + get_byte(hash, 1) / 64;
    f        fencing.fence;
    held     record;
    base     bigint;
    top      bigint;
BEGIN
    IF p_to IS NULL OR p_to < 1 OR p_to > poisoned THEN
        RAISE EXCEPTION 'fencing: % cannot be rebased to %: that is not from 1 to %', quote_literal(p_resource), coalesce(p_to::text, 'NULL'), poisoned
            USING ERRCODE = '22023';
    END IF;
    PERFORM fencing.close_gate(p_resource, 'rebase', p_lock_timeout);
    SELECT * INTO held FROM fencing.lease_holding(p_resource);
    IF FOUND THEN
        RAISE EXCEPTION 'fencing: % is held by % with token %, for % ms unless it is renewed', quote_literal(p_resource), quote_literal(held.holder), held.token, held.remaining
            USING ERRCODE = '55006', HINT = 'Wait for its release, or end its holder; then rebase.';
    END IF;
    SELECT * INTO f FROM fencing.fence x WHERE x.resource = p_resource FOR UPDATE;
    IF f.ceiling IS NULL AND f.token - p_to >= room THEN
        base := p_to;
        top := p_to + room;
        -- With a nonce that nobody knows it is the fence of no holder.
        UPDATE fencing.fence x SET token = base, nonce = gen_random_uuid()::text, holder = 'rebase', raised_at = clock_timestamp(), ceiling = top
         WHERE x.resource = p_resource;
        what := 'fence';
        token_before := f.token;
        token_after := base;
        RETURN NEXT;
    ELSE
        base := greatest(p_to, f.token);
        top := coalesce(f.ceiling, greatest(poisoned, least(base, 9223372036854775807 - room) + room));
        IF base >= top - 1 THEN
            RAISE EXCEPTION 'fencing: % cannot be rebased to %: its tokens from % on were given up', quote_literal(p_resource), p_to, top USING ERRCODE = '22023';
        END IF;
    END IF;
    UPDATE fencing.sequence s SET token = base
      FROM (SELECT x.token FROM fencing.sequence x WHERE x.resource = p_resource FOR UPDATE) o
     WHERE s.resource = p_resource AND o.token >= top - 1 RETURNING 'sequence', o.token, s.token INTO what, token_before, token_after;
    IF FOUND THEN
        RETURN NEXT;
    END IF;
    UPDATE fencing.lease_counter c SET token = base
      FROM (SELECT x.token FROM fencing.lease_counter x WHERE x.shard = place FOR UPDATE) o
     WHERE c.shard = place AND o.token >= top - 1 RETURNING 'lease_counter', o.token, c.token INTO what, token_before, token_after;
    IF FOUND THEN
        RETURN NEXT;
    END IF;
END
$fencing$;

REVOKE ALL ON FUNCTION fencing.rebase(text, bigint, integer), fencing.refuse_given_up() FROM PUBLIC;
CREATE OR REPLACE FUNCTION fencing.version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 5';
