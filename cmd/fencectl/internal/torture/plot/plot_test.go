package plot_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/torture/plot"
)

func TestDraw(t *testing.T) {
	t.Parallel()
	marks := []string{"committed", "refused", "unknown", "failed", "killed", "overwritten"}
	lane := plot.Lane{Who: "a", Spans: []plot.Span{
		{Kind: "hold", From: 10 * time.Second, To: 90 * time.Second, Text: "token <1>"},
		{Kind: "frozen", From: 70 * time.Second, To: 71 * time.Second, Text: "S1"},
	}}
	for i, kind := range marks {
		lane.Marks = append(lane.Marks, plot.Mark{Kind: kind, At: time.Duration(i+1) * time.Second, Text: "mark " + kind})
	}
	p := plot.Picture{
		Title: "torture", Lines: []string{"a line"}, Length: 100 * time.Second,
		Strikes:  []plot.Span{{Kind: "strike", From: 5 * time.Second, To: 6 * time.Second, Text: "flush"}},
		Variants: []plot.Variant{{Name: "pgguard", Verdict: "none", Resources: []plot.Resource{{Name: "r", Lanes: []plot.Lane{lane}}}}},
	}
	require.Equal(t, 2, p.Pages())
	var pages [2]string
	for i := range pages {
		var b strings.Builder
		require.NoError(t, p.Draw(&b, i, func(page int) string { return fmt.Sprintf("page-%d", page) }))
		pages[i] = b.String()
		requireSVG(t, pages[i])
		require.Contains(t, pages[i], "token &lt;1&gt;")
		require.Contains(t, pages[i], fmt.Sprintf(`<a href="page-%d">`, 1-i))
	}
	for _, kind := range marks {
		require.Contains(t, pages[0], "mark "+kind)
		require.NotContains(t, pages[1], "mark "+kind)
	}
	require.Contains(t, pages[0], "flush")
	require.NotContains(t, pages[0], "S1,")
	require.Contains(t, pages[1], "S1, 70.000s to 71.000s")
}

// requireSVG checks that the pictures are closed where they should be.
func requireSVG(t *testing.T, page string) {
	t.Helper()
	pictures := 0
	for _, rest := range strings.Split(page, "<svg")[1:] {
		text, _, found := strings.Cut("<svg"+rest, "</svg>")
		require.True(t, found)
		for d := xml.NewDecoder(strings.NewReader(text + "</svg>")); ; {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, text)
		}
		pictures++
	}
	require.NotZero(t, pictures)
}
