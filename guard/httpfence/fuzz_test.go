package httpfence_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/fencewire"
	"github.com/go-fencing/fencing/guard/httpfence"
	"github.com/go-fencing/fencing/internal/wiretest"
)

// Whatever stands in the header: the handler gets fences that were signed for it, or
// the caller gets 400, which gives nothing away.
func FuzzHeader(f *testing.F) {
	good := wiretest.Values(f, wiretest.Signer(f, "inventory", wiretest.Shared), held, order)
	signed := []guard.Fence{held, order}
	for _, lines := range []string{
		strings.Join(good, "\n"),
		strings.Join(good, ","),
		strings.Join(good, " ,\t") + "\n",
		good[0] + "\n" + good[0],
		good[0] + ",",
		good[0][:40],
		good[0] + "\x00",
		strings.ToUpper(good[0]),
		strings.Replace(good[0], ";33;", ";34;", 1),
		strings.Replace(good[0], "k1", "k2", 1),
		strings.Repeat(good[0]+"\n", fencewire.MaxFences+1),
		strings.Repeat("x", fencewire.MaxBytes+1),
		wiretest.Values(f, wiretest.Signer(f, "billing", wiretest.Shared), held)[0],
		wiretest.Values(f, wiretest.Signer(f, "inventory", wiretest.Forged), held)[0],
		"", ";;;;;;;", "1;k1;0;r;1;n;h;", "inventory:sku-42;33;nonce-of-a;worker-a", "é",
	} {
		f.Add(lines)
	}
	v := wiretest.Verifier(f, "inventory", fencewire.WithMaxAge(1_000_000*time.Hour)) // a corpus is kept for long
	f.Fuzz(func(t *testing.T, lines string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
		r.Header[fencewire.Header] = strings.Split(lines, "\n")
		w, rec := httptest.NewRecorder(), &recorder{}
		httpfence.Middleware(v)(rec).ServeHTTP(w, r)
		if w.Code == http.StatusBadRequest {
			require.Empty(t, rec.requests)
			require.Contains(t, w.Body.String(), fencewire.ErrUnverified.Error())
			for _, value := range good {
				require.NotContains(t, w.Body.String(), value[strings.LastIndexByte(value, ';')+1:])
			}
			require.Less(t, w.Body.Len(), 1000)
			return
		}
		require.Equal(t, http.StatusOK, w.Code)
		got := rec.requests[0].fences
		require.NotEmpty(t, got, "a header without a fence is no passport")
		for _, fence := range got {
			require.Contains(t, signed, fence)
		}
	})
}
