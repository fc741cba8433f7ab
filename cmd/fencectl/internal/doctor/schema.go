package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/go-fencing/fencing/internal/hint"
)

// ErrNoRole: there is no role of the name that was given.
var ErrNoRole = errors.New("there is no such role")

// rights looks who could write the tables of the fence schema around its functions, or
// read there what makes a holder.
func (p *postgres) rights(ctx context.Context) error {
	const sql = `
with granted as (
	select c.oid, null::name as attname, a.grantee, a.privilege_type from pg_class c, aclexplode(c.relacl) a
	 where c.relnamespace = $1::text::regnamespace and c.relkind = 'r' and a.grantee <> c.relowner
	union all
	select c.oid, t.attname, a.grantee, a.privilege_type from pg_class c join pg_attribute t on t.attrelid = c.oid, aclexplode(t.attacl) a
	 where c.relnamespace = $1::text::regnamespace and c.relkind = 'r' and a.grantee <> c.relowner and not t.attisdropped
), said as (
	select privilege_type = 'SELECT' as reads, oid, grantee, privilege_type || coalesce('(' || quote_ident(attname) || ')', '') as what
	  from granted
	 where privilege_type <> 'SELECT' or exists (select from pg_attribute n where n.attrelid = oid and n.attname in ('nonce', 'members') and n.attname = coalesce(granted.attname, n.attname))
), tables as (
	select reads, format('%s on %s to %s', string_agg(distinct what, ', '), oid::regclass, case grantee when 0 then 'PUBLIC' else grantee::regrole::text end) as what
	  from said group by reads, oid, grantee
)
select coalesce(string_agg(what, '; ' order by what) filter (where not reads), ''), coalesce(string_agg(what, '; ' order by what) filter (where reads), '') from tables`
	var writes, reads string
	if err := p.tx.QueryRow(ctx, sql, pgx.Identifier{p.schema}.Sanitize()).Scan(&writes, &reads); err != nil {
		return err
	}
	if writes != "" {
		p.add(Fail, "rights", "granted: "+writes+": fences can be changed around the rules", "REVOKE it; a service needs no right on these tables")
	}
	if reads != "" {
		p.add(Warn, "rights", "granted: "+reads+": who reads a nonce can enter or release in the place of its holder", "REVOKE it; \"fencectl ls\" by the owner shows who holds what")
	}
	if writes == "" && reads == "" {
		p.ok("rights", "none but their owner may write the tables of %q, or read a nonce there", p.schema)
	}
	return nil
}

// The functions without which no guard works, those that some programs call, and those that
// are called by these and by triggers.
var (
	guardFunctions = []string{"version()", "protocol()", "raise(text, bigint, text, text, integer)", "enter(text, bigint, text, integer)", "enter_all(text[], bigint[], text[], integer)"}
	otherFunctions = []string{
		"issue(text, text, text, integer)", "next_token(text, bigint, bigint)", "once(text)",
		"lease_acquire(text, text, text, bigint, bigint, bigint, integer)", "lease_acquire_in_turn(text, text, text, bigint, bigint, bigint, integer, bigint)",
		"lease_withdraw(text, text)", "lease_renew(text[], text[], bigint[], text)", "lease_release(text, text, text)", "lease_holding(text)",
	}
	innerFunctions = []string{
		"check_raise(text, text)", "close_gate(text, text, integer)", "refuse_write()", "note_jump()", "refuse_given_up()",
		"lease_hash(text)", "lease_gate(text)", "lease_left(timestamptz)", "lease_durable(boolean)", "lease_wake(text)", "lease_primary()", "lease_sweep()",
		"lease_spend(text, text, text)", "lease_unspent(text, text)", "lease_token(text, bigint, bigint)",
	}
)

