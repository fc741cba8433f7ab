package interleavings

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Scenario is one file of testdata.
type Scenario struct {
	Title   string
	Modes   []Mode
	Levels  []string
	Verdict string         // what is asked of the outcome, see verdict.go
	Known   string         // why the shipped modes do not pass; "" where they do
	Control string         // why no other mode fails; "" where one does
	Tokens  map[string]int // of the sessions
	Steps   []Step
	Results string // what followed the steps in the file
}

// A Step is one thing that a session does, for example "add" with "20".
type Step struct {
	Session, Verb string
	Args          []string
}

// String is the step as it is written, but for long SQL.
func (s Step) String() string {
	text := strings.Join(append([]string{s.Verb}, s.Args...), " ")
	if words := strings.Fields(text); s.Verb == "sql" && len(words) > 4 {
		return strings.Join(words[:3], " ") + " …"
	}
	return text
}

// verbs are the steps, each with the number of arguments that it takes at most.
var verbs = map[string]int{
	"begin":    1, // a level other than the scenario's
	"raise":    2, // a resource, and a lock timeout in ms, as in timeout=2000
	"enter":    3, // resources, and an idle timeout in ms, as in idle=4000
	"read":     0, // and remember
	"add":      1, // to what was read
	"addend":   1, // the same with COMMIT in one round trip
	"put":      1, // insert or update
	"delete":   0,
	"commit":   0,
	"rollback": 0,
	"save":     0, // a savepoint
	"undo":     0, // rolls back to it
	"again":    0, // after a refusal: goes on with its next step, where a program would have ended
	"die":      0, // the client's end; the server has not heard of it
	"gone":     0, // waits until the server has
	"await":    0, // waits until a step that is blocked has ended
	"sql":      1, // anything
}

// numbered are the verbs whose argument is a number.
var numbered = []string{"add", "addend", "put"}

// number is the argument of such a step, which the parser has looked at.
func number(s Step) int {
	n, _ := strconv.Atoi(s.Args[0])
	return n
}

const resultsMark = "----"

// Parse reads the text of a scenario: a title, headers ("name: value"), an empty line,
// and lines of one session each, with steps separated by commas.
func Parse(text string) (*Scenario, error) {
	text, results, _ := strings.Cut(text, "\n"+resultsMark+"\n")
	head, body, ok := strings.Cut(text, "\n\n")
	if !ok {
		return nil, fmt.Errorf("interleavings: no empty line between the headers and the steps")
	}
	title, headers, _ := strings.Cut(head, "\n")
	s := &Scenario{Title: title, Results: results, Verdict: "sum", Tokens: map[string]int{"A": 33, "B": 34}}
	for line := range strings.Lines(headers) {
		if err := s.header(strings.TrimSpace(line)); err != nil {
			return nil, fmt.Errorf("interleavings: %q: %w", strings.TrimSpace(line), err)
		}
	}
	for line := range strings.Lines(body) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		steps, err := parseSteps(line)
		if err != nil {
			return nil, fmt.Errorf("interleavings: %q: %w", line, err)
		}
		s.Steps = append(s.Steps, steps...)
	}
	return s, nil
}

func (s *Scenario) header(line string) error {
	name, value, _ := strings.Cut(line, ": ")
	switch name {
	case "modes":
		for _, name := range strings.Fields(value) {
			i := slices.IndexFunc(Modes, func(m Mode) bool { return m.Name == name })
			if i < 0 {
				return fmt.Errorf("no mode %q", name)
			}
			s.Modes = append(s.Modes, Modes[i])
		}
	case "levels":
		s.Levels = strings.Fields(value)
	case "verdict":
		s.Verdict = value
	case "known":
		s.Known = value
	case "no control":
		s.Control = value
	case "tokens":
		for _, pair := range strings.Fields(value) {
			session, token, _ := strings.Cut(pair, "=")
			n, err := strconv.Atoi(token)
			if err != nil {
				return err
			}
			s.Tokens[session] = n
		}
	default:
		return fmt.Errorf("no header %q", name)
	}
	return nil
}

func parseSteps(line string) ([]Step, error) {
	session, rest, _ := strings.Cut(line, " ")
	if sql, ok := strings.CutPrefix(rest, "sql "); ok {
		return []Step{{session, "sql", []string{sql}}}, nil
	}
	var steps []Step
	for part := range strings.SplitSeq(rest, ", ") {
		words := strings.Fields(part)
		if len(words) == 0 {
			return nil, fmt.Errorf("an empty step")
		}
		most, ok := verbs[words[0]]
		if !ok || len(words)-1 > most {
			return nil, fmt.Errorf("no step %q", part)
		}
		step := Step{session, words[0], words[1:]}
		if slices.Contains(numbered, step.Verb) {
			if _, err := strconv.Atoi(strings.Join(step.Args, "")); err != nil {
				return nil, fmt.Errorf("%q needs a number", part)
			}
		}
		steps = append(steps, step)
	}
	return steps, nil
}
