// Package localserver runs private Postgres, Redis, MariaDB and PgBouncer servers
// from the binaries that the machine already has, for tests and for demonstrations.
//
// Each server has a fresh temporary directory and a free loopback port, runs as a
// user without rights where the caller is root, and trusts every client: it is for
// data that nobody needs. On Linux it ends together with the process that started
// it, however that ends.
//
// The methods of a server are safe for concurrent use.
package localserver
