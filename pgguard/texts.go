package pgguard

import (
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/go-fencing/fencing/internal/hint"
)

// texts are what a guard says to and about its schema, built once: pgx finds a prepared statement
// by its text.
type texts struct {
	migrate  string // the command that makes the schema fit
	check    string
	raise    string
	issue    string
	enter    string
	enterAll string
	begin    string
	beginAll string
	once     string
}

var defaultTexts = textsFor(defaultSchema)

func textsFor(schema string) texts {
	quoted := pgx.Identifier{schema}.Sanitize()
	in := func(sql string) string { return strings.ReplaceAll(sql, "{}", quoted) }
	// What a commit whose reply is lost needs to know afterwards; see commit.go.
	const receipt = ", pg_current_xact_id(), transaction_timestamp(), pg_postmaster_start_time()"
	return texts{
		migrate:  hint.Fencectl("migrate up", schema),
		check:    in("select {}.version(), {}.protocol()"),
		raise:    in("select token, nonce, holder, raised_at from {}.raise($1, $2, $3, $4, $5)"),
		issue:    in("select token, nonce, holder, raised_at from {}.issue($1, $2, $3, $4)"),
		enter:    in("select {}.enter($1, $2, $3, $4)"),
		enterAll: in("select {}.enter_all($1, $2, $3, $4)"),
		begin:    in("select {}.enter($1, $2, $3, $4)") + receipt,
		beginAll: in("select {}.enter_all($1, $2, $3, $4)") + receipt,
		once:     in("select {}.once($1)"),
	}
}
