package main_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// finds returns what the doctor says of one check. The exit code is not looked at: the
// tests' server does not wait for its disk.
func (d database) finds(t *testing.T, check string, args ...string) (all []finding) {
	t.Helper()
	r := run(t, append([]string{"doctor", "--json", "--postgres", d.url}, args...)...)
	var found []finding
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &found), r.stderr)
	for _, f := range found {
		if f.Check == check {
			all = append(all, f)
		}
	}
	return all
}

func (d database) requireFound(t *testing.T, check, level, says string, args ...string) {
	t.Helper()
	found := d.finds(t, check, args...)
	require.Len(t, found, 1)
	require.Equal(t, level, found[0].Level, found[0].Says)
	require.Contains(t, found[0].Says, says)
}

// Each of these lets a write pass, and each is put back by the same protection.
func TestS38_DoctorMissesNoTrigger(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ broken, level, says string }{
		"insert":                   {"drop trigger fencing_insert on plain", "fail", "public.plain lacks fencing_insert"},
		"update":                   {"drop trigger fencing_update on plain", "fail", "public.plain lacks fencing_update"},
		"delete":                   {"drop trigger fencing_delete on plain", "fail", "public.plain lacks fencing_delete"},
		"truncate":                 {"drop trigger fencing_truncate on plain", "fail", "public.plain lacks fencing_truncate"},
		"two":                      {"drop trigger fencing_insert on plain; drop trigger fencing_delete on plain", "fail", "public.plain lacks fencing_insert, fencing_delete"},
		"disabled":                 {"alter table plain disable trigger fencing_truncate", "fail", "fencing_truncate of public.plain does not fire always"},
		"not on a subscriber":      {"alter table plain enable trigger fencing_delete", "fail", "fencing_delete of public.plain does not fire always"},
		"on a subscriber only":     {"alter table plain enable replica trigger fencing_insert", "fail", "fencing_insert of public.plain does not fire always"},
		"all are disabled":         {"alter table plain disable trigger all", "fail", "fencing_delete, fencing_insert, fencing_truncate, fencing_update of public.plain"},
		"of a whole":               {"drop trigger fencing_update on parts", "fail", "public.parts lacks fencing_update; public.parts_a lacks fencing_update"},
		"of a part":                {"drop trigger fencing_truncate on parts_a", "warn", "partitions that are newer than the protection: public.parts_a"},
		"a part's is off":          {"alter table parts_a disable trigger fencing_insert", "fail", "fencing_insert of public.parts_a does not fire always"},
		"a later part":             {"create table parts_b partition of parts for values in ('b')", "warn", "public.parts_b"},
		"of a child":               {"drop trigger fencing_insert on derived", "fail", "public.derived lacks fencing_insert"},
		"a later child":            {"create table later () inherits (base)", "fail", "public.later lacks fencing_insert, fencing_update, fencing_delete, fencing_truncate"},
		"a part that was detached": {"alter table parts detach partition parts_a", "fail", "public.parts_a lacks fencing_insert, fencing_update, fencing_delete"},
		"nothing":                  {"select", "ok", "5 tables protected: public.base, public.derived, public.parts, public.parts_a, public.plain"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := migrated(t)
			db.exec(t, `create table plain (sku text); create table parts (sku text) partition by list (sku); create table parts_a partition of parts for values in ('a');
				create table base (sku text); create table derived () inherits (base)`)
			protect := func() {
				for _, table := range []string{"plain", "parts", "base"} {
					ok(t, "protect", table, "--resource=sku", "--trigger", "--postgres", db.url)
				}
			}
			protect()
			db.exec(t, c.broken)
			db.requireFound(t, "triggers", c.level, c.says)
			if name == "a part that was detached" {
				return
			}
			protect()
			require.Equal(t, "ok", db.finds(t, "triggers")[0].Level, "it does what it was told to do")
		})
	}
}

func TestDoctorTakesATriggerByHandAsItIs(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	db.exec(t, "create table plain (sku text); create trigger mine before delete on plain for each row execute function fencing.refuse_write()")
	db.requireFound(t, "triggers", "fail", "mine of public.plain does not fire always")
	db.exec(t, "alter table plain enable always trigger mine")
	db.requireFound(t, "triggers", "ok", "1 table protected: public.plain")
}

