package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/target"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	// The clean-up after an interrupt is bounded, so the signals stay caught until
	// the end: some senders send a signal twice.
	endings := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		endings = append(endings, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), endings...)
	defer stop()
	// Writing to a closed pipe is then an error like any other, after which there
	// may be servers to stop. Caught, though nobody listens: what is ignored the
	// commands of "fencectl run" would inherit.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, secrets: target.NewSecrets(append(args, environment()...)...)}
	root := newRoot(a)
	root.SetArgs(args)
	root.SetIn(stdin)
	help := &keeper{Writer: stdout}
	root.SetOut(help)
	root.SetErr(stderr)
	strict(root)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = help.err
	}
	code := exitCode(ctx, err)
	if err != nil && !errors.Is(err, errAnswer) && !errors.Is(err, errUntrusted) {
		_, _ = fmt.Fprintln(stderr, "fencectl:", a.line(strings.ReplaceAll(suggested(err.Error()), "with WithSchema", "with --schema")))
	}
	return code
}
