// Mutants breaks one rule of the project at a time, in a copy of the tree, and
// expects a test to fail: a rule whose mutant survives is a rule that nothing
// checks.
//
//	go run ./scripts/mutants [-run regexp]
//
// It exits with 1 if a mutant survives, or if the text that it changes is not
// there any more.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	if err := run(regexp.MustCompile(*only)); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(only *regexp.Regexp) error {
	tree, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tree)
	if err := os.CopyFS(tree, os.DirFS(".")); err != nil {
		return err
	}
	bad := 0
	for _, m := range mutants {
		if !only.MatchString(m.rule) {
			continue
		}
		verdict, ok := m.try(tree)
		if !ok {
			bad++
		}
		fmt.Printf("%-9s %s\n", verdict, m.rule)
	}
	if bad > 0 {
		return fmt.Errorf("%d mutants were not caught", bad)
	}
	return nil
}

func (m mutant) try(tree string) (verdict string, ok bool) {
	path := filepath.Join(tree, m.file)
	text, err := os.ReadFile(path)
	if err != nil || bytes.Count(text, []byte(m.old)) != 1 {
		return "outdated", false
	}
	defer func() { _ = os.WriteFile(path, text, 0o644) }()
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), m.old, m.new, 1)), 0o644); err != nil {
		return err.Error(), false
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout=120s", "-run", m.tests, "./"+m.pkg)
	cmd.Dir = tree
	cmd.Env = append(os.Environ(), "CI=true")
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return "SURVIVED", false
	case bytes.Contains(out, []byte("[build failed]")), bytes.Contains(out, []byte("no tests to run")):
		return "broken", false
	default:
		return "caught", true
	}
}
