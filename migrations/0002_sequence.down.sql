DROP FUNCTION fencing.next_token(text, bigint, bigint);
DROP TABLE fencing.sequence;
CREATE OR REPLACE FUNCTION fencing.version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 1';
