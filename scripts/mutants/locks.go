package main

var lockMutants = []mutant{
	{
		"lock: the deadline counts from the send time", "lock/acquire.go",
		"w.admit(ctx, h, sent, sent.Add(w.locker.ttl))", "w.admit(ctx, h, sent, time.Now().Add(w.locker.ttl))", "lock", "Deadline",
	},
	{
		"lock: a TTL that would delete the lock is refused", "lock/backend.go",
		"r.TTL < time.Millisecond || ", "", "lock", "ABadRequest",
	},
	{
		"lock: a lost lease stays lost", "lock/keeper.go",
		"if h.index < 0 { // released or lost meanwhile\n\t\t\tcontinue\n\t\t}", "", "lock", ".",
	},
	{
		"lock: a dead parent context ends the watchdog", "lock/keeper.go",
		"h.renewAt = time.Time{}\n\tk.set(", "k.set(", "lock", "DeadParent",
	},
	{
		"lock: an attempt without an answer is undone", "lock/task.go",
		"if err != nil && !errors.Is(err, ErrHeld) {\n\t\th.locker.undo", "if errors.Is(err, ErrLost) && false {\n\t\th.locker.undo", "lock", "S21",
	},
	{
		"lock: an attempt that is given up is undone", "lock/task.go",
		"if outlived {\n\t\tl.undo", "if false && outlived {\n\t\tl.undo", "lock", "Abandoned",
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
		"h := l.held(ctx, r); h != nil", "h := l.held(ctx, r); false && h != nil", "lock", "S28|Reentry",
	},
	{
		"redislock: tokens are strings above 2^53", "internal/rediskeys/counter.lua",
		"n < 9007199254740992 and string.format('%.0f', n) or redis.call('GET', counter)", "string.format('%.0f', n)", "lock/redislock", "S16",
	},
	{
		"redislock: the lock is written after what can fail", "lock/redislock/acquire.lua",
		"local token = held and string.match(rest, '^%d+')\n", "local token = held and string.match(rest, '^%d+')\nredis.call('SET', KEYS[1], 'fencing held ' .. ARGV[1])\n", "lock/redislock", "S17",
	},
	{
		"redislock: release compares the nonce", "lock/redislock/release.lua",
		"string.sub(old, 14, 13 + #mine) == mine and string.sub(old, 9, 12)", "string.sub(old, 9, 12)", "lock/redislock", "TestBackend",
	},
	{
		"redislock: a release puts back what was no lock of its nonce", "lock/redislock/release.lua",
		"  redis.call('SET', KEYS[1], old, 'KEEPTTL')\n", "", "lock/redislock", "TestBackend|TestAUsersString",
	},
	{
		"redislock: the usual grant looks whether the lock is free", "lock/redislock/grant.lua",
		"if not old or last and", "if true or last and", "lock/redislock", "TestBackend",
	},
	{
		"redislock: several calls for one lock get it once", "lock/redislock/grants.lua",
		"not taken[lock] and ", "", "lock/redislock", "TestABatchGrantsALockOnce",
	},
	{
		"redislock: what is no string is no free lock to several calls either", "lock/redislock/grants.lua",
		"not old and redis.call('EXISTS', lock) == 0 or", "not old or", "lock/redislock", "TestACallHasTheSameOutcomeInABatch",
	},
	{
		"redislock: several releases compare their nonces", "lock/redislock/releases.lua",
		"1, 13 + #mine) == 'fencing held ' .. mine", "1, 13) == 'fencing held '", "lock/redislock", "TestACallHasTheSameOutcomeInABatch",
	},
	{
		"redislock: how often several calls were sent counts for each of them", "lock/redislock/bundle.go",
		"c.sent.times += u.sent.times", "", "lock/redislock", "TestTheReplyToABatchIsLost",
	},
	{
		"redislock: what a proxy has on several servers goes in no bundle", "lock/redislock/bundle.go",
		"id != runs[0].Val()", "id != id", "lock/redislock", "TestBehindAProxy",
	},
	{
		"redislock: a refused connection is no answer", "internal/rediscluster/stamp.go",
		"\t\tcmd.SetErr(err)", "\t\t_ = cmd", "lock/redislock", "TestARefusedConnection",
	},
	{
		"redlock: a refused acquisition waits until it is taken back", "lock/redlock/acquire.go",
		"\t\ta.retracted(ctx, left)\n", "\t\t_ = left\n", "lock/redlock", "TestARefusedAttempt",
	},
	{
		"redislock: a release wakes those who wait", "lock/redislock/next.lua",
		"local published = redis.pcall(publish, KEYS[1], message)", "local published", "lock/redislock", "TestBackend",
	},
	{
		"redislock: a release grants to one who asked lately, and to nobody else", "lock/redislock/next.lua",
		"if waited < 0 or waited > (polls and 2000 or 3000) or", "if", "docs", "TestScriptsReply",
	},
	{
		"redislock: a release grants nothing to one that listens if nobody does", "lock/redislock/next.lua",
		" or not polls and not listeners then", " then", "docs", "TestScriptsReply",
	},
	{
		"redislock: a broken counter leaves a release what it is", "lock/redislock/next.lua",
		"redis.pcall('INCR', KEYS[2])", "redis.call('INCR', KEYS[2])", "docs", "TestScriptsReply",
	},
	{
		"redislock: an acquisition that comes after its release is refused when the lock is another's too", "lock/redislock/acquire.lua",
		"if last == ARGV[1] or (", "if (", "docs", "TestScriptsReply",
	},
	{
		"redislock: a long TTL is remembered for as long as the release says", "lock/redislock/release.lua",
		"  redis.call('PEXPIRE', KEYS[1], ARGV[2])\n", "", "docs", "TestScriptsReply",
	},
	{
		"redislock: any member frees a lock whose members were evicted alone", "lock/redislock/leave.lua",
		"has = redis.call('EXISTS', KEYS[2]) == 0 or redis", "has = redis", "docs", "TestScriptsReply",
	},
	{
		"redislock: a pass leaves the lock to others who were refused it", "lock/redislock/pass.lua",
		"inherited(others) == others and not string.find(others, '\\t%d+\\t%d+\\t')", "true", "docs", "TestScriptsReply",
	},
	{
		"redislock: a repeated release of what was lost is no release", "lock/redislock/leave.lua",
		"again and 'left' or 'lost'", "'left'", "docs", "TestScriptsReply",
	},
	{
		"redislock: who is refused is woken by the release", "lock/redislock/acquire.lua",
		"(state == 'held' and 'want' or state)", "state", "lock/redislock", "TestBackend",
	},
	{
		"redislock: a grant notes that others of the process wait", "lock/redislock/redislock.go",
		"!awaited:\n\t\tneeded = 6", "true:\n\t\tneeded = 6", "lock/redislock", "FeedComesBack",
	},
	{
		"redislock: a member leaves what others hold", "lock/redislock/leave.lua",
		"(state ~= 'join' or redis.call('EXISTS', KEYS[2]) == 0)", "true", "lock/redislock", "TestBackend",
	},
	{
		"redislock: a fair lock goes to the first in the queue", "lock/redislock/acquire.lua",
		"if ahead and ahead ~= ARGV[1] then", "if false then", "lock/redislock", "TestBackend",
	},
	{
		"lock: one waiter of a locker asks for all", "lock/line.go",
		"case q != nil && !w.locker.alone():", "case false:", "lock", "TestOneWaiterOfALocker",
	},
	{
		"lock: the next in line asks when the first has gone", "lock/line.go",
		"q.ask = granted == nil", "q.ask = false", "lock", "TestTheNextInLine",
	},
	{
		"lock: a release is passed to one who does not ask by itself", "lock/pass.go",
		"first.asking || ", "", "lock", "TestOneWhoAsks",
	},
	{
		"lock: what is passed to one who has gone is undone", "lock/pass.go",
		"if !p.tell(p.err) && (p.err == nil", "if !p.tell(p.err) && false && (p.err == nil", "lock", "TestAPassToAWaiterThatGaveUp",
	},
	{
		"lock: an unclear pass is undone from its beginning", "lock/pass.go",
		"[]Request{p.from.request, p.to.request}", "[]Request{p.to.request}", "lock", "TestAPassThatComesAfter",
	},
	{
		"memlock: a pass leaves the lock to others who wait", "lock/memlock/memlock.go",
		"return nonce != next.Nonce", "return false", "lock/memlock", "TestBackend",
	},
	{
		"redislock: renewal never creates", "lock/redislock/renew.lua",
		"if not value or state == 'fencing free ' or string.sub(value, 14, 13 + #mine) ~= mine then\n  return 0\nend", "if not value then\n  redis.call('SET', KEYS[1], 'fencing held ' .. mine .. '1')\nend", "lock/redislock", "TestBackend",
	},
	{
		"redlock: a write-back compares", "lock/redlock/promise.lua",
		"if ARGV[2] ~= held[3] and not (greater(ARGV[2], held[2]) and", "if false and not (greater(ARGV[2], held[2]) and", "lock/redlock", "WriteBack|Proposed|ANodeThat|TokenIs",
	},
	{
		"redlock: a token is written back only by the holder", "lock/redlock/promise.lua",
		"if held[1] ~= ARGV[1] then", "if false then", "lock/redlock", "OnlyByTheHolder",
	},
	{
		"redlock: a node that forgot has no vote for a TTL", "lock/redlock/memory.lua",
		"if left > 0 then", "if false then", "lock/redlock", "HasNoVote",
	},
	{
		"redlock: a node that forgot learns the counter before it is counted on", "lock/redlock/memory.lua",
		"return counter, 'fresh', run", "return counter, 'whole'", "lock/redlock", "LearnsTheCounter|ARepeatedAcquisition|NewNodes",
	},
	{
		"redlock: a release frees no rival's lock", "lock/redlock/release.lua",
		"local has = redis.call('HGET', KEYS[1], 'nonce') == ARGV[1]", "local has = true", "lock/redlock", "TestBackend",
	},
	{
		"redlock: a lock that was lost is lost again", "lock/redlock/release.lua",
		"left and 'left' or 'lost'", "'left'", "lock/redlock", "TestBackend|ALossIsOne",
	},
	{
		"redlock: a debt that fails holds up no other", "lock/redlock/debts.go",
		"unheard(n.pay(d))", "n.pay(d) != nil", "lock/redlock", "ADebtThatFails",
	},
	{
		"zklock: a TTL ends a lock whose session lives", "lock/zklock/hold.go",
		"if over && b.end(h) {", "if over && false && b.end(h) {", "lock/zklock", "TestBackend",
	},
	{
		"zklock: who comes first proves that its session lives", "lock/zklock/acquire.go",
		"if !created {", "if !created && h.granted {", "lock/zklock", "ThatIsCutOff",
	},
	{
		"zklock: a node is found again by its nonce", "lock/zklock/acquire.go",
		"if mine := q.of(h.mark); len(mine) > 0 {", "if mine := q.of(h.mark); false {", "lock/zklock", "S21",
	},
	{
		"zklock: a node of another session is not taken over", "lock/zklock/acquire.go",
		"case a.stat.EphemeralOwner != b.session.conn.SessionID():", "case false:", "lock/zklock", "AnotherSession",
	},
	{
		"zklock: a failed release goes on", "lock/zklock/zklock.go",
		"b.clear(h)\n\t\treturn err\n\tcase ours", "return err\n\tcase ours", "lock/zklock", "AReleaseThatFailed",
	},
	{
		"zklock: what this session has not created is not cleared", "lock/zklock/clear.go",
		"case !h.exists(b.session.conn.SessionID()):", "case false:", "lock/zklock", "LeavesNoMoreToClear",
	},
	{
		"zklock: a node that went with its session was not released", "lock/zklock/clear.go",
		"tries > 1 && !b.outlived(h)", "tries > 1", "lock/zklock", "ALossDuringItsRelease",
	},
	{
		"zklock: a server that says nothing is left", "lock/zklock/session.go",
		"s.wire.greeted.Load() &&", "false &&", "lock/zklock", "HangsIsLeft",
	},
	{
		"zklock: a server has a time limit for the session", "lock/zklock/wire.go",
		"t = w.limit", "t = time.Time{}", "lock/zklock", "ThatSaysNothing",
	},
	{
		"zklock: the session outlives the TTL", "lock/zklock/zklock.go",
		"if granted > 0 && ttl > longest(granted) {", "if false {", "lock/zklock", "GrantedSession",
	},
	{
		"zklock: the sequence wraps", "lock/zklock/nodes.go",
		"int(a.sequence - b.sequence)", "int(a.sequence) - int(b.sequence)", "lock/zklock", "SequenceWraps",
	},
	{
		"zklock: a release wakes one waiter", "lock/zklock/nodes.go",
		"line = q.waiters", "line = nil", "lock/zklock", "WakesOneWaiter",
	},
	{
		"zklock: only the one whose node exists lets the offset grow", "lock/zklock/token.go",
		"&zk.CheckVersionRequest{Path: h.dir + \"/\" + name, Version: -1}, // it exists", "&zk.CheckVersionRequest{Path: path.Dir(h.dir + \"/\" + name), Version: -1},", "lock/zklock", "WhileItsTokenIsRaised",
	},
	{
		"redislock: a feed that hears nothing is given up", "lock/redislock/watch.go",
		"conn.ReceiveTimeout(context.Background(), feedSilent)", "conn.ReceiveTimeout(context.Background(), 0)", "lock/redislock", "HearsNothing|FeedIsForgotten",
	},
	{
		"redislock: who only listens looks where its slot has gone", "lock/redislock/watch.go",
		"cluster.ReloadState(context.Background())", "_ = cluster", "lock/redislock", "FollowASlot",
	},
	{
		"lock: the deadline of a renewal counts from its send time", "lock/keeper.go",
		"h.prolong(sent, sent.Add(h.request.TTL))\n\t\tdefault", "h.prolong(sent, time.Now().Add(h.request.TTL))\n\t\tdefault", "lock/redislock", "ACutOffHolder",
	},
	{
		"lock: WithFair asks in turn", "lock/acquire.go",
		"case l.fair:", "case false:", "lock", "FairServes",
	},
}
