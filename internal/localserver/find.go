package localserver

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ErrNotInstalled: the machine has no binaries of the server. The error that
// wraps it says how to get them.
var ErrNotInstalled = errors.New("not installed")

func notInstalled(what, debian, homebrew string) error {
	return fmt.Errorf("localserver: %s is %w; get it with \"apt-get install %s\" or \"brew install %s\"", what, ErrNotInstalled, debian, homebrew)
}

// postgresDirs are searched in this order: Debian keeps its versions off PATH,
// and what PATH has may be a wrapper of psql alone.
var postgresDirs = [][]string{
	{"/usr/lib/postgresql/*/bin"},
	nil, // PATH
	{"/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin"},
	{"/opt/homebrew/opt/postgresql/bin", "/usr/local/opt/postgresql/bin"},
	{"/Applications/Postgres.app/Contents/Versions/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin"},
}

// findPostgres returns the directory of initdb and postgres.
func findPostgres() (string, error) {
	for _, patterns := range postgresDirs {
		var dirs []string
		if patterns == nil {
			if path, err := exec.LookPath("initdb"); err == nil {
				dirs = append(dirs, filepath.Dir(path))
			}
		}
		for _, pattern := range patterns {
			matches, err := filepath.Glob(pattern)
			if err != nil {
				return "", err
			}
			dirs = append(dirs, matches...)
		}
		slices.SortFunc(dirs, func(a, b string) int { return version(b) - version(a) })
		for _, dir := range dirs {
			if hasTool(dir, "initdb") && hasTool(dir, "postgres") {
				return dir, nil
			}
		}
	}
	return "", notInstalled("PostgreSQL", "postgresql", "postgresql")
}

// version returns the major version in a path such as /usr/lib/postgresql/15/bin.
func version(dir string) int {
	name := filepath.Base(filepath.Dir(dir))
	digits := strings.TrimLeft(name, "abcdefghijklmnopqrstuvwxyz@-")
	digits, _, _ = strings.Cut(digits, ".")
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return n
}

func hasTool(dir, name string) bool {
	_, err := exec.LookPath(filepath.Join(dir, name))
	return err == nil
}

// findTool looks in PATH and in the directories that a user's PATH often lacks.
func findTool(name, debian, homebrew string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return filepath.Abs(path)
	}
	for _, dir := range []string{"/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/opt/homebrew/bin"} {
		if hasTool(dir, name) {
			return filepath.Join(dir, name), nil
		}
	}
	return "", notInstalled(name, debian, homebrew)
}
