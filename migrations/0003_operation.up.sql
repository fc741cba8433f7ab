-- Operations that have been applied, for pgguard.Once. The row commits together
-- with the operation's own writes.
CREATE TABLE fencing.operation (
    operation  text COLLATE "C" PRIMARY KEY CHECK (operation <> '' AND octet_length(operation) <= 512),
    applied_at timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX operation_applied_at ON fencing.operation (applied_at);

COMMENT ON TABLE fencing.operation IS 'One row per applied operation. Delete rows older than the longest time in which a client may repeat itself.';

-- once returns true to the first transaction that names the operation and
-- commits, false to every later one. A concurrent second one waits for the first.
CREATE FUNCTION fencing.once(p_operation text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fencing$
BEGIN
    INSERT INTO fencing.operation (operation) VALUES (p_operation) ON CONFLICT DO NOTHING;
    RETURN FOUND;
END
$fencing$;

SELECT fencing.keep_private(NULL::fencing.operation);
GRANT EXECUTE ON FUNCTION fencing.once(text) TO PUBLIC;
CREATE OR REPLACE FUNCTION fencing.version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 3';
