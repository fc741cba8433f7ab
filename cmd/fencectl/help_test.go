package main_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files")

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"", "demo", "migrate", "migrate up", "migrate down", "migrate status", "migrate print", "protect", "run", "ls", "doctor", "torture", "version", "rebase"} {
		t.Run("fencectl "+command, func(t *testing.T) {
			t.Parallel()
			// A default that comes from the environment would show here.
			c := call{args: append(strings.Fields(command), "--help"), env: []string{"FENCING_POSTGRES_URL=postgres://app:hunter2@db/shop", "FENCING_REDIS_URL=redis://:hunter2@cache"}}
			got := c.run(t)
			require.Equal(t, 0, got.code)
			golden := filepath.Join("testdata", "help", strings.ReplaceAll(strings.TrimSpace("fencectl "+command), " ", "_")+".txt")
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got.stdout), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), got.stdout, "run the test with -update if this is meant")
			for line := range strings.Lines(got.stdout) {
				require.LessOrEqual(t, len(line), 120, line)
			}
		})
	}
}

func TestHelpDocumentsTheExitCodes(t *testing.T) {
	t.Parallel()
	help := ok(t, "--help")
	for _, code := range []string{"0", "1", "2", "3", "130"} {
		require.Regexp(t, `(?m)^  `+code+`\s+\w`, help)
	}
	require.Equal(t, help, ok(t), "without a command")
	require.Equal(t, ok(t, "rebase", "--help"), ok(t, "help", "rebase"))
}

