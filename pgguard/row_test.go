package pgguard_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/pgguard"
)

// sale is one piece of an item sold, if there is one.
func sale(resource, id string) pgguard.RowUpdate {
	return pgguard.RowUpdate{
		Table:    pgx.Identifier{"public", "item"},
		Resource: resource,
		Key:      map[string]any{"id": id},
		Set:      map[string]any{"stock": pgguard.Expr("stock - ?", 1)},
		Filter:   pgguard.Expr("stock >= ?", 1),
	}
}

func TestS26_UpdateRowTellsStaleFromMissing(t *testing.T) {
	eachModeAndBegin(t, func(t *testing.T, db *database) {
		id := unique("i")
		a, b := fence(id, 33, "A"), fence(id, 34, "B")
		aCtx, bCtx := guard.NewContext(t.Context(), a), guard.NewContext(t.Context(), b)
		update := func(ctx context.Context, u pgguard.RowUpdate) error {
			return pgx.BeginFunc(ctx, db.pool, func(tx pgx.Tx) error { return pgguard.UpdateRow(ctx, tx, u) })
		}
		require.ErrorIs(t, update(t.Context(), sale(id, id)), guard.ErrNoFence)
		err := update(aCtx, sale(id, id))
		require.ErrorIs(t, err, pgx.ErrNoRows)
		require.NotErrorIs(t, err, pgguard.ErrFilter)

		db.must("insert into item values ($1, 3)", id)
		require.NoError(t, update(aCtx, sale(id, id)))
		require.NoError(t, update(aCtx, sale(id, id)), "one fence may write often")
		require.Equal(t, 1, db.stock(id))
		require.EqualValues(t, 33, one[int](db, "select fence_token from item where id = $1", id))
		require.NoError(t, update(bCtx, sale(id, id)))

		err = update(aCtx, sale(id, id))
		require.ErrorIs(t, err, guard.ErrStale, "also where the filter is not met either")
		var stale *guard.StaleError
		require.ErrorAs(t, err, &stale)
		require.Equal(t, a, stale.Held)
		require.Equal(t, guard.Fence{Resource: id, Token: 34}, stale.Current)

		err = update(bCtx, sale(id, id))
		require.ErrorIs(t, err, pgguard.ErrFilter)
		require.ErrorIs(t, err, pgx.ErrNoRows)
		require.NotContains(t, err.Error(), "no rows", "the row is there")
		require.Equal(t, 0, db.stock(id))

		stamp := sale(id, id)
		stamp.Set, stamp.Filter = nil, pgguard.Expression{}
		c := guard.NewContext(t.Context(), fence(id, 35, "C"))
		require.NoError(t, update(c, stamp))
		require.EqualValues(t, 35, one[int](db, "select fence_token from item where id = $1", id))
		require.ErrorIs(t, update(bCtx, stamp), guard.ErrStale)
	})
}

// A stale update that waits for the newer holder's row lock must be called stale,
// not unmet: as one statement it would judge by the row from before the wait.
func TestS29_UpdateRowThatWaitsIsCalledStale(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		id := unique("i")
		aCtx := guard.NewContext(t.Context(), fence(id, 33, "A"))
		bCtx := guard.NewContext(t.Context(), fence(id, 34, "B"))
		db.must("insert into item values ($1, 3, 33)", id)
		newer, err := db.pool.Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = newer.Rollback(context.Background()) }()
		require.NoError(t, pgguard.UpdateRow(bCtx, newer, sale(id, id)))
		late := background(t, func() error { return pgguard.UpdateRow(aCtx, db.pool, sale(id, id)) })
		db.await("select count(*) > 0 from pg_locks where not granted and locktype = 'transactionid'")
		require.NoError(t, newer.Commit(t.Context()))
		require.ErrorIs(t, late(), guard.ErrStale)
		require.Equal(t, 2, db.stock(id))

		// The same statement with a CTE shows why it is two.
		newer, err = db.pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = newer.Exec(t.Context(), "update item set fence_token = 35 where id = $1", id)
		require.NoError(t, err)
		var changed int
		var token guard.Token
		single := background(t, func() error {
			return db.pool.QueryRow(t.Context(), `with u as (update item set stock = 0 where id = $1 and fence_token <= 34 returning 1)
				select (select count(*) from u), fence_token from item where id = $1`, id).Scan(&changed, &token)
		})
		db.await("select count(*) > 0 from pg_locks where not granted and locktype = 'transactionid'")
		require.NoError(t, newer.Commit(t.Context()))
		require.NoError(t, single())
		require.Zero(t, changed)
		require.EqualValues(t, 34, token, "refused, and yet the look says that the token was fine")
	})
}

