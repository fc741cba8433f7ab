package migrationtools_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
	tern "github.com/jackc/tern/v2/migrate"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/migrations"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// A run applies the files of a folder to a database, all the way.
type run func(t *testing.T, url string, folder fs.FS) error

type toolUnderTest struct {
	tool     migrations.Tool
	up, down run
}

var tools = []toolUnderTest{
	{
		migrations.Goose,
		withGoose(func(ctx context.Context, p *goose.Provider) error { _, err := p.Up(ctx); return err }),
		withGoose(func(ctx context.Context, p *goose.Provider) error { _, err := p.DownTo(ctx, 0); return err }),
	},
	{migrations.GolangMigrate, withMigrate((*migrate.Migrate).Up), withMigrate((*migrate.Migrate).Down)},
	{
		migrations.Tern,
		withTern((*tern.Migrator).Migrate),
		withTern(func(m *tern.Migrator, ctx context.Context) error { return m.MigrateTo(ctx, 0) }),
	},
}

func withGoose(do func(context.Context, *goose.Provider) error) run {
	return func(t *testing.T, url string, folder fs.FS) error {
		p, err := goose.NewProvider(goose.DialectPostgres, open(t, url), folder)
		require.NoError(t, err)
		return do(t.Context(), p)
	}
}

func withMigrate(do func(*migrate.Migrate) error) run {
	return func(t *testing.T, url string, folder fs.FS) error {
		source, err := iofs.New(folder, ".")
		require.NoError(t, err)
		database, err := migratepgx.WithInstance(open(t, url), &migratepgx.Config{})
		require.NoError(t, err)
		m, err := migrate.NewWithInstance("iofs", source, "pgx5", database)
		require.NoError(t, err)
		err = do(m)
		sourceErr, databaseErr := m.Close()
		return errors.Join(err, sourceErr, databaseErr)
	}
}

func withTern(do func(*tern.Migrator, context.Context) error) run {
	return func(t *testing.T, url string, folder fs.FS) error {
		m, err := tern.NewMigrator(t.Context(), connect(t, url), "public.tern_version")
		require.NoError(t, err)
		require.NoError(t, m.LoadMigrations(folder))
		return do(m, t.Context())
	}
}

func open(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() }) // golang-migrate has closed its own
	return db
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, conn.Close(ctx))
	})
	return conn
}

func folder(files []migrations.File) fstest.MapFS {
	fsys := fstest.MapFS{}
	for _, f := range files {
		fsys[f.Name] = &fstest.MapFile{Data: []byte(f.Content)}
	}
	return fsys
}

// An expression that each tool has its own reasons to stumble over.
const resource = `'it''s; $1 ${HOME} {{ .Name }} %s \ ' || E'\\ ' || "Sku" || $x$;$x$`

func TestToolsApplyTheSchemaAndTheProtection(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{"fencing", `My "{{Schema}}"`} {
		for _, tool := range tools {
			t.Run(string(tool.tool)+" "+schema, func(t *testing.T) {
				t.Parallel()
				up, down, err := migrations.Protect("inventory", migrations.ProtectOptions{Trigger: true, Resource: resource, Schema: schema})
				require.NoError(t, err)
				files, err := migrations.Render(tool.tool, migrations.WithSchema(schema), migrations.StartAt(2))
				require.NoError(t, err)
				more, err := migrations.RenderChanges(
					tool.tool,
					migrations.Change{Number: 1, Name: "inventory", Up: `CREATE TABLE inventory ("Sku" text PRIMARY KEY);`, Down: "DROP TABLE inventory;"},
					migrations.Change{Number: 2 + migrations.Latest, Name: "protect_inventory", Up: up, Down: down},
				)
				require.NoError(t, err)
				fsys := folder(append(files, more...))

				url := servertest.Postgres(t)
				require.NoError(t, tool.up(t, url, fsys))
				conn := connect(t, url)
				requireVersion(t, conn, migrations.Latest, schema)
				requireFencing(t, conn, pgx.Identifier{schema}.Sanitize())

				byLibrary := connect(t, servertest.Postgres(t))
				_, err = byLibrary.Exec(t.Context(), `CREATE TABLE inventory ("Sku" text PRIMARY KEY)`)
				require.NoError(t, err)
				require.NoError(t, migrations.Up(t.Context(), byLibrary, migrations.WithSchema(schema)))
				_, err = byLibrary.Exec(t.Context(), up)
				require.NoError(t, err)
				require.Equal(t, installed(t, byLibrary, schema), installed(t, conn, schema), "the tool installed what the library does")

				require.NoError(t, tool.down(t, url, fsys))
				requireVersion(t, conn, 0, schema)
				require.NoError(t, tool.up(t, url, fsys), "up again")
				require.Equal(t, installed(t, byLibrary, schema), installed(t, conn, schema))
			})
		}
	}
}

