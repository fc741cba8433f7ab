package migrations_test

import (
	"context"
	"database/sql"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/migrations"
)

// eachDialect runs a test on a fresh database per dialect, through database/sql.
func eachDialect(t *testing.T, test func(t *testing.T, dialect string, db *sql.DB)) {
	t.Parallel()
	for dialect, open := range map[string]func(t *testing.T) (driver, dsn string){
		"postgres": func(t *testing.T) (string, string) { return "pgx", servertest.Postgres(t) },
		"mysql":    func(t *testing.T) (string, string) { return "mysql", servertest.MariaDB(t) },
		"sqlite": func(t *testing.T) (string, string) {
			return "sqlite", "file:" + filepath.Join(t.TempDir(), "test.db") + "?_pragma=busy_timeout(10000)"
		},
	} {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			driver, dsn := open(t)
			db, err := sql.Open(driver, dsn)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			test(t, dialect, db)
		})
	}
}

func latest(dialect string) int {
	if dialect == "postgres" {
		return migrations.Latest
	}
	return 1
}

func TestSchemaGoesUpAndDownThroughDatabaseSQL(t *testing.T) {
	eachDialect(t, func(t *testing.T, dialect string, db *sql.DB) {
		at := func(want int) {
			t.Helper()
			got, err := migrations.VersionDB(t.Context(), db, dialect)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		at(0)
		require.NoError(t, migrations.UpDB(t.Context(), db, dialect))
		at(latest(dialect))
		require.NoError(t, migrations.UpDB(t.Context(), db, dialect))
		at(latest(dialect))
		require.NoError(t, migrations.DownDB(t.Context(), db, dialect))
		at(0)
		require.NoError(t, migrations.DownDB(t.Context(), db, dialect))
		require.NoError(t, migrations.UpDB(t.Context(), db, dialect, migrations.To(1)))
		at(1)
	})
}

func TestProcessesThatStartTogetherMigrateOnce(t *testing.T) {
	eachDialect(t, func(t *testing.T, dialect string, db *sql.DB) {
		var group sync.WaitGroup
		errs := make(chan error, 4)
		for range 4 {
			group.Go(func() { errs <- migrations.UpDB(t.Context(), db, dialect) })
		}
		group.Wait()
		for range 4 {
			require.NoError(t, <-errs)
		}
	})
}

// A service that starts while another one writes has nothing to wait for.
func TestUpDBOfASchemaThatIsThereTakesNoLock(t *testing.T) {
	locks := map[string][2]string{
		"postgres": {"BEGIN; SELECT pg_advisory_xact_lock(5070437, 1)", "ROLLBACK"},
		"mysql":    {"DO GET_LOCK('fencing_migration', 20)", "DO RELEASE_LOCK('fencing_migration')"},
		"sqlite":   {"BEGIN IMMEDIATE", "ROLLBACK"},
	}
	eachDialect(t, func(t *testing.T, dialect string, db *sql.DB) {
		require.NoError(t, migrations.UpDB(t.Context(), db, dialect))
		other, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, other.Close()) }()
		_, err = other.ExecContext(t.Context(), locks[dialect][0])
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		require.NoError(t, migrations.UpDB(ctx, db, dialect))
		ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		require.Error(t, migrations.DownDB(ctx, db, dialect), "the lock is free")
		_, err = other.ExecContext(t.Context(), locks[dialect][1])
		require.NoError(t, err)
	})
}

// Whatever the busy timeout of the connection is, which is 0 unless somebody sets it.
func TestUpDBOfSQLiteWaitsForTheLockTimeout(t *testing.T) {
	t.Parallel()
	for _, journal := range []string{"wal", "delete"} {
		dsn := "file:" + filepath.Join(t.TempDir(), "test.db") + "?_pragma=journal_mode(" + journal + ")"
		open := func() *sql.DB {
			db, err := sql.Open("sqlite", dsn)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			return db
		}
		other, err := open().Conn(t.Context())
		require.NoError(t, err)
		_, err = other.ExecContext(t.Context(), "BEGIN EXCLUSIVE")
		require.NoError(t, err)
		err = migrations.UpDB(t.Context(), open(), "sqlite", migrations.WithLockTimeout(50*time.Millisecond))
		require.ErrorContains(t, err, "waiting for others took longer than 50ms")
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, migrations.UpDB(ctx, open(), "sqlite"), context.DeadlineExceeded)

		errs := make(chan error, 8)
		for range cap(errs) {
			db := open()
			go func() { errs <- migrations.UpDB(t.Context(), db, "sqlite", migrations.WithLockTimeout(time.Minute)) }()
		}
		_, err = other.ExecContext(t.Context(), "ROLLBACK")
		require.NoError(t, err)
		require.NoError(t, other.Close())
		for range cap(errs) {
			require.NoError(t, <-errs)
		}
	}
}

