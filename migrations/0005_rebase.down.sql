-- Without the column it would be forgotten which tokens were given up, and who still has
-- one could raise it again.
DO $fencing$
BEGIN
    IF EXISTS (SELECT FROM fencing.fence WHERE ceiling IS NOT NULL) THEN
        RAISE EXCEPTION 'fencing: resources have been rebased, and their earlier holders would come back'
            USING ERRCODE = '55000', HINT = 'If no process has a fence from before any more: UPDATE fencing.fence SET ceiling = NULL.';
    END IF;
END
$fencing$;

DROP FUNCTION fencing.rebase(text, bigint, integer);
DROP TRIGGER fence_given_up ON fencing.fence;
DROP TRIGGER fence_jump ON fencing.fence;
DROP TRIGGER fence_first_jump ON fencing.fence;
DROP FUNCTION fencing.refuse_given_up();
DROP FUNCTION fencing.note_jump();
ALTER TABLE fencing.fence DROP COLUMN ceiling, DROP COLUMN jumped_from, DROP COLUMN jumped_to;
CREATE OR REPLACE FUNCTION fencing.version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 4';
