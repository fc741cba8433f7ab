package migrations

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/go-fencing/fencing/internal/sqltext"
)

// A Tool is a program that applies migrations.
type Tool string

// The tools of [Render]. For golang-migrate [FS] will do where the schema and
// the numbers of the files are the default ones.
const (
	Goose         Tool = "goose"
	GolangMigrate Tool = "golang-migrate"
	Tern          Tool = "tern"
	Atlas         Tool = "atlas"
	Psql          Tool = "psql"
)

// Tools returns all tools in a fixed order.
func Tools() []Tool { return []Tool{Goose, GolangMigrate, Tern, Atlas, Psql} }

// A File belongs into the migration folder of a tool.
type File struct{ Name, Content string }

// A Change is one migration: a number that orders it, a name for the file, and
// SQL for one transaction.
type Change struct {
	Number   int64
	Name     string
	Up, Down string
}

// Render returns the files with which a tool installs the fence schema. Options
// that matter are [WithSchema] and [StartAt].
func Render(tool Tool, opts ...Option) ([]File, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	steps, err := history()
	if err != nil {
		return nil, err
	}
	changes := make([]Change, len(steps))
	for i, s := range steps {
		changes[i] = Change{Number: o.first + int64(i), Name: s.name}
		if changes[i].Up, err = inSchema(s.up, o.schema); err != nil {
			return nil, err
		}
		if changes[i].Down, err = inSchema(s.down, o.schema); err != nil {
			return nil, err
		}
	}
	return RenderChanges(tool, changes...)
}

// RenderChanges returns the files with which a tool applies any changes, such as
// those of [Protect]. The tools differ:
//
//   - goose gets each direction as one statement, which it does not split;
//   - tern wants the numbers of a folder without a gap, from 1;
//   - atlas has no files for the way down, and its atlas.sum holds for a folder
//     of these files alone: add them to others, then run "atlas migrate hash";
//   - psql gets all changes as one script up and one down, each a transaction
//     that ends at the first error: psql -X -f fence.up.sql.
//
// golang-migrate must not have x-multi-statement set: it would split the bodies
// of functions.
func RenderChanges(tool Tool, changes ...Change) ([]File, error) {
	if !slices.Contains(Tools(), tool) {
		return nil, fmt.Errorf("migrations: render: no tool %q; there are %q", tool, Tools())
	}
	for _, c := range changes {
		if err := c.validate(tool); err != nil {
			return nil, fmt.Errorf("migrations: render %q for %s: %w", c.Name, tool, err)
		}
	}
	var files []File
	for _, c := range changes {
		switch tool {
		case Goose:
			files = append(files, File{fmt.Sprintf("%05d_%s.sql", c.Number, c.Name), gooseFile(c)})
		case GolangMigrate:
			name := fmt.Sprintf("%04d_%s", c.Number, c.Name)
			files = append(files, File{name + ".up.sql", c.Up}, File{name + ".down.sql", c.Down})
		case Tern:
			files = append(files, File{fmt.Sprintf("%03d_%s.sql", c.Number, c.Name), ternFile(c)})
		case Atlas:
			files = append(files, File{fmt.Sprintf("%04d_%s.sql", c.Number, c.Name), c.Up})
		}
	}
	switch {
	case len(changes) == 0:
		return nil, nil
	case tool == Psql:
		return psqlFiles(changes), nil
	case tool == Atlas:
		return append(files, atlasSum(files)), nil
	}
	return files, nil
}

// markers are what a tool takes for an instruction wherever a line has it.
var markers = map[Tool][]string{
	Goose: {"+goose"},
	Tern:  {"---- create above / drop below ----", "---- tern:"},
	Atlas: {"-- atlas:"},
}

func (c Change) validate(tool Tool) error {
	switch {
	case c.Number < 0 || tool == Tern && (c.Number == 0 || c.Number > math.MaxInt32):
		return fmt.Errorf("it cannot have number %d", c.Number)
	case c.Name == "" || strings.ContainsFunc(c.Name, unfitForFileName):
		return fmt.Errorf("a name is of letters, digits, - and _")
	}
	for _, m := range markers[tool] {
		if strings.Contains(c.Up, m) || strings.Contains(c.Down, m) {
			return fmt.Errorf("the SQL contains %q, which the tool would obey", m)
		}
	}
	return nil
}

func unfitForFileName(r rune) bool {
	return r != '-' && (r >= 0x80 || r == '$' || !sqltext.InWord(byte(r)))
}

func gooseFile(c Change) string {
	part := func(direction, sql string) string {
		return "-- +goose " + direction + "\n-- +goose StatementBegin\n" + ended(sql) + "-- +goose StatementEnd\n"
	}
	return part("Up", c.Up) + "\n" + part("Down", c.Down)
}

// ternFile escapes what tern would read as a template.
func ternFile(c Change) string {
	escape := strings.NewReplacer("{{", "{{ `{{` }}")
	return escape.Replace(ended(c.Up)) + "\n---- create above / drop below ----\n\n" + escape.Replace(ended(c.Down))
}

func psqlFiles(changes []Change) []File {
	var up, down string
	for _, c := range changes {
		up += "\n" + ended(c.Up)
		down = "\n" + ended(c.Down) + down
	}
	name := changes[0].Name
	return []File{{name + ".up.sql", psqlScript(up)}, {name + ".down.sql", psqlScript(down)}}
}

func psqlScript(sql string) string {
	return "\\set ON_ERROR_STOP on\nBEGIN;\n" + sql + "\nCOMMIT;\n"
}

func ended(sql string) string { return strings.TrimRight(sql, "\n") + "\n" }