func TestUpdateRowThatPinsSeveralRowsWritesNothing(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		x, y := unique("x"), unique("y")
		ctx, _ := db.raised(x, 33, "A")
		db.must("insert into item values ($1, 41), ($2, 41)", x, y)
		u := pgguard.RowUpdate{
			Table: pgx.Identifier{"item"}, Resource: x, Key: map[string]any{"stock": 41},
			Set: map[string]any{"id": pgguard.Expr("id || ?::text", "!")},
		}
		for _, filter := range []pgguard.Expression{{}, pgguard.Expr("id = ?", x)} {
			u.Filter = filter
			for name, call := range map[string]func() error{
				"pool":  func() error { return pgguard.UpdateRow(ctx, db.pool, u) },
				"guard": func() error { return pgguard.UpdateRow(ctx, db.guard, u) },
				"InTx": func() error {
					return db.guard.InTx(ctx, func(tx pgx.Tx) error { return pgguard.UpdateRow(ctx, tx, u) })
				},
				"InTx, error ignored": func() error {
					return db.guard.InTx(ctx, func(tx pgx.Tx) error { _ = pgguard.UpdateRow(ctx, tx, u); return nil })
				},
			} {
				require.Error(t, call(), name)
				require.Equal(t, 2, one[int](db, "select count(*) from item where id in ($1, $2) and fence_token = 0", x, y), name)
			}
			require.ErrorContains(t, pgguard.UpdateRow(ctx, db.pool, u), "several rows")
		}
		db.must("delete from item where stock = 41")
	})
}

// The look does not see what the update has moved from under the key.
func TestUpdateRowThatChangesSeveralRowsWritesNothing(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		ctx, _ := db.raised(unique("r"), 33, "A")
		db.must("create table if not exists part (kind text, stock int, fence_token bigint not null default 0)")
		db.must(`create or replace function moved() returns trigger language plpgsql as $$ begin new.kind = 'moved'; return new; end $$`)
		db.must("create or replace trigger moved before update on part for each row execute function moved()")
		db.must("truncate part")
		db.must("insert into part values ('a', 1), ('a', 2)")
		err := pgguard.UpdateRow(ctx, db.pool, pgguard.RowUpdate{
			Table: pgx.Identifier{"part"}, Resource: guard.Fences(ctx)[0].Resource,
			Key: map[string]any{"kind": "a"}, Set: map[string]any{"stock": 9},
		})
		require.ErrorContains(t, err, "several rows, nothing was written")
		require.Equal(t, 3, one[int](db, "select sum(stock)::int from part"))
	})
}

func TestUpdateRowQuotesNames(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		ctx, _ := db.raised(unique("r"), 33, "A")
		resource := guard.Fences(ctx)[0].Resource
		db.must(`create table if not exists "Odd ""table" ("the ""key" int, "part;2" text, "v'" text, doc jsonb, "To ken" bigint)`)
		db.must(`truncate "Odd ""table"`)
		db.must(`insert into "Odd ""table" values (1, 'a', 'old', '{"k": 1}', null)`)
		require.NoError(t, pgguard.UpdateRow(ctx, db.guard, pgguard.RowUpdate{
			Table: pgx.Identifier{`Odd "table`}, Resource: resource, Column: "To ken",
			Key:    map[string]any{`the "key`: 1, "part;2": "a"},
			Set:    map[string]any{"v'": pgguard.Expr(`"v'" || ?::text || '?' || $q$?$q$ /* ? */`, "+new"), "doc": nil},
			Filter: pgguard.Expr("doc ?? 'k' and ?::text = E'it\\'s ?'", "it's ?"),
		}))
		var v string
		var token int
		require.NoError(t, db.pool.QueryRow(t.Context(), `select "v'", "To ken" from "Odd ""table" where doc is null`).Scan(&v, &token))
		require.Equal(t, "old+new??", v)
		require.Equal(t, 33, token)
	})
}

