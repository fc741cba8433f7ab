package sqlguard_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/sqlguard"
)

// pqError is shaped as that of lib/pq.
type pqError struct {
	Code   pqCode
	Detail string
}

type pqCode string

func (e *pqError) Error() string    { return "pq: " + string(e.Code) }
func (e *pqError) SQLState() string { return string(e.Code) }

// cgoError is shaped as that of mattn/go-sqlite3, which is a value.
type cgoError struct {
	Code         cgoCode
	ExtendedCode cgoCode
}

type cgoCode int

func (e cgoError) Error() string { return fmt.Sprint("sqlite3: ", int(e.ExtendedCode)) }

// ncrucesError and ncrucesCode are shaped as those of ncruces/go-sqlite3, which
// returns either.
type (
	ncrucesError struct{ code ncrucesCode }
	ncrucesCode  uint16
)

func (e *ncrucesError) Error() string             { return e.code.Error() }
func (e *ncrucesError) ExtendedCode() ncrucesCode { return e.code }
func (e ncrucesCode) Error() string               { return fmt.Sprint("sqlite3: ", uint16(e)) }

func TestTranslateReadsTheErrorsOfDrivers(t *testing.T) {
	t.Parallel()
	a, b := fence("a", 33, "A"), fence("b", 7, "B")
	detail := `{"resource": "a", "token": "34", "holder": "C", "raised_at": "2026-01-02T03:04:05+00:00"}`
	for _, err := range []error{
		&pgconn.PgError{Code: "UF001", Detail: detail},
		&pqError{Code: "UF001", Detail: detail},
		fmt.Errorf("repository: %w", &pgconn.PgError{Code: "UF001", Detail: detail}),
		errors.Join(errors.New("x"), &pqError{Code: "UF001", Detail: detail}),
	} {
		got := sqlguard.Translate(err, a, b)
		require.ErrorIs(t, got, guard.ErrStale)
		require.ErrorIs(t, got, err)
		var stale *guard.StaleError
		require.ErrorAs(t, got, &stale)
		require.Equal(t, a, stale.Held)
		require.Equal(t, guard.Fence{Resource: "a", Token: 34, Holder: "C"}, stale.Current)
		require.Equal(t, 2026, stale.Since.Year())
		require.Equal(t, got, sqlguard.Translate(got, a, b), "once is enough")
		require.False(t, sqlguard.Retryable(got))
	}
	require.ErrorIs(t, sqlguard.Translate(&pgconn.PgError{Code: "UF001"}, a), guard.ErrStale, "without the facts the code decides")
	require.ErrorIs(t, sqlguard.Translate(&pgconn.PgError{Code: "UF002", Detail: `{"resource": "a", "token": null}`}, a), guard.ErrNotRaised)
	require.ErrorIs(t, sqlguard.Translate(&pgconn.PgError{Code: "UF003"}), guard.ErrNoFence)
	unguarded := sqlguard.Translate(&pgconn.PgError{Code: "UF004", Message: "fencing: UPDATE of public.item"}, a, b)
	require.ErrorIs(t, unguarded, guard.ErrNoFence)
	require.ErrorContains(t, unguarded, `entered were "a", "b"`)
	for _, other := range []error{nil, errors.New("x"), &pgconn.PgError{Code: "23505"}, &mysql.MySQLError{Number: 1062}} {
		require.Equal(t, other, sqlguard.Translate(other, a))
	}
}

func TestRetryable(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		&pgconn.PgError{Code: "40001"}, &pqError{Code: "40P01"},
		&mysql.MySQLError{Number: 1213}, fmt.Errorf("x: %w", &mysql.MySQLError{Number: 1205}), &mysql.MySQLError{Number: 1020},
		cgoError{5, 5},
		cgoError{5, 517},
		cgoError{6, 262},
		&ncrucesError{261}, ncrucesCode(5),
	} {
		require.True(t, sqlguard.Retryable(err), "%v", err)
	}
	for _, err := range []error{
		nil, errors.New("x"), &pgconn.PgError{Code: "23505"}, &mysql.MySQLError{Number: 1062},
		cgoError{19, 2067},
		&ncrucesError{2067}, ncrucesCode(2067),
		&guard.StaleError{}, fmt.Errorf("%w: %w", guard.ErrCommitUnknown, &mysql.MySQLError{Number: 1213}), guard.ErrBlocked,
		struct{ error }{errors.New("Error 1213 in a text")},
	} {
		require.False(t, sqlguard.Retryable(err), "%v", err)
	}
}
