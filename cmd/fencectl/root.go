package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/target"
)

const defaultSchema = "fencing"

const about = `Fencectl shows what fencing does, sets a database up for it, looks after it, and
runs commands under it.

Results go to stdout, everything else to stderr. Exit codes:
  0    done, and the answer is good
  1    done, and the answer is bad: the history of the demo or the torture is not
       clean, the fence schema is not up to date, tables in use or a rebase forbid to
       remove it, a lock is held or was lost, or the doctor has found a fault
  2    bad usage or bad input, and nothing was changed; or a torture that shows
       nothing
  3    a server could not be reached, refused or failed, or stdout could not be written
  130  interrupted, or whoever reads stdout has gone
"fencectl run" has those of its command.

With --json stdout has one JSON value, of the demo one a line. The value of exit
code 1 is there too, and that of a torture; an error is text on stderr all the same,
and then stdout stays empty: but for the demo, which prints as it plays, and the
doctor, which prints what it has found elsewhere.

An empty --postgres or --redis stands for no server, whatever the variables say.

Passwords are better kept in the variables than on the command line, which every
user of the machine can read. No output ever has one.`

// The variables that stand in for flags, in order of precedence.
var (
	postgresVariables = []string{"FENCING_POSTGRES_URL", "DATABASE_URL"}
	redisVariables    = []string{"FENCING_REDIS_URL", "REDIS_URL"}
)

// An app is what all commands share: the global flags, and where to read and write.
type app struct {
	postgres, redis address
	schema          string
	json            bool

	stdin          io.Reader
	stdout, stderr io.Writer
	secrets        *target.Secrets // that must not be printed
}

// An address is the value of a flag. One that is given and empty stands for no server,
// whatever the variables say.
type address struct {
	value string
	set   bool
}

func (f *address) String() string { return f.value }
func (*address) Type() string     { return "string" }

func (f *address) Set(value string) error {
	f.value, f.set = value, true
	return nil
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "fencectl",
		Short:         "Show what fencing does, set a database up for it, and run commands under it",
		Long:          about,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; see %q", misread(err), cmd.CommandPath()+" --help")
	})
	flags := root.PersistentFlags()
	// The variables are no defaults of the flags: the help would print them.
	flags.Var(&a.postgres, "postgres", "`URL` of the Postgres database (default $FENCING_POSTGRES_URL, then $DATABASE_URL)")
	flags.StringVar(&a.schema, "schema", defaultSchema, "`name` of the fence schema")
	flags.BoolVar(&a.json, "json", false, "print JSON; errors stay text on stderr")
	root.AddCommand(newDemo(a), newDemoWorker(a), newMigrate(a), newProtect(a), newLs(a), newRun(a), newDoctor(a), newRebase(a), newTorture(a), newTortureWorker(a), newVersion(a))
	return root
}

// misread says what is wrong with a flag's value without the name of the function that
// could not parse it.
func misread(err error) error {
	if e, ok := errors.AsType[*notANumber](err); ok {
		return e
	}
	if e, ok := errors.AsType[*strconv.NumError](err); ok {
		return errors.New(strings.Replace(err.Error(), e.Error(), e.Err.Error(), 1))
	}
	return err
}

// postgresSetting returns the address from the flag or the first variable that is set.
func (a *app) postgresSetting() target.Setting {
	return setting("--postgres", a.postgres, postgresVariables)
}

func (a *app) redisSetting() target.Setting { return setting("--redis", a.redis, redisVariables) }

func setting(flag string, given address, variables []string) target.Setting {
	if given.set {
		return target.Setting{Source: flag, Value: given.value}
	}
	for _, name := range variables {
		if value := os.Getenv(name); value != "" {
			return target.Setting{Source: name, Value: value}
		}
	}
	return target.Setting{}
}

// environment returns the values of all variables that may hold a password.
func environment() []string {
	var values []string
	for _, name := range slices.Concat(redisVariables, postgresVariables) {
		values = append(values, os.Getenv(name))
	}
	return values
}

// line is the text of an error as it may be printed. What hides a password looks for it
// as it was given, and as it is quoted.
func (a *app) line(text string) string {
	return a.secrets.Hide(target.OneLine(a.secrets.Hide(text)))
}

// printJSON writes v for a script, and for the terminal on which somebody looks at it.
func (a *app) printJSON(v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	var escaped []byte
	for _, r := range b.String() { // what is no ASCII stands within strings
		if r == '\n' || unicode.IsPrint(r) {
			escaped = utf8.AppendRune(escaped, r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			escaped = fmt.Appendf(escaped, `\u%04x`, unit)
		}
	}
	_, err := a.stdout.Write(escaped)
	return err
}

// say writes text for people, in which names may stand that others have given.
func (a *app) say(format string, args ...any) error {
	return a.printf("%s", target.Printable(fmt.Sprintf(format, args...)))
}

// printf writes text as it is.
func (a *app) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(a.stdout, format, args...)
	return err
}
