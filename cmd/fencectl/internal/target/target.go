// Package target reads the addresses of the servers that a command works on, and
// keeps the passwords in them out of everything that is printed.
//
// The parsers of the drivers echo what they cannot parse, and so does net/url: of
// postgres://app:pa/ss@db they report the port "pa". Errors of this package
// therefore quote nothing of an address that could not be taken apart safely.
package target

import (
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

var (
	// ErrInvalid: the address is missing or no address of such a server.
	ErrInvalid = errors.New("invalid address")

	// ErrUnreachable: the server cannot be reached, or lets nobody in.
	ErrUnreachable = errors.New("server not reachable")
)

// A Setting is an address and where it came from: the flag or the variable that
// an error names.
type Setting struct {
	Source, Value string

	shown string // Value as it may be printed; empty as long as that is not known
}

// failure is an error with the meaning of one of the sentinels, whose text it
// does not repeat.
type failure struct {
	text    string
	meaning error
}

func (e *failure) Error() string { return e.text }
func (e *failure) Unwrap() error { return e.meaning }
func invalid(text string) error  { return &failure{text, ErrInvalid} }
func missing(what string) error  { return invalid("no " + what) }

// Unreachable gives err the meaning of ErrUnreachable.
func Unreachable(err error) error { return &failure{err.Error(), ErrUnreachable} }

func (s Setting) bad(what string) error {
	if s.shown != "" {
		return invalid(s.Source + " " + s.shown + ": " + what)
	}
	return invalid(s.Source + ": " + what)
}

// shown returns a URL without parameters that may be secret, and without what
// follows them. Its user is for the caller to take care of.
func shown(u *url.URL) string {
	u.Fragment, u.RawFragment = "", ""
	if secretParameter.MatchString(u.RawQuery) {
		u.RawQuery = "xxxxx"
	}
	return u.String()
}

// An escape may hide the word.
var secretParameter = regexp.MustCompile(`(?i)pass|secret|%`)

// split takes a URL of one of the schemes apart, or says what is wrong with it
// without quoting from where a password could be.
func (s Setting) split(schemes ...string) (*url.URL, error) {
	example := "write " + schemes[0] + "://user@host:port/database"
	scheme, _, found := strings.Cut(s.Value, "://")
	if !found {
		return nil, s.bad("this is not a URL; " + example)
	}
	if !slices.Contains(schemes, strings.ToLower(scheme)) {
		if !plainScheme.MatchString(scheme) {
			return nil, s.bad("this is not a URL; " + example)
		}
		return nil, s.bad("a " + scheme + " URL where one of " + strings.Join(schemes, ", ") + " is needed; " + example)
	}
	u, err := url.Parse(s.Value)
	if err != nil {
		return nil, s.bad("this " + scheme + " URL " + flaw(err) + "; " + example)
	}
	// The parsers disagree about which @ ends the password, and
	// postgres://app:12/34@db is the host "app", port 12, to all of them.
	ats := 0
	if u.User != nil {
		ats = 1
	}
	if strings.Count(s.Value, "@") > ats {
		return nil, s.bad("this " + scheme + " URL has an @ too many; " + escapes)
	}
	return u, nil
}

var plainScheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]{0,20}$`)

const escapes = "in a user or a password write @ as %40, / as %2F, : as %3A, ? as %3F, # as %23, % as %25"

// flaw describes an error of url.Parse without its words, which quote the URL.
func flaw(err error) string {
	if _, ok := errors.AsType[url.EscapeError](err); ok {
		return "has a % that two hexadecimal digits should follow (" + escapes + ")"
	}
	if strings.Contains(err.Error(), "invalid port") {
		return "has a port that is no number (" + escapes + ")"
	}
	return "cannot be taken apart (" + escapes + ")"
}
