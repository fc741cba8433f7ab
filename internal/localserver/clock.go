package localserver

import (
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// clockSource is preloaded into a server. libfaketime would do, but for its quarrel
// with the allocator of Redis.
//
//go:embed shim/clock.c
var clockSource []byte

// ownClock gives the process a time of day of its own, which setClock sets.
func (p *process) ownClock(ctx context.Context) error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("localserver: a clock of its own: %w: it is preloaded as on Linux", ErrNotInstalled)
	}
	compiler, err := findTool("cc", "gcc", "gcc")
	if err != nil {
		return err
	}
	source, shim := filepath.Join(p.dir, "clock.c"), filepath.Join(p.dir, "clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		return err
	}
	cmd := p.command(ctx, compiler, "-O2", "-shared", "-fPIC", "-o", shim, source)
	cmd.SysProcAttr = nil // as the user who owns the source
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("localserver: build the clock: %w: %s", err, out)
	}
	if err := os.Chmod(shim, 0o755); err != nil {
		return err
	}
	p.env = []string{"LD_PRELOAD=" + shim, "FENCING_CLOCK=" + p.clock()}
	if err := p.setClock(0); err != nil {
		return err
	}
	return os.Chmod(p.clock(), 0o644)
}

// clock is the file that has by how many nanoseconds the process' time of day is
// ahead.
func (p *process) clock() string { return filepath.Join(p.dir, "clock") }

func (p *process) setClock(ahead time.Duration) error {
	f, err := os.OpenFile(p.clock(), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	// In place, since the process has mapped it, and in one write.
	_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(ahead)), 0)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// SetClock sets the server's time of day, which is then ahead of the machine's, or
// behind if negative. The server was started with OwnClock.
func (s *Redis) SetClock(ahead time.Duration) error {
	if len(s.env) == 0 {
		return fmt.Errorf("localserver: %s: set clock: the server was started without OwnClock", s.name)
	}
	return s.setClock(ahead)
}
