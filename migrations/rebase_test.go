package migrations_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-fencing/fencing/migrations"
)

// The fence of a resource whose counter was set near the end of the integers, and
// who held it before and after.
const poisonedStory = `SELECT fencing.raise('r', 41, 'early', 'A'); SELECT fencing.raise('r', 9223372036854775806, 'first', 'B');
	SELECT fencing.raise('r', 9223372036854775807, 'last', 'C')`

func (db database) rebase(t testing.TB, args string) string {
	t.Helper()
	return db.query(t, "SELECT coalesce(string_agg(concat_ws(' ', what, token_before, token_after), ', '), 'nothing') FROM fencing.rebase("+args+")")
}

func TestS18_ARebasedResourceWorksAgainAndNoEarlierHolderComesBack(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	db.exec(t, poisonedStory)
	db.refused(t, "22003", "SELECT fencing.issue('r', 'n')")
	require.Equal(t, "fence 9223372036854775807 1000", db.rebase(t, "'r', 1000"))
	require.Equal(t, "nothing", db.rebase(t, "'r', 1000"), "again")

	db.refused(t, "UF001", "SELECT fencing.enter('r', 41, 'early')")
	db.refused(t, "UF002", "SELECT fencing.enter('r', 9223372036854775806, 'first')")
	db.refused(t, "UF002", "SELECT fencing.enter('r', 9223372036854775807, 'last')")
	raise := func(token, nonce string) string {
		return "SELECT concat_ws(' ', token, nonce, holder) FROM fencing.raise('r', " + token + ", '" + nonce + "', 'late')"
	}
	require.Equal(t, "1000  rebase", db.query(t, raise("41", "early")))
	require.Equal(t, "1000  rebase", db.query(t, raise("1000", "guessed")))
	for _, token := range []string{"9223372036854775806", "9223372036854775807", "72057594037928936"} { // and the first that was given up
		refused := db.refused(t, "UF001", raise(token, "first"))
		require.Contains(t, refused.Message, "token "+token+" is held, those from 72057594037928936 on were given up in a rebase; the current one is 1000 of 'rebase'")
		require.JSONEq(t, `"1000"`, db.query(t, "SELECT ('"+refused.Detail+"'::json->'token')::text"))
		require.NotContains(t, refused.Detail+refused.Message+refused.Where, "first")
	}

	require.Equal(t, "1001 n late", db.query(t, raise("1001", "n")))
	db.exec(t, "BEGIN; SELECT fencing.enter('r', 1001, 'n'); COMMIT")
	require.Equal(t, "1002", db.query(t, "SELECT token::text FROM fencing.issue('r', 'm')"))
	db.exec(t, raise("72057594037928935", "n")) // the last that was not given up
	db.refused(t, "UF001", "SELECT fencing.issue('r', 'm2')")
	db.refused(t, "UF001", "UPDATE fencing.fence SET token = 9223372036854775807") // the owner's own, too
}

func TestRebaseLeavesAFenceThatIsPlausible(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	db.exec(t, "SELECT fencing.raise('r', 72057594037927936, 'n')") // as far as a counter may be taken
	require.Equal(t, "nothing", db.rebase(t, "'r', 1"))
	require.Equal(t, "nothing", db.rebase(t, "'never raised', 1"))
	db.exec(t, "BEGIN; SELECT fencing.enter('r', 72057594037927936, 'n'); COMMIT")
	for _, to := range []string{"0", "-1", "NULL", "4611686018427387905"} {
		db.refused(t, "22023", "SELECT fencing.rebase('r', "+to+")")
	}
	db.refused(t, "22023", "SELECT fencing.rebase('', 1)")
	db.refused(t, "25001", "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT fencing.rebase('r', 1)")
}

// A second lowering would open what the first has given up.
func TestAFenceIsLoweredOnce(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	db.exec(t, poisonedStory)
	db.rebase(t, "'r', 1000")
	db.exec(t, "SELECT fencing.raise('r', 72057594037928935, 'n')")
	db.refused(t, "22023", "SELECT fencing.rebase('r', 1)")
	db.refused(t, "22023", "SELECT fencing.rebase('r', 72057594037928936)")
	db.refused(t, "UF001", "SELECT fencing.raise('r', 9223372036854775806, 'first')")
}