// The wait for another migration must not leave a session with what it knew about
// the catalogs before.
func TestUpDBSeesTheSchemaThatItHasWaitedFor(t *testing.T) {
	t.Parallel()
	url := servertest.Postgres(t)
	db, err := sql.Open("pgx", url)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	db.SetMaxOpenConns(1)
	version, err := migrations.VersionDB(t.Context(), db, "postgres")
	require.NoError(t, err)
	require.Zero(t, version)

	other, err := connect(t, url).Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, migrations.Up(t.Context(), other))
	up := make(chan error, 1)
	go func() { up <- migrations.UpDB(t.Context(), db, "postgres") }()
	watch := connect(t, url)
	require.Eventually(t, func() bool {
		var waits bool
		err := watch.QueryRow(t.Context(), "SELECT count(*) > 0 FROM pg_locks l JOIN pg_database d ON d.oid = l.database WHERE datname = current_database() AND NOT granted").Scan(&waits)
		return err == nil && waits
	}, 20*time.Second, 5*time.Millisecond)
	require.NoError(t, other.Commit(t.Context()))
	require.NoError(t, <-up)
}

func TestTableOfTheFencesRefusesNonsense(t *testing.T) {
	eachDialect(t, func(t *testing.T, dialect string, db *sql.DB) {
		require.NoError(t, migrations.UpDB(t.Context(), db, dialect))
		if dialect == "postgres" {
			return
		}
		insert := func(resource any, token any) error {
			_, err := db.Exec("INSERT INTO fencing_fence (resource, token, nonce, raised_at) VALUES (?, ?, 'n', 0)", resource, token)
			return err
		}
		if dialect == "mysql" {
			insert = func(resource any, token any) error {
				_, err := db.Exec("INSERT INTO fencing_fence (resource, token, nonce, raised_at) VALUES (?, ?, 'n', UTC_TIMESTAMP(6))", resource, token)
				return err
			}
		}
		require.Error(t, insert("", 1))
		require.Error(t, insert("r", 0))
		require.Error(t, insert(nil, 1))
		require.Error(t, insert(strings.Repeat("x", 513), 1))
		require.NoError(t, insert(strings.Repeat("é", 256), 1))
		require.NoError(t, insert("r", 1))
		for _, other := range []string{"R", "r ", "ŕ"} {
			require.NoError(t, insert(other, 1), "%q is another name", other)
		}
		require.Error(t, insert("r", 2))
	})
}

func TestDialectsRefuseWhatTheyDoNotHave(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", ":memory:")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	ctx := context.Background()
	require.ErrorContains(t, migrations.UpDB(ctx, db, "oracle"), `unknown dialect "oracle"; there are "postgres", "mysql" and "sqlite"`)
	require.ErrorContains(t, migrations.DownDB(ctx, db, "oracle"), "unknown dialect")
	_, err = migrations.VersionDB(ctx, db, "oracle")
	require.ErrorContains(t, err, "unknown dialect")
	require.ErrorContains(t, migrations.UpDB(ctx, db, "sqlite", migrations.WithSchema("x")), `sqlite has no schema "x"`)
	require.ErrorContains(t, migrations.UpDB(ctx, db, "sqlite", migrations.To(2)), "no version 2 for sqlite")
	_, err = migrations.RenderFor("sqlite", migrations.Tern)
	require.ErrorContains(t, err, "tern is for Postgres")
	_, err = migrations.RenderFor("mysql", migrations.Goose, migrations.WithSchema("x"))
	require.ErrorContains(t, err, `mysql has no schema "x"`)
	_, err = migrations.RenderFor("oracle", migrations.Goose)
	require.ErrorContains(t, err, "unknown dialect")
}

