// Package redlock TODO.
package redlock
