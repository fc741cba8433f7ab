-- The current fence of each resource, for SQLite. Rows are never deleted: without
-- its row a resource refuses every write. raised_at is in microseconds since 1970.
CREATE TABLE fencing_fence (
    resource  text NOT NULL PRIMARY KEY CHECK (resource <> '' AND length(CAST(resource AS blob)) <= 512),
    token     integer NOT NULL CHECK (typeof(token) = 'integer' AND token > 0),
    nonce     text NOT NULL CHECK (nonce <> ''),
    holder    text NOT NULL DEFAULT '',
    raised_at integer NOT NULL
) WITHOUT ROWID;
