package sqlguard

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/hint"
	"github.com/go-fencing/fencing/internal/sqlerror"
)

// postgresEngine leaves the work to the functions of the fence schema.
type postgresEngine struct{}

const (
	neededVersion  = 1 // the last migration that this package relies on
	neededProtocol = 1
)

// texts are the statements of one schema, and the command that makes it fit.
type texts struct{ check, raise, issue, enter, enterAll, migrate string }

func textsFor(schema string) texts {
	quoted := `"` + strings.ReplaceAll(schema, `"`, `""`) + `"`
	in := func(sql string) string { return strings.ReplaceAll(sql, "{}", quoted) }
	const record = "select token, nonce, holder, (extract(epoch from raised_at) operator(pg_catalog.*) 1000000)::bigint from "
	return texts{
		migrate: hint.Fencectl("migrate up", schema),

		check: in("select {}.version(), {}.protocol()"),
		raise: in(record + "{}.raise($1, $2, $3, $4, $5)"),
		issue: in(record + "{}.issue($1, $2, $3, $4)"),
		enter: in("select {}.enter($1, $2, $3, $4)"),
		// Arrays as text, because every driver has a type of its own for them.
		enterAll: in("select {}.enter_all($1::text::text[], $2::text::bigint[], $3::text::text[], $4)"),
	}
}

func (postgresEngine) raise(ctx context.Context, db *sql.DB, s *settings, c claim) (guard.Record, error) {
	start := time.Now()
	conn, err := db.Conn(ctx)
	if err != nil {
		return guard.Record{}, err
	}
	record, pid, err := raisePostgres(ctx, conn, s, c)
	_ = conn.Close() // before the look, which may need the only connection
	if err == nil {
		return record, nil
	}
	if errors.Is(err, errRaiseUnknown) {
		return guard.Record{}, err
	}
	blocked := &BlockedError{Resource: c.Resource, Waited: time.Since(start), cause: because(ctx, err)}
	state := sqlerror.State(err)
	switch detail := sqlerror.Detail(err); {
	case state == "55P03" && detail != "":
		blocked.describe(detail)
		if blocked.Connection != 0 && blocked.State == "" { // the function looks as its owner, who may see less than this user of its own sessions
			if seen := *blocked; seen.look(ctx, db, pid) && seen.State != "" {
				blocked = &seen
			}
		}
		return guard.Record{}, blocked
	case state == "55P03", state == "57014": // perhaps of another lock; the session's statement_timeout
	case state != "" || ctx.Err() == nil:
		return guard.Record{}, err
	}
	// The server has not said why it took so long, because something else ended
	// first, such as the context. Whoever holds the gate now is the reason, if
	// anyone does.
	if !blocked.look(ctx, db, pid) {
		return guard.Record{}, err
	}
	return guard.Record{}, blocked
}

// look finds out who has the gate now, apart from the server process self.
func (e *BlockedError) look(ctx context.Context, db *sql.DB, self int64) (found bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookBound)
	defer cancel()
	var d string
	found, err := (sqlSession{db}).row(ctx, lookPostgres, []any{e.Resource, self}, &d)
	if !found || err != nil {
		return false
	}
	e.describe(d)
	return true
}

// raisePostgres spells the level out because the server refuses to raise at any
// other: see the function fencing.close_gate.
func raisePostgres(ctx context.Context, conn *sql.Conn, s *settings, c claim) (record guard.Record, pid int64, err error) {
	if _, err = (sqlSession{conn}).row(ctx, "select pg_catalog.pg_backend_pid()", nil, &pid); err != nil {
		return record, 0, err
	}
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return record, pid, err
	}
	defer func() { _ = tx.Rollback() }() // after the commit there is nothing to undo
	timeout := s.lockTimeout.Milliseconds()
	query, args := s.sql.raise, []any{c.Resource, int64(c.Token), c.Nonce, c.Holder, timeout}
	if c.mints() {
		query, args = s.sql.issue, []any{c.Resource, c.Nonce, c.Holder, timeout}
	}
	var since int64
	f := &record.Fence
	if _, err := (sqlSession{tx}).row(ctx, query, args, (*int64)(&f.Token), &f.Nonce, &f.Holder, &since); err != nil {
		return record, pid, err
	}
	record.Since = time.UnixMicro(since)
	return record, pid, commitRaise(tx)
}