func TestUpdateRowNamesTheColumnThatIsMissing(t *testing.T) {
	eachMode(t, func(t *testing.T, db *database) {
		ctx, _ := db.raised(unique("r"), 33, "A")
		u := sale(guard.Fences(ctx)[0].Resource, "x")
		u.Column = "version"
		for name, tx := range map[string]interface {
			SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
		}{"pool": db.pool, "guard": db.guard} {
			require.ErrorContains(t, pgguard.UpdateRow(ctx, tx, u), `the table has no column "version", which keeps the token; add it with "fencectl protect"`, name)
		}
		u.Column, u.Set = "", map[string]any{"price": 1}
		require.NotContains(t, pgguard.UpdateRow(ctx, db.pool, u).Error(), "keeps the token")
	})
}

func TestUpdateRowTakesOneRoundTrip(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	trips := &tripCounter{}
	pool := newPool(t, db.url, trips.count)
	ctx, _ := db.raised("r", 33, "A")
	db.must("insert into item values ('x', 100)")
	require.NoError(t, pgguard.UpdateRow(ctx, pool, sale("r", "x")))
	trips.reset()
	require.NoError(t, pgguard.UpdateRow(ctx, pool, sale("r", "x")))
	require.Equal(t, 1, trips.reset())
}

func TestUpdateRowRefusesNonsenseBeforeItIsSent(t *testing.T) {
	t.Parallel()
	ctx := guard.NewContext(t.Context(), fence("r", 1, "A"))
	for want, change := range map[string]func(u *pgguard.RowUpdate){
		"no name":           func(u *pgguard.RowUpdate) { u.Table = nil },
		"is empty":          func(u *pgguard.RowUpdate) { u.Table = pgx.Identifier{"public", ""} },
		"NUL":               func(u *pgguard.RowUpdate) { u.Key = map[string]any{"i\x00d": 1} },
		"no column":         func(u *pgguard.RowUpdate) { u.Key = nil },
		"equals nothing":    func(u *pgguard.RowUpdate) { u.Key = map[string]any{"id": nil} },
		"use Filter":        func(u *pgguard.RowUpdate) { u.Key = map[string]any{"id": pgguard.Expr("?", 1)} },
		"Key and in Set":    func(u *pgguard.RowUpdate) { u.Set = map[string]any{"id": 1} },
		"the fence's own":   func(u *pgguard.RowUpdate) { u.Set = map[string]any{"fence_token": 1} },
		"more ?":            func(u *pgguard.RowUpdate) { u.Filter = pgguard.Expr("a = ? and b = ?", 1) },
		"fewer ?":           func(u *pgguard.RowUpdate) { u.Set = map[string]any{"a": pgguard.Expr("'?'", 1)} },
		"do not match":      func(u *pgguard.RowUpdate) { u.Filter = pgguard.Expr("true) or (true") },
		"expression \"(1\"": func(u *pgguard.RowUpdate) { u.Set = map[string]any{"a": pgguard.Expr("(1")} },
		"\"')' + 1) --\"":   func(u *pgguard.RowUpdate) { u.Set = map[string]any{"a": pgguard.Expr("')' + 1) --")} },
		"no text":           func(u *pgguard.RowUpdate) { u.Filter = pgguard.Expr("", 1) },
	} {
		u := sale("r", "x")
		change(&u)
		err := pgguard.UpdateRow(ctx, nil, u)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "nothing was sent")
	}
	invalid := guard.NewContext(t.Context(), guard.Fence{Resource: "r"})
	require.ErrorIs(t, pgguard.UpdateRow(invalid, nil, sale("r", "x")), guard.ErrInvalid)
}
