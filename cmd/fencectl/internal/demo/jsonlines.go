package demo

import (
	"encoding/json"
	"io"
)

// NewJSONLines returns a reporter that writes one JSON object per line; its field
// "type" says which of the types of Reporter it is.
func NewJSONLines(w io.Writer) Reporter {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return jsonLines{e}
}

type jsonLines struct{ *json.Encoder }

func (j jsonLines) Opening(v Opening) error {
	return j.Encode(struct {
		Type string `json:"type"`
		Opening
	}{"opening", v})
}

func (j jsonLines) Act(v Act) error {
	return j.Encode(struct {
		Type string `json:"type"`
		Act
	}{"act", v})
}

func (j jsonLines) Event(v Event) error {
	return j.Encode(struct {
		Type string `json:"type"`
		Event
	}{"event", v})
}

func (j jsonLines) Result(v Result) error {
	return j.Encode(struct {
		Type string `json:"type"`
		Result
	}{"result", v})
}

func (j jsonLines) Verdict(v Verdict) error {
	return j.Encode(struct {
		Type string `json:"type"`
		Verdict
	}{"verdict", v})
}
