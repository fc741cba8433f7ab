-- A way back after a poisoned fence: one with a token so great that no lock gets a
-- greater one (S18).
--
-- Lowering a fence must not let anyone in who once raised a token above the new one.
-- So the row remembers its last jump: what was raised before has a token up to
-- jumped_from, where the lowered fence begins, and what was raised since has one from
-- jumped_to on. Those would win the next raise and are given up for good: ceiling
-- bounds every later write to the row, whoever makes it.
ALTER TABLE fencing.fence ADD COLUMN ceiling bigint, ADD COLUMN jumped_from bigint, ADD COLUMN jumped_to bigint;

COMMENT ON COLUMN fencing.fence.ceiling IS 'Tokens from here on were given up by rebase, and are never raised again. NULL: none were.';
COMMENT ON COLUMN fencing.fence.jumped_from IS 'The token before the last one that was 2^56 or more above its predecessor. NULL: there was none since migration 5.';

CREATE FUNCTION fencing.note_jump() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fencing$
BEGIN
    NEW.jumped_from := CASE TG_OP WHEN 'INSERT' THEN 0 ELSE OLD.token END;
    NEW.jumped_to := NEW.token;
    RETURN NEW;
END
$fencing$;

CREATE TRIGGER fence_first_jump BEFORE INSERT ON fencing.fence FOR EACH ROW
    WHEN (NEW.token >= 72057594037927936)
    EXECUTE FUNCTION fencing.note_jump();

CREATE TRIGGER fence_jump BEFORE UPDATE ON fencing.fence FOR EACH ROW
    WHEN (NEW.token - OLD.token >= 72057594037927936)
    EXECUTE FUNCTION fencing.note_jump();

ALTER TABLE fencing.fence ENABLE ALWAYS TRIGGER fence_first_jump;
ALTER TABLE fencing.fence ENABLE ALWAYS TRIGGER fence_jump;

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
-- has jumped by 2^56 or more, or is near 2^62 or above, is lowered to where it jumped from,
-- or to p_to if that is greater, once for each resource. The tokens up to there, and
-- those from 2^56 above it on or from where it jumped to, are refused from then on. Of
-- a fence that came so far before migration 5 it is not known where it jumped from:
-- p_to is at least every other token that was ever raised for it then, or an earlier
-- holder could come back with one. Any other fence stays, with its holder. Then the
-- counters of next_token and of the leases go back, if they are above what may be
-- raised, or near the end of the integers; not below 2^52 where that is possible, for
-- the sake of those who were counted for there and have no fence. Where they are too
-- far behind to be repaired they go up to the fence.
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
    counted  constant bigint := 4503599627370496; -- nor to this one, but for a rebase
    hash     constant bytea := fencing.lease_hash(p_resource);
    place    constant integer := get_byte(hash, 0) * 4 + get_byte(hash, 1) / 64;
    f        fencing.fence;
    held     record;
    base     bigint;
    top      bigint;
    back     bigint;
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
    base := greatest(p_to, f.jumped_from);
    IF f.ceiling IS NULL AND (f.jumped_from IS NOT NULL OR f.token >= poisoned - 1) AND f.token - base >= room THEN
        top := least(base + room, f.jumped_to);
        IF base >= top - 1 THEN
            RAISE EXCEPTION 'fencing: % cannot be rebased to %: tokens from % on were raised', quote_literal(p_resource), base, top USING ERRCODE = '22023';
        END IF;
        -- With a nonce that nobody knows it is the fence of no holder.
        UPDATE fencing.fence x SET token = base, nonce = gen_random_uuid()::text, holder = 'rebase', raised_at = clock_timestamp(), ceiling = top, jumped_from = NULL, jumped_to = NULL
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
    back := greatest(base, least(counted, top - 2));
    UPDATE fencing.sequence s SET token = CASE WHEN o.token >= top - 1 THEN back ELSE base END
      FROM (SELECT x.token FROM fencing.sequence x WHERE x.resource = p_resource FOR UPDATE) o
     WHERE s.resource = p_resource AND (o.token >= top - 1 OR base - o.token > room) RETURNING 'sequence', o.token, s.token INTO what, token_before, token_after;
    IF FOUND THEN
        RETURN NEXT;
    END IF;
    UPDATE fencing.lease_counter c SET token = CASE WHEN o.token >= top - 1 THEN back ELSE base END
      FROM (SELECT x.token FROM fencing.lease_counter x WHERE x.shard = place FOR UPDATE) o
     WHERE c.shard = place AND (o.token >= top - 1 OR o.token > 0 AND base - o.token > room) RETURNING 'lease_counter', o.token, c.token INTO what, token_before, token_after;
    IF FOUND THEN
        RETURN NEXT;
    END IF;
END
$fencing$;

REVOKE ALL ON FUNCTION fencing.rebase(text, bigint, integer), fencing.refuse_given_up(), fencing.note_jump() FROM PUBLIC;
CREATE OR REPLACE FUNCTION fencing.version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 5';
