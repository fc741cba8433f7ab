package main

import (
	"math"

	"github.com/spf13/cobra"

	"github.com/go-fencing/fencing/migrations"
)

func newMigratePrint(a *app) *cobra.Command {
	p := printing{number: 1}
	cmd := &cobra.Command{
		Use:   "print --tool TOOL",
		Short: "Print the fence schema as files for a migration tool",
		Long: `Print the fence schema as migrations for a tool. With --dir the files are written
into a directory, without overwriting any; without it the way up is printed, or
with --down the way down where the tool keeps that apart. It needs no server.`,
		Example: `  fencectl migrate print --tool goose --dir db/migrations --number 12
  fencectl migrate print --tool psql | psql -X "$DATABASE_URL"`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			tool, err := parseTool(p.tool)
			if err != nil {
				return err
			}
			files, err := migrations.Render(tool, migrations.WithSchema(a.schema), migrations.StartAt(p.number))
			if err != nil {
				return err
			}
			return a.print(p, files)
		},
	}
	addToolFlag(cmd, &p.tool)
	cmd.Flags().StringVar(&p.dir, "dir", "", "`directory` to write the files into, made if it is not there")
	addNumberFlag(cmd, &p.number, "number", "`number` of the first file (default 1)", 1, math.MaxInt64)
	cmd.Flags().BoolVar(&p.down, "down", false, "print the way down")
	return cmd
}
