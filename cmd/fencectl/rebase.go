package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/hint"
	"github.com/go-fencing/fencing/migrations"
)

const (
	// No resource gets above poisoned by counting, and rebaseTo is more than any has
	// counted to: a million acquisitions a second take 140 years.
	poisoned = guard.Token(1 << 62)
	rebaseTo = guard.Token(1 << 52)

	// room is how far above a fence its tokens may be: what the function rebase of the
	// fence schema leaves open, and as far as a fence may be ahead of a counter.
	room = guard.Token(1 << 56)

	// openTransactions is how long to wait for transactions under the fence, in milliseconds.
	openTransactions = 3000
)

// A rebasing is what "fencectl rebase" was asked for.
type rebasing struct {
	resource string
	keys     redisFlags
	to       guard.Token // 0: to be found
	yes      bool
}

func newRebase(a *app) *cobra.Command {
	var r rebasing
	var to int64
	cmd := &cobra.Command{
		Use:   "rebase RESOURCE",
		Short: "Bring a resource back into use whose fence or counter is poisoned",
		Long: `Bring a resource back into use whose tokens have come to an end: its counter or its
fence was set near 2^63, by a mistake or by hand, and acquisitions end in "implausible
jump" or "tokens exhausted". Without --yes it says what it would do, and takes it back:
for that too it waits for the gate of the resource, 3s at most.

A poisoned fence, near 2^62 or above, is lowered under the gate of the resource: to where
it jumped from, but not below 2^52, what a counter has got to, or --to. With --to any fence
that has jumped by 2^56 or more is. This happens once for each resource. Its earlier
holders stay refused: those with a token up to the new one, and those with one from 2^56
above it on, which are given up for good. Of a fence that was poisoned before migration 5
it is not known where it jumped from: --to must not be below any other token that was ever
raised for it then, if 2^52 is. Any other fence stays as it is, with its holder.

Counters (in Redis, where --redis names it; of sequencer/pgseq and lock/pglock) go back to
the fence, but not below 2^52, if they are near the end or above what may be raised, and up
to it if they are too far behind. Others that share a counter are repaired at their next
acquisition, or need a rebase too. Not for redisguard, objectguard, and the guards on MySQL
and SQLite. What lock/redlock counts with is another thing under the same key: leave --redis
out, and where its counters are poisoned too, set the field "token" there, on all nodes while
nobody acquires.

It refuses while the lock is held in Redis or by lock/pglock, and while a transaction under
the fence is open; who holds the lock of another back end is refused from its next write on.
The version columns of "fencectl protect" are left as they are, because under the row rule
nothing would refuse the earlier holders any more; if some rows are above the new fence, it
says so. It takes the owner of the fence schema.`,
		Example: `  fencectl rebase inventory:sku-42 --postgres postgres://owner@db/shop --redis redis://cache
  fencectl rebase inventory:sku-42 --yes`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("rebase takes the name of one resource, not %d arguments", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r.resource, r.to = args[0], guard.Token(to)
			if err := errors.Join(notAnAddress("rebase", r.resource), guard.ValidateResource(r.resource), r.keys.check()); err != nil {
				return err
			}
			return a.rebase(cmd.Context(), &r)
		},
	}
	r.keys.add(a, cmd)
	addNumberFlag(cmd, &to, "to", "`token` that a fence which has jumped is lowered to, if it has jumped from a smaller one", 1, int64(poisoned))
	cmd.Flags().BoolVar(&r.yes, "yes", false, "do it")
	return cmd
}

