// Package freeze stops a child process as a long pause of its runtime or its host
// would, and lets it go on.
package freeze
