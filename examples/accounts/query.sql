-- name: CreateAccount :exec
INSERT INTO accounts (id, balance) VALUES ($1, $2);

-- name: GetAccount :one
SELECT * FROM accounts WHERE id = $1;

-- name: ListAccounts :many
SELECT * FROM accounts ORDER BY id;

-- name: SetBalance :exec
UPDATE accounts SET balance = $2 WHERE id = $1;

-- name: CreateTransfer :exec
INSERT INTO transfers (id, from_account, to_account, amount) VALUES ($1, $2, $3, $4);

-- name: ListTransfers :many
SELECT * FROM transfers;
