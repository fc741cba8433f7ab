package guardtest_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard/guardtest"
)

func TestReferenceStoreConforms(t *testing.T) {
	t.Parallel()
	guardtest.Run(t, func(*testing.T) guardtest.Store { return guardtest.NewMemoryStore() })
}

// The checks must not ask for one way of being right.
func TestOtherRightStoresConform(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]flaw{
		"the raise waits":                  {},
		"a stale commit is refused":        {optimistic: true},
		"one transaction at a time":        {serial: true},
		"the raise is refused with a word": {impatient: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			guardtest.Run(t, func(*testing.T) guardtest.Store { return newLab(f) })
		})
	}
}

func TestChecksMayShareAStore(t *testing.T) {
	t.Parallel()
	shared := guardtest.NewMemoryStore()
	for range 2 {
		guardtest.Run(t, func(*testing.T) guardtest.Store { return shared })
	}
}

func TestChecksHaveNamesThatAreOneWord(t *testing.T) {
	t.Parallel()
	names := make(map[string]bool)
	for _, check := range guardtest.Checks() {
		require.Regexp(t, regexp.MustCompile(`^(S\d+_)?[A-Z][A-Za-z]+$`), check.Name, "go test -run must find it")
		require.False(t, names[check.Name], "%s is there twice", check.Name)
		names[check.Name] = true
	}
}
