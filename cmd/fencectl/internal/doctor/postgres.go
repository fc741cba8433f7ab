package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/go-fencing/fencing/internal/hint"
	"github.com/go-fencing/fencing/migrations"
)

// Heights are what is known of tokens, by whatever their resources have in common. Nil
// where the role may not read them.
type Heights map[string]Height

// A Height is the greatest token in force, and the least that a rebase has given up; 0 if
// there is none.
type Height struct{ Token, Ceiling int64 }

// Postgres looks at a database, in a transaction that finds only Postgres' own
// functions where a name has no schema. key says under which key the height of a resource
// counts. role is that of a service, which is looked at if it is named. With an error come
// the findings until then; what the role may not see is none.
func Postgres(ctx context.Context, tx pgx.Tx, server, schema, role string, key func(resource string) string) ([]Finding, Heights, error) {
	p := &postgres{findings: findings{server: server}, tx: tx, schema: schema, service: role}
	for _, c := range []check{{"server", p.version}, {"durability", p.durability}, {"replication", p.replicas}, {"gates", p.waiting}} {
		if err := p.look(ctx, c); err != nil {
			return p.all, nil, err
		}
	}
	fits := true // as far as is known
	installed := func(ctx context.Context) error {
		latest, err := p.installed(ctx)
		fits = latest || err != nil
		return err
	}
	if err := p.look(ctx, check{"schema", installed}); err != nil || !fits {
		return p.all, nil, err
	}
	var heights Heights
	fences := func(ctx context.Context) (err error) {
		heights, err = p.fences(ctx, key)
		return err
	}
	for _, c := range []check{{"rights", p.rights}, {"role", p.role}, {"triggers", p.triggers}, {"fences", fences}} {
		if err := p.look(ctx, c); err != nil {
			return p.all, nil, err
		}
	}
	return p.all, heights, nil
}

type check struct {
	name string
	run  func(context.Context) error
}

// look runs a check in a savepoint, so that one which is denied leaves the transaction to
// the others.
func (p *postgres) look(ctx context.Context, c check) error {
	err := pgx.BeginFunc(ctx, p.tx, func(pgx.Tx) error { return c.run(ctx) })
	const insufficientPrivilege = "42501"
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == insufficientPrivilege {
		p.unseen(c.name, pgErr.Message, "connect as the owner of the fence schema")
		return nil
	}
	return err
}

type postgres struct {
	findings
	tx      pgx.Tx
	schema  string
	service string
}

func (p *postgres) version(ctx context.Context) error {
	var version string
	var number int
	var standby bool
	err := p.tx.QueryRow(ctx, "select current_setting('server_version'), current_setting('server_version_num')::int, pg_is_in_recovery()").Scan(&version, &number, &standby)
	switch {
	case err != nil:
		return err
	case number < 140000:
		p.add(Fail, "server", "Postgres "+version, "fencing needs Postgres 14 or later")
	case standby:
		p.add(Fail, "server", "Postgres "+version+", a standby", "name the primary: fences are raised and entered there only, and what is written rests on reads from it")
	default:
		p.ok("server", "Postgres %s, a primary", version)
	}
	return nil
}

// durability is what the promise rests on.
func (p *postgres) durability(ctx context.Context) error {
	var fsync, commit, standbys string
	if err := p.tx.QueryRow(ctx, "select current_setting('fsync'), current_setting('synchronous_commit'), current_setting('synchronous_standby_names')").Scan(&fsync, &commit, &standbys); err != nil {
		return err
	}
	switch {
	case fsync == "off":
		p.add(Fail, "durability", "fsync is off: a crash may lose or damage anything, fences included", "set fsync = on")
	case commit == "off", standbys != "" && (commit == "local" || commit == "remote_write"): // without such standbys these two are on
		p.add(Warn, "durability", "synchronous_commit is "+commit+" for this role: a commit that was acknowledged may be lost; raises are not, they set it for themselves",
			"set synchronous_commit = on for the roles that write guarded tables")
	default:
		p.ok("durability", "fsync is on, synchronous_commit is %s", commit)
	}
	return nil
}

