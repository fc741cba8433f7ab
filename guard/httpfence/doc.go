// Package httpfence sends the fences of a context with the requests of net/http and
// takes them on the other side, so that the database of service B refuses the stale
// holder of a lock that service A acquired. What a value is and why it is signed,
// what it proves and what it does not, is in package fencewire.
//
// On the way out, [Transport] is the http.RoundTripper of the client with which A
// calls B. On the way in, [Middleware] stands in front of the handlers of B. A
// service without it ignores the header: put it where your own services call, and
// not at the edge, where callers have no key and would get 400 at best.
//
// What was read for an earlier holder is worth nothing to a later one: where a cache
// may stand between A and B, have B answer reads with Cache-Control: no-store.
//
// A service that is called and calls does both. What came in is signed anew for the
// next service, and only by a Transport made for it: the middleware takes the header
// off the request, so that a reverse proxy does not pass it on by itself, and the
// context has the fences. A reverse proxy without either passes the header through
// as any other.
package httpfence