// What a reader of the help would otherwise learn by accident.
func TestHelpSaysWhatIsNotObvious(t *testing.T) {
	t.Parallel()
	for command, says := range map[string][]string{
		"":              {"an error is text on stderr all the same", "then stdout stays empty"},
		"demo":          {"FENCING_POSTGRES_URL=postgres://app@db/shop FENCING_REDIS_URL=redis://cache make demo"},
		"migrate print": {"directory to write the files into, made if it is not there"},
		"protect":       {"UpdateRow", "ModeRow", "use --no-column", "whatever --resource and --trigger say"},
	} {
		help := strings.Join(strings.Fields(ok(t, append(strings.Fields(command), "--help")...)), " ")
		for _, text := range says {
			require.Contains(t, help, text, command)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	version := ok(t, "version")
	require.Regexp(t, `^fencectl version \S+\n$`, version)
	require.Equal(t, version, ok(t, "--version"))
	var v struct{ Version string }
	require.NoError(t, json.Unmarshal([]byte(ok(t, "version", "--json")), &v))
	require.Equal(t, version, "fencectl version "+v.Version+"\n")
	require.Contains(t, ok(t, "--help"), "\n  version ")
	fails(t, 2, "version takes no arguments", "version", "now")
}

func TestCompletionKnowsTheTools(t *testing.T) {
	t.Parallel()
	require.Contains(t, ok(t, "completion", "bash"), "fencectl")
	r := run(t, "__complete", "migrate", "print", "--tool", "g")
	require.Equal(t, "goose\ngolang-migrate\ntern\natlas\npsql\n:4\n", r.stdout)
}

func TestBadUsage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		says string
		args string
	}{
		"unknown command":         {`unknown command "dmeo" for "fencectl"; did you mean demo?`, "dmeo"},
		"nothing like a command":  {"unknown command \"xyzzy\" for \"fencectl\"; see \"fencectl --help\"\n", "xyzzy"},
		"unknown subcommand":      {`unknown command "upp" for "fencectl migrate"; did you mean up?`, "migrate upp"},
		"unknown help":            {`unknown command "nosuch" for "fencectl"; see "fencectl --help"`, "help nosuch"},
		"unknown help of one":     {`unknown command "x" for "fencectl migrate up"`, "help migrate up x"},
		"unknown shell":           {`unknown command "tcsh" for "fencectl completion"`, "completion tcsh"},
		"no shell":                {"say for which shell", "completion"},
		"an argument too many":    {`migrate up takes no arguments, but was given "extra"; see "fencectl migrate up --help"`, "migrate up extra"},
		"no subcommand":           {"say which of up, down, status, print", "migrate"},
		"unknown flag":            {`unknown flag: --pg; see "fencectl migrate up --help"`, "migrate up --pg x"},
		"flag without a value":    {"flag needs an argument: --postgres", "migrate up --postgres"},
		"flag with another value": {`invalid argument "x" for "--json" flag: invalid syntax; see "fencectl migrate up --help"`, "migrate up --json=x"},
		"version that is none":    {fmt.Sprintf(`--to "x" is not a number from 0 to %d; see "fencectl migrate down --help"`, latest), "migrate down --to x"},
		"version below":           {fmt.Sprintf(`--to "-1" is not a number from 0 to %d`, latest), "migrate down --to=-1"},
		"version above":           {fmt.Sprintf(`--to "%d" is not a number from 0 to %d`, latest+1, latest), fmt.Sprintf("migrate up --to %d", latest+1)},
		"number that is none":     {`--number "1.5" is not a number from 1 on`, "migrate print --tool goose --number 1.5"},
		"Redis for Postgres' own": {"unknown flag: --redis", "migrate up --redis redis://h"},
		"Redis to protect":        {"unknown flag: --redis", "protect a --resource x --redis redis://h"},
		"superfluous argument":    {`demo takes no arguments, but was given "now"`, "demo now"},
		"no Postgres":             {"no Postgres given; name one with --postgres", "migrate status"},
		"schema of the demo":      {"--schema: the demo makes a fence schema of its own", "demo --schema x"},
		"no tool":                 {"choose one with --tool: goose, golang-migrate, tern, atlas, psql", "migrate print"},
		"unknown tool":            {`--tool "flyway": there is no such tool; choose one of goose,`, "migrate print --tool flyway"},
		"number":                  {`--number "0" is not a number from 1 on`, "migrate print --tool goose --number 0"},
		"no way down":             {"--down: the files for goose have no separate way down", "migrate print --tool goose --down"},
		"both ways":               {"--down and --dir exclude each other", "migrate print --tool psql --down --dir x"},
		"no table":                {"protect takes the name of one table, not 0", "protect --resource x"},
		"two tables":              {"not 2 arguments", "protect a b --resource x"},
		"no resource":             {"--resource is missing: name the fence that a row needs", "protect a"},
		"column and none":         {"--column and --no-column exclude each other", "protect a --resource x --column c --no-column"},
		"column without a name":   {"use --no-column", "protect a --resource x --column="},
		"neither":                 {"neither a column nor a trigger is asked for", "protect a --resource x --no-column --postgres postgres://h/d"},
		"tool without print":      {"--tool needs --print", "protect a --resource x --tool goose"},
		"directory without tool":  {"--dir and --number need --tool", "protect a --resource x --print --dir x"},
		"unknown tool to protect": {`--tool "x"`, "protect a --resource x --print --tool x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fails(t, 2, c.says, strings.Fields(c.args)...)
		})
	}
}

// The flags are checked before a server is needed: there is none at this address.
func TestBadInputIsSaidBeforeAServerIsNeeded(t *testing.T) {
	t.Parallel()
	const nowhere = "--postgres=postgres://app@127.0.0.1:1/shop"
	fails(t, 2, `schema "pg_fence" belongs to Postgres`, "migrate", "status", "--schema", "pg_fence", nowhere)
	fails(t, 2, "the name is empty", "migrate", "down", "--schema=", nowhere)
	fails(t, 2, "unexpected", "protect", "odd table", "--resource", "x", nowhere)
	fails(t, 2, "subquery", "protect", "inventory", "--trigger", "--resource", "(SELECT 'x')", nowhere)
	r := fails(t, 3, "127.0.0.1:1", "migrate", "status", nowhere)
	require.Contains(t, r.stderr, "--postgres: cannot connect to postgres://app@127.0.0.1:1/shop")
	require.Contains(t, r.stderr, "is a server running there?")
	fails(t, 3, "connection refused", "protect", "inventory", "--resource", "x", nowhere)
}
