-- A counter per resource for the Postgres sequencer. Rows and not a SEQUENCE:
-- after a crash nextval can repeat values that it has already handed out.
CREATE TABLE fencing.sequence (
    resource text COLLATE "C" PRIMARY KEY CHECK (resource <> '' AND octet_length(resource) <= 512),
    token    bigint NOT NULL CHECK (token >= 0)
) WITH (fillfactor = 50);

-- next_token returns a token greater than p_after and than every token that it
-- returned before for the resource. It counts once its transaction has
-- committed. A p_after that is more than p_max_jump ahead is refused (UF005): one
-- poisoned fence must not use up the counter.
CREATE FUNCTION fencing.next_token(p_resource text, p_after bigint DEFAULT 0, p_max_jump bigint DEFAULT 72057594037927936) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fencing$
DECLARE
    minted bigint;
    last   bigint;
BEGIN
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    INSERT INTO fencing.sequence (resource, token) VALUES (p_resource, 0) ON CONFLICT ON CONSTRAINT sequence_pkey DO NOTHING;
    SELECT s.token INTO last FROM fencing.sequence s WHERE s.resource = p_resource FOR UPDATE;
    IF greatest(p_after, 0) - last > p_max_jump THEN
        RAISE EXCEPTION 'fencing: a token of % above % is asked for, more than % ahead of the counter at %',
            quote_literal(p_resource), p_after, p_max_jump, last
            USING ERRCODE = 'UF005', HINT = 'The fence in the store is probably poisoned; an operator must run "fencectl rebase".';
    END IF;
    UPDATE fencing.sequence s SET token = greatest(last, p_after) + 1 WHERE s.resource = p_resource RETURNING s.token INTO minted;
    RETURN minted;
END
$fencing$;

SELECT fencing.keep_private(NULL::fencing.sequence);
GRANT EXECUTE ON FUNCTION fencing.next_token(text, bigint, bigint) TO PUBLIC;
CREATE OR REPLACE FUNCTION fencing.version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 2';
