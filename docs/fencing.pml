/*
 * The protocol of fencing in Promela, for SPIN (spinroot.com): another text and another
 * checker than integration/model, which covers more. Clients increment a counter once
 * each; leases end, Redis forgets its counter, raises arrive late, replies get lost, and
 * a client may give up at any step.
 *
 *   spin -a fencing.pml && cc -O2 -DSAFETY -o pan pan.c && ./pan -m20000
 *
 * With two clients that takes a second; spin -a -DCLIENTS=3 has 8 million states.
 *
 * Each of these switches, given to spin -a, breaks one rule, and pan then finds a history
 * (spin -t -p fencing.pml shows it):
 *
 *   -DNO_RAISE    the fence is raised by the transaction that writes
 *   -DGE          the raise admits a token that is equal
 *   -DNO_NONCE    an equal token is taken for one's own
 *   -DUNLOCKED    a raise does not wait for transactions that have entered
 *   -DRELEASE     release deletes the fence
 */

#ifndef CLIENTS
#define CLIENTS 2
#endif
#define TOKENS  3	/* the greatest that may be drawn */

byte counter;		/* Redis: the token handed out last */
byte lock;		/* Redis: the nonce of the holder, 0 if it is free */

byte token, nonce;	/* Postgres: the fence row, 0 if there is none */
byte value;		/* Postgres: the data */
byte entered;		/* Postgres: transactions that have entered and not ended */

byte commits;		/* for the check only */

/* Raises on their way that nobody waits for any more. */
chan late = [1] of { byte, byte };

#if defined(GE) || defined(NO_NONCE)
#define ADMITTED(t, n) (token == 0 || t >= token)
#else
#define ADMITTED(t, n) (token == 0 || t > token || (t == token && n == nonce))
#endif

#ifdef NO_NONCE
#define CURRENT(t, n) (token != 0 && t == token)
#else
#define CURRENT(t, n) (token != 0 && t == token && n == nonce)
#endif

#ifdef UNLOCKED
#define GATE true
#else
#define GATE (entered == 0)
#endif

active proctype postgres()
{
	byte t, n;
end:	do
	:: atomic { GATE && nempty(late) -> late?t,n;
		if
		:: ADMITTED(t, n) -> token = t; nonce = n
		:: else
		fi; t = 0; n = 0 }
	od
}

active proctype redis()
{
end:	do
	:: atomic { lock != 0 -> lock = 0 }		/* the lease ends */
	:: atomic { counter > 0 -> counter = counter - 1 }	/* a token is forgotten */
	od
}

/* A client that does not get on gives up, which is always possible. */
active [CLIENTS] proctype client()
{
	byte t, after, read;
	byte me = _pid - 1;	/* its nonce: the processes before it are postgres and redis */

acquire:
	if
	:: atomic { (lock == 0 || lock == me) && counter < TOKENS && after < TOKENS ->
		lock = me;
		if
		:: after > counter -> counter = after
		:: else
		fi;
		counter++; t = counter }
	:: goto give_up
	fi;

#ifndef NO_RAISE
raise:	do
	:: atomic { GATE && ADMITTED(t, me) -> token = t; nonce = me; break }
	:: atomic { GATE && ADMITTED(t, me) -> token = t; nonce = me }	/* the reply is lost */
	:: atomic { GATE && !ADMITTED(t, me) -> after = token; t = 0; goto acquire }
	:: atomic { nfull(late) -> late!t,me }	/* delayed, and sent again */
	:: goto give_up
	od;
#endif

	read = value;

	/* Enter, in a transaction that stays open until its commit. */
	if
#ifdef NO_RAISE
	:: atomic { GATE && ADMITTED(t, me) -> token = t; nonce = me; entered++ }
#else
	:: atomic { CURRENT(t, me) -> entered++ }
#endif
	:: goto give_up		/* refused, or by itself */
	fi;

	if
	:: atomic { value = read + 1; commits++; entered--;
		assert(value == commits) }	/* no update is lost */
	:: atomic { entered--; goto give_up }
	fi;

	atomic { if
	:: lock == me -> lock = 0
	:: else
	fi;
#ifdef RELEASE
	if
	:: CURRENT(t, me) -> token = 0; nonce = 0
	:: else
	fi
#endif
	}

give_up:
	skip
}
