package interleavings

import "github.com/jackc/pgx/v5"

// A Mode is a way to guard the data: what a holder's steps send to the server. A statement
// admits if it returns true or, where it returns nothing, has written a row; an empty
// one always does.
type Mode struct {
	Name, What          string
	Shipped             bool
	raise, enter, write string
	remove, put         string
	table               string // "stock" unless it has a trigger
	joined              bool   // the raise is one statement with the read after it
}

const (
	plainWrite  = "update {stock} set n = @value where k = @key"
	plainRemove = "delete from {stock} where k = @key"
	plainPut    = "insert into {stock} (k, n) values (@key, @value) on conflict (k) do update set n = excluded.n"

	// What others call a fence: one row for each resource, without nonce or gate.
	rowRaise = "insert into fence_row values (@resource, @token) on conflict (resource) do update set token = excluded.token where fence_row.token < excluded.token"
	rowCheck = "select token = @token from fence_row where resource = @resource"

	lateShown = "with shown as (insert into fence_row values (@resource, @token) on conflict (resource) do update set token = excluded.token " +
		"where fence_row.token <= excluded.token returning token) "

	gateRaise = "select token = @token and nonce = @nonce from fencing.raise(@resource, @token, @nonce, @holder, @timeout)"
	gateEnter = "select true from fencing.enter(@resource, @token, @nonce, @idle)"
	gateAll   = "select true from fencing.enter_all(@resources, @tokens, @nonces, @idle)"
)

// Modes are all modes, from none to the shipped ones.
var Modes = []Mode{
	{Name: "none", What: "nothing but the lock"},
	{
		Name: "row", What: "the row rule: a version column, admitted if not greater",
		write:  "update {stock} set n = @value, fence_token = @token where k = @key and fence_token <= @token",
		remove: "delete from {stock} where k = @key and fence_token <= @token",
		put: "insert into {stock} (k, n, fence_token) values (@key, @value, @token) on conflict (k) do update set n = excluded.n, fence_token = excluded.fence_token " +
			"where {stock}.fence_token <= excluded.fence_token",
	},
	{
		Name: "late", What: "the greatest token that a write has shown, without a raise before the first read",
		write:  lateShown + plainWrite + " and exists (select from shown)",
		remove: lateShown + plainRemove + " and exists (select from shown)",
		put:    lateShown + "insert into {stock} (k, n) select @key, @value::int from shown on conflict (k) do update set n = excluded.n",
	},
	{
		Name: "predicate", What: "the fence compared by a subquery in the write itself", raise: rowRaise,
		write:  plainWrite + " and @token = (select token from fence_row where resource = @resource)",
		remove: plainRemove + " and @token = (select token from fence_row where resource = @resource)",
		put:    "insert into {stock} (k, n) select @key, @value::int from fence_row where resource = @resource and token = @token on conflict (k) do update set n = excluded.n",
	},
	{Name: "check", What: "the fence read in the transaction, without a lock", raise: rowRaise, enter: rowCheck},
	{Name: "keyshare", What: "the fence read FOR KEY SHARE", raise: rowRaise, enter: rowCheck + " for key share"},
	{
		Name: "equal", What: "the fence read FOR SHARE, and raised by an equal token too",
		raise: "insert into fence_row values (@resource, @token) on conflict (resource) do update set token = excluded.token where fence_row.token <= excluded.token",
		enter: rowCheck + " for share",
	},
	{Name: "share", What: "the fence read FOR SHARE", raise: rowRaise, enter: rowCheck + " for share"},
	{Name: "joined", What: "the shipped functions, the raise in one statement with the first read", raise: gateRaise, enter: gateEnter, joined: true},
	{Name: "gate", What: "the shipped functions", Shipped: true, raise: gateRaise, enter: gateEnter},
	{Name: "trigger", What: "the shipped functions, and the trigger of Protect on the table", Shipped: true, raise: gateRaise, enter: gateEnter, table: "guarded"},
}

// Levels are the isolation levels by their short names.
var Levels = map[string]pgx.TxIsoLevel{"rc": pgx.ReadCommitted, "rr": pgx.RepeatableRead, "ser": pgx.Serializable}

func init() {
	for i := range Modes {
		m := &Modes[i]
		for statement, plain := range map[*string]string{&m.write: plainWrite, &m.remove: plainRemove, &m.put: plainPut, &m.table: "stock"} {
			if *statement == "" {
				*statement = plain
			}
		}
	}
}
