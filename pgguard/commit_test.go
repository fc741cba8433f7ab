package pgguard_test

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/pgguard"
)

// behindProxy returns a guard whose connections go through the proxy.
func (db *database) behindProxy(t *testing.T, p *proxy, adjust ...func(*pgxpool.Config)) *pgguard.Guard {
	t.Helper()
	return db.newGuard(newPool(t, p.url, adjust...))
}

// ordinary returns the address of the database for a role that may write items, and
// nothing of other sessions, and the role.
func (db *database) ordinary(t *testing.T) (address, role string) {
	role = unique("ordinary")
	db.must(`create role "` + role + `" login; grant insert, select on item to "` + role + `"`)
	t.Cleanup(func() {
		_, err := db.pool.Exec(context.Background(), `drop owned by "`+role+`"; drop role "`+role+`"`)
		require.NoError(t, err)
	})
	u, err := url.Parse(db.url)
	require.NoError(t, err)
	u.User = url.User(role)
	return u.String(), role
}

func TestS23_LostReplyOfACommit(t *testing.T) {
	eachBegin(t, func(t *testing.T, db *database) {
		ordinary, _ := db.ordinary(t)
		ctx, _ := db.raised("r", 1, "A")

		for name, c := range map[string]struct {
			fault   fault
			role    string
			adjust  func(*pgxpool.Config)
			bound   time.Duration
			written bool
		}{
			"the reply is lost":                        {fault: loseReply, written: true},
			"the reply is lost, only one connection":   {fault: loseReply, written: true, adjust: func(c *pgxpool.Config) { c.MaxConns = 1 }},
			"the reply is lost, without privileges":    {fault: loseReply, written: true, role: ordinary},
			"the reply does not come in time":          {fault: hang, written: true, bound: 300 * time.Millisecond},
			"the request is lost":                      {fault: loseRequest},
			"the request is lost, simple protocol":     {fault: loseRequest, adjust: func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol }},
			"the request is lost, nobody sees the end": {fault: partition, bound: 300 * time.Millisecond},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				url := db.url
				if c.role != "" {
					url = c.role
				}
				p := newProxy(t, url)
				if c.adjust == nil {
					c.adjust = func(*pgxpool.Config) {}
				}
				g := db.behindProxy(t, p, c.adjust)
				if c.role != "" {
					// Another connection of the role, older than the transaction, such as
					// any pool has.
					old, err := pgx.Connect(t.Context(), url)
					require.NoError(t, err)
					t.Cleanup(func() { _ = old.Close(context.Background()) })
				}
				ctx, cancel := ctx, func() {}
				if c.bound != 0 {
					ctx, cancel = context.WithCancel(ctx)
				}
				err := g.InTx(ctx, func(tx pgx.Tx) error {
					p.failOn(commitMessage, c.fault, func() { time.AfterFunc(c.bound, cancel) })
					return inserts(ctx, name)(tx)
				})
				p.cut()
				require.Equal(t, 1, p.faults())
				written := one[int](db, "select count(*) from item where id = $1", name) == 1
				require.Equal(t, c.written, written)
				if c.written {
					require.NoError(t, err)
					return
				}
				require.ErrorContains(t, err, "the transaction was rolled back, nothing was written")
				require.NotErrorIs(t, err, guard.ErrCommitUnknown)
				require.False(t, pgguard.Retryable(err))
			})
		}
	})
}

// crashable returns a database on a server of its own, whose recent transactions
// are lost when it is killed.
func crashable(t *testing.T) (*database, *localserver.Postgres) {
	server := servertest.NewPostgres(t, localserver.PostgresOptions{Settings: map[string]string{
		"wal_writer_delay": "10s", "autovacuum": "off",
	}})
	db := &database{T: t, url: server.URL("")}
	db.pool = newPool(t, db.url)
	install(t, db.pool)
	db.guard = newGuard(t, db.pool)
	return db, server
}

func (db *database) crash(t *testing.T, server *localserver.Postgres) {
	t.Helper()
	defer db.pool.Reset() // its connections are dead, and it would lend one out unseen
	if err := server.Kill(); err != nil {
		t.Error(err)
	}
	if err := server.Restart(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestS23_CommitAcrossACrashOfTheServer(t *testing.T) {
	t.Parallel()
	db, server := crashable(t)
	ctx, _ := db.raised("r", 1, "A")
	p := newProxy(t, db.url)
	g := db.behindProxy(t, p)

	// Committed, then the server crashes: nobody can vouch that the transaction of
	// this id is ours.
	err := g.InTx(ctx, func(tx pgx.Tx) error {
		p.failOn(commitMessage, loseReply, func() { db.crash(t, server) })
		return inserts(ctx, "committed")(tx)
	})
	require.ErrorIs(t, err, guard.ErrCommitUnknown)
	require.ErrorContains(t, err, "restarted")
	require.Equal(t, 100, db.stock("committed"))

	// The server crashes before it gets the COMMIT.
	err = g.InTx(ctx, func(tx pgx.Tx) error {
		p.failOn(commitMessage, loseRequest, func() { db.crash(t, server) })
		return inserts(ctx, "lost")(tx)
	})
	require.ErrorContains(t, err, "the transaction was rolled back, nothing was written")
	require.NotErrorIs(t, err, guard.ErrCommitUnknown)
	require.Zero(t, one[int](db, "select count(*) from item where id = 'lost'"))

	// The server crashes before it gets the COMMIT, and gives the id to another
	// transaction, which commits. That must not pass for ours.
	var xid, status string
	err = g.InTx(ctx, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, "select pg_current_xact_id()::text").Scan(&xid); err != nil {
			return err
		}
		p.failOn(commitMessage, loseRequest, func() {
			db.crash(t, server)
			conn, err := pgx.Connect(context.Background(), db.url)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close(context.Background()) }()
			for range 10_000 {
				err := conn.QueryRow(context.Background(), "select pg_xact_status($1::text::xid8)", xid).Scan(&status)
				if err == nil {
					break
				}
				if _, err = conn.Exec(context.Background(), "insert into kid values ('another')"); err != nil {
					t.Error(err)
					return
				}
			}
		})
		return inserts(ctx, "never")(tx)
	})
	require.Equal(t, "committed", status, "the id was given to another transaction; else this test shows nothing")
	require.ErrorIs(t, err, guard.ErrCommitUnknown)
	require.Zero(t, one[int](db, "select count(*) from item where id = 'never'"))
}

