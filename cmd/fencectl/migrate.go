package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/go-fencing/fencing/migrations"
)

func newMigrate(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Install, remove or inspect the fence schema",
		Long: `Install, remove or inspect the fence schema: the tables and functions through
which clients raise and enter fences. "up" and "down" do it at once; "print"
writes the same for a migration tool. They mix freely.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return fmt.Errorf("migrate: say which of up, down, status, print; see %q", cmd.CommandPath()+" --help")
		},
	}
	cmd.AddCommand(newMigrateUp(a), newMigrateDown(a), newMigrateStatus(a), newMigratePrint(a))
	return cmd
}

// A move is what "migrate up" and "migrate down" report.
type move struct {
	Schema string `json:"schema"`
	From   int    `json:"from"`
	To     int    `json:"to"`
}

func (m move) String() string {
	switch {
	case m.From == m.To && m.To == 0:
		return fmt.Sprintf("there is no fence schema %q", m.Schema)
	case m.From == m.To:
		return fmt.Sprintf("fence schema %q is at version %d already", m.Schema, m.To)
	case m.To == 0:
		return fmt.Sprintf("fence schema %q is removed; it was at version %d", m.Schema, m.From)
	case m.From == 0:
		return fmt.Sprintf("fence schema %q is installed, at version %d", m.Schema, m.To)
	}
	return fmt.Sprintf("fence schema %q is at version %d; it was at version %d", m.Schema, m.To, m.From)
}

// migrate runs one direction and reports from where to where it went.
func (a *app) migrate(cmd *cobra.Command, to int, run func(d *database, opts ...migrations.Option) error) error {
	d, err := a.openDatabase()
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	defer d.close(ctx)
	schema := migrations.WithSchema(a.schema)
	opts := []migrations.Option{schema}
	if cmd.Flags().Changed("to") {
		opts = append(opts, migrations.To(to))
	}
	m := move{Schema: a.schema}
	if m.From, err = migrations.Version(ctx, d, opts...); err != nil {
		return d.explain(err)
	}
	if err := run(d, opts...); err != nil {
		return inThisState(d.explain(err))
	}
	if m.To, err = migrations.Version(ctx, d, schema); err != nil {
		return d.explain(err)
	}
	if a.json {
		return a.printJSON(m)
	}
	return a.say("%s\n", m)
}

// inThisState gives a step that the state of the schema forbids the exit code of a bad
// answer, as that of tables in use.
func inThisState(err error) error {
	const notInPrerequisiteState = "55000"
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == notInPrerequisiteState {
		return &exited{exitAnswer, err}
	}
	return err
}

// parseTool reads the flag --tool.
func parseTool(name string) (migrations.Tool, error) {
	var names []string
	for _, t := range migrations.Tools() {
		if string(t) == name {
			return t, nil
		}
		names = append(names, string(t))
	}
	known := strings.Join(names, ", ")
	if name == "" {
		return "", errors.New("no migration tool is named; choose one with --tool: " + known)
	}
	return "", fmt.Errorf("--tool %q: there is no such tool; choose one of %s", name, known)
}

// addToolFlag adds the flag --tool with completion of its values.
func addToolFlag(cmd *cobra.Command, value *string) {
	var names []string
	for _, t := range migrations.Tools() {
		names = append(names, string(t))
	}
	cmd.Flags().StringVar(value, "tool", "", "migration `tool`: "+strings.Join(names, ", "))
	_ = cmd.RegisterFlagCompletionFunc("tool", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)) // fails for an unknown flag only
}
