//go:build !linux && !darwin

package filelock

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
)

const (
	noFollow  = 0
	exclusive = 0
	shared    = 0
)

var errLocked = errors.ErrUnsupported

func unsupported() error {
	return fmt.Errorf("no file locks on %s, only on Linux and macOS: %w", runtime.GOOS, errors.ErrUnsupported)
}

func flock(*os.File, int) error         { return unsupported() }
func sinceBoot() (time.Duration, error) { return 0, unsupported() }
func checkFileSystem(string) error      { return unsupported() }
func clockName() (string, error)        { return "", unsupported() }