// Without a session that is older than the transaction, and that its role sees, nobody
// knows whether there was a crash. That there was one is not said.
func TestS23_LostReplyOnTheOnlyConnectionOfARole(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	address, role := db.ordinary(t)
	ctx, _ := db.raised("r", 1, "A")
	p := newProxy(t, address)
	err := db.behindProxy(t, p).InTx(ctx, func(tx pgx.Tx) error {
		p.failOn(commitMessage, loseReply, func() {
			_, err := db.pool.Exec(context.Background(), "select pg_terminate_backend(pid, 10000) from pg_stat_activity where usename = $1", role)
			assert.NoError(t, err)
		})
		return inserts(ctx, "x")(tx)
	})
	require.ErrorIs(t, err, guard.ErrCommitUnknown)
	require.ErrorContains(t, err, "no session that this role may see is older than the transaction")
	require.NotContains(t, err.Error(), "restarted")
}

func TestS23_ServerThatStaysDownLeavesTheCommitUnknown(t *testing.T) {
	t.Parallel()
	db, server := crashable(t)
	ctx, _ := db.raised("r", 1, "A")
	p := newProxy(t, db.url)
	g := db.behindProxy(t, p)
	start := time.Now()
	err := g.InTx(ctx, func(tx pgx.Tx) error {
		p.failOn(commitMessage, loseReply, func() { _ = server.Kill() })
		return inserts(ctx, "x")(tx)
	})
	require.ErrorIs(t, err, guard.ErrCommitUnknown)
	require.Less(t, time.Since(start), 20*time.Second)
}

func TestCommitThatTheServerRefuses(t *testing.T) {
	eachModeAndBegin(t, func(t *testing.T, db *database) {
		ctx, _ := db.raised(unique("r"), 1, "A")
		err := db.guard.InTx(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "insert into kid values ('k', 'no such item')")
			return err
		})
		require.ErrorContains(t, err, "23503")
		require.NotErrorIs(t, err, guard.ErrCommitUnknown)
	})
}

func TestS23_LostReplyOfASingleStatement(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	ctx, _ := db.raised("r", 1, "A")
	p := newProxy(t, db.url)
	g := db.behindProxy(t, p, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec })
	const insert = "insert into item values ($1, 1) returning id"
	calls := map[string]func(id string) error{
		"Exec": func(id string) error { _, err := g.Exec(ctx, insert, id); return err },
		"Query": func(id string) error {
			rows, err := g.Query(ctx, insert, id)
			rows.Close()
			return errors.Join(err, rows.Err())
		},
		"QueryRow": func(id string) error { return g.QueryRow(ctx, insert, id).Scan(&id) },
		"SendBatch": func(id string) error {
			b := &pgx.Batch{}
			b.Queue(insert, id)
			return g.SendBatch(ctx, b).Close()
		},
	}
	for name, call := range calls {
		require.NoError(t, call(name+" before"), name)
		p.failOn("insert into item", loseReply, nil)
		err := call(name)
		require.ErrorIs(t, err, guard.ErrCommitUnknown, name)
		require.Equal(t, 1, db.stock(name))
		p.failOn("insert into item", loseRequest, nil)
		require.ErrorIs(t, call(name+" not sent"), guard.ErrCommitUnknown, name)

		dead, cancel := context.WithCancel(ctx)
		cancel()
		_, err = g.Exec(dead, "select 1")
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, guard.ErrCommitUnknown, "nothing was sent")
	}
	_, err := g.Exec(ctx, "select $1::int", make(chan int))
	require.Error(t, err)
	require.NotErrorIs(t, err, guard.ErrCommitUnknown, "pgx could not encode it")
}

// PgBouncer answers in the name of a server that it has lost.
func TestS23_LostReplyBehindPgBouncer(t *testing.T) {
	eachBegin(t, func(t *testing.T, db *database) {
		ctx, _ := db.raised("r", 1, "A")
		p := newProxy(t, db.url)
		pool := newPool(t, servertest.PgBouncer(t, p.url), func(c *pgxpool.Config) {
			c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		})
		g := db.newGuard(pool)
		for id, f := range map[string]fault{"committed": loseReply, "lost": loseRequest} {
			err := g.InTx(ctx, func(tx pgx.Tx) error {
				p.failOn(commitMessage, f, nil)
				return inserts(ctx, id)(tx)
			})
			if f == loseReply {
				require.NoError(t, err)
				require.Equal(t, 100, db.stock(id))
			} else {
				require.ErrorContains(t, err, "the transaction was rolled back, nothing was written")
				require.Zero(t, one[int](db, "select count(*) from item where id = $1", id))
			}
		}
		require.Equal(t, 2, p.faults())
	})
}
