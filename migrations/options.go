package migrations

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// An Option changes what [Up], [Down], [Version] and [Render] work on.
type Option func(*options) error

type options struct {
	schema      string
	target      int // -1: as far as it goes
	lockTimeout time.Duration
	first       int64
}

func newOptions(opts []Option) (options, error) {
	o := options{schema: defaultSchema, target: -1, lockTimeout: 10 * time.Second, first: 1}
	for _, opt := range opts {
		if opt == nil {
			return options{}, errors.New("migrations: an option is nil")
		}
		if err := opt(&o); err != nil {
			return options{}, fmt.Errorf("migrations: %w", err)
		}
	}
	return o, nil
}

// WithSchema names the schema, exactly and without SQL quotes. Defaults to
// "fencing". The setting through which triggers learn what a transaction has
// entered is called fencing.held whatever the schema.
func WithSchema(name string) Option {
	return func(o *options) error {
		o.schema = name
		return validateSchema(name)
	}
}

// To stops [Up] and [Down] at a version. Defaults to [Latest] for Up and to 0
// for Down. Where the schema is there already, or beyond it in the direction of
// the call, nothing happens.
func To(version int) Option {
	return func(o *options) error {
		o.target = version
		if version < 0 || version > Latest {
			return fmt.Errorf("there is no version %d, this library knows 0 to %d", version, Latest)
		}
		return nil
	}
}

// WithLockTimeout bounds each wait of [Up] and [Down] for a lock, that of
// another migration included, and of [UpDB] and [DownDB] as well; in SQLite that is the
// whole of the call, besides the busy timeout of the connection. Defaults to 10s.
func WithLockTimeout(d time.Duration) Option {
	return func(o *options) error {
		o.lockTimeout = d
		return validateLockTimeout(d)
	}
}

// StartAt gives the files of [Render] consecutive numbers from first on, to
// follow those that a project has already. Defaults to 1.
func StartAt(first int64) Option {
	return func(o *options) error {
		o.first = first
		if first < 1 {
			return fmt.Errorf("number %d of the first migration is not positive", first)
		}
		return nil
	}
}

func validateLockTimeout(d time.Duration) error {
	if d < time.Millisecond || d.Milliseconds() > math.MaxInt32 {
		return fmt.Errorf("lock timeout %s is not between 1ms and %s", d, time.Duration(math.MaxInt32)*time.Millisecond)
	}
	return nil
}

// milliseconds writes a timeout as Postgres reads it.
func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) + "ms" }

func validateSchema(name string) error {
	if err := validateName(name); err != nil {
		return fmt.Errorf("schema %q: %w", name, err)
	}
	switch {
	case systemSchema(name):
		return fmt.Errorf("schema %q belongs to Postgres", name)
	case strings.Contains(name, "$fencing$"):
		return fmt.Errorf("schema %q would end the bodies of its own functions", name)
	}
	return nil
}

func systemSchema(name string) bool {
	return strings.HasPrefix(name, "pg_") || name == "information_schema"
}
