package migrations

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-fencing/fencing/internal/sqltext"
)

// A resourceExpr is an expression over the columns of a row, rewritten for the
// two rows that a trigger knows.
type resourceExpr struct{ newRow, oldRow string }

// parseResource puts NEW. and OLD. before the columns of an expression. Postgres
// itself would not know which row a bare column means, and says so: what is
// missed here fails when the trigger is made, as does what is taken for a column
// and is none. No mistake leaves a row without protection.
func parseResource(expr string) (resourceExpr, error) {
	all, err := lex(expr)
	if err != nil {
		return resourceExpr{}, err
	}
	p := resourceParser{}
	for i, t := range all {
		if t.kind != sqltext.Space {
			p.tokens = append(p.tokens, t)
			p.index = append(p.index, i)
		}
	}
	if err := p.check(); err != nil {
		return resourceExpr{}, err
	}
	columns, rows, err := p.columns()
	if err != nil {
		return resourceExpr{}, err
	}
	if len(rows) > 0 && len(columns) > 0 {
		return resourceExpr{}, fmt.Errorf("%s has no row; write NEW. before every column or before none", p.tokens[columns[0]].text)
	}
	return resourceExpr{newRow: p.rewrite(all, columns, rows, "NEW"), oldRow: p.rewrite(all, columns, rows, "OLD")}, nil
}

type resourceParser struct {
	tokens   []token // without spaces
	index    []int   // where each is among all tokens
	operator int     // the end of the last OPERATOR(schema.+), 0 for none
}