func TestRenderForWritesTheFilesOfATool(t *testing.T) {
	t.Parallel()
	for dialect, files := range map[string]fs.FS{"mysql": migrations.MySQLFS, "sqlite": migrations.SQLiteFS} {
		up, err := fs.ReadFile(files, dialect+"/0001_fence.up.sql")
		require.NoError(t, err)
		got, err := migrations.RenderFor(dialect, migrations.GolangMigrate, migrations.StartAt(7))
		require.NoError(t, err)
		require.Equal(t, migrations.File{Name: "0007_fence.up.sql", Content: string(up)}, got[0])
		require.Equal(t, "0007_fence.down.sql", got[1].Name)
		got, err = migrations.RenderFor(dialect, migrations.Goose)
		require.NoError(t, err)
		require.Len(t, got, 1)
		require.Contains(t, got[0].Content, "-- +goose Up\n-- +goose StatementBegin\n"+string(up))
		// One statement per direction: no driver takes two unless it is told to.
		require.Equal(t, 1, strings.Count(string(up), ";"))
	}
	pg, err := migrations.RenderFor("postgres", migrations.Psql)
	require.NoError(t, err)
	want, err := migrations.Render(migrations.Psql)
	require.NoError(t, err)
	require.Equal(t, want, pg)
}

func TestProtectForAddsTheVersionColumn(t *testing.T) {
	eachDialect(t, func(t *testing.T, dialect string, db *sql.DB) {
		if dialect == "postgres" {
			up, down, err := migrations.ProtectFor(dialect, "item", migrations.ProtectOptions{})
			require.NoError(t, err)
			wantUp, wantDown, err := migrations.Protect("item", migrations.ProtectOptions{})
			require.NoError(t, err)
			require.Equal(t, []string{wantUp, wantDown}, []string{up, down})
			return
		}
		quote := map[string]string{"mysql": "`", "sqlite": `"`}[dialect]
		name := quote + "Odd Table; x" + quote
		_, err := db.Exec("CREATE TABLE " + name + " (id int)")
		require.NoError(t, err)
		_, err = db.Exec("INSERT INTO " + name + " VALUES (1)")
		require.NoError(t, err)
		for _, column := range []string{"", "odd " + quote + " column"} {
			up, down, err := migrations.ProtectFor(dialect, name, migrations.ProtectOptions{Column: column})
			require.NoError(t, err)
			_, err = db.Exec(up)
			require.NoError(t, err, up)
			if column == "" {
				var n int
				require.NoError(t, db.QueryRow("SELECT fence_token FROM "+name).Scan(&n))
				require.Zero(t, n)
				_, err = db.Exec("UPDATE " + name + " SET fence_token = NULL")
				require.Error(t, err)
			}
			_, err = db.Exec(up)
			require.Error(t, err, "it is there already")
			_, err = db.Exec(down)
			require.NoError(t, err, down)
		}
		for want, o := range map[string]migrations.ProtectOptions{
			"a trigger cannot know there which fences its transaction has entered": {Trigger: true},
			"only Postgres tells it":                     {Resource: "id"},
			"the version column is all":                  {NoColumn: true},
			"there is no schema":                         {Schema: "x"},
			"there is no lock timeout for one statement": {LockTimeout: 1},
			`the name has a control character`:           {Column: "a\nb"},
		} {
			_, _, err := migrations.ProtectFor(dialect, "item", o)
			require.ErrorContains(t, err, want)
		}
		for want, table := range map[string]string{
			"the name is empty": "",
			"has more parts":    "a.b.c",
			`unexpected ";"`:    "item; drop table item",
			"ends nowhere":      `"item`,
			`unexpected " "`:    "item x",
		} {
			_, _, err := migrations.ProtectFor(dialect, table, migrations.ProtectOptions{})
			require.ErrorContains(t, err, want, table)
		}
	})
}

func TestMistakenDialectIsNamed(t *testing.T) {
	eachDialect(t, func(t *testing.T, dialect string, db *sql.DB) {
		server := map[string]string{"postgres": "PostgreSQL", "mysql": "MySQL or MariaDB", "sqlite": "SQLite"}[dialect]
		for _, mistaken := range []string{"postgres", "mysql", "sqlite"} {
			if mistaken == dialect {
				continue
			}
			says := "the server is " + server + ", the dialect says " + mistaken
			require.ErrorContains(t, migrations.UpDB(t.Context(), db, mistaken), says)
			require.ErrorContains(t, migrations.DownDB(t.Context(), db, mistaken), says)
			_, err := migrations.VersionDB(t.Context(), db, mistaken)
			require.ErrorContains(t, err, says)
		}
	})
}