func TestDoctorLooksAtTheRightsOfColumns(t *testing.T) {
	t.Parallel()
	for grant, want := range map[string]struct{ level, says string }{
		"insert (resource, token) on fencing.fence":   {"fail", "INSERT(resource), INSERT(token) on fencing.fence to PUBLIC"},
		"references (shard) on fencing.lease_counter": {"fail", "REFERENCES(shard) on fencing.lease_counter to PUBLIC"},
		"select on fencing.lease":                     {"warn", "SELECT on fencing.lease to PUBLIC"},
		"select (members) on fencing.lease":           {"warn", "SELECT(members) on fencing.lease to PUBLIC"},
		"select (resource, token) on fencing.fence":   {"ok", ""},
		"select on fencing.operation":                 {"ok", ""},
	} {
		db := migrated(t)
		db.exec(t, "grant "+grant+" to public")
		db.requireFound(t, "rights", want.level, want.says)
	}
}

func TestDoctorSaysWhatIsGone(t *testing.T) {
	t.Parallel()
	for broken, says := range map[string]string{
		"drop table fencing.lease_spent":                       `lacks "fencing".lease_spent`,
		"drop table fencing.fence cascade":                     `lacks "fencing".fence`,
		"drop function fencing.refuse_write() cascade":         `lacks "fencing".refuse_write()`,
		"drop function fencing.once(text)":                     `lacks "fencing".once(text)`,
		"truncate fencing.lease_counter":                       `"fencing".lease_counter has 0 of its 1024 rows`,
		"delete from fencing.lease_counter where shard = 1023": "has 1023 of its 1024 rows",
	} {
		db := migrated(t)
		db.requireFound(t, "schema", "ok", "up to date")
		role := newRole(t, db, "")
		db.exec(t, broken)
		db.requireFound(t, "schema", "fail", says, "--role", role)
		db.requireFound(t, "role", "ok", "may raise and enter", "--role", role)
		db.requireFound(t, "triggers", "ok", "no table is protected")
		require.NotContains(t, run(t, "doctor", "--postgres", db.url).stderr, "scan")
	}
}

func TestDoctorLooksAtWhatASchemaDoesNotHide(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	role := newRole(t, db, half1)
	db.exec(t, "revoke usage on schema fencing from public")
	db.url = as(t, db.url, role, half1)
	db.requireFound(t, "schema", "warn", "not looked at: permission denied for schema fencing")
	db.requireFound(t, "rights", "ok", "none but their owner")
	db.requireFound(t, "triggers", "ok", "no table is protected")
	db.requireFound(t, "fences", "warn", "not looked at")
}

func TestDoctorLooksAtTheRoleOfAService(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	ok(t, "migrate", "up", "--postgres", db.url, "--schema=My Fences")
	role := newRole(t, db, half1)
	looksAt := func(level, says string) {
		t.Helper()
		db.requireFound(t, "role", level, says, "--role", role)
	}
	require.Empty(t, db.finds(t, "role"))
	looksAt("ok", `"`+role+`" may raise and enter, and not write the fence tables`)
	db.requireFound(t, "role", "ok", "may raise and enter", "--role", role, "--schema=My Fences")

	db.exec(t, "revoke usage on schema fencing from public")
	looksAt("fail", "has no USAGE of the schema")
	require.Contains(t, db.finds(t, "role", "--role", role)[0].Do, `GRANT USAGE ON SCHEMA "fencing" TO "`+role+`"`)
	db.exec(t, db.finds(t, "role", "--role", role)[0].Do)
	looksAt("ok", "")

	for _, f := range []string{"raise(text, bigint, text, text, integer)", "enter(text, bigint, text, integer)", "protocol()"} {
		db.exec(t, "revoke execute on function fencing."+f+" from public")
		looksAt("fail", `may not EXECUTE "fencing".`+f)
		db.exec(t, db.finds(t, "role", "--role", role)[0].Do)
		looksAt("ok", "")
	}
	db.exec(t, "revoke execute on function fencing.once(text) from public")
	looksAt("warn", `may not EXECUTE "fencing".once(text), which`)
	db.exec(t, "grant execute on function fencing.once(text) to "+role+"; grant update (token) on fencing.fence to "+role)
	looksAt("warn", "may write the fence tables")

	fails(t, 2, `--role "nobody": there is no such role`, "doctor", "--postgres", db.url, "--role=nobody")
	fails(t, 2, "--role: no database", "doctor", "--redis=redis://127.0.0.1:1", "--role=app")
}
