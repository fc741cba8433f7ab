package main

const fenceSQL = "migrations/0001_fence.up.sql"

var mutants = []mutant{
	{
		"guard: the raise is strict", "guard/rules.go",
		"f.Token > r.Fence.Token || r.is(f)", "f.Token >= r.Fence.Token || r.is(f)", "guard/...", ".",
	},
	{
		"guard: an equal token is the caller's own only with its nonce", "guard/rules.go",
		"f.Token == r.Fence.Token && f.Nonce == r.Fence.Nonce", "f.Token == r.Fence.Token", "guard/...", ".",
	},
	{
		"guard: no fence means no write", "guard/rules.go",
		"if r.Fence.Token == 0 || f.Token > r.Fence.Token {\n\t\treturn &NotRaisedError", "if false {\n\t\treturn &NotRaisedError", "guard/...", ".",
	},
	{
		"Postgres: the raise is strict", fenceSQL,
		"ELSIF p_token > token THEN", "ELSIF p_token >= token THEN", "pgguard", "Conformance|S22|S9",
	},
	{
		"Postgres: enter shares the gate", fenceSQL,
		"pg_advisory_xact_lock_shared(hashtextextended(p_resource, 5070437)) IS NULL", "p_resource IS NULL", "pgguard", "Conformance|S3|S4|S6",
	},
	{
		"Postgres: the raise takes the gate alone", fenceSQL,
		"PERFORM pg_advisory_xact_lock(gate);", "PERFORM pg_advisory_xact_lock_shared(gate);", "pgguard", "Conformance|S3|S4|S6",
	},
	{
		"Postgres: enter admits only the fence in force", fenceSQL,
		"IF p_token IS NULL OR p_nonce IS NULL OR current.token IS DISTINCT FROM p_token OR current.nonce IS DISTINCT FROM p_nonce THEN", "IF current.token < p_token THEN", "pgguard", "Conformance|S1|S2",
	},
	{
		"Postgres: NULL enters nothing", fenceSQL,
		"IF p_token IS NULL OR p_nonce IS NULL OR current", "IF current", "migrations", "NULL",
	},
	{
		"Postgres: enter compares the nonce", fenceSQL,
		" OR current.nonce IS DISTINCT FROM p_nonce THEN", " THEN", "pgguard", "Conformance|S22",
	},
	{
		"Postgres: above READ COMMITTED the check locks the fence", fenceSQL,
		"WHERE f.resource = p_resource FOR SHARE;", "WHERE f.resource = p_resource;", "pgguard", "S25|S31",
	},
	{
		"Postgres: a raise is READ COMMITTED", fenceSQL,
		"IF current_setting('transaction_isolation') NOT IN", "IF false AND current_setting('transaction_isolation') NOT IN", "migrations", "Raise|raise|Isolation",
	},
	{
		"Postgres: enter leaves what it entered to the triggers", fenceSQL,
		"held := set_config('fencing.held', E'\\n' || p_resource || E'\\n', true);", "held := 'none';", "migrations", "Trigger|S38|S36",
	},
	{
		"lock: the deadline counts from the send time", "lock/acquire.go",
		"l.keeper.keep(ctx, h, sent)", "l.keeper.keep(ctx, h, time.Now())", "lock", "Deadline",
	},
	{
		"lock: a lost lease stays lost", "lock/keeper.go",
		"if h.index < 0 { // released or lost meanwhile\n\t\t\tcontinue\n\t\t}", "", "lock", ".",
	},
	{
		"lock: a dead parent context ends the watchdog", "lock/keeper.go",
		"h.renewAt = time.Time{}\n\tif h.index >= 0 {", "if h.index >= 0 {", "lock", "DeadParent",
	},
	{
		"lock: an attempt without an answer is undone", "lock/acquire.go",
		"if err != nil && !errors.Is(err, ErrHeld) {\n\t\t\tl.undo", "if false {\n\t\t\tl.undo", "lock", "S21",
	},
	{
		"lock: an attempt that is given up is undone", "lock/acquire.go",
		"if outlived {\n\t\t\tl.undo", "if false {\n\t\t\tl.undo", "lock", "Abandoned",
	},
	{
		"lock: the guards are raised before Acquire returns", "lock/secure.go",
		"if len(l.guards) == 0 && l.sequencer == nil {", "if true {", "lock", "S1_S2|EveryGuard",
	},
	{
		"lock: a store ahead of the sequencer repairs it", "lock/secure.go",
		"after = max(after, stale.Current.Token)", "_ = stale", "lock", "S13|Sequencer",
	},
	{
		"lock: the lock is checked again after its token was drawn", "lock/secure.go",
		"if errors.Is(err, ErrLost) {\n\t\terr = errSuperseded\n\t}", "err = nil", "lock", "S15",
	},
	{
		"lock: re-entry shares the fence", "lock/acquire.go",
		"h := l.held(ctx, r)", "var h *hold", "lock", "S28|Reentry",
	},
	{
		"redislock: tokens are strings above 2^53", "internal/rediskeys/counter.lua",
		"n < 9007199254740992 and string.format('%.0f', n) or redis.call('GET', counter)", "string.format('%.0f', n)", "lock/redislock", "S16",
	},
	{
		"redislock: the lock is written after what can fail", "lock/redislock/acquire.lua",
		"local token = held[2]\n", "local token = held[2]\nredis.call('HSET', KEYS[1], 'holder', '')\n", "lock/redislock", "S17",
	},
	{
		"redislock: release compares the nonce", "lock/redislock/release.lua",
		"held.err or held[1] ~= ARGV[1] or not held[2]", "false", "lock/redislock", "TestBackend",
	},
	{
		"redislock: renewal never creates", "lock/redislock/renew.lua",
		"if redis.call('HGET', KEYS[1], 'nonce') ~= ARGV[1] then\n  return 0\nend", "redis.call('HSET', KEYS[1], 'nonce', ARGV[1])", "lock/redislock", "TestBackend",
	},
	{
		"pgguard: a commit is believed only from a server that has not crashed since", "pgguard/commit.go",
		"case *status == \"committed\" && same:", "case *status == \"committed\":", "pgguard", "S23",
	},
}
