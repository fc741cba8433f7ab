package docs_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/migrations"
)

type sqlVectors struct {
	Setup     []string
	Protect   struct{ Table, Resource string }
	Histories []struct {
		Name  string
		Steps []struct {
			SQL, Session, SQLState, Tag string
			Rows                        [][]string
			Detail                      map[string]any
		}
	}
}

func TestTheSchemaAnswersAsInTheVectors(t *testing.T) {
	t.Parallel()
	var v sqlVectors
	load(t, "sql.json", &v)
	require.NotEmpty(t, v.Histories)
	url := migrated(t)
	setup := connect(t, url)
	up, _, err := migrations.Protect(v.Protect.Table, migrations.ProtectOptions{Trigger: true, Resource: v.Protect.Resource})
	require.NoError(t, err)
	for _, sql := range append(v.Setup, up) {
		_, err := setup.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	for _, h := range v.Histories {
		t.Run(h.Name, func(t *testing.T) {
			sessions := make(map[string]*pgx.Conn)
			for i, s := range h.Steps {
				if sessions[s.Session] == nil {
					sessions[s.Session] = connect(t, url)
				}
				rows, tag, err := run(t, sessions[s.Session], s.SQL)
				pgErr, _ := errors.AsType[*pgconn.PgError](err)
				if s.SQLState == "" {
					require.NoError(t, err, "step %d: %s", i+1, s.SQL)
				} else {
					require.NotNil(t, pgErr, "step %d: %s: %v", i+1, s.SQL, err)
					require.Equal(t, s.SQLState, pgErr.Code, "step %d: %s: %v", i+1, s.SQL, err)
				}
				if s.Rows != nil {
					require.Equal(t, s.Rows, rows, "step %d: %s", i+1, s.SQL)
				}
				if s.Tag != "" {
					require.Equal(t, s.Tag, tag, "step %d: %s", i+1, s.SQL)
				}
				if s.Detail != nil {
					var got map[string]any
					require.NoError(t, json.Unmarshal([]byte(pgErr.Detail), &got), "step %d: %s", i+1, s.SQL)
					for name, want := range s.Detail {
						require.Contains(t, got, name)
						require.Equal(t, want, got[name], "step %d: %s", i+1, s.SQL)
					}
				}
			}
		})
	}
}

// run returns what one statement does, in text, as most clients see it.
func run(t *testing.T, conn *pgx.Conn, sql string) (rows [][]string, tag string, err error) {
	t.Helper()
	results, err := conn.PgConn().Exec(t.Context(), sql).ReadAll()
	for _, r := range results {
		tag = r.CommandTag.String()
		for _, row := range r.Rows {
			var texts []string
			for _, value := range row {
				texts = append(texts, string(value))
			}
			rows = append(rows, texts)
		}
	}
	return rows, tag, err
}
