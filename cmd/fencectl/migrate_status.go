package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/go-fencing/fencing/internal/hint"
	"github.com/go-fencing/fencing/migrations"
)

func newMigrateStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Say whether the fence schema is up to date",
		Long: `Say which version of the fence schema the database has and which one this
program knows. Exit code 1 if they differ.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := a.openDatabase()
			if err != nil {
				return err
			}
			defer d.close(cmd.Context())
			v, err := migrations.Version(cmd.Context(), d, migrations.WithSchema(a.schema))
			if err != nil {
				return d.explain(err)
			}
			s := status{Database: d.address.String(), Schema: a.schema, Version: v, Latest: migrations.Latest, UpToDate: v == migrations.Latest}
			if a.json {
				err = a.printJSON(s)
			} else {
				err = a.say("%s\n", s)
			}
			if err == nil && !s.UpToDate {
				err = errAnswer
			}
			return err
		},
	}
}

type status struct {
	Database string `json:"database"`
	Schema   string `json:"schema"`
	Version  int    `json:"version"` // 0: not installed
	Latest   int    `json:"latest"`
	UpToDate bool   `json:"up_to_date"`
}

func (s status) String() string {
	up := hint.Fencectl("migrate up", s.Schema)
	what := fmt.Sprintf("fence schema %q in %s", s.Schema, s.Database)
	switch {
	case s.UpToDate:
		return fmt.Sprintf("%s is at version %d, up to date", what, s.Version)
	case s.Version == 0:
		return fmt.Sprintf("%s is not installed; run \"%s\"", what, up)
	case s.Version < s.Latest:
		return fmt.Sprintf("%s is at version %d of %d; run \"%s\"", what, s.Version, s.Latest, up)
	}
	return fmt.Sprintf("%s is at version %d, this program knows %d; upgrade fencectl", what, s.Version, s.Latest)
}
