package torture

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/anishathalye/porcupine"
)

// Save writes into a folder: history.html, a picture page by page; reports.jsonl,
// what every worker has said; and porcupine's own page for each resource whose calls
// it could not explain. It returns the path of the picture.
func (res *Result) Save(dir string) (picture string, err error) {
	p := res.Picture()
	name := func(page int) string {
		if page == 0 {
			return "history.html"
		}
		return fmt.Sprintf("history-%d.html", page+1)
	}
	for page := range p.Pages() {
		err := create(filepath.Join(dir, name(page)), func(f *os.File) error { return p.Draw(f, page, name) })
		if err != nil {
			return "", err
		}
	}
	err = create(filepath.Join(dir, "reports.jsonl"), func(f *os.File) error {
		lines := json.NewEncoder(f)
		for _, v := range res.Variants {
			for _, r := range v.told.Reports {
				if err := lines.Encode(r); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	for _, v := range res.Variants {
		for i, l := range v.linear {
			if l.Result != porcupine.Illegal {
				continue
			}
			if err := l.Draw(filepath.Join(dir, fmt.Sprintf("porcupine-%s-%d.html", slugs[v.Variant], i))); err != nil {
				return "", err
			}
		}
	}
	return filepath.Join(dir, name(0)), nil
}

func create(path string, write func(f *os.File) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
