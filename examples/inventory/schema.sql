-- What is left of each article, and which unit of it went to whom.
--
-- UNIQUE (sku, unit), UNIQUE (buyer) and CHECK (stock >= 0) are left out on
-- purpose: they would turn the faults that -unguarded shows into errors. Most
-- decisions that need a lock cannot be written as a constraint.
DROP SCHEMA IF EXISTS example_inventory CASCADE;
CREATE SCHEMA example_inventory;

CREATE TABLE example_inventory.inventory (
    sku   text PRIMARY KEY,
    stock integer NOT NULL
);

CREATE TABLE example_inventory.orders (
    id    text PRIMARY KEY,
    sku   text NOT NULL REFERENCES example_inventory.inventory,
    unit  integer NOT NULL,
    buyer text NOT NULL
);
