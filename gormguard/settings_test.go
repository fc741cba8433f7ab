package gormguard_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"testing"
	"time"

	sqlite "github.com/libtnb/sqlite"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/go-fencing/fencing/gormguard"
	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/servertest"
	"github.com/go-fencing/fencing/migrations"
	"github.com/go-fencing/fencing/sqlguard"
)

// The fence functions are where the options of the guard say, for a raise and for
// every way to enter.
func TestFencesAreInTheSchemaOfTheOptions(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]*gorm.Config{
		"default":                quiet(),
		"SkipDefaultTransaction": {Logger: quiet().Logger, SkipDefaultTransaction: true},
		"PrepareStmt":            {Logger: quiet().Logger, PrepareStmt: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, err := gorm.Open(postgres.Open(servertest.Postgres(t)), config)
			require.NoError(t, err)
			pool, err := db.DB()
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, pool.Close()) })
			require.NoError(t, migrations.UpDB(t.Context(), pool, sqlguard.Postgres, migrations.WithSchema("odd locks")))
			require.NoError(t, db.AutoMigrate(&Boss{}))
			require.NoError(t, db.Create(&Boss{ID: 1}).Error)
			p := gormguard.New(gormguard.WithModels(&Boss{}), gormguard.WithGuardOptions(sqlguard.WithSchema("odd locks")))
			require.NoError(t, db.Use(p))

			held, newer := fence("boss", heldToken), fence("boss", newerToken)
			writes := []func(*gorm.DB) error{
				func(db *gorm.DB) error { return db.Model(&Boss{ID: 1}).Update("name", "x").Error },
				func(db *gorm.DB) error { return db.Exec("UPDATE bosses SET name = 'y'").Error },
				func(db *gorm.DB) error {
					return db.Transaction(func(tx *gorm.DB) error { return tx.Save(&Boss{ID: 1, Name: "z"}).Error })
				},
				func(db *gorm.DB) error { return db.Transaction(gormguard.Enter) },
			}
			ctx := guard.NewContext(t.Context(), held)
			require.NoError(t, p.Raise(ctx, held))
			for i, write := range writes {
				require.NoError(t, write(db.WithContext(ctx)), "%d", i)
			}
			require.NoError(t, p.Raise(ctx, newer))
			for i, write := range writes {
				stale, ok := errors.AsType[*guard.StaleError](write(db.WithContext(ctx)))
				require.True(t, ok, "%d", i)
				require.Equal(t, newer.Token, stale.Current.Token, "%d", i)
			}
			var boss Boss
			require.NoError(t, db.Take(&boss, 1).Error)
			require.Equal(t, "z", boss.Name)
		})
	}
}

func TestObserverIsToldOfEveryRefusal(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			for name, mode := range modes {
				var events []guard.Event
				d := newDatabase(t, e, nil, gormguard.WithMode(mode), gormguard.WithObserver(func(ev guard.Event) { events = append(events, ev) }))
				c := d.cell(1, stale)
				events = nil
				for i, run := range []func() error{
					func() error { return c.tx.Model(c.item(1)).Update("note", "x").Error },
					func() error {
						return c.tx.Transaction(func(tx *gorm.DB) error { return tx.Model(c.item(1)).Update("note", "x").Error })
					},
				} {
					before := len(events)
					require.ErrorIs(t, run(), guard.ErrStale)
					require.Len(t, events, before+1, "%s %d", name, i)
					require.Equal(t, guard.EventRefused, events[before].Kind)
					require.ErrorIs(t, events[before].Err, guard.ErrStale)
				}
				require.Len(t, events, 2, name)
			}
		})
	}
}

// until is a lease with a fixed deadline.
type until time.Time

func (u until) Deadline() time.Time { return time.Time(u) }

func TestObserverIsToldWhatIsLeftOfTheLeaseAtCommit(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			var events []guard.Event
			d := newDatabase(t, e, nil, gormguard.WithObserver(func(ev guard.Event) { events = append(events, ev) }))
			plain := d.raised("boss", 1)
			lease := guard.WithDeadline(plain, until(time.Now().Add(-time.Hour)))
			for i, write := range []func(db *gorm.DB) error{
				func(db *gorm.DB) error { return db.Model(&Boss{ID: 1}).Update("name", "x").Error },
				func(db *gorm.DB) error { return db.Exec("UPDATE bosses SET name = 'y'").Error },
				func(db *gorm.DB) error {
					return db.Transaction(func(tx *gorm.DB) error {
						return errors.Join(tx.Save(&Boss{ID: 1, Name: "z"}).Error, tx.Save(&Boss{ID: 2, Name: "z"}).Error)
					})
				},
			} {
				events = nil
				require.NoError(t, write(d.db.WithContext(lease)), "%d", i)
				require.Len(t, events, 1, "%d", i)
				require.Equal(t, guard.EventCommitted, events[0].Kind, "%d", i)
				require.Equal(t, "boss", events[0].Fence.Resource, "%d", i)
				require.LessOrEqual(t, events[0].Remaining, -time.Hour, "%d", i)
				events = nil
				require.NoError(t, write(d.db.WithContext(plain)), "%d: under no lease", i)
				require.NoError(t, d.db.WithContext(lease).Find(&[]Boss{}).Error, "%d: a read", i)
				require.Empty(t, events, "%d", i)
			}
		})
	}
}

// A losing pool loses the reply to every commit.
type (
	losing   struct{ *sql.DB }
	losingTx struct{ *sql.Tx }
)

func (l losing) BeginTx(ctx context.Context, o *sql.TxOptions) (gorm.ConnPool, error) {
	tx, err := l.DB.BeginTx(ctx, o)
	return losingTx{tx}, err
}

func (l losing) GetDBConn() (*sql.DB, error) { return l.DB, nil }

func (t losingTx) Commit() error { return errors.Join(t.Tx.Commit(), io.EOF) }

func TestS23_LostReplyOfACommitIsToldOnce(t *testing.T) {
	t.Parallel()
	d := newBare(t, onSQLite)
	for name, write := range map[string]func(db *gorm.DB) error{
		"GORM's transaction": func(db *gorm.DB) error { return db.Model(&Boss{ID: 1}).Update("name", "x").Error },
		"the plugin's":       func(db *gorm.DB) error { return db.Exec("UPDATE bosses SET name = 'y'").Error },
		"the caller's": func(db *gorm.DB) error {
			return db.Transaction(func(tx *gorm.DB) error { return tx.Save(&Boss{ID: 1, Name: "z"}).Error })
		},
	} {
		var events []guard.Event
		db, err := gorm.Open(sqlite.New(sqlite.Config{Conn: losing{d.sql}}), quiet())
		require.NoError(t, err)
		d.plugin = gormguard.New(gormguard.WithModels(&Boss{}), gormguard.WithObserver(func(e guard.Event) { events = append(events, e) }))
		require.NoError(t, db.Use(d.plugin))
		ctx := d.raised("lost:"+name, 1)
		events = nil
		err = write(db.WithContext(ctx))
		require.ErrorIs(t, err, guard.ErrCommitUnknown, name)
		require.ErrorIs(t, err, io.EOF, name)
		require.Len(t, events, 1, name)
		require.ErrorIs(t, events[0].Err, guard.ErrCommitUnknown, name)
	}
}
