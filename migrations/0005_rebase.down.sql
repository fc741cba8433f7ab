-- It also forgets which tokens were given up: who still has one can raise it again.
DROP FUNCTION fencing.rebase(text, bigint, integer);
DROP TRIGGER fence_given_up ON fencing.fence;
DROP FUNCTION fencing.refuse_given_up();
ALTER TABLE fencing.fence DROP COLUMN ceiling;
CREATE OR REPLACE FUNCTION fencing.version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 4';
