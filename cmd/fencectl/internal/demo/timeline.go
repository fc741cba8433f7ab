package demo

import (
	"fmt"
	"io"
	"strings"
)

// A Style is how a timeline looks.
type Style struct {
	Color bool
	Width int // to break lines at; 0 for never
}

// NewTimeline returns a reporter for people.
func NewTimeline(w io.Writer, s Style) Reporter { return &timeline{w, s, map[string]bool{}} }

type timeline struct {
	w      io.Writer
	style  Style
	quoted map[string]bool // kinds of events whose error was shown before
}

// The SGR codes of a terminal.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	blue   = "34"
	purple = "35"
	cyan   = "36"
)

var actorColors = map[string]string{"A": yellow, "B": cyan, "C": purple, "Redis": blue}

func (t *timeline) Opening(o Opening) error {
	pause := "a pause is a SIGSTOP"
	if !o.Freezes {
		pause = "a pause is a hang"
	}
	return t.print(
		t.paint(bold, "Three workers sell from one inventory. Redis has the lock, "+o.Store.Title()+" the stock."),
		t.paint(dim, "  Redis     "+o.Redis),
		t.paint(dim, fmt.Sprintf("  %-8s  %s", o.Store.Title(), o.Postgres+o.SQLite)),
		t.paint(dim, fmt.Sprintf("  lock      %s, for %s unless renewed; %s", o.Resource, o.TTL, pause)),
	)
}

func (t *timeline) Act(a Act) error {
	return t.print("",
		t.paint(bold, fmt.Sprintf("Act %d: %s", a.Act, a.Title)),
		t.paint(dim, a.Note),
		t.paint(dim, fmt.Sprintf("%7s  %-5s  %5s  what happens", "seconds", "who", "token")))
}

func (t *timeline) Event(e Event) error {
	token := ""
	if e.Token != 0 {
		token = e.Token.String()
	}
	text := e.Text
	switch e.What {
	case Refused:
		text = t.paint(red, text)
	case Proposed, Lost, Frozen, Woken, Forgot, Restarted:
		text = t.paint(yellow, text)
	case Repaired:
		text = t.paint(green, text)
	}
	lines := []string{fmt.Sprintf("%s  %s  %5s  %s", t.paint(dim, fmt.Sprintf("%7.2f", e.Seconds)), t.paint(actorColors[e.Actor], fmt.Sprintf("%-5s", e.Actor)), token, text)}
	quotes := []string{e.Server, e.Error} // the server's words show who refused
	if t.quoted[e.What] && e.Server != "" {
		quotes = quotes[:1]
	} else if t.quoted[e.What] {
		quotes = nil
	}
	t.quoted[e.What] = true
	for _, quote := range quotes {
		for _, line := range t.wrap(quote) {
			lines = append(lines, indent+t.paint(dim, line))
		}
	}
	return t.print(lines...)
}

func (t *timeline) Result(r Result) error {
	color := green
	if !r.Clean {
		color = red
	}
	return t.print(t.paint(color, "         => "+r.Text))
}

func (t *timeline) Verdict(v Verdict) error {
	color, word := green, "OK"
	if !v.OK {
		color, word = red, "FAILED"
	}
	return t.print("", t.paint(bold+";"+color, word+": "+v.Text))
}

func (t *timeline) print(lines ...string) error {
	_, err := fmt.Fprintln(t.w, strings.Join(lines, "\n"))
	return err
}

func (t *timeline) paint(color, text string) string {
	if !t.style.Color || color == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// indent puts a line under the last column.
var indent = strings.Repeat(" ", 7+2+5+2+5+2)

// wrap breaks text between words so that it fits behind the indent.
func (t *timeline) wrap(text string) (lines []string) {
	if text == "" {
		return nil
	}
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && t.style.Width > 0 && len(indent)+len(line)+1+len(word) > t.style.Width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
