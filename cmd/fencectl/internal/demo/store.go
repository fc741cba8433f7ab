package demo

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/target"
	"github.com/go-fencing/fencing/internal/localserver"
)

// A Store is the kind of database that has the stock.
type Store string

// The stores.
const (
	Postgres Store = "postgres"
	SQLite   Store = "sqlite" // a file of the demo's own
)

// ParseStore reads the name of a store; none leaves the choice to Run.
func ParseStore(name string) (Store, error) {
	switch s := Store(name); s {
	case "", Postgres, SQLite:
		return s, nil
	}
	return "", fmt.Errorf("%.40q is no store; there are %q and %q", name, Postgres, SQLite)
}

// Title is how people write the name.
func (s Store) Title() string {
	if s == SQLite {
		return "SQLite"
	}
	return "Postgres"
}

// A stage is the store that the demo plays on.
type stage interface {
	inventory
	store() Store
	about() string
	tell(s *setup) // where the workers find it

	// refused reports whether it was the store that refused a write, and not this
	// program.
	refused(f *failure) bool
	close(ctx context.Context) error
}

// openStage takes the store that the options name. If they leave it open and the
// machine has no Postgres that can be started, it takes SQLite.
func openStage(ctx context.Context, o Options, name string) (stage, error) {
	if o.Store == SQLite {
		return openSQLite(ctx, "")
	}
	s, err := openPostgres(ctx, o.Postgres, name)
	if err == nil {
		return s, nil
	}
	if o.Store == "" && o.Postgres == nil && ctx.Err() == nil {
		return openSQLite(ctx, instead(err))
	}
	return nil, err
}

// instead says why SQLite takes the place of Postgres.
func instead(err error) string {
	if errors.Is(err, localserver.ErrNotInstalled) {
		return "PostgreSQL is not installed"
	}
	return "PostgreSQL cannot be started: " + target.OneLine(err.Error())
}
