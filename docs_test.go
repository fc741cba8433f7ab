package fencing_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A test that docs/peers.md names must exist: under that name, in that package.
func TestTheTestsThatDocsNameExist(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("docs/peers.md")
	require.NoError(t, err)
	rows := regexp.MustCompile(`(?m)^\| (\d+) \|.*$`).FindAllString(string(doc), -1)
	require.Len(t, rows, 18)
	named := regexp.MustCompile("`([a-z/]*)\\.([A-Z]\\w+)`")
	for _, row := range rows {
		tests := named.FindAllStringSubmatch(row, -1)
		require.NotEmpty(t, tests, row)
		for _, name := range tests {
			require.True(t, declares(t, name[1], name[2]), "%s: no such test", name[0])
		}
	}
}

// declares reports whether a Go file of the package has a test, or a rule of a
// conformance suite, of that name.
func declares(t *testing.T, dir, name string) bool {
	t.Helper()
	pattern := "*_test.go"
	if dir == "lock/locktest" {
		pattern = "locktest.go"
	}
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	require.NoError(t, err)
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.Contains(string(source), "func "+name+"(") || strings.Contains(string(source), `"`+name+`"`) {
			return true
		}
	}
	return false
}

// Fault 13 of the peers: whoever imports this module gets one client of Redis.
func TestOneRedisClientInGoSum(t *testing.T) {
	t.Parallel()
	sum, err := os.ReadFile("go.sum")
	require.NoError(t, err)
	for _, dead := range []string{"github.com/go-redis/redis", "github.com/gomodule/redigo", "github.com/garyburd/redigo", "github.com/redis/rueidis", "gopkg.in/redis.v"} {
		require.NotContains(t, string(sum), dead)
	}
}
