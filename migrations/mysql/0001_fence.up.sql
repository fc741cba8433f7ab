-- The current fence of each resource, for MySQL 8 and MariaDB. Rows are never
-- deleted: without its row a resource refuses every write. Names are bytes
-- (UTF-8), because a text collation takes some that differ for the same.
-- raised_at is UTC. Every user that writes under fences needs SELECT, INSERT and
-- UPDATE here.
CREATE TABLE fencing_fence (
    resource  varbinary(512) NOT NULL PRIMARY KEY CHECK (resource <> ''),
    token     bigint NOT NULL CHECK (token > 0),
    nonce     varbinary(128) NOT NULL CHECK (nonce <> ''),
    holder    varbinary(256) NOT NULL DEFAULT '',
    raised_at datetime(6) NOT NULL
) ENGINE = InnoDB;
