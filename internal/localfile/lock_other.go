//go:build !linux && !darwin

package localfile

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

const (
	NoFollow  = 0
	Exclusive = 0
	Shared    = 0
)

var ErrLocked = errors.ErrUnsupported

func unsupported() error {
	return fmt.Errorf("no file locks on %s, only on Linux and macOS: %w", runtime.GOOS, errors.ErrUnsupported)
}

func Lock(*os.File, int) error     { return unsupported() }
func CheckFileSystem(string) error { return unsupported() }
