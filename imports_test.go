package fencing_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/go-fencing/fencing"

// A rule says what the packages of a pattern may import besides the standard
// library. Imports of tests are exempt.
type rule struct {
	packages string   // a pattern of path.Match, relative to the module
	own      []string // patterns of this module's packages
	modules  []string // other modules, each of them
	drivers  int      // how many others
}

// policy is what keeps a reader who follows one call from the lock to the row
// from turning back, and a user's build free of what they do not use. The first
// rule that matches a package holds.
var policy = []rule{
	{packages: "guard"},
	{packages: "guard/guardtest", own: []string{"guard"}, modules: []string{testify}},
	{packages: "guard/guardslog", own: []string{"guard"}},
	{packages: "guard/guardprom", own: watched, modules: []string{prometheus}},
	{packages: "guard/guardotel", own: watched, modules: otel},
	{packages: "guard/fencewire", own: []string{"guard"}},
	{packages: "guard/httpfence", own: []string{"guard", "guard/fencewire"}}, // guard/grpcfence is a module of its own
	{packages: "guard/redisguard", own: guards, drivers: 1},
	{packages: "guard/objectguard", own: []string{"guard", "internal/localfile"}},

	{packages: "sequencer", own: []string{"guard"}},
	{packages: "sequencer/sequencertest", own: []string{"guard", "sequencer"}, modules: []string{testify}},
	{packages: "sequencer/*", own: guards, drivers: 1},

	{packages: "lock", own: []string{"guard", "sequencer"}}, // sequencer: for the type of lock.WithSequencer
	{packages: "lock/locktest", own: append(slices.Clone(backEnds), "lock/memlock"), modules: []string{testify}},
	{packages: "lock/*", own: backEnds, drivers: 1},

	{packages: "pgguard", own: guards, drivers: 1},
	// sqlguard takes no driver: whoever uses one database does not build the drivers of the others.
	{packages: "sqlguard", own: append(slices.Clone(guards), "internal/sqlerror")},
	{packages: "gormguard", own: append(slices.Clone(guards), "gormguard/internal/rawsql", "internal/sqlerror", "sqlguard"), drivers: 1}, // sqlguard: the dialects are written once
	{packages: "gormguard/internal/rawsql", own: []string{"internal/sqltext"}},
	{packages: "migrations", own: []string{"internal/hint", "internal/sqlerror", "internal/sqltext"}, modules: []string{"github.com/jackc/pgx/v5"}},
}

var (
	testify    = "github.com/stretchr/testify"
	prometheus = "github.com/prometheus/client_golang"
	otel       = []string{"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/metric", "go.opentelemetry.io/otel/trace"}
	watched    = []string{"guard", "internal/metrics"}
	// reserved modules are nobody's driver: only packages whose rule names them, and
	// programs, import them. The SDK is for tests.
	reserved = slices.Concat([]string{prometheus, "go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/sdk/metric"}, otel)

	guards   = []string{"guard", "sequencer", "internal/hint", "internal/rediscluster", "internal/rediskeys", "internal/sqltext"} // never lock: who only fences takes no lock library along
	backEnds = []string{"lock", "guard", "sequencer", "internal/localfile", "internal/rediscluster", "internal/rediskeys"}
	// free packages are programs, tests of the documents, and helpers that nobody outside can import.
	free = []string{".", "cmd", "docs", "examples", "internal", "scripts"}
)

// A pkg is what go list says of a package.
type pkg struct {
	ImportPath string
	Dir        string
	Standard   bool
	Module     *struct{ Path string }
	Imports    []string
}

func TestImportsFollowThePolicy(t *testing.T) {
	t.Parallel()
	packages := list(t)
	for _, p := range packages {
		for _, broken := range violations(p, packages) {
			t.Error(broken)
		}
	}
}

// list returns the packages of this module and all that they depend on.
func list(t *testing.T) map[string]pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-deps", "-json=ImportPath,Dir,Standard,Module,Imports", "./...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "go list: %s", stderr.String())
	packages := make(map[string]pkg)
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		packages[p.ImportPath] = p
		if _, ours := relative(p.ImportPath); ours {
			// go test caches by what the test itself has read, and go list is
			// another process: without this it would repeat an old verdict.
			_, err := os.ReadDir(p.Dir)
			require.NoError(t, err)
		}
	}
	require.Contains(t, packages, module+"/guard", "go list must see this module")
	return packages
}

// violations returns what is wrong with the imports of one package.
func violations(p pkg, packages map[string]pkg) (broken []string) {
	name, ours := relative(p.ImportPath)
	top, _, _ := strings.Cut(name, "/")
	if !ours || slices.Contains(free, top) {
		return nil
	}
	i := slices.IndexFunc(policy, func(r rule) bool { return matches(name, r.packages) })
	if i < 0 {
		return []string{name + " has no rule; add one to policy in imports_test.go"}
	}
	r := policy[i]
	drivers := make(map[string]bool)
	for _, imported := range p.Imports {
		dep := packages[imported]
		own, isOwn := relative(imported)
		switch {
		case dep.Standard || imported == "C" || imported == "unsafe":
		case isOwn:
			if !slices.ContainsFunc(r.own, func(pattern string) bool { return matches(own, pattern) }) {
				broken = append(broken, fmt.Sprintf("%s imports %s; of this module it may import %q", name, own, r.own))
			}
		case dep.Module == nil:
			broken = append(broken, fmt.Sprintf("%s imports %s, which is of no known module", name, imported))
		case slices.Contains(r.modules, dep.Module.Path):
		case slices.Contains(reserved, dep.Module.Path):
			broken = append(broken, fmt.Sprintf("%s imports %s, which only the adapters may that are named after it", name, imported))
		default:
			drivers[dep.Module.Path] = true
		}
	}
	if len(drivers) > r.drivers {
		broken = append(broken, fmt.Sprintf("%s imports modules %q; allowed are %q and drivers up to %d",
			name, slices.Sorted(maps.Keys(drivers)), r.modules, r.drivers))
	}
	return broken
}