func (e *BlockedError) describe(jsonText string) {
	var d struct {
		PID         int64     `json:"pid"`
		Application string    `json:"application_name"`
		State       string    `json:"state"`
		XactStart   time.Time `json:"xact_start"`
	}
	_ = json.Unmarshal([]byte(jsonText), &d) // without the facts the message is poorer
	e.Connection, e.Client, e.State, e.Since = d.PID, d.Application, d.State, d.XactStart
}

// The prefixes and casts leave no choice of a function: one of somebody's own in the
// schema public may fit better than that of pg_catalog.
const lookPostgres = `
select pg_catalog.json_build_object('pid', l.pid, 'application_name', a.application_name, 'xact_start', a.xact_start, 'state', a.state)::text
  from (select pg_catalog.hashtextextended($1::text, 5070437::bigint) as gate) g, pg_catalog.pg_locks l left join pg_catalog.pg_stat_activity a using (pid)
 where l.locktype = 'advisory' and l.granted and l.objsubid = 1 and l.pid <> $2::bigint
   and l.database = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database())
   and l.classid = ((g.gate >> 32) & 4294967295)::oid and l.objid = (g.gate & 4294967295)::oid
 order by a.xact_start nulls last limit 1`

func (postgresEngine) enter(ctx context.Context, tx session, s *settings, held []guard.Fence, _ entering) error {
	idle := s.idleTimeout.Milliseconds()
	var err error
	if len(held) == 1 {
		f := held[0]
		_, err = tx.exec(ctx, s.sql.enter, f.Resource, int64(f.Token), f.Nonce, idle)
	} else {
		var resources, tokens, nonces []string
		for _, f := range held {
			resources, tokens, nonces = append(resources, f.Resource), append(tokens, f.Token.String()), append(nonces, f.Nonce)
		}
		_, err = tx.exec(ctx, s.sql.enterAll, arrayText(resources), arrayText(tokens), arrayText(nonces), idle)
	}
	return Translate(err, held...)
}

// arrayText writes an array as Postgres reads it, each element in quotes.
func arrayText(elements []string) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	var b strings.Builder
	b.WriteByte('{')
	for i, e := range elements {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`"` + escape.Replace(e) + `"`)
	}
	b.WriteByte('}')
	return b.String()
}

// begins lets a read-only transaction begin as a writer: FOR SHARE, with which
// enter reads above READ COMMITTED, is a write.
func (postgresEngine) begins(o sql.TxOptions) (sql.TxOptions, string) {
	if !o.ReadOnly {
		return o, ""
	}
	o.ReadOnly = false
	return o, "set transaction read only"
}

func (postgresEngine) readOnly() (on, off string) { return "", "" }

// open: after any error Postgres itself rolls back what is to be committed.
func (postgresEngine) open(context.Context, session) (bool, error) { return true, nil }

// rolledBack: after any error Postgres itself refuses the rest.
func (postgresEngine) rolledBack(context.Context, session, error) bool { return false }

func (postgresEngine) check(ctx context.Context, tx session, s *settings) error {
	var version, protocol int64
	if _, err := tx.row(ctx, s.sql.check, nil, &version, &protocol); err != nil {
		return err
	}
	switch {
	case protocol > neededProtocol:
		return fmt.Errorf("%w: its protocol is %d and this package speaks %d; upgrade the module github.com/go-fencing/fencing in this program",
			ErrSchema, protocol, neededProtocol)
	case protocol < neededProtocol, version < neededVersion:
		return fmt.Errorf("%w: it is at version %d, protocol %d, and this package needs %d, %d; run \"%s\"",
			ErrSchema, version, protocol, neededVersion, neededProtocol, s.sql.migrate)
	}
	return nil
}