// whole looks whether a table, a function or a counter of the schema is gone: what needs it
// fails.
func (p *postgres) whole(ctx context.Context, version int) error {
	const sql = `
select array(select f from unnest($1::text[]) f where to_regprocedure(f) is null) || array(select t from unnest($2::text[]) t where to_regclass(t) is null),
       coalesce(has_table_privilege(to_regclass($3), 'SELECT'), false)`
	tables := p.qualified([]string{"fence", "sequence", "operation", "lease", "lease_counter", "lease_queue", "lease_spent"})
	counters := p.qualified([]string{"lease_counter"})[0]
	var gone []string
	var may bool
	if err := p.tx.QueryRow(ctx, sql, p.qualified(slices.Concat(guardFunctions, otherFunctions, innerFunctions)), tables, counters).Scan(&gone, &may); err != nil {
		return err
	}
	there := 1024
	if may {
		if err := p.tx.QueryRow(ctx, "select count(*) from "+counters+" where shard between 0 and 1023").Scan(&there); err != nil {
			return err
		}
	}
	if len(gone) > 0 {
		p.add(Fail, "schema", fmt.Sprintf("the fence schema %q lacks %s: what needs it fails", p.schema, strings.Join(gone, ", ")), "restore it from a backup")
	}
	if there < 1024 {
		p.add(Fail, "schema", fmt.Sprintf("%s has %d of its 1024 rows, as after TRUNCATE or a restore without data: pglock gets no token for the others", counters, there),
			"restore them from a backup, or insert shards 0 to 1023 with a token above every one that was ever handed out")
	}
	if len(gone) == 0 && there == 1024 {
		p.ok("schema", "fence schema %q is at version %d, up to date", p.schema, version)
	}
	return nil
}

// qualified returns names with the schema before them.
func (p *postgres) qualified(names []string) (all []string) {
	for _, name := range names {
		all = append(all, pgx.Identifier{p.schema}.Sanitize()+"."+name)
	}
	return all
}

// role looks whether the role of a service may do its work, and nothing more.
func (p *postgres) role(ctx context.Context) error {
	if p.service == "" {
		return nil
	}
	schema := pgx.Identifier{p.schema}.Sanitize()
	role := pgx.Identifier{p.service}.Sanitize()
	const sql = `
select has_schema_privilege(r.oid, $2::text::regnamespace, 'USAGE'), r.rolsuper,
       exists (select from pg_class c where c.relnamespace = $2::text::regnamespace and c.relkind = 'r' and pg_has_role(r.oid, c.relowner, 'USAGE')),
       exists (select from pg_class c where c.relnamespace = $2::text::regnamespace and c.relkind = 'r' and has_any_column_privilege(r.oid, c.oid, 'INSERT, UPDATE'))
  from pg_roles r where r.rolname = $1`
	var usage, super, owns, writes bool
	err := p.tx.QueryRow(ctx, sql, p.service, schema).Scan(&usage, &super, &owns, &writes)
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("--role %q: %w", p.service, ErrNoRole)
	} else if err != nil {
		return err
	}
	needed, err := p.forbidden(ctx, guardFunctions)
	if err != nil {
		return err
	}
	others, err := p.forbidden(ctx, otherFunctions)
	if err != nil {
		return err
	}
	switch {
	case !usage:
		p.add(Fail, "role", fmt.Sprintf("%s has no USAGE of the schema %s: no guard of it works", role, schema), fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s", schema, role))
	case len(needed) > 0:
		p.add(Fail, "role", fmt.Sprintf("%s may not EXECUTE %s: no guard of it works", role, strings.Join(needed, ", ")), p.grant(needed, role))
	case len(others) > 0:
		p.add(Warn, "role", fmt.Sprintf("%s may not EXECUTE %s, which Issue, Once, pgseq and pglock call", role, strings.Join(others, ", ")), "if it uses one of these: "+p.grant(others, role))
	case super, owns:
		by := "their owner, or a member of it"
		if super {
			by = "a superuser"
		}
		p.add(Warn, "role", role+" may write the fence tables, as "+by+": nothing keeps its mistakes from them", "give the service a role of its own, without any right on these tables")
	case writes:
		p.add(Warn, "role", role+" may write the fence tables, by a GRANT to it, to a role that it is a member of, or to PUBLIC: nothing keeps its mistakes from them", "REVOKE it (\"rights\" lists what is granted); a service needs no right on these tables")
	default:
		p.ok("role", "%s may raise and enter, and not write the fence tables", role)
	}
	return nil
}