func TestGolangMigrateReadsTheEmbeddedFiles(t *testing.T) {
	t.Parallel()
	url := servertest.Postgres(t)
	require.NoError(t, withMigrate((*migrate.Migrate).Up)(t, url, migrations.FS))
	conn := connect(t, url)
	requireVersion(t, conn, migrations.Latest, "fencing")
	require.NoError(t, withMigrate((*migrate.Migrate).Down)(t, url, migrations.FS))
	requireVersion(t, conn, 0, "fencing")
}

func TestToolsAndTheLibraryMix(t *testing.T) {
	t.Parallel()
	for _, tool := range tools {
		t.Run(string(tool.tool), func(t *testing.T) {
			t.Parallel()
			files, err := migrations.Render(tool.tool)
			require.NoError(t, err)
			url := servertest.Postgres(t)
			conn := connect(t, url)
			require.NoError(t, tool.up(t, url, folder(files[:len(files)/migrations.Latest]))) // the first migration
			requireVersion(t, conn, 1, "fencing")
			require.NoError(t, migrations.Up(t.Context(), conn))
			requireVersion(t, conn, migrations.Latest, "fencing")
			require.NoError(t, migrations.Down(t.Context(), conn))
			requireVersion(t, conn, 0, "fencing")
		})
	}
}

func requireVersion(t *testing.T, conn *pgx.Conn, want int, schema string) {
	t.Helper()
	got, err := migrations.Version(t.Context(), conn, migrations.WithSchema(schema))
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// requireFencing goes through each function, and through the protected table.
func requireFencing(t *testing.T, conn *pgx.Conn, schema string) {
	t.Helper()
	const needed = `'it''s; $1 ${HOME} {{ .Name }} %s \ \ a;'`
	call := func(code, sql string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), strings.NewReplacer("@", schema, "#", needed).Replace(sql))
		if code == "" {
			require.NoError(t, err, sql)
			return
		}
		var pgErr *pgconn.PgError
		require.ErrorAs(t, err, &pgErr)
		require.Equal(t, code, pgErr.Code, pgErr.Message)
		_, err = conn.Exec(t.Context(), "ROLLBACK")
		require.NoError(t, err)
	}
	call("", "SELECT @.raise(#, 1, 'n'); SELECT @.issue(#, 'm'); SELECT @.next_token('r'); SELECT @.once('o')")
	call("", "SELECT @.lease_acquire(#, 'l', '', 9000); SELECT @.lease_renew(ARRAY[#], '{l}', '{9000}'); SELECT @.lease_holding(#)")
	call("", "SELECT @.lease_acquire_in_turn(#, 'k', '', 9000, 0, 100, NULL, 9000); SELECT @.lease_release(#, 'l', 'l'); SELECT @.lease_withdraw(#, 'k')")
	call("UF001", "SELECT @.enter(#, 1, 'n')")
	call("UF002", "SELECT @.enter('unknown', 1, 'n')")
	call("UF003", "SELECT @.enter_all('{}', '{}', '{}')")
	call("UF004", "INSERT INTO inventory VALUES ('a')")
	call("", "BEGIN; SELECT @.enter(#, 2, 'm'); INSERT INTO inventory VALUES ('a'); COMMIT")
	call("UF004", "BEGIN; SELECT @.enter(#, 2, 'm'); INSERT INTO inventory VALUES ('b'); COMMIT")
}

// installed describes the functions, the tables and the triggers.
func installed(t *testing.T, conn *pgx.Conn, schema string) string {
	t.Helper()
	var s string
	require.NoError(t, conn.QueryRow(t.Context(), `
		SELECT string_agg(line, E'\n' ORDER BY line) FROM (
			SELECT pg_get_functiondef(p.oid) || coalesce(proacl::text, '') FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace WHERE nspname = $1
			UNION ALL SELECT pg_get_triggerdef(t.oid) || tgenabled::text FROM pg_trigger t WHERE NOT tgisinternal
			UNION ALL SELECT format('%s.%s %s %s %s %s', attrelid::regclass, attname, format_type(atttypid, atttypmod), attnotnull, relacl, col_description(attrelid, attnum))
			  FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid JOIN pg_namespace n ON n.oid = relnamespace
			 WHERE attnum > 0 AND NOT attisdropped AND (nspname = $1 OR relname = 'inventory')
		) AS u (line)`, schema).Scan(&s))
	return s
}