// relative returns the path of a package inside this module.
func relative(importPath string) (name string, ours bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

func matches(name, pattern string) bool {
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}

// The policy must be able to refuse.
func TestPolicyRefuses(t *testing.T) {
	t.Parallel()
	packages := map[string]pkg{"context": {Standard: true}}
	for _, path := range []string{"github.com/jackc/pgx/v5", "github.com/redis/go-redis/v9", testify, prometheus, otel[1], "go.opentelemetry.io/otel/sdk"} {
		packages[path+"/sub"] = pkg{Module: &struct{ Path string }{path}}
	}
	for name, c := range map[string]struct {
		importer string
		imports  []string
		want     string
	}{
		"guard is free of drivers":             {"guard", []string{"github.com/jackc/pgx/v5/sub"}, "pgx"},
		"guard is free of the module":          {"guard", []string{module + "/sequencer"}, "sequencer"},
		"guard takes the standard library":     {"guard", []string{"context"}, ""},
		"guardtest takes testify":              {"guard/guardtest", []string{testify + "/sub", module + "/guard"}, ""},
		"guardtest takes no driver":            {"guard/guardtest", []string{"github.com/jackc/pgx/v5/sub"}, "pgx"},
		"guardslog takes slog alone":           {"guard/guardslog", []string{prometheus + "/sub"}, "only the adapters"},
		"guardprom takes Prometheus":           {"guard/guardprom", []string{prometheus + "/sub", module + "/guard", module + "/internal/metrics"}, ""},
		"guardprom takes no OpenTelemetry":     {"guard/guardprom", []string{otel[1] + "/sub"}, "only the adapters"},
		"guardprom takes no lock by itself":    {"guard/guardprom", []string{module + "/lock"}, "imports lock"},
		"guardotel takes OpenTelemetry":        {"guard/guardotel", []string{otel[1] + "/sub"}, ""},
		"guardotel takes no SDK":               {"guard/guardotel", []string{"go.opentelemetry.io/otel/sdk/sub"}, "only the adapters"},
		"fencewire takes no adapter":           {"guard/fencewire", []string{module + "/guard/httpfence"}, "imports guard/httpfence"},
		"httpfence takes what it carries":      {"guard/httpfence", []string{"context", module + "/guard", module + "/guard/fencewire"}, ""},
		"httpfence takes no lock":              {"guard/httpfence", []string{module + "/lock"}, "imports lock"},
		"httpfence takes no driver":            {"guard/httpfence", []string{"github.com/jackc/pgx/v5/sub"}, "pgx"},
		"guard takes no metrics":               {"guard", []string{prometheus + "/sub"}, "only the adapters"},
		"metrics are no driver of a back end":  {"lock/redislock", []string{prometheus + "/sub"}, "only the adapters"},
		"metrics are no driver of a guard":     {"pgguard", []string{otel[1] + "/sub"}, "only the adapters"},
		"lock takes no driver":                 {"lock", []string{"github.com/redis/go-redis/v9/sub"}, "go-redis"},
		"lock takes no guard of a store":       {"lock", []string{module + "/pgguard"}, "pgguard"},
		"a back end takes one driver":          {"lock/redislock", []string{"github.com/redis/go-redis/v9/sub", module + "/lock", module + "/internal/rediskeys"}, ""},
		"a back end takes no second driver":    {"lock/redislock", []string{"github.com/redis/go-redis/v9/sub", "github.com/jackc/pgx/v5/sub"}, "drivers up to 1"},
		"a back end takes no other back end":   {"lock/redlock", []string{module + "/lock/redislock"}, "lock/redislock"},
		"objectguard takes no client":          {"guard/objectguard", []string{"github.com/redis/go-redis/v9/sub"}, "drivers up to 0"},
		"redisguard takes its driver":          {"guard/redisguard", []string{"github.com/redis/go-redis/v9/sub", module + "/internal/rediskeys"}, ""},
		"redisguard takes no second driver":    {"guard/redisguard", []string{"github.com/redis/go-redis/v9/sub", "github.com/jackc/pgx/v5/sub"}, "drivers up to 1"},
		"redisguard takes no lock":             {"guard/redisguard", []string{module + "/lock"}, "imports lock"},
		"sqlguard takes no driver":             {"sqlguard", []string{"github.com/jackc/pgx/v5/sub"}, "pgx"},
		"a guard never takes lock":             {"pgguard", []string{module + "/lock"}, "imports lock"},
		"a guard takes no server of the tests": {"pgguard", []string{module + "/internal/localserver"}, "internal/localserver"},
		"a sequencer never takes lock":         {"sequencer/redisseq", []string{module + "/lock"}, "imports lock"},
		"migrations takes pgx":                 {"migrations", []string{"github.com/jackc/pgx/v5/sub"}, ""},
		"migrations takes nothing else":        {"migrations", []string{module + "/guard", testify + "/sub"}, "imports guard"},
		"a new package needs a rule":           {"elsewhere", nil, "no rule"},
		"an unknown module is not overlooked":  {"lock/redislock", []string{"example.com/unknown"}, "no known module"},
		"a program is free":                    {"cmd/fencectl", []string{module + "/lock", testify + "/sub"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := strings.Join(violations(pkg{ImportPath: module + "/" + c.importer, Imports: c.imports}, packages), "\n")
			if c.want == "" {
				require.Empty(t, got)
				return
			}
			require.Contains(t, got, c.want)
		})
	}
}