func (p *postgres) grant(functions []string, role string) string {
	return fmt.Sprintf("GRANT EXECUTE ON FUNCTION %s TO %s", strings.Join(functions, ", "), role)
}

// forbidden returns which of the functions are there and the role may not call them.
func (p *postgres) forbidden(ctx context.Context, functions []string) ([]string, error) {
	const sql = "select f from unnest($1::text[]) f where not has_function_privilege($2::name, to_regprocedure(f)::oid, 'EXECUTE')"
	rows, _ := p.tx.Query(ctx, sql, p.qualified(functions), p.service) // its error is that of the rows
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// triggers looks at the tables that are protected, and at all of their parts: each needs
// the four triggers of migrations.Protect. A new partition gets those of the rows by
// itself.
func (p *postgres) triggers(ctx context.Context) error {
	const sql = `
with recursive ours as (
	select t.tgrelid, t.tgname, t.tgenabled from pg_trigger t join pg_proc f on f.oid = t.tgfoid
	 where f.pronamespace = $1::text::regnamespace and f.proname = 'refuse_write'
), needed (name) as (values ('fencing_insert'), ('fencing_update'), ('fencing_delete'), ('fencing_truncate')
), tree as (
	select tgrelid as oid from ours join needed on name = tgname
	union
	select i.inhrelid from pg_inherits i join tree on i.inhparent = tree.oid
)
select oid::regclass::text, relispartition,
       array(select name from needed where oid in (select oid from tree) and name not in (select tgname from ours where tgrelid = oid)),
       array(select tgname::text from ours where tgrelid = oid and tgenabled <> 'A' order by 1)
  from (select oid from tree union select tgrelid from ours) o join pg_class using (oid) order by 1`
	rows, err := p.tx.Query(ctx, sql, pgx.Identifier{p.schema}.Sanitize())
	if err != nil {
		return err
	}
	var protected, wrong, late []string
	var table string
	var partition bool
	var missing, off []string
	_, err = pgx.ForEachRow(rows, []any{&table, &partition, &missing, &off}, func() error {
		protected = append(protected, table)
		switch {
		case partition && len(off) == 0 && len(missing) == 1 && missing[0] == "fencing_truncate":
			late = append(late, table)
			return nil
		case len(missing) > 0:
			wrong = append(wrong, table+" lacks "+strings.Join(missing, ", "))
		}
		if len(off) > 0 {
			wrong = append(wrong, strings.Join(off, ", ")+" of "+table+" does not fire always")
		}
		return nil
	})
	again := "run " + hint.Fencectl("protect TABLE --trigger", p.schema) + " again, with the --resource from before: it puts back what is missing, or off"
	if err != nil {
		return err
	}
	if len(wrong) > 0 {
		p.add(Fail, "triggers", strings.Join(wrong, "; ")+": such writes pass unguarded", again)
	}
	if len(late) > 0 {
		p.add(Warn, "triggers", "a TRUNCATE passes unguarded on partitions that are newer than the protection: "+strings.Join(late, ", "), again+", for the whole table")
	}
	switch {
	case len(wrong) > 0, len(late) > 0:
	case len(protected) == 0:
		p.ok("triggers", "no table is protected by triggers; guards alone refuse")
	default:
		p.ok("triggers", "%s protected: %s", count(len(protected), "table"), strings.Join(protected, ", "))
	}
	return nil
}
