// Package fencewire carries fences from one service to the next, so that the
// database of the second one checks the fence that the first one acquired. The
// adapters httpfence (net/http) and grpcfence (gRPC) put it into a service; for a
// queue or any other way that carries text, use it as it is.
//
// # Raised on arrival
//
// A fence orders the writes of a database only after it was raised there, and
// before its holder has read there. The locker of service A cannot do that in the
// database of service B. B does, with [WithGuards]: every fence that arrives is
// raised before the request is worked on, which costs a round trip each, and is no
// more than a look where the fence is in force already. It follows that A has to
// send its fence with its reads too, as the adapters do.
//
// # Why values are signed
//
// A store takes the fence of whoever raises it. One request with a made-up token
// near 2^63 would leave no token to any later holder of that resource. So nothing
// is taken without proof that a service with a shared key has sent it, and no
// service takes anything before somebody has made a [Verifier] for it. A value that
// does not verify fails the request: were it dropped, the write would go on without
// the fence that its caller relies on.
//
// # Form
//
//	1;<key id>;<issued>;<resource>;<token>;<nonce>;<holder>;<mac>
//
// The four parts in the middle are the text form of [guard.Fence], which is ASCII
// without spaces, commas or quotes whatever the resource is called: several values
// may share a header line, separated by commas, as intermediaries are free to join
// them. Issued is the time of signing, in seconds since 1970. The MAC is
// HMAC-SHA-256 in unpadded base64url, of
//
//	fencing-fence LF <audience> LF <the value up to, and without, its last semicolon>
//
// so that nothing in a value can be changed, its version and key id included, and
// the key can serve other purposes without one MAC passing for another. There is
// one spelling of each value. What is not signed is looked at no further than to
// find the key.
//
// # Audience and age
//
// The fence itself is no secret of one request: a value that was captured, in a log
// or by a service that received it, could be sent again by another for as long as
// that fence is the current one, and its sender would write in the holder's place.
// (Later the store refuses it.) Two things narrow this. The audience is the name of
// the service for which a value was made; it is signed and not sent, and no other
// service takes it. And a value is good for a minute around its time of signing
// ([WithMaxAge]), which is why values are signed per request and not once per
// lease. Clocks that differ by more than that refuse each other's requests; they
// never let a stale write in, which depends on no clock.
//
// # What this does not do
//
//   - It hides nothing. A value has the fence's nonce, with which the lock can be
//     released: use TLS between services, and keep the header out of access logs.
//   - It does not authenticate the request: not its caller, its path or its body.
//     Within its minute a captured value serves for any request to its audience.
//   - Who has the key can make every value: a service that only receives could sign
//     too. Services that do not trust each other need a key per pair.
//   - It does not carry the lease, which may end while B works: the caller's context
//     ends the request, as any context does, and the store refuses what comes later.
//   - It does not repair the sequencer. When Redis forgets its counters, the locker
//     of A learns it from A's own guards. Give it one (lock.WithGuards), the same for
//     all who take that lock: what was raised at home before it was sent is never
//     behind what B has seen. Without it B refuses every new holder as stale until
//     the counter has caught up.
//   - A resource has one name in every service. Two locks that share a name but not
//     their tokens fence each other.
//
// # Rotation
//
// A verifier takes several keys, a signer has one: give the new key to every
// verifier, then to the signers, then take the old one from the verifiers, a maximum
// age later.
package fencewire
