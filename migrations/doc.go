// Package migrations carries the SQL of the fence schema: the tables, and the
// functions through which a client of any language raises and enters a fence.
//
// There are three ways to install it. [Up] runs the SQL on a connection. [FS] is
// read as it is by golang-migrate. [Render] writes the files of another tool:
// goose, tern, atlas, or a script for psql. They mix freely, because [Version]
// asks the schema itself and not a tool's book-keeping.
//
// [Protect] writes the SQL that makes a table of the user refuse writes from
// outside of its fence.
package migrations
