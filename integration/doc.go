// Package integration tests the whole system on real servers: workers in processes
// of their own append to a history through lock, lock/redislock and pgguard, while
// they are paused, killed and cut off, and while Redis and Postgres are broken under
// them. After every test one function checks what is in the table against what the
// workers were told; every test also shows that the fault which it is about has
// happened.
package integration
