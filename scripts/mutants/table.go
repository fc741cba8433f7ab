package main

const fenceSQL = "migrations/0001_fence.up.sql"

var mutants = append(lockMutants, []mutant{
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
		"ELSIF p_token > token THEN", "ELSIF p_token >= token THEN", "pgguard", "S9",
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
		"Postgres: what a rebase has given up stays refused", "migrations/0005_rebase.up.sql",
		"WHEN (NEW.token >= OLD.ceiling)", "WHEN (false)", "pgguard", "S18",
	},
	{
		"pgguard: a commit is believed only from a server that has not crashed since", "pgguard/commit.go",
		"case *status == \"committed\" && same && older:", "case *status == \"committed\":", "pgguard", "S23",
	},
	{
		"pgguard: InTx tells a refusal that its function hides", "pgguard/intx.go",
		"case t.failed == nil:", "case true:", "pgguard", "Deferred",
	},
	{
		"pgguard: a connection that is handed out is in the transaction, or closed", "pgguard/deferred.go",
		"_ = t.conn.Close(ctx) // on", "// on", "pgguard", "Refused",
	},
	{
		"sqlguard: to enter in MySQL is to share the lock of the fence", "sqlguard/mysql.go",
		`mysqlShare  = " LOCK IN SHARE MODE"`, `mysqlShare  = ""`, "sqlguard", "TestConformance/mariadb|S25|S34",
	},
	{
		"sqlguard: in MySQL a raise that was given up is ended", "sqlguard/mysql.go",
		`_, _ = session.exec(ctx, "KILL "+strconv.FormatInt(id, 10))`, "_ = id", "sqlguard", "S5",
	},
	{
		"sqlguard: to enter in MySQL compares the nonce", "sqlguard/mysql.go",
		"found && current.Enter(f) == nil {", "found && current.Fence.Token == f.Token {\n\t\t\tcurrent.Fence = f", "sqlguard", "TestConformance/mariadb|EntersInEverySession",
	},
	{
		"sqlguard: in MySQL a snapshot from before the raise is no way in", "sqlguard/mysql.go",
		"found && current.seen == 0 &&", "false &&", "sqlguard", "BeforeTheRaise",
	},
	{
		"sqlguard: in MySQL a transaction that has ended is not committed", "sqlguard/mysql.go",
		"return in == 1, unknowable(", "return true, unknowable(", "sqlguard", "HadEnded",
	},
	{
		"sqlguard: to enter in SQLite compares the nonce", "sqlguard/sqlite.go",
		"AND token = ? AND nonce = ?", "AND token = ? AND ? <> ''", "sqlguard", "TestConformance/sqlite",
	},
	{
		"sqlguard: to enter in SQLite takes the write lock", "sqlguard/sqlite.go",
		"if !e.readOnly {", "if false {", "sqlguard", "SQLiteWaits",
	},
	{
		"sqlguard: a statement enters the fences that its transaction has not", "sqlguard/wraptx.go",
		"if len(more) == 0 {", "if true {", "sqlguard", "WrappedPassThrough",
	},
	{
		"sqlguard: in a transaction that the database ended nothing more runs", "sqlguard/wraptx.go",
		"if t.lost != nil {\n\t\treturn fmt.Errorf(\"sqlguard: nothing was sent", "if false {\n\t\treturn fmt.Errorf(\"sqlguard: nothing was sent", "sqlguard", "RunsNothingMore",
	},
	{
		"sqlguard: a transaction that the database ended is not committed", "sqlguard/wraptx.go",
		"if t.lost != nil {\n\t\t_ = t.Rollback()", "if false {\n\t\t_ = t.Rollback()", "sqlguard", "RunsNothingMore",
	},
	{
		"sqlguard: no fence, no transaction that writes", "sqlguard/wrapconn.go",
		"if len(held) == 0 && !c.passThrough && !o.ReadOnly {", "if false {", "sqlguard", "WrappedWrites",
	},
	{
		"gormguard: ROLLBACK TO drops what was entered", "gormguard/txstate.go",
		"case sqltext.RollbackTo:\n\t\t\ts.entered = nil", "case sqltext.RollbackTo:", "gormguard", "S34",
	},
	{
		"gormguard: a refusal dooms the transaction", "gormguard/tx.go",
		"if refused != nil {", "if false {", "gormguard", "SwallowedRefusal",
	},
	{
		"gormguard: a refusal ends with its savepoint", "gormguard/txstate.go",
		"if i < s.refusedAt {", "if false {", "gormguard", "RefusalInsideASavepoint",
	},
	{
		"gormguard: fences are entered where the options say", "gormguard/tx.go",
		"if g := p.guard.Load(); g != nil {", "if g := p.guard.Load(); g == nil {", "gormguard", "SchemaOfTheOptions",
	},
	{
		"gormguard: hooks run after the fence was entered", "gormguard/callbacks.go",
		"if t, ok := stmt.ConnPool.(*transaction); ok && p.mode.fences() {", "if t, ok := stmt.ConnPool.(*transaction); false && ok {", "gormguard", "Hooks",
	},
	{
		"gormguard: a stored row needs its own fence", "gormguard/resource.go",
		"if resource, _ := foreign(stmt, row); resource != \"\" {", "if resource, _ := foreign(stmt, row); false && resource != \"\" {", "gormguard", "TestEveryWritePath/sqlite",
	},
	{
		"gormguard: a row is not moved to a resource of another", "gormguard/resource.go",
		"for _, state := range states {", "for _, state := range states[:0] {", "gormguard", "S46",
	},
	{
		"gormguard: a row is not taken from a resource of another", "gormguard/believed.go",
		"&& settled(stmt, stmt.ReflectValue, set)", "", "gormguard", "S46",
	},
	{
		"gormguard: what only the database knows does not move a row", "gormguard/moved.go",
		"if len(unknown) == 0 || !depends(stmt, row, unknown) {", "if true {", "gormguard", "S46",
	},
	{
		"gormguard: a model does not answer for rows that OR reaches", "gormguard/believed.go",
		"identified(stmt) && p.narrowed(stmt)", "identified(stmt)", "gormguard", "S46",
	},
	{
		"gormguard: a line comment ends where Postgres ends it", "internal/sqltext/quotes.go",
		`ends = "\r\n"`, `ends = "\n"`, "gormguard/internal/rawsql", "WritesAreTold|EveryStatementIsSeen",
	},
	{
		"gormguard: a commit without an answer is told", "gormguard/tx.go",
		"errors.Is(err, guard.ErrCommitUnknown) && !sleptIn(err) {", "false {", "gormguard", "S23",
	},
	{
		"gormguard: raw SQL that writes is seen", "gormguard/internal/rawsql/classify.go",
		"c.writes = true\n\tc.frame, c.into", "c.frame, c.into", "gormguard/internal/rawsql", "WritesAreTold",
	},
	{
		"gormguard: a table after ON and a comma is written too", "gormguard/internal/rawsql/classify.go",
		"c.inTables = c.inTables || c.list", "", "gormguard/internal/rawsql", "WritesAreTold",
	},
	{
		"gormguard: a refusal is found whatever is added to it", "gormguard/callbacks.go",
		"if r := v.(*remembered); r.stmt == db.Statement &&", "if r := v.(*remembered); false &&", "gormguard", "RefusalIsFound",
	},
	{
		"gormguard: the row rule admits no older token", "gormguard/rowbuild.go",
		"CASE WHEN ? <= ? THEN ? ELSE", "CASE WHEN ? <> -1 - ? THEN ? ELSE", "gormguard", "TestEveryWritePath/sqlite",
	},
	{
		"gormguard: join tables of guarded models are guarded", "gormguard/registry.go",
		"if !guarded || p.mode != ModeFence {", "if true {", "gormguard", "JoinTables",
	},
	{
		"gormguard: an upsert compares too", "gormguard/rowbuild.go",
		"p.compared(stored, offered, offered)", "offered", "gormguard", "TestEveryWritePath/sqlite|BatchWithOneStaleRow",
	},
	{
		"redis: a node of a Cluster that does not answer may have a successor", "internal/rediscluster/rediscluster.go",
		"!answered {", "!answered && false {", "internal/rediscluster", "Heed",
	},
	{
		"metrics: who gets no lock is counted apart", "internal/metrics/record.go",
		"s.Count(ctx, Acquisitions, acquired(e.Err))", "s.Count(ctx, Acquisitions, 0)", "guard/...", ".",
	},
	{
		"fencewire: a value comes from who has the key", "guard/fencewire/verify.go",
		"if !hmac.Equal(", "if false && !hmac.Equal(", "guard/fencewire", ".",
	},
	{
		"fencewire: a value is for one audience", "guard/fencewire/key.go",
		"append(append(b, audience...), '\\n')", "append(b, '\\n')", "guard/fencewire", "Forged",
	},
	{
		"fencewire: a value ages", "guard/fencewire/verify.go",
		"age-time.Second >= v.maxAge {", "false {", "guard/...", "Replayed",
	},
	{
		"fencewire: nothing is raised of a request with a bad value", "guard/fencewire/verify.go",
		"fences = append(fences, f)", "fences = append(fences, f)\n\t\t\tfor _, g := range v.guards {\n\t\t\t\t_ = g.Raise(context.Background(), f)\n\t\t\t}", "guard/fencewire", ".",
	},
	{
		"fencewire: a fence that arrives is raised before the first read", "guard/fencewire/verify.go",
		"range v.guards {\n\t\t\tif err := g.Raise", "range v.guards[:0] {\n\t\t\tif err := g.Raise", "guard/httpfence", "S45",
	},
	{
		"httpfence: fences go to the named origins only", "guard/httpfence/transport.go",
		"if r.URL == nil || !t.origins[originOf(r.URL)] {", "if r.URL == nil {", "guard/httpfence", "Origins|ForeignHost",
	},
	{
		"httpfence: the caller's request is not changed", "guard/httpfence/transport.go",
		"signed.Header = make(http.Header, len(r.Header)+1)", "signed.Header = r.Header", "guard/httpfence", "ForeignHost|NotChanged",
	},
	{
		"httpfence: a header set by hand is not sent", "guard/httpfence/transport.go",
		"if strings.EqualFold(name, fencewire.Header) {", "if name == \"\" {", "guard/httpfence", "CannotBeSigned|HopToHop",
	},
	{
		"httpfence: a value goes no further than to whom it was made for", "guard/httpfence/middleware.go",
		"\t\t\tdelete(r.Header, fencewire.Header)\n", "", "guard/httpfence", "Arrive|HopToHop",
	},
	{
		"redisguard: the raise is strict", "guard/redisguard/raise.lua",
		"if not greater(ARGV[1], f[1]) then", "if greater(f[1], ARGV[1]) then", "guard/redisguard", "TestConformance$",
	},
	{
		"redisguard: tokens above 2^53 compare as they are", "internal/rediskeys/greater.lua",
		"if #a ~= #b then return #a > #b end", "if true then return tonumber(a) > tonumber(b) end", "guard/redisguard", "TestConformance$|S16",
	},
	{
		"redisguard: a write enters the fence in force only", "guard/redisguard/check.lua",
		"if f[1] ~= ARGV[2 * i] or f[2] ~= ARGV[2 * i + 1] then", "if not f[1] then", "guard/redisguard", "TestConformance$",
	},
	{
		"redisguard: a write compares the nonce", "guard/redisguard/check.lua",
		" or f[2] ~= ARGV[2 * i + 1]", "", "guard/redisguard", "TestConformance$",
	},
	{
		"redisguard: the client does not repeat a write", "guard/redisguard/script.go",
		"NoRetry() bool { return true }", "NoRetry() bool { return false }", "guard/redisguard", "ReplyIsLost",
	},
	{
		"redisguard: a fence that may be evicted is not raised", "guard/redisguard/raise.lua",
		"if policy then return", "if false then return", "guard/redisguard", "S14",
	},
	{
		"redisguard: the keys of a write are in one slot with the fence", "guard/redisguard/keys.go",
		"case tagOf(key) != tag:", "case false:", "guard/redisguard", "KeysThatNoFenceGuards",
	},
	{
		"redisguard: a stale holder does not learn the nonce", "guard/redisguard/raise.lua",
		"return {0, 1, f[1], f[3], f[4]}", "return {0, 1, f[1], f[2], f[4]}", "guard/redisguard", "TestConformance$",
	},
	{
		"objectguard: the raise rewrites the object", "guard/objectguard/envelope.go",
		"\treturn true, nil\n", "\treturn o.Fences == nil, nil\n", "guard/objectguard", "TestConformanceOnFiles",
	},
	{
		"objectguard: a write enters the fence in force only", "guard/objectguard/write.go",
		"if err := o.enter(held); err != nil {", "if err := o.enter(held); false && err != nil {", "guard/objectguard", "TestConformanceOnFiles",
	},
	{
		"objectguard: the condition is that of the look at the fence", "guard/objectguard/write.go",
		"err = g.put(ctx, key, o, version)\n\t\tif err != nil", "if _, version, _ = g.get(ctx, key); true {\n\t\t\terr = g.put(ctx, key, o, version)\n\t\t}\n\t\tif err != nil", "guard/objectguard", "TestConformanceOnFiles",
	},
	{
		"objectguard: no two states of an object are equal", "guard/objectguard/write.go",
		"o.data, o.None, o.Write = data, data == nil, rand.Text()", "o.data, o.None, o.Write = data, data == nil, rand.Text()[:0]", "guard/objectguard", "NoTwoStates|ConformanceOnS3ThatFails",
	},
	{
		"objectguard: a write whose reply was lost is looked for", "guard/objectguard/write.go",
		"case now.Write == o.Write:", "case false:", "guard/objectguard", "ReplyIsLost|ConformanceOnS3ThatFails",
	},
	{
		"objectguard: a delete keeps the fence", "guard/objectguard/envelope.go",
		"i, found := o.find(resource)\n\tif !found {", "i, found := o.find(resource)\n\tif !found || o.None && o.Write != \"\" {", "guard/objectguard", "TestReadWriteUpdateAndDelete|ConformanceOnFiles",
	},
	{
		"objectguard: a file is replaced while it is locked", "guard/objectguard/dir.go",
		"err := localfile.LockBy(ctx, f, localfile.Exclusive, end)", "var err error", "guard/objectguard", "LockedForEver",
	},
	{
		"objectguard: a locked file is still in its place", "guard/objectguard/dir.go",
		"if !localfile.Linked(f) {", "if false {", "guard/objectguard", "Processes|Buckets",
	},
	{
		"torture: by the log of commits tokens never decrease", "cmd/fencectl/internal/torture/oracle/check.go",
		"case r.Token < before.Token:", "case false:", "cmd/fencectl/internal/torture/oracle", "TestCheck",
	},
	{
		"torture: a commit needs the value that it had read", "cmd/fencectl/internal/torture/oracle/register.go",
		"mine && in.after == s.value", "mine", "cmd/fencectl/internal/torture/oracle", "TestRegister",
	},
	{
		"torture: a control that comes out whole makes the run worthless", "cmd/fencectl/internal/torture/result.go",
		"case v.Control && !v.Caught():", "case false:", "cmd/fencectl/internal/torture", "TestConclude",
	},
}...)
