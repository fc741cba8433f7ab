// Mutants breaks one rule of the project at a time, in a copy of the tree, and
// expects a test to fail: a rule whose mutant survives is a rule that nothing
// checks.
//
//	go run ./scripts/mutants [-run regexp]
//
// It names the tests that fail. It exits with 1 if a mutant survives, if the text
// that it changes is not there any more, or if its tests fail without it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A mutant replaces one text by another and names the tests that must see it.
type mutant struct {
	rule     string
	file     string
	old, new string
	pkg      string
	tests    string // regular expression for go test -run
}

func main() {
	only := flag.String("run", "", "only mutants whose rule matches")
	flag.Parse()
	if err := run(*only); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(only string) (err error) {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	tree, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tree)) }()
	if err := os.CopyFS(tree, os.DirFS(".")); err != nil {
		return err
	}
	l := laboratory{tree: tree, healthy: make(map[string]error)}
	bad := 0
	for _, m := range mutants {
		if !wanted.MatchString(m.rule) {
			continue
		}
		caughtBy, err := l.try(m)
		if err != nil {
			bad++
			fmt.Printf("%s\n    NOT CAUGHT: %v\n", m.rule, err)
			continue
		}
		fmt.Printf("%s\n    caught by %s\n", m.rule, strings.Join(caughtBy, ", "))
	}
	if bad > 0 {
		return fmt.Errorf("%d mutants were not caught", bad)
	}
	return nil
}

// A laboratory is a copy of the tree.
type laboratory struct {
	tree    string
	healthy map[string]error // whether tests pass without a mutant
}

// try returns the tests that catch a mutant, or why there are none.
func (l *laboratory) try(m mutant) (caughtBy []string, err error) {
	path := filepath.Join(l.tree, m.file)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	mutated, err := m.apply(string(text))
	if err != nil {
		return nil, err
	}
	if err := l.check(m); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.WriteFile(path, text, 0o644)) }()
	if err := os.WriteFile(path, []byte(mutated), 0o644); err != nil {
		return nil, err
	}
	out, err := l.test(m)
	switch {
	case err == nil:
		return nil, errors.New("it SURVIVED")
	case strings.Contains(out, "[build failed]"):
		return nil, fmt.Errorf("it does not compile:\n%s", out)
	}
	return failures(out), nil
}

// apply returns the text with the rule broken.
func (m mutant) apply(text string) (string, error) {
	if n := strings.Count(text, m.old); n != 1 {
		return "", fmt.Errorf("the text that it changes is in %s %d times, write it anew", m.file, n)
	}
	return strings.Replace(text, m.old, m.new, 1), nil
}

// check runs the tests of a mutant without it: what fails anyway catches nothing.
func (l *laboratory) check(m mutant) error {
	key := m.pkg + " " + m.tests
	err, known := l.healthy[key]
	if known {
		return err
	}
	out, err := l.test(m)
	switch {
	case err != nil:
		err = fmt.Errorf("its tests fail without it:\n%s", out)
	case !strings.Contains(out, "--- PASS"):
		err = fmt.Errorf("there are no tests %q", m.tests)
	}
	l.healthy[key] = err
	return err
}

func (l *laboratory) test(m mutant) (out string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-v", "-count=1", "-timeout=120s", "-run", m.tests, "./"+m.pkg)
	cmd.Dir = l.tree
	cmd.Env = append(os.Environ(), "CI=true")
	text, err := cmd.CombinedOutput()
	return string(text), err
}

var failed = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

// failures names the failed tests in the output of go test.
func failures(out string) (names []string) {
	for _, m := range failed.FindAllStringSubmatch(out, -1) {
		names = append(names, m[1])
	}
	if len(names) == 0 {
		return []string{"a test that does not end by itself"}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
