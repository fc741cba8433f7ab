//go:build !linux && !darwin

package filelock

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

func unsupported() error {
	return fmt.Errorf("no file locks on %s, only on Linux and macOS: %w", runtime.GOOS, errors.ErrUnsupported)
}

func sinceBoot() (time.Duration, error) { return 0, unsupported() }
func clockName() (string, error)        { return "", unsupported() }