func TestRebaseTakesTheCountersOfTheSchemaBack(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	db.exec(t, "SELECT fencing.raise('r', 41, 'n'); INSERT INTO fencing.sequence VALUES ('r', 9223372036854775807), ('other', 9223372036854775807); UPDATE fencing.lease_counter SET token = 9223372036854775807")
	db.refused(t, "22003", "SELECT fencing.next_token('r')")
	db.refused(t, "22003", "SELECT fencing.lease_acquire('r', 'l', '', 1000)")
	require.Equal(t, "sequence 9223372036854775807 4503599627370496, lease_counter 9223372036854775807 4503599627370496", db.rebase(t, "'r', 1"))
	require.Equal(t, "4503599627370497", db.query(t, "SELECT fencing.next_token('r')::text"))
	require.Equal(t, "4503599627370497", db.query(t, "SELECT token::text FROM fencing.lease_acquire('r', 'l', '', 60000)"))
	db.refused(t, "22003", "SELECT fencing.next_token('other')")

	refused := db.refused(t, "55006", "SELECT fencing.rebase('r', 1)")
	require.Contains(t, refused.Message, "'r' is held by '' with token 4503599627370497")
	db.exec(t, "SELECT fencing.lease_release('r', 'l', 'l')")
	require.Equal(t, "nothing", db.rebase(t, "'r', 1"))

	// Below the end, and yet where nothing may be raised any more.
	db.exec(t, "SELECT fencing.raise('r', 9223372036854775807, 'n')")
	db.rebase(t, "'r', 1000")
	db.exec(t, "UPDATE fencing.sequence SET token = 72057594037928935 WHERE resource = 'r'")
	require.Equal(t, "sequence 72057594037928935 4503599627370496", db.rebase(t, "'r', 1000"))
}

// What was raised before a fence jumped has a token up to where it jumped from, and is
// never let in again, whatever rebase is asked for.
func TestAFenceIsNotLoweredBelowWhereItJumpedFrom(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	for i, poison := range []string{"4611686018427387902", "4611686018427387903", "4611686018427387904", "4611686018427387905", "9223372036854775807", "1760000000000000000"} {
		resource := string(rune('a' + i))
		raise := func(token, nonce string) string {
			return "SELECT concat_ws(' ', token, nonce) FROM fencing.raise('" + resource + "', " + token + ", '" + nonce + "')"
		}
		db.exec(t, raise("4503599627370496", "older")+";"+raise("4503599627370501", "early")+";"+raise(poison, "poison"))
		require.Equal(t, "fence "+poison+" 4503599627370501", db.rebase(t, "'"+resource+"', 1"))
		require.Equal(t, "4503599627370502 next", db.query(t, raise("4503599627370502", "next")))
		for _, token := range []string{"4503599627370496", "4503599627370501"} {
			require.Equal(t, "4503599627370502 ", db.query(t, raise(token, "early")))
		}
		db.refused(t, "UF001", raise(poison, "poison"))
	}

	// Of two jumps the last one counts, and what came after it.
	db.exec(t, "SELECT fencing.raise('z', 5, 'n'); SELECT fencing.raise('z', 1000000000000000000, 'n'); SELECT fencing.raise('z', 4611686018427387904, 'n'); SELECT fencing.raise('z', 4611686018427387905, 'n')")
	require.Equal(t, "fence 4611686018427387905 1000000000000000000", db.rebase(t, "'z', 1"))
	db.exec(t, "SELECT fencing.raise('y', 72057594037927936, 'n'); SELECT fencing.raise('y', 72057594037927937, 'n')")
	for range 70 { // in steps that are none
		db.exec(t, "SELECT fencing.raise('y', token + 72057594037927935, 'n') FROM fencing.fence WHERE resource = 'y'")
	}
	refused := db.refused(t, "22023", "SELECT fencing.rebase('y', 72057594037927940)")
	require.Contains(t, refused.Message, "tokens from 72057594037927936 on were raised")
}

// The ceiling must not be forgotten behind the back of those who rebased.
func TestTheWayDownRefusesToForgetWhatWasGivenUp(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	db.exec(t, poisonedStory)
	db.rebase(t, "'r', 1000")
	err := migrations.Down(t.Context(), db, migrations.To(4))
	require.ErrorContains(t, err, "their earlier holders would come back")
	db.exec(t, "UPDATE fencing.fence SET ceiling = NULL")
	require.NoError(t, migrations.Down(t.Context(), db, migrations.To(4)))
	require.NoError(t, migrations.Up(t.Context(), db))
}

// Whoever has entered the poisoned fence may be about to commit.
func TestRebaseWaitsForOpenTransactionsUnderTheFence(t *testing.T) {
	t.Parallel()
	db := newFenced(t)
	db.exec(t, poisonedStory)
	other := connect(t, db.url)
	_, err := other.Exec(t.Context(), "BEGIN; SELECT fencing.enter('r', 9223372036854775807, 'last')")
	require.NoError(t, err)
	refused := db.refused(t, "55P03", "SELECT fencing.rebase('r', 1000, 50)")
	require.Contains(t, refused.Detail, `"pid"`)
	_, err = other.Exec(t.Context(), "COMMIT")
	require.NoError(t, err)
	require.Equal(t, "fence 9223372036854775807 1000", db.rebase(t, "'r', 1000, 50"))
}

func TestOnlyTheOwnerRebases(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	role := newRole(t, db)
	require.NoError(t, migrations.Up(t.Context(), db))
	db.exec(t, poisonedStory)
	db.exec(t, "SET ROLE "+role)
	db.refused(t, "42501", "SELECT fencing.rebase('r', 1000)")
	db.exec(t, "RESET ROLE; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA fencing TO "+role+"; SET ROLE "+role) // as default privileges may
	db.refused(t, "42501", "SELECT fencing.rebase('r', 1000)")
	db.exec(t, "RESET ROLE")
	require.Equal(t, "9223372036854775807", db.query(t, "SELECT token::text FROM fencing.fence"))
}
