package main

import (
	"github.com/spf13/cobra"

	"github.com/go-fencing/fencing/migrations"
)

func newMigrateUp(a *app) *cobra.Command {
	var to int
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Install the fence schema, or bring it up to date",
		Long: `Install the fence schema, or bring it up to date, in one transaction. What is
there already is left alone, so it may run at every deployment.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.migrate(cmd, to, func(d *database, opts ...migrations.Option) error {
				return migrations.Up(cmd.Context(), d, opts...)
			})
		},
	}
	addNumberFlag(cmd, &to, "to", "`version` to stop at (default: the latest)", 0, migrations.Latest)
	return cmd
}
