package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/target"
)

// strict has the commands that cobra makes by itself end with an error where they do not
// know what is asked for: by default they print something else, with exit code 0, and
// quote their arguments. It is for a root that knows where to write.
func strict(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.RunE = func(_ *cobra.Command, args []string) error {
				topic, rest, err := root.Find(args)
				switch {
				case err != nil:
					return err
				case len(rest) > 0:
					return unknown(topic, rest[0])
				}
				topic.InitDefaultHelpFlag() // so that it is listed
				topic.InitDefaultVersionFlag()
				return topic.Help()
			}
		case "completion":
			cmd.Args = noArgs
			cmd.RunE = func(cmd *cobra.Command, _ []string) error {
				return fmt.Errorf("completion: say for which shell: bash, fish, powershell or zsh; see %q", cmd.CommandPath()+" --help")
			}
			for _, shell := range cmd.Commands() {
				shell.Args = noArgs
			}
		}
	}
}

// noArgs is cobra.NoArgs, which takes every argument for a command.
func noArgs(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case cmd.HasSubCommands():
		return unknown(cmd, args[0])
	}
	_, name, _ := strings.Cut(cmd.CommandPath(), " ")
	return fmt.Errorf("%s takes no arguments, but was given %q; see %q", name, args[0], cmd.CommandPath()+" --help")
}

// unknown is what cobra says of an unknown command of the root alone.
func unknown(parent *cobra.Command, name string) error {
	parent.SuggestionsMinimumDistance = 2 // cobra's own
	text := fmt.Sprintf("unknown command %q for %q", name, parent.CommandPath())
	if near := parent.SuggestionsFor(name); len(near) > 0 {
		text += "\n\nDid you mean this?\n" + strings.Join(near, "\n")
	}
	return fmt.Errorf("%s", text)
}

// suggested puts into one sentence what cobra writes as a list, and says where there is
// more where it has no idea.
func suggested(text string) string {
	before, list, found := strings.Cut(text, "\n\nDid you mean this?\n")
	if found {
		return before + "; did you mean " + strings.Join(strings.Fields(list), " or ") + "?"
	}
	if _, parent, ok := strings.Cut(text, " for "); ok && strings.HasPrefix(text, "unknown command ") {
		return text + `; see "` + strings.Trim(parent, `"`) + ` --help"`
	}
	return text
}

// notAnAddress refuses an address where a name should be: with its password it would be
// listed, locked and logged.
func notAnAddress(command, name string) error {
	if target.HasPassword(name) {
		return fmt.Errorf("%s: the name is the address of a server, with a password; write --postgres or --redis in front of it", command)
	}
	return nil
}

// A keeper remembers the first error of a writer: cobra does not look at it.
type keeper struct {
	io.Writer
	err error
}

func (k *keeper) Write(p []byte) (int, error) {
	if k.err == nil {
		_, k.err = k.Writer.Write(p)
	}
	return len(p), nil
}
