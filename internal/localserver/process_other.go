//go:build !unix

package localserver

import (
	"errors"
	"os"
	"syscall"
)

// Without signals there is no gentle end.
var (
	interrupt = os.Kill
	terminate = os.Kill
)

type account struct{}

func unprivileged(...string) (*account, error) { return nil, nil }

func (*account) own(string) error { return nil }

func attributes(*account) *syscall.SysProcAttr { return nil }

type relative struct{}

func children(int) ([]relative, error) { return nil, nil }

func (relative) alive() bool { return false }

func (relative) resume() {}
func (relative) kill()   {}

func stop(*os.Process) error      { return nil }
func suspend(*os.Process) error   { return errors.ErrUnsupported }
func unsuspend(*os.Process) error { return errors.ErrUnsupported }