// replicas looks whether a failover would forget fences (S39).
func (p *postgres) replicas(ctx context.Context) error {
	var standbys int
	var names string
	// Backups and subscribers of a publication are there too, and take nothing over.
	const sql = `
select count(*), current_setting('synchronous_standby_names') from pg_stat_replication r
 where r.state is distinct from 'backup' and not exists (select from pg_replication_slots s where s.active_pid = r.pid and s.slot_type = 'logical')`
	if err := p.tx.QueryRow(ctx, sql).Scan(&standbys, &names); err != nil {
		return err
	}
	switch {
	case standbys > 0 && names == "":
		p.add(Warn, "replication", count(standbys, "standby")+", none of them synchronous: a failover may lose raises, and lets their predecessors in again",
			"set synchronous_standby_names, or raise every fence anew after a failover, before you open")
	case standbys > 0:
		p.ok("replication", "%s, synchronous: %s", count(standbys, "standby"), names)
	default:
		p.ok("replication", "no standby is connected")
	}
	return nil
}

// waiting looks who holds up raises at this moment (S5).
func (p *postgres) waiting(ctx context.Context) error {
	var waiters int
	var blocker *int
	var age *time.Duration
	const sql = `
with waiting as (select pid from pg_locks where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database()))
select (select count(*) from waiting), a.pid, now() - a.xact_start
  from (select 1) one left join lateral (
       select b.pid, b.xact_start from waiting w, unnest(pg_blocking_pids(w.pid)) as by (pid) join pg_stat_activity b using (pid)
        where b.pid not in (select pid from waiting) order by b.xact_start limit 1) a on true`
	if err := p.tx.QueryRow(ctx, sql).Scan(&waiters, &blocker, &age); err != nil {
		return err
	}
	if waiters == 0 {
		p.ok("gates", "nobody waits for a transaction of an earlier fence")
		return nil
	}
	says := count(waiters, "session") + " held up at an advisory lock, as a raise is by transactions of an earlier fence"
	if blocker != nil && age != nil {
		says += fmt.Sprintf("; the oldest of those is backend %d, open for %v", *blocker, age.Round(time.Second))
	}
	p.add(Warn, "gates", says, "if it does not end, look at that backend, and end it with pg_terminate_backend(pid)")
	return nil
}

func (p *postgres) installed(ctx context.Context) (bool, error) {
	v, err := migrations.Version(ctx, p.tx, migrations.WithSchema(p.schema))
	up := "run: " + hint.Fencectl("migrate up", p.schema)
	switch {
	case err != nil:
		return false, err
	case v == 0:
		p.add(Fail, "schema", fmt.Sprintf("there is no fence schema %q", p.schema), up)
	case v < migrations.Latest:
		p.add(Fail, "schema", fmt.Sprintf("fence schema %q is at version %d of %d", p.schema, v, migrations.Latest), up)
	case v > migrations.Latest:
		p.add(Warn, "schema", fmt.Sprintf("fence schema %q is at version %d, this program knows %d", p.schema, v, migrations.Latest), "upgrade fencectl")
	default:
		return true, p.whole(ctx, v)
	}
	return v >= migrations.Latest, nil
}

// fences reads the tokens in force.
func (p *postgres) fences(ctx context.Context, key func(resource string) string) (Heights, error) {
	var may *bool
	err := p.tx.QueryRow(ctx, "select has_table_privilege(to_regclass($1), 'SELECT')", pgx.Identifier{p.schema, "fence"}.Sanitize()).Scan(&may)
	if err != nil || may == nil { // they are gone, as whole says
		return nil, err
	}
	if !*may {
		p.ok("fences", "not looked at: this role may not read them, which is as it should be for a service")
		return nil, nil
	}
	rows, err := p.tx.Query(ctx, "select resource, token, coalesce(ceiling, 0) from "+pgx.Identifier{p.schema, "fence"}.Sanitize())
	if err != nil {
		return nil, err
	}
	heights, poisoned, n := Heights{}, "", 0
	var resource string
	var token, ceiling, top int64
	_, err = pgx.ForEachRow(rows, []any{&resource, &token, &ceiling}, func() error {
		n++
		if token > nearTheEnd {
			poisoned, top = resource, token
			return nil // it says nothing about the counters
		}
		h := heights[key(resource)]
		h.Token = max(h.Token, token)
		if ceiling > 0 && (h.Ceiling == 0 || ceiling < h.Ceiling) {
			h.Ceiling = ceiling
		}
		heights[key(resource)] = h
		return nil
	})
	switch {
	case err != nil:
		return nil, errors.Join(errors.New("read the fences"), err)
	case poisoned != "":
		p.add(Fail, "fences", fmt.Sprintf("%q has token %d: near the end of the integers, so no lock gets a greater one", poisoned, top),
			"find out who raised it, then run: "+hint.Fencectl("rebase "+hint.Word(poisoned), p.schema))
	default:
		p.ok("fences", "%s fenced", count(n, "resource"))
	}
	return heights, nil
}
