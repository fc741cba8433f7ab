package hint_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/internal/hint"
)

func TestTheSchemaIsNamedUnlessItIsTheDefault(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		"fencing":        "fencectl migrate up",
		"other":          "fencectl migrate up --schema other",
		"x.y_2":          "fencectl migrate up --schema x.y_2",
		"it's Odd $HOME": `fencectl migrate up --schema 'it'\''s Odd $HOME'`,
		"-x":             "fencectl migrate up --schema '-x'",
		"":               "fencectl migrate up --schema ''",
	} {
		require.Equal(t, want, hint.Fencectl("migrate up", schema))
	}
}

func TestAShellReadsTheSchemaAsItIs(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{"other", "it's", `a"b`, "$x `y` \\z", "a;b", "''", "ü *"} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", `fencectl() { printf %s "$4"; }; `+hint.Fencectl("migrate up", schema)).Output()
		require.NoError(t, err, schema)
		require.Equal(t, schema, string(out))
	}
}

func TestAWordIsQuotedOnlyWhereItMustBe(t *testing.T) {
	t.Parallel()
	require.Equal(t, "fencing", hint.Word("fencing"), "the default too")
	require.Equal(t, `'it'\''s'`, hint.Word("it's"))
	require.Equal(t, "''", hint.Word(""))
}
