package main

var Failures = failures

// ApplyAll applies each mutant to its file and returns why that did not work, by
// rule.
func ApplyAll(read func(file string) (string, error)) map[string]error {
	broken := make(map[string]error)
	for _, m := range mutants {
		text, err := read(m.file)
		if err == nil {
			_, err = m.apply(text)
		}
		if err != nil {
			broken[m.rule] = err
		}
	}
	return broken
}
