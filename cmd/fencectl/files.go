package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-fencing/fencing/migrations"
)

// sumFile is Atlas' list of the files of a folder. It is not merged here, because
// only "atlas migrate hash" knows the other files.
const sumFile = "atlas.sum"

// writeFiles writes all files or none, and overwrites nothing.
func (a *app) writeFiles(dir string, files []migrations.File) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--dir %q: %w", dir, err)
	}
	var written []string
	defer func() {
		if err != nil {
			for _, path := range written {
				err = errors.Join(err, os.Remove(path))
			}
		}
	}()
	hash := false
	for _, f := range files {
		path := filepath.Join(dir, f.Name)
		err := create(path, f.Content)
		switch {
		case errors.Is(err, fs.ErrExist) && f.Name == sumFile:
			hash = true
			continue
		case errors.Is(err, fs.ErrExist):
			return fmt.Errorf("--dir %q has a file %s already; nothing was written, choose another --number or --dir", dir, f.Name)
		case err != nil:
			return fmt.Errorf("--dir %q: %w", dir, err)
		}
		written = append(written, path)
	}
	if a.json {
		return a.printJSON(map[string]any{"files": written, "hash_needed": hash})
	}
	for _, path := range written {
		if err := a.printf("%s\n", path); err != nil {
			return err
		}
	}
	if hash {
		return a.say("%s was left as it is; run \"atlas migrate hash\"\n", filepath.Join(dir, sumFile))
	}
	return nil
}

func create(path, content string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	if err = errors.Join(err, f.Close()); err != nil {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// A printing says how SQL for a tool is to be printed.
type printing struct {
	tool   string
	dir    string
	number int64
	down   bool
}

// print writes the files into the directory, or what one direction needs of them
// to stdout: piped into psql, both would undo each other.
func (a *app) print(p printing, files []migrations.File) error {
	switch {
	case p.dir != "" && p.down:
		return errors.New("--down and --dir exclude each other: the directory gets both directions")
	case p.dir != "":
		return a.writeFiles(p.dir, files)
	}
	files, err := p.choose(files)
	if err != nil {
		return err
	}
	if a.json {
		type file struct {
			Name    string `json:"name"`
			Content string `json:"content"`
		}
		list := make([]file, len(files))
		for i, f := range files {
			list[i] = file(f)
		}
		return a.printJSON(map[string]any{"files": list})
	}
	for i, f := range files {
		content := f.Content
		if len(files) > 1 {
			content = strings.Repeat("\n", min(i, 1)) + "-- " + f.Name + "\n" + content
		}
		if err := a.printf("%s", content); err != nil {
			return err
		}
	}
	return nil
}

func (p printing) choose(files []migrations.File) (chosen []migrations.File, err error) {
	const up, down = ".up.sql", ".down.sql"
	directed := false
	for _, f := range files {
		directed = directed || strings.HasSuffix(f.Name, down)
	}
	if p.down && !directed {
		return nil, fmt.Errorf("--down: the files for %s have no separate way down", p.tool)
	}
	suffix := up
	if p.down {
		suffix = down
	}
	for _, f := range files {
		switch {
		case f.Name == sumFile:
		case !directed || strings.HasSuffix(f.Name, suffix):
			chosen = append(chosen, f)
		}
	}
	if p.down {
		slices.Reverse(chosen) // the last step is undone first
	}
	return chosen, nil
}