// check refuses what could leave the parentheses that the expression is put
// into, and what Postgres would refuse with less said.
func (p *resourceParser) check() error {
	if len(p.tokens) == 0 {
		return errors.New("the expression is empty")
	}
	var open []string
	for i, t := range p.tokens {
		switch {
		case t.kind == sqltext.Comment:
			return fmt.Errorf("comment %.20q in the expression", t.text)
		case t.kind == sqltext.Param:
			return fmt.Errorf("parameter %s in the expression; it can use columns and constants only", t.text)
		case t.kind == sqltext.Word && (strings.EqualFold(t.text, "select") || strings.EqualFold(t.text, "table") || strings.EqualFold(t.text, "values") && p.at(i+1) == "("):
			return errors.New("the expression has a subquery; it can use the columns of its row only")
		case t.kind == sqltext.Semicolon:
			return errors.New("the expression has a semicolon")
		case t.kind != sqltext.Symbol:
		case t.text == "," && len(open) == 0:
			return errors.New("the expression has a comma outside of parentheses; it must give one text")
		case t.text == "(" || t.text == "[":
			open = append(open, t.text)
		case t.text == ")" || t.text == "]":
			if len(open) == 0 || open[len(open)-1]+t.text != "()" && open[len(open)-1]+t.text != "[]" {
				return fmt.Errorf("%q closes nothing", t.text)
			}
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("%q is not closed", open[len(open)-1])
	}
	return nil
}

// columns returns which tokens are columns without a row, and which are the row NEW.
func (p *resourceParser) columns() (columns, rows []int, err error) {
	for i := 0; i < len(p.tokens); i++ {
		t := p.tokens[i]
		switch {
		case t.text == "::" || p.is(i, "as"):
			i = p.skipType(i + 1)
		case p.is(i, "collate"):
			i = p.skipName(i + 1)
		case p.is(i, "operator") && p.at(i+1) == "(":
			i = p.closing(i + 1)
			p.operator = i
		case t.kind != sqltext.Word && t.kind != sqltext.Quoted:
		case p.at(i-1) == ".": // a field of what came before
		case p.isRow(i, "new"):
			rows = append(rows, i)
		case p.isRow(i, "old"):
			return nil, nil, errors.New("write NEW instead of OLD; the expression is used for either row")
		case p.at(i+1) == ".":
			end := p.skipName(i)
			if p.at(end+1) != "(" {
				return nil, nil, fmt.Errorf("%s.%s: write the column without a qualifier", t.text, p.at(i+2))
			}
			i = end
		case p.isColumn(i):
			columns = append(columns, i)
		}
	}
	return columns, rows, nil
}

// isColumn decides on a name that stands alone.
func (p *resourceParser) isColumn(i int) bool {
	switch next := p.at(i + 1); {
	case next == "(" || next == "=>" || next == ":=": // a function, a named argument
		return false
	case i+1 < len(p.tokens) && (p.tokens[i+1].kind == sqltext.Literal || p.tokens[i+1].kind == sqltext.Dollar): // date '2026-01-01'
		return false
	case p.tokens[i].kind == sqltext.Quoted:
		return !p.endsOperand(i - 1)
	case reserved[foldASCII(p.tokens[i].text)]:
		return false
	case p.endsOperand(i - 1): // BETWEEN, AT, ESCAPE, a second word of a type
		return false
	case p.is(i-1, "not") && p.endsOperand(i-2): // NOT BETWEEN
		return false
	case p.is(i-1, "is") || p.is(i-1, "not") && p.is(i-2, "is"): // IS UNKNOWN
		return false
	case p.is(i-1, "at") && p.endsOperand(i-2): // AT TIME ZONE, AT LOCAL
		return false
	case p.is(i, "zone") && p.is(i-1, "time") && p.is(i-2, "at"):
		return false
	case p.is(i+1, "from") && p.at(i-1) == "(" && p.is(i-2, "extract"):
		return false
	}
	return true
}

// endsOperand reports whether a value may end with the token, so that the next
// word can only be an operator.
func (p *resourceParser) endsOperand(i int) bool {
	if i < 0 {
		return false
	}
	switch t := p.tokens[i]; t.kind {
	case sqltext.Word:
		name := foldASCII(t.text)
		return operands[name] || !reserved[name] && !p.isInfix(i)
	case sqltext.Symbol:
		return t.text == ")" && i != p.operator || t.text == "]"
	default:
		return true
	}
}

// isInfix reports whether the word is an operator because a value comes before it.
func (p *resourceParser) isInfix(i int) bool {
	return infixes[foldASCII(p.tokens[i].text)] && (p.endsOperand(i-1) || p.is(i-1, "not") || p.is(i-1, "time"))
}

var (
	operands = setOf("null true false end user current_user session_user system_user current_role current_schema current_catalog " +
		"current_date current_time current_timestamp localtime localtimestamp")
	infixes = setOf("between at escape zone")
)

// skipType returns the last token of the type that starts at i.
func (p *resourceParser) skipType(i int) int {
	last := p.skipName(i)
	for next := last + 1; ; next = last + 1 {
		switch {
		case p.is(next, "precision"), p.is(next, "varying"), p.is(next, "zone"):
			last = next
		case p.is(next, "with") || p.is(next, "without"):
			last = next + 1 // time
		case p.at(next) == "(":
			last = p.closing(next)
		default:
			return last
		}
	}
}

// skipName returns the last token of a dotted name that starts at i.
func (p *resourceParser) skipName(i int) int {
	for p.at(i+1) == "." && i+2 < len(p.tokens) {
		i += 2
	}
	return i
}

func (p *resourceParser) closing(i int) int {
	for depth := 0; ; i++ {
		switch p.at(i) {
		case "(":
			depth++
		case ")":
			if depth--; depth == 0 {
				return i
			}
		}
	}
}

func (p *resourceParser) at(i int) string {
	if i < 0 || i >= len(p.tokens) {
		return ""
	}
	return p.tokens[i].text
}

func (p *resourceParser) is(i int, keyword string) bool {
	return i >= 0 && i < len(p.tokens) && p.tokens[i].kind == sqltext.Word && strings.EqualFold(p.tokens[i].text, keyword)
}

func (p *resourceParser) isRow(i int, name string) bool {
	return p.is(i, name) || p.tokens[i].text == `"`+name+`"`
}

func (p *resourceParser) rewrite(all []token, columns, rows []int, row string) string {
	text := make([]string, len(all))
	for i, t := range all {
		text[i] = t.text
		if t.text == ":" { // of a slice; psql would take :name for one of its variables
			text[i] = ": "
		}
	}
	for _, i := range columns {
		text[p.index[i]] = row + "." + text[p.index[i]]
	}
	for _, i := range rows {
		text[p.index[i]] = row
	}
	return strings.TrimSpace(strings.Join(text, ""))
}
