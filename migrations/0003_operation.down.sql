DROP FUNCTION fencing.once(text);
DROP TABLE fencing.operation;
CREATE OR REPLACE FUNCTION fencing.version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 2';
