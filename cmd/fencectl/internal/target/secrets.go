package target

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Secrets knows the passwords that a program was given, and hides them in texts of
// others: a parser of arguments, say, that quotes what it does not understand.
type Secrets struct{ hidden []replacement }

type replacement struct{ secret, shown string }

// NewSecrets looks for passwords in values, such as the arguments of a program.
func NewSecrets(values ...string) *Secrets {
	var s Secrets
	for _, v := range values {
		if _, after, isFlag := strings.Cut(v, "="); isFlag && strings.HasPrefix(v, "-") {
			v = after
		}
		s.add(v)
	}
	// The longest first: a password may be a part of another one.
	slices.SortStableFunc(s.hidden, func(a, b replacement) int { return len(b.secret) - len(a.secret) })
	return &s
}

func (s *Secrets) add(value string) {
	passwords := passwordsOf(value)
	if len(passwords) == 0 {
		return
	}
	for _, p := range passwords {
		s.hide(p)
	}
	shown := "xxxxx"
	if scheme, _, isURL := strings.Cut(value, "://"); isURL && plainScheme.MatchString(scheme) {
		shown = scheme + "://xxxxx"
	}
	s.hidden = append(s.hidden, replacement{value, shown})
}

// HasPassword reports whether a value is the address of a Postgres or a Redis, with what
// may be a password.
func HasPassword(value string) bool {
	lower := strings.ToLower(value)
	return (strings.HasPrefix(lower, "postgres") || strings.HasPrefix(lower, "redis") || strings.Contains(lower, "password=")) && len(passwordsOf(value)) > 0
}

// passwordsOf finds what may be a password, in an address that need not be a valid one.
func passwordsOf(value string) (found []string) {
	for _, m := range keywordPassword.FindAllStringSubmatch(value, -1) {
		found = append(found, strings.Trim(m[1], "'"))
	}
	_, rest, isURL := strings.Cut(value, "://")
	if !isURL {
		return found
	}
	user, password, host := "", "", ""
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		user, password, _ = strings.Cut(rest[:at], ":")
		host = rest[at+1:]
	}
	u, err := url.Parse(value)
	if err == nil {
		for name, values := range u.Query() {
			if strings.Contains(strings.ToLower(name), "pass") {
				found = append(found, values...)
			}
		}
		decoded, _ := u.User.Password()
		found = append(found, decoded)
	}
	// The name that stands beside a password tells nothing about it. Without a
	// password Redis' one may stand in its place, by a habit of other clients.
	switch {
	case password != "":
		found = append(found, password)
	case strings.HasPrefix(value, "redis") && user != "":
		return append(found, user)
	}
	return slices.DeleteFunc(found, func(p string) bool { return p == "" || p == user || strings.HasPrefix(host, p) })
}

var keywordPassword = regexp.MustCompile(`(?i)pass(?:word|wd)?\s*=\s*('(?:[^'\\]|\\.)*'?|[^\s&]*)`)

// hide leaves very short passwords alone: their letters are in every text, and to
// blot them out there would be what gives them away.
func (s *Secrets) hide(secret string) {
	if len(secret) < 4 {
		return
	}
	s.hidden = append(s.hidden, replacement{secret, "xxxxx"})
	if quoted := strconv.Quote(secret); quoted != `"`+secret+`"` {
		s.hidden = append(s.hidden, replacement{quoted[1 : len(quoted)-1], "xxxxx"})
	}
}

// Hide returns text without the passwords.
func (s *Secrets) Hide(text string) string {
	for _, h := range s.hidden {
		text = strings.ReplaceAll(text, h.secret, h.shown)
	}
	return userinfo.ReplaceAllString(text, "${1}:xxxxx@")
}

// A URL that was not among the values, but that a text quotes.
var userinfo = regexp.MustCompile(`(\w+://[^\s:/@"]*):\S*@`)
