// Package plot draws who held which resource when, what they wrote, and what was
// refused, as a page of HTML with nothing to load.
package plot

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"time"
)

// A Picture is a history.
type Picture struct {
	Title    string
	Lines    []string // under the title
	Length   time.Duration
	Strikes  []Span // faults that all share
	Variants []Variant
}

// A Variant has its resources one below the other.
type Variant struct {
	Name, Verdict string
	Bad           bool // the verdict is none that one wants
	Resources     []Resource
}

// A Resource has a lane for each worker.
type Resource struct {
	Name  string
	Lanes []Lane
}

// A Lane is what one worker did on a resource.
type Lane struct {
	Who   string
	Spans []Span
	Marks []Mark
}

// A Span is something that lasted. Its kind is one of hold, lost, frozen, cut and
// strike.
type Span struct {
	Kind     string
	From, To time.Duration
	Text     string
}

// A Mark is something that happened at once. Its kind is one of committed, refused,
// unknown, failed, killed and overwritten.
type Mark struct {
	Kind string
	At   time.Duration
	Text string
}

// PageLength is how much of a history is on one page: a browser has to hold all of it.
const PageLength = time.Minute

// Pages returns how many pages there are of a picture.
func (p Picture) Pages() int { return max(1, int((p.Length+PageLength-1)/PageLength)) }

//go:embed page.html
var files embed.FS

var pages = template.Must(template.ParseFS(files, "page.html"))

// Draw writes one page of the picture, counted from 0. name tells the file of another
// page.
func (p Picture) Draw(w io.Writer, page int, name func(page int) string) error {
	l := layout{Picture: p, from: time.Duration(page) * PageLength, Page: page}
	l.to = min(l.from+PageLength, max(p.Length, time.Second))
	for i := range p.Pages() {
		l.Links = append(l.Links, link{name(i), i + 1, i == page})
	}
	l.arrange()
	return pages.Execute(w, l)
}

const (
	left       = 150 // px in front of the lanes
	laneHeight = 18
	gap        = 8
	header     = 26
)

type link struct {
	Name string
	No   int
	Here bool
}

// A layout is a page in pixels.
type layout struct {
	Picture
	Page     int
	Links    []link
	from, to time.Duration
	scale    float64 // px a second
	Width    int
	Blocks   []block
	Ticks    []tick
}

type tick struct {
	X     float64
	Label string
}

type block struct {
	Variant
	Height  int
	Strikes []box
	Rows    []row
}

type row struct {
	Y, Middle int
	Label     string
	First     bool // of its resource
	Boxes     []box
	Marks     []mark
}

type box struct {
	Kind          string
	X, Y, W       float64
	H             int
	Label, Detail string
}

type mark struct {
	Kind   string
	X      float64
	Y      int
	Detail string
}

func (l *layout) arrange() {
	seconds := (l.to - l.from).Seconds()
	l.scale = min(max(1400/seconds, 40), 110)
	l.Width = left + int(seconds*l.scale) + 20
	for s := l.from.Truncate(time.Second); s <= l.to; s += time.Second {
		l.Ticks = append(l.Ticks, tick{l.x(s), fmt.Sprintf("%gs", s.Seconds())})
	}
	for _, v := range l.Variants {
		l.Blocks = append(l.Blocks, l.block(v))
	}
}

func (l *layout) block(v Variant) block {
	b := block{Variant: v}
	y := header
	for _, r := range v.Resources {
		for i, lane := range r.Lanes {
			row := row{Y: y, Middle: y + laneHeight/2, Label: r.Name + " " + lane.Who, First: i == 0}
			for _, s := range lane.Spans {
				if x, ok := l.box(s, y+2, laneHeight-4); ok {
					row.Boxes = append(row.Boxes, x)
				}
			}
			for _, m := range lane.Marks {
				if m.At >= l.from && m.At <= l.to {
					row.Marks = append(row.Marks, mark{m.Kind, l.x(m.At), row.Middle, m.Text})
				}
			}
			b.Rows = append(b.Rows, row)
			y += laneHeight
		}
		y += gap
	}
	b.Height = y
	for _, s := range l.Strikes {
		if x, ok := l.box(s, header-4, y-header); ok {
			b.Strikes = append(b.Strikes, x)
		}
	}
	return b
}

func (l *layout) x(at time.Duration) float64 { return left + (at-l.from).Seconds()*l.scale }

// box returns the part of a span that is on this page.
func (l *layout) box(s Span, y, height int) (b box, ok bool) {
	from, to := max(s.From, l.from), min(s.To, l.to)
	if to < from {
		return b, false
	}
	detail := fmt.Sprintf("%s, %.3fs to %.3fs", s.Text, s.From.Seconds(), s.To.Seconds())
	return box{Kind: s.Kind, X: l.x(from), Y: float64(y), W: max(l.x(to)-l.x(from), 1.5), H: height, Label: s.Text, Detail: detail}, true
}
