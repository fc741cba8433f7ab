package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/go-fencing/fencing/migrations"
)

// A protection is what "fencectl protect" was asked for.
type protection struct {
	table    string
	options  migrations.ProtectOptions
	restore  bool
	print    bool
	printing printing
}

func newProtect(a *app) *cobra.Command {
	p := protection{printing: printing{number: migrations.Latest + 1}}
	cmd := &cobra.Command{
		Use:   "protect TABLE --resource EXPR",
		Short: "Make a table refuse writes from outside of its fence",
		Long: `Make a table take part in fencing: with --trigger it refuses every write outside
of a transaction that has entered the row's fence, and it gets a version column.

The column has the token under which the row rule last wrote a row: UpdateRow of
package pgguard and the modes ModeRow and ModeBoth of gormguard stamp it, no other
write does, fenced or not. Where none of them writes, use --no-column.

TABLE is written as in SQL: inventory, app.inventory, '"App"."Odd Table"'.
EXPR is a SQL expression over the columns of a row that gives the name of the
fence which the row needs. An empty EXPR accepts any fence that was entered. One that is
NULL for every row, or declared volatile, is refused, unless the table has it already. What
is printed names the rule, and the one before it if there was another.

It is done in one transaction. --down takes off the triggers of the fence schema
that --schema names, and the column of --column if it was added here; --resource
and --trigger make no difference to it. A table that has none of these is left as
it is, with exit code 0.`,
		Example: `  fencectl protect inventory --resource "'inventory:' || sku" --trigger
  fencectl protect inventory --resource "'inventory:' || sku" --trigger --print --tool goose
  fencectl protect inventory --down`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("protect takes the name of one table, not %d arguments; quote a name that has spaces", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			p.table, p.options.Schema = args[0], a.schema
			if err := p.check(cmd); err != nil {
				return err
			}
			return a.protect(cmd.Context(), p)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&p.options.Resource, "resource", "", "SQL `expression` that names the fence of a row, such as \"'inventory:' || sku\"")
	flags.BoolVar(&p.options.Trigger, "trigger", false, "refuse writes from outside of the fence")
	flags.StringVar(&p.options.Column, "column", "fence_token", "`name` of the version column")
	flags.BoolVar(&p.options.NoColumn, "no-column", false, "go without a version column")
	flags.BoolVar(&p.restore, "down", false, "take the protection off, whatever --resource and --trigger say")
	flags.BoolVar(&p.print, "print", false, "print the SQL, for one transaction, instead of running it")
	addToolFlag(cmd, &p.printing.tool)
	flags.StringVar(&p.printing.dir, "dir", "", "with --tool: `directory` to write the files into, made if it is not there")
	addNumberFlag(cmd, &p.printing.number, "number", "with --tool: `number` of the migration (default: the next after those of the fence schema)", 0, math.MaxInt64)
	return cmd
}

func (p *protection) check(cmd *cobra.Command) error {
	flags := cmd.Flags()
	for _, name := range []string{"tool", "dir", "number"} {
		if flags.Changed(name) && !p.print {
			return fmt.Errorf("--%s needs --print: without that the SQL is run", name)
		}
	}
	if (flags.Changed("dir") || flags.Changed("number")) && p.printing.tool == "" {
		return errors.New("--dir and --number need --tool, which says how the files look")
	}
	if flags.Changed("column") && p.options.NoColumn {
		return errors.New("--column and --no-column exclude each other: leave one out")
	}
	if p.options.Column == "" {
		return errors.New("--column: the name is empty; use --no-column to go without the column")
	}
	p.printing.down = p.restore
	if p.restore {
		// All that there may be: a table is often restored by someone who does not
		// know how it was protected.
		p.options.Trigger = true
		return nil
	}
	if !flags.Changed("resource") {
		return errors.New(`--resource is missing: name the fence that a row needs, such as --resource "'inventory:' || sku", or accept any fence with --resource ""`)
	}
	return nil
}

func (a *app) protect(ctx context.Context, p protection) error {
	up, down, err := migrations.Protect(p.table, p.options)
	if err != nil {
		return err
	}
	sql := up
	if p.restore {
		sql = down
	}
	if !p.print {
		return a.applyProtection(ctx, p, sql)
	}
	if p.printing.tool == "" {
		if a.json {
			return a.printJSON(map[string]string{"sql": sql})
		}
		return a.printf("%s", sql)
	}
	tool, err := parseTool(p.printing.tool)
	if err != nil {
		return err
	}
	files, err := migrations.RenderChanges(tool, migrations.Change{Number: p.printing.number, Name: "protect_" + fileName(p.table), Up: up, Down: down})
	if err != nil {
		return err
	}
	return a.print(p.printing, files)
}

// fileName keeps of a table's name what every tool accepts in a file's name.
func fileName(table string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '_'
	}, table), "_")
}
