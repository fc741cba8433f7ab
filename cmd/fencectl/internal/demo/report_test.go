package demo_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/demo"
)

// results returns what the four acts come to, changed by change.
func results(change func(acts []demo.Result)) []demo.Result {
	acts := []demo.Result{
		{Act: 1, Sold: 80, Stock: 70},
		{Act: 2, Guarded: true, Sold: 80, Stock: 20, Refused: 1},
		{Act: 3, Guarded: true, Sold: 80, Stock: 20, Refused: 1},
		{Act: 4, Guarded: true, Sold: 80, Stock: 20, Refused: 1, Repaired: 1, Forgot: true},
	}
	change(acts)
	for i := range acts {
		acts[i] = demo.Conclude(acts[i])
	}
	return acts
}

func TestTheVerdictAsksForProof(t *testing.T) {
	t.Parallel()
	for says, change := range map[string]func(acts []demo.Result){
		"the lock alone lost 50 of 80 sold, the fence none; 3 stale writes refused": func([]demo.Result) {},
		"act 1 lost no update":                         func(a []demo.Result) { a[0].Stock = 20 },
		"act 2 is NOT clean although it was guarded":   func(a []demo.Result) { a[1].Stock = 50 },
		"act 3 is NOT clean":                           func(a []demo.Result) { a[2].Sold = 110 },
		"act 3 had no stale write to refuse":           func(a []demo.Result) { a[2].Refused = 0 },
		"act 4 had no token to repair":                 func(a []demo.Result) { a[3].Repaired = 0 },
		"sold 80 of 100, stock says 19, should be 20":  func(a []demo.Result) { a[3].Stock = 19 },
		"act 1 lost no update, so the others prove no": func(a []demo.Result) { a[0].Stock = 10 },
	} {
		v := demo.Judge(results(change))
		require.Contains(t, v.Text, says)
		require.Equal(t, strings.HasPrefix(v.Text, "the lock alone"), v.OK)
		require.NotContains(t, v.Text, "\n")
	}
}

func report(t *testing.T, r demo.Reporter) {
	t.Helper()
	long := "guard: fence of \"inventory:sku-42\" is stale: " + strings.Repeat("words and words ", 20)
	require.NoError(t, r.Opening(demo.Opening{Redis: "redis", Store: demo.Postgres, Postgres: "postgres", Resource: "inventory:sku-42", TTL: "1s", Freezes: true}))
	require.NoError(t, r.Act(demo.Act{Act: 1, Title: "title", Note: "note"}))
	require.NoError(t, r.Event(demo.Event{Act: 1, Seconds: 1.234, Actor: "A", What: demo.Acquired, Token: 1 << 60, Text: "acquires <the lock>"}))
	for range 2 {
		require.NoError(t, r.Event(demo.Event{Act: 1, Seconds: 2, Actor: "B", What: demo.Refused, Token: 7, Text: "sells", Error: long, Server: "ERROR: stale", State: "UF001"}))
	}
	require.NoError(t, r.Result(demo.Conclude(demo.Result{Act: 1, Sold: 80, Stock: 70})))
	require.NoError(t, r.Verdict(demo.Verdict{OK: true, Text: "fine"}))
}

func TestTimelineForAPipe(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	report(t, demo.NewTimeline(&b, demo.Style{}))
	require.NotContains(t, b.String(), "\x1b")
	require.Contains(t, b.String(), "   1.23  A      1152921504606846976  acquires <the lock>\n")
	require.Equal(t, 2, strings.Count(b.String(), "ERROR: stale"), "who refused is always said")
	require.Equal(t, 1, strings.Count(b.String(), strings.TrimSpace(strings.Repeat("words and words ", 20))), "what it means is said once, unbroken")
	require.Contains(t, b.String(), "=> sold 80 of 100, stock says 70, should be 20: B's update is lost\n")
	require.True(t, strings.HasSuffix(b.String(), "\nOK: fine\n"))
}

func TestTimelineForATerminal(t *testing.T) {
	t.Parallel()
	var plain, coloured bytes.Buffer
	report(t, demo.NewTimeline(&plain, demo.Style{Width: 80}))
	report(t, demo.NewTimeline(&coloured, demo.Style{Width: 80, Color: true}))
	for line := range strings.Lines(plain.String()) {
		if !strings.Contains(line, "1152921504606846976") {
			require.LessOrEqual(t, len(strings.TrimSuffix(line, "\n")), 80, line)
		}
	}
	require.Contains(t, coloured.String(), "\x1b[31msells\x1b[0m", "a refusal is red")
	codes := regexp.MustCompile("\x1b\\[[0-9;]*m")
	require.Equal(t, plain.String(), codes.ReplaceAllString(coloured.String(), ""))
}

func TestJSONLines(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	report(t, demo.NewJSONLines(&b))
	var types []string
	for line := range strings.Lines(b.String()) {
		var object map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &object))
		types = append(types, object["type"].(string))
		if object["what"] == "acquired" {
			require.Equal(t, "1152921504606846976", object["token"], "S19: a token is no number to JavaScript")
			require.NotContains(t, object, "error")
		}
	}
	require.Equal(t, []string{"opening", "act", "event", "event", "event", "result", "verdict"}, types)
	require.Contains(t, b.String(), "acquires <the lock>")
}

type brokenPipe struct{}

var errBroken = errors.New("broken pipe")

func (brokenPipe) Write([]byte) (int, error) { return 0, errBroken }

func TestReportersSayThatTheyCannotWrite(t *testing.T) {
	t.Parallel()
	for _, r := range []demo.Reporter{demo.NewTimeline(brokenPipe{}, demo.Style{}), demo.NewJSONLines(brokenPipe{})} {
		require.ErrorIs(t, r.Opening(demo.Opening{}), errBroken)
		require.ErrorIs(t, r.Event(demo.Event{}), errBroken)
		require.ErrorIs(t, r.Verdict(demo.Verdict{}), errBroken)
	}
}