// A change is one number that was set, or would be.
type change struct {
	What   string `json:"what"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// A rebased resource is what a script learns.
type rebased struct {
	Resource string      `json:"resource"`
	Done     bool        `json:"done"`
	Changes  []change    `json:"changes"`
	Fence    guard.Token `json:"fence"`                // in force afterwards; 0: none
	Ceiling  guard.Token `json:"given_up_from"`        // 0: nothing was given up
	Rows     []staleRows `json:"rows_above,omitempty"` // in version columns
	Redis    bool        `json:"redis"`                // whether its counter was looked at
}

func (a *app) rebase(ctx context.Context, r *rebasing) error {
	d, err := a.openDatabase() // it decides: without it nothing is known about a counter
	if err != nil {
		return err
	}
	defer d.close(ctx)
	result := &rebased{Resource: r.resource, Done: r.yes, Changes: []change{}}
	var counter *redisCounter
	if a.redisSetting().Value != "" {
		if counter, err = a.openCounter(ctx, r); err != nil {
			return err
		}
		defer counter.close()
		result.Redis = true
	}
	shard, err := a.rebaseFence(ctx, d, r, counter, result)
	if err != nil {
		return err
	}
	if counter != nil {
		if err := counter.rebase(ctx, shard, r.yes, result); err != nil {
			return err
		}
	}
	if a.json {
		return a.printJSON(result)
	}
	return a.say("%s", result)
}

// rebaseFence has the database do its part, or takes that back if it was only to be shown.
func (a *app) rebaseFence(ctx context.Context, d *database, r *rebasing, counter *redisCounter, result *rebased) (heights, error) {
	var shard heights
	shown := errors.New("shown")
	err := pgx.BeginFunc(ctx, d, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE; SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL lock_timeout = '10s'"); err != nil {
			return err
		}
		version, err := migrations.Version(ctx, tx, migrations.WithSchema(a.schema))
		if err != nil {
			return err
		}
		if version < rebaseVersion {
			return fmt.Errorf("the fence schema %q is at version %d and this needs %d; run %q", a.schema, version, rebaseVersion, hint.Fencectl("migrate up", a.schema))
		}
		t := tables{tx, a.schema}
		if shard, err = t.heights(ctx, r, counter); err != nil {
			return err
		}
		to, err := shard.choose(r.to)
		if err != nil {
			return err
		}
		if shard.ceiling == 0 && shard.fence-to >= room { // before the gate is taken: tables may be large
			if result.Rows, err = t.rowsAbove(ctx, to); err != nil {
				return err
			}
		}
		if err := t.rebase(ctx, r.resource, to, result); err != nil {
			return err
		}
		if shard.fence, shard.ceiling, err = t.fence(ctx, r.resource); err != nil {
			return err
		}
		result.Fence, result.Ceiling = shard.fence, shard.ceiling
		if !r.yes {
			return shown
		}
		return nil
	})
	if errors.Is(err, shown) {
		err = nil
	}
	return shard, inUse(d.explain(err))
}

// inUse gives what is not to be disturbed the exit code of a bad answer.
func inUse(err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok:
		return err
	case pgErr.Code == "55P03" && pgErr.Detail != "": // a transaction under the fence, of which the detail tells
		var by struct {
			PID         int32
			Application string `json:"application_name"`
			State       string
		}
		_ = json.Unmarshal([]byte(pgErr.Detail), &by) // the code alone decides
		return &exited{exitAnswer, fmt.Errorf("rebase: a transaction under the fence is open, of backend %d (%s, %s): %w", by.PID, orDash(by.Application), orDash(by.State), err)}
	case pgErr.Code == "55006": // object_in_use
		return &exited{exitAnswer, fmt.Errorf("rebase: %w", err)}
	case pgErr.Code == "42501": // insufficient_privilege
		return fmt.Errorf("rebase: %w; connect as the owner of the schema", err)
	}
	return fmt.Errorf("rebase: %w", err)
}

func (r *rebased) String() string {
	var b strings.Builder
	verb := map[bool]string{true: "is rebased", false: "would be rebased"}[r.Done]
	if len(r.Changes) == 0 {
		verb = "needs nothing"
	}
	fmt.Fprintf(&b, "%s %s; ", r.Resource, verb)
	switch {
	case r.Fence == 0:
		b.WriteString("it has no fence\n")
	case r.Ceiling > 0:
		fmt.Fprintf(&b, "its fence is at %d, and tokens from %d on are given up\n", r.Fence, r.Ceiling)
	default:
		fmt.Fprintf(&b, "its fence is at %d\n", r.Fence)
	}
	for _, c := range r.Changes {
		fmt.Fprintf(&b, "  %s: %s → %s\n", c.What, c.Before, c.After)
	}
	for _, rows := range r.Rows {
		fmt.Fprintf(&b, "  %s\n", rows.says(r.Fence))
	}
	if !r.Redis {
		b.WriteString("  Redis is not named, so its counter was not looked at\n")
	}
	if !r.Done && len(r.Changes) > 0 {
		b.WriteString("nothing was changed; do it with --yes\n")
	}
	return b.String()
}
