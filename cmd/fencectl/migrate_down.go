package main

import (
	"github.com/spf13/cobra"

	"github.com/go-fencing/fencing/migrations"
)

func newMigrateDown(a *app) *cobra.Command {
	var to int
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Remove the fence schema, or take it back to an earlier version",
		Long: `Remove the fence schema with every fence in it, or take it back to an earlier
version, in one transaction. It refuses, with exit code 1, while tables have
triggers of "fencectl protect" that need the schema, or after a rebase, whose earlier holders
would come back.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.migrate(cmd, to, func(d *database, opts ...migrations.Option) error {
				return migrations.Down(cmd.Context(), d, opts...)
			})
		},
	}
	addNumberFlag(cmd, &to, "to", "`version` to stop at (default 0, which removes everything)", 0, migrations.Latest)
	return cmd
}
