package stack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/go-fencing/fencing/internal/localserver"
)

// processes starts servers from the machine's own binaries.
type processes struct{}

func (processes) startRedis(ctx context.Context, args []string) (machine, error) {
	s, err := localserver.StartRedis(ctx, localserver.RedisOptions{Args: args})
	if err != nil {
		return nil, err
	}
	return &process{s, filepath.Join(s.Dir(), "dump.rdb")}, nil
}

func (processes) startPostgres(ctx context.Context, settings map[string]string) (machine, error) {
	s, err := localserver.StartPostgres(ctx, localserver.PostgresOptions{Settings: postgresSettings(settings)})
	if err != nil {
		return nil, err
	}
	return &process{s, filepath.Join(s.Dir(), "data")}, nil
}

func (processes) describe(redis, postgres string) string {
	return fmt.Sprintf("local processes (redis %s, postgres %s)", redis, postgres)
}

func (processes) close() error { return nil }

// A process is a server of package localserver.
type process struct {
	localServer
	data string // the file or folder that has its data
}

type localServer interface {
	Addr() string
	Kill() error
	Restart(ctx context.Context) error
	Pause() error
	Resume() error
	Stop() error
}

func (p *process) user() (name, password string) { return "postgres", "" }

func (p *process) save(ctx context.Context, path string) error {
	if _, err := os.Stat(p.data); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("stack: there is nothing to save: %w", err)
	}
	return copyTree(ctx, p.data, path)
}

func (p *process) load(ctx context.Context, path string) error {
	if err := os.RemoveAll(p.data); err != nil || path == "" {
		return err
	}
	return copyTree(ctx, path, p.data)
}

// copyTree keeps the owner, which is another user where the tests are root.
func copyTree(ctx context.Context, from, to string) error {
	out, err := exec.CommandContext(ctx, "cp", "-a", from, to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("stack: copy of a server's data: %w: %s", err, out)
	}
	return nil
}
