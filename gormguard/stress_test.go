package gormguard_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/go-fencing/fencing/gormguard"
	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/sqlguard"
)

var auditTriggers = map[string][]string{
	"sqlite": {`CREATE TRIGGER audit AFTER UPDATE ON bosses WHEN new.fence_token < old.fence_token BEGIN INSERT INTO backward VALUES (old.fence_token, new.fence_token); END`},
	"postgres": {
		`CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO backward VALUES (old.fence_token, new.fence_token); RETURN NULL; END $$`,
		`CREATE TRIGGER audit AFTER UPDATE ON bosses FOR EACH ROW WHEN (new.fence_token < old.fence_token) EXECUTE FUNCTION audit()`,
	},
	"mysql": {`CREATE TRIGGER audit AFTER UPDATE ON bosses FOR EACH ROW BEGIN IF new.fence_token < old.fence_token THEN INSERT INTO backward VALUES (old.fence_token, new.fence_token); END IF; END`},
}

// Holders come and go, and each goes on writing after its successor has begun. An
// audit trigger counts the writes whose token went backwards.
func TestConcurrentHoldersNeverGoBackwards(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			for _, mode := range []string{"fence", "row", "both", "unguarded"} {
				t.Run(mode, func(t *testing.T) {
					d := newDatabase(t, e, nil, gormguard.WithMode(modes[mode]))
					require.NoError(t, d.bare.Exec("CREATE TABLE backward (was bigint, became bigint)").Error)
					for _, sql := range auditTriggers[e.name] {
						require.NoError(t, d.bare.Exec(sql).Error)
					}
					require.NoError(t, d.bare.Create(&Boss{ID: 1}).Error)
					db := d.db
					if mode == "unguarded" {
						db = d.bare
					}
					written, refused := stress(t, d, db)
					var backward int64
					require.NoError(t, d.bare.Table("backward").Count(&backward).Error)
					t.Logf("%d written, %d refused, %d backward", written, refused, backward)
					if mode == "unguarded" {
						require.Positive(t, backward, "the control must show what a guard prevents")
						return
					}
					require.Zero(t, backward)
					require.Positive(t, refused, "no holder was late")
					require.GreaterOrEqual(t, written, int64(enough))
				})
			}
		})
	}
}

// stress goes on until 1,000 writes have been committed, however many were refused.
func stress(t *testing.T, d *database, db *gorm.DB) (written, refused int64) {
	var token, good, bad atomic.Int64
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for good.Load() < enough && t.Context().Err() == nil {
				f := fence("boss", guard.Token(token.Add(1)))
				if err := d.plugin.Raise(t.Context(), f); err != nil {
					if !sqlguard.Retryable(err) && !assert.ErrorIs(t, err, guard.ErrStale) {
						return
					}
					continue
				}
				ctx := guard.NewContext(t.Context(), f)
				for i := range 4 {
					err := db.WithContext(ctx).Model(&Boss{ID: 1}).Updates(map[string]any{"name": fmt.Sprint(i), "fence_token": int64(f.Token)}).Error
					switch {
					case err == nil:
						good.Add(1)
					case !sqlguard.Retryable(err):
						bad.Add(1)
						if !assert.ErrorIs(t, err, guard.ErrStale) {
							return
						}
					}
				}
			}
		})
	}
	wg.Wait()
	return good.Load(), bad.Load()
}

const enough = 1000
