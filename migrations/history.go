package migrations

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
	"sync"
)

// FS holds the history as NNNN_name.up.sql and NNNN_name.down.sql, for the
// default schema "fencing". golang-migrate reads it with iofs.New(FS, ".").
//
//go:embed *.sql
var FS embed.FS

// A step is one migration of the history.
type step struct{ name, up, down string }

// history returns the steps in order; the first one leads from version 0 to 1.
var history = sync.OnceValues(func() ([]step, error) {
	ups, err := fs.Glob(FS, "*.up.sql")
	if err != nil {
		return nil, err
	}
	steps := make([]step, len(ups))
	for i, name := range ups {
		base := strings.TrimSuffix(name, ".up.sql")
		number, title, ok := strings.Cut(base, "_")
		if !ok || number != fmt.Sprintf("%04d", i+1) {
			return nil, fmt.Errorf("migrations: %s is not number %d of the history", name, i+1)
		}
		up, err := FS.ReadFile(name)
		if err != nil {
			return nil, err
		}
		down, err := FS.ReadFile(base + ".down.sql")
		if err != nil {
			return nil, err
		}
		steps[i] = step{name: title, up: string(up), down: string(down)}
	}
	return steps, nil
})

// Latest is the version of the schema that this library was made for.
const Latest = 3
