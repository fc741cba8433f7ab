package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/go-fencing/fencing/guard"
)

// rebaseVersion is the version of the fence schema that can rebase.
const rebaseVersion = 5

// Heights are what is known of the tokens of a resource.
type heights struct {
	fence, ceiling guard.Token
	pgseq, pglock  guard.Token
	redis          guard.Token   // its counter there; 0 where it is none
	others         []guard.Token // the fences of those who share that counter
}

// limit is from where on a token is none that was counted to.
func (h heights) limit() guard.Token {
	if h.ceiling > 0 {
		return h.ceiling
	}
	return poisoned
}

// choose returns the token that everything is to continue above: at least what a
// counter, or a fence that shares one, has got to. Otherwise a holder of a token
// between them could come back, and neighbours of a counter would be left behind it.
func (h heights) choose(to guard.Token) (guard.Token, error) {
	limit, given := h.limit(), to > 0
	if given && h.ceiling == 0 {
		limit = to + room
	}
	highest := guard.Token(0)
	for _, n := range append([]guard.Token{h.fence, h.pgseq, h.pglock, h.redis}, h.others...) {
		if n < limit-1 {
			highest = max(highest, n)
		}
	}
	switch {
	case given && h.ceiling == 0 && h.fence < limit: // it stays
		return to, nil
	case given && to < highest:
		return 0, badUsage("--to %d: tokens up to %d were handed out, or are in force for those that share the counter; a holder of one in between could come back", to, highest)
	case given:
		return to, nil
	case h.fence >= limit-1:
		return max(rebaseTo, highest), nil
	}
	return max(1, highest), nil
}

// tables are those of the fence schema.
type tables struct {
	pgx.Tx
	schema string
}

func (t tables) name(table string) string { return pgx.Identifier{t.schema, table}.Sanitize() }

func (t tables) heights(ctx context.Context, r *rebasing, counter *redisCounter) (h heights, err error) {
	if h.fence, h.ceiling, err = t.fence(ctx, r.resource); err != nil {
		return h, err
	}
	hash := pgx.Identifier{t.schema, "lease_hash"}.Sanitize() + "($1)"
	sql := "SELECT coalesce((SELECT token FROM " + t.name("sequence") + " WHERE resource = $1), 0), coalesce((SELECT token FROM " + t.name("lease_counter") +
		" WHERE shard = get_byte(" + hash + ", 0) * 4 + get_byte(" + hash + ", 1) / 64), 0)"
	if err := t.QueryRow(ctx, sql, r.resource).Scan((*int64)(&h.pgseq), (*int64)(&h.pglock)); err != nil {
		return h, err
	}
	if counter == nil {
		return h, nil
	}
	h.redis = counter.token
	rows, _ := t.Query(ctx, "SELECT resource, token FROM "+t.name("fence")+" WHERE resource <> $1", r.resource) // its error is that of the rows
	var resource string
	var token guard.Token
	_, err = pgx.ForEachRow(rows, []any{&resource, (*int64)(&token)}, func() error {
		if r.keys.scheme.Counter(resource) == counter.keys.Counter {
			h.others = append(h.others, token)
		}
		return nil
	})
	return h, err
}

func (t tables) fence(ctx context.Context, resource string) (token, ceiling guard.Token, err error) {
	sql := "SELECT coalesce(max(token), 0), coalesce(max(ceiling), 0) FROM " + t.name("fence") + " WHERE resource = $1"
	err = t.QueryRow(ctx, sql, resource).Scan((*int64)(&token), (*int64)(&ceiling))
	return token, ceiling, err
}

// The names under which the function rebase reports what it has changed, for a reader.
var rebasedTables = map[string]string{"fence": "fence", "sequence": "counter of sequencer/pgseq", "lease_counter": "counter of lock/pglock"}

func (t tables) rebase(ctx context.Context, resource string, to guard.Token, result *rebased) error {
	rows, _ := t.Query(ctx, "SELECT what, token_before::text, token_after::text FROM "+t.name("rebase")+"($1, $2, $3)", resource, int64(to), openTransactions)
	var c change
	_, err := pgx.ForEachRow(rows, []any{&c.What, &c.Before, &c.After}, func() error {
		c.What = rebasedTables[c.What]
		result.Changes = append(result.Changes, c)
		return nil
	})
	return err
}

// staleRows are rows whose version column refuses everybody from now on.
type staleRows struct {
	Table  string `json:"table"`
	Column string `json:"column"`
	Rows   int64  `json:"rows"` // -1: they could not be looked at
}

func (s staleRows) says(fence guard.Token) string {
	if s.Rows < 0 {
		return fmt.Sprintf("%s of %s was not looked at: this role may not read it", s.Column, s.Table)
	}
	return fmt.Sprintf("%d rows of %s have a %s above the fence, so the row rule refuses their writes. They were left: once no process has a token from before, set it to %d in those of this resource (under a trigger of \"fencectl protect\" by fencing.issue and fencing.enter)", s.Rows, s.Table, s.Column, fence)
}

// rowsAbove looks into the version columns that migrations.Protect has added, which it marks
// by their comment. Of a table with parts only the whole is asked.
func (t tables) rowsAbove(ctx context.Context, fence guard.Token) (found []staleRows, err error) {
	const columns = `
SELECT c.oid::regclass::text, quote_ident(a.attname), has_column_privilege(c.oid, a.attnum, 'SELECT')
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
 WHERE a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('r', 'p') AND a.attislocal AND NOT c.relispartition
   AND starts_with(col_description(a.attrelid, a.attnum::integer), 'fencing: token of the fence under which the row was last written')
 ORDER BY 1, 2`
	rows, _ := t.Query(ctx, columns)
	type column struct {
		Table, Column string
		May           bool
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[column])
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		s := staleRows{c.Table, c.Column, -1}
		if c.May {
			// Both names are quoted by the server.
			if err := t.QueryRow(ctx, "SELECT count(*) FROM "+c.Table+" WHERE "+c.Column+" > $1", int64(fence)).Scan(&s.Rows); err != nil {
				return nil, err
			}
		}
		if s.Rows != 0 {
			found = append(found, s)
		}
	}
	return found, nil
}
