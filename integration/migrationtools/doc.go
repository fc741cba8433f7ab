// Package migrationtools runs the output of package migrations through the tools
// that it is meant for. It is a test, in this module because of what the tools
// depend on.
package migrationtools
