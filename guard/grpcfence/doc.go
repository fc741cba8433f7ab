// Package grpcfence sends the fences of a context with the calls of gRPC and takes
// them on the other side, so that the database of service B refuses the stale holder
// of a lock that service A acquired. What a value is and why it is signed, what it
// proves and what it does not, is in package fencewire.
//
// The values are ASCII metadata under the name "fencing-fence", one per fence, and
// not binary metadata: they are ASCII anyhow, and the same in HTTP, so that a
// gateway can pass them on unread (grpc-gateway does so if its header matcher is told
// to).
//
// The client's interceptors belong to one connection, and so to one service: give
// each the signer of its audience. They sign when the call is made. A call that
// waits to be sent for longer than the verifier's maximum age, such as
// grpc.WaitForReady may let it, is refused.
//
// Once the lease is lost, calls under its context fail with codes.Canceled, as calls
// under any context that has ended; context.Cause tells that it was lock.ErrLost.
//
// A stream carries the fences it was opened with, to the end. That is safe, since
// the store checks them at each write and not the interceptor, but the handler of a
// long stream should expect [guard.ErrStale] in the middle of it.
//
// The server's interceptors take the values off the incoming metadata, so that what
// copies metadata to the next call does not pass them on. The next service gets the
// fences of the context, signed for it, where the client's interceptors are.
//
// The module is one of its own: whoever does not use gRPC does not get its versions.
package grpcfence
