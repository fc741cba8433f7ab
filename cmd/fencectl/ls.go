package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/target"
	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/hint"
	"github.com/go-fencing/fencing/internal/rediscluster"
	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/redislock"
)

func newLs(a *app) *cobra.Command {
	var keys redisFlags
	limit := 1000
	cmd := &cobra.Command{
		Use:   "ls [PREFIX]",
		Short: "List who holds what: fences in the database, locks in Redis or in Postgres",
		Long: `List the resources whose names begin with PREFIX, in the order of their names: the
fence that is in force in the database and since when, and the lock that is held,
in Redis or by lock/pglock, and for how long at most.

A fence without a lock is normal: a release leaves it. Its holder may still write,
until the next one raises. Fences are for the owner of the schema to read, not for the role of a
service.

A list that --limit cuts short has exit code 0 all the same, and only stderr says so: a
script that gets as many entries as --limit should take it that there are more.`,
		Example: `  fencectl ls inventory: --postgres postgres://owner@db/shop --redis redis://cache
  fencectl ls --json | jq '.[] | select(.lock)'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("ls takes one PREFIX at most, not %d arguments", len(args))
			}
			return notAnAddress("ls", strings.Join(args, ""))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := keys.check(); err != nil {
				return err
			}
			if limit < 1 {
				return fmt.Errorf("--limit: %d is not positive", limit)
			}
			return a.ls(cmd.Context(), &keys, strings.Join(args, ""), limit)
		},
	}
	keys.add(a, cmd)
	cmd.Flags().IntVar(&limit, "limit", limit, "most resources that are listed")
	return cmd
}

// An entry is what is known of one resource.
type entry struct {
	Resource string    `json:"resource"`
	Fence    *fenceRow `json:"fence,omitempty"`
	Lock     *lockRow  `json:"lock,omitempty"`
}

type fenceRow struct {
	Token    guard.Token `json:"token"`
	Holder   string      `json:"holder"`
	RaisedAt time.Time   `json:"raised_at"`
}

type lockRow struct {
	Token     guard.Token `json:"token"`
	Holder    string      `json:"holder"`
	Members   int         `json:"members"`
	Remaining int64       `json:"remaining_ms"`
}

// A listing has the entries by resource.
type listing map[string]*entry

func (l listing) of(resource string) *entry {
	if l[resource] == nil {
		l[resource] = &entry{Resource: resource}
	}
	return l[resource]
}

func (a *app) ls(ctx context.Context, keys *redisFlags, prefix string, limit int) error {
	if err := a.needServer("ls"); err != nil {
		return err
	}
	found := listing{}
	if a.postgresSetting().Value != "" {
		if err := a.listPostgres(ctx, found, prefix, limit); err != nil {
			return err
		}
	}
	if a.redisSetting().Value != "" {
		if err := a.listRedis(ctx, found, keys, prefix, limit); err != nil {
			return err
		}
	}
	all := slices.SortedFunc(maps.Values(found), func(x, y *entry) int { return cmp.Compare(x.Resource, y.Resource) })
	if len(all) > limit {
		_, _ = fmt.Fprintf(a.stderr, "fencectl: ls: there are more than %d; see --limit\n", limit)
		all = all[:limit]
	}
	if a.json {
		return a.printJSON(append([]*entry{}, all...)) // never null
	}
	return a.table(all)
}

// listPostgres reads the fences, and the locks of pglock. One more than the limit, so
// that it shows that there are more.
func (a *app) listPostgres(ctx context.Context, found listing, prefix string, limit int) error {
	d, err := a.openDatabase()
	if err != nil {
		return err
	}
	defer d.close(ctx)
	return d.explain(d.look(ctx, func(tx pgx.Tx) error { return a.listTables(ctx, tx, d.address, found, prefix, limit) }))
}

func (a *app) listTables(ctx context.Context, tx pgx.Tx, address *target.Postgres, found listing, prefix string, limit int) error {
	schema := pgx.Identifier{a.schema}.Sanitize()
	var may *bool
	err := tx.QueryRow(ctx, "select has_table_privilege(to_regclass($1), 'SELECT')", schema+".lease").Scan(&may)
	switch {
	case err != nil:
		return err
	case may == nil:
		return fmt.Errorf("%wls: %s: there is no fence schema %q, or an old one; run %q", &silent{errServer}, address, a.schema, hint.Fencectl("migrate up", a.schema))
	case !*may:
		return fmt.Errorf("%wls: %s: this role may not read the fences of %q; connect as the owner of the schema", &silent{errServer}, address, a.schema)
	}
	rows, _ := tx.Query(ctx, "select resource, token, holder, raised_at from "+schema+".fence where starts_with(resource, $1) order by resource limit $2", prefix, limit+1) // its error is that of the rows
	var resource string
	var f fenceRow
	if _, err := pgx.ForEachRow(rows, []any{&resource, (*int64)(&f.Token), &f.Holder, &f.RaisedAt}, func() error {
		row := f
		found.of(resource).Fence = &row
		return nil
	}); err != nil {
		return err
	}
	rows, _ = tx.Query(ctx, "select resource, token, holder, cardinality(members), (extract(epoch from expires_at - clock_timestamp()) * 1000)::bigint from "+schema+
		".lease where starts_with(resource, $1) and expires_at > clock_timestamp() and members <> '{}' order by resource limit $2", prefix, limit+1)
	var l lockRow
	_, err = pgx.ForEachRow(rows, []any{&resource, (*int64)(&l.Token), &l.Holder, &l.Members, &l.Remaining}, func() error {
		row := l
		found.of(resource).Lock = &row
		return nil
	})
	return err
}

// listRedis reads the locks. SCAN disturbs nobody, and may miss what comes and goes.
func (a *app) listRedis(ctx context.Context, found listing, keys *redisFlags, prefix string, limit int) error {
	k, err := a.openRedis(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = k.client.Close() }() // it has only read
	locks, err := redislock.New(k.client, redislock.WithPrefix(keys.scheme.Prefix), redislock.WithShards(keys.scheme.Shards))
	if err != nil {
		return err
	}
	var names []string
	for _, master := range k.masters {
		// Only strings: whatever else has such a name is no lock of ours.
		scan := master.ScanType(ctx, 0, glob(keys.scheme.Prefix)+":lock:{*}:"+glob(prefix)+"*", 1000, "string").Iterator()
		for scan.Next(ctx) {
			if resource, ok := keys.scheme.Resource(scan.Val()); ok && guard.ValidateResource(resource) == nil { // else of another number of shards, or not ours
				names = append(names, resource)
			}
		}
		if err := scan.Err(); err != nil && !errors.Is(err, redis.Nil) {
			return k.address.Unusable(err)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names) // a scan may find a key twice
	n := 0
	for batch := range slices.Chunk(names, 16) {
		batch, err := k.locked(ctx, keys.scheme, batch)
		if err != nil {
			return k.address.Unusable(err)
		}
		held := make([]lock.Holding, len(batch))
		errs := make([]error, len(batch))
		var looks sync.WaitGroup
		for i, resource := range batch {
			looks.Go(func() { held[i], errs[i] = locks.Inspect(ctx, resource) })
		}
		looks.Wait()
		if err := errors.Join(errs...); err != nil {
			return k.address.Unusable(err)
		}
		for _, h := range held {
			if h.Members > 0 {
				found.of(h.Resource).Lock = &lockRow{h.Token, h.Holder, h.Members, h.Remaining.Milliseconds()}
				n++
			}
		}
		if n > limit { // the names are sorted, so the others would not be shown
			return nil
		}
	}
	return nil
}

// locked leaves out the resources under whose keys somebody else has a string of his own,
// which is in nobody's way.
func (k *keyspace) locked(ctx context.Context, scheme rediskeys.Scheme, resources []string) (ours []string, err error) {
	begins := make([]*redis.StringCmd, len(resources))
	rediscluster.Stamp(k.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, r := range resources {
			begins[i] = p.GetRange(ctx, scheme.Lock(r), 0, int64(len("fencing held "))-1)
		}
		return nil
	}))
	for i, begin := range begins {
		switch state, ok := strings.CutPrefix(begin.Val(), "fencing "); {
		case begin.Err() != nil && !redis.HasErrorPrefix(begin.Err(), "WRONGTYPE"):
			return nil, begin.Err()
		case ok && len(state) == len("held ") && strings.HasSuffix(state, " "):
			ours = append(ours, resources[i])
		}
	}
	return ours, nil
}

// glob writes text as a pattern of Redis that matches only it.
func glob(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}

func (a *app) table(all []*entry) error {
	if len(all) == 0 {
		return a.say("nothing\n")
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	_, err := fmt.Fprintln(w, "RESOURCE\tFENCE\tRAISED BY\tAT\tLOCK\tHELD BY\tFOR")
	for _, e := range all {
		fence, held := "-\t-\t-", "-\t-\t-"
		if f := e.Fence; f != nil {
			fence = fmt.Sprintf("%d\t%s\t%s", f.Token, orDash(f.Holder), f.RaisedAt.UTC().Format(time.RFC3339))
		}
		if l := e.Lock; l != nil {
			held = fmt.Sprintf("%d\t%s\t%v", l.Token, orDash(l.Holder), time.Duration(l.Remaining)*time.Millisecond)
		}
		if err == nil {
			_, err = fmt.Fprintf(w, "%s\t%s\t%s\n", cell(e.Resource), fence, held)
		}
	}
	return errors.Join(err, w.Flush())
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return cell(s)
}

// cell quotes a name that would look like another one in a table, for the space around it
// or for its own quotes.
func cell(name string) string {
	if name == "" || strings.TrimSpace(name) != name || name[0] == '"' {
		return strconv.Quote(name)
	}
	return target.OneLine(name)
}
