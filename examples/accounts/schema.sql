CREATE TABLE accounts (
    id      text   PRIMARY KEY,
    balance bigint NOT NULL
);

CREATE TABLE transfers (
    id           text   PRIMARY KEY,
    from_account text   NOT NULL REFERENCES accounts,
    to_account   text   NOT NULL REFERENCES accounts,
    amount       bigint NOT NULL
);
