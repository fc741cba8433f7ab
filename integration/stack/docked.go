package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"

	"github.com/go-fencing/fencing/internal/localserver"
)

// A docked server is a container.
type docked struct {
	docker   *docker
	request  testcontainers.ContainerRequest
	port     string // inside
	data     string // folder of its data, inside
	password string
	ready    func(ctx context.Context, m machine) error

	mu        sync.Mutex
	container string // its id; another one after load
	hostPort  int
	paused    bool
}

func (c *docked) id() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.container
}

func (c *docked) Addr() string { return net.JoinHostPort(c.docker.host, strconv.Itoa(c.hostPort)) }

func (c *docked) user() (name, password string) { return "postgres", c.password }

// create starts the container, at a port that nobody else took meanwhile.
func (c *docked) create(ctx context.Context) error {
	var failure error
	for range 5 {
		if c.hostPort, failure = localserver.FreePort(); failure != nil {
			return failure
		}
		if failure = c.build(ctx); failure == nil {
			failure = c.Restart(ctx)
		}
		if failure == nil {
			return nil
		}
		failure = errors.Join(failure, c.Stop())
		if text := failure.Error(); !strings.Contains(text, "port is already allocated") && !strings.Contains(text, "address already in use") {
			break
		}
	}
	return failure
}

// build makes the container and does not start it.
func (c *docked) build(ctx context.Context) error {
	if err := c.docker.publish(&c.request, c.port, c.hostPort); err != nil {
		return err
	}
	made, err := c.docker.provider.CreateContainer(ctx, c.request)
	if made != nil && made.GetContainerID() != "" {
		c.mu.Lock()
		c.container, c.paused = made.GetContainerID(), false
		c.mu.Unlock()
		c.docker.reaper.watch("container", c.container)
	}
	return err
}

func (c *docked) Restart(ctx context.Context) error {
	if _, err := c.docker.client.ContainerStart(ctx, c.id(), client.ContainerStartOptions{}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startBound)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := c.ready(ctx, c)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("stack: %s did not answer: %w (%w)", c.request.Image, err, ctx.Err())
		}
	}
}

func (c *docked) Kill() error {
	if err := c.Resume(); err != nil { // the engine does not signal what is frozen
		return err
	}
	return c.call(func(ctx context.Context, id string) error {
		if _, err := c.docker.client.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "KILL"}); err != nil {
			return err
		}
		for { // until it has gone, and its port with it
			about, err := c.docker.client.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
			if err != nil || !about.Container.State.Running {
				return err
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
}

func (c *docked) Pause() error {
	return c.call(func(ctx context.Context, id string) error {
		_, err := c.docker.client.ContainerPause(ctx, id, client.ContainerPauseOptions{})
		c.setPaused(err == nil)
		return err
	})
}

func (c *docked) Resume() error {
	c.mu.Lock()
	paused := c.paused
	c.mu.Unlock()
	if !paused {
		return nil
	}
	return c.call(func(ctx context.Context, id string) error {
		_, err := c.docker.client.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{})
		c.setPaused(err != nil)
		return err
	})
}

func (c *docked) setPaused(paused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = paused
}

func (c *docked) Stop() error {
	if c.id() == "" {
		return nil
	}
	return errors.Join(c.Resume(), c.call(func(ctx context.Context, id string) error {
		_, err := c.docker.client.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if errdefs.IsNotFound(err) {
			return nil
		}
		return err
	}))
}

// call does not depend on the context of a test, which is over when it cleans up.
func (c *docked) call(f func(ctx context.Context, id string) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), callBound)
	defer cancel()
	return f(ctx, c.id())
}

func (c *docked) save(ctx context.Context, to string) error {
	reply, err := c.docker.client.CopyFromContainer(ctx, c.id(), client.CopyFromContainerOptions{SourcePath: c.data})
	if err != nil {
		return err
	}
	defer func() { _ = reply.Content.Close() }()
	file, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = file.ReadFrom(reply.Content)
	return errors.Join(err, file.Close())
}

// load makes a new container: there is no way to remove the files of one that
// does not run.
func (c *docked) load(ctx context.Context, from string) error {
	if err := c.Stop(); err != nil {
		return err
	}
	if err := c.build(ctx); err != nil || from == "" {
		return err
	}
	file, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it was only read
	_, err = c.docker.client.CopyToContainer(ctx, c.id(), client.CopyToContainerOptions{DestinationPath: path.Dir(c.data), Content: file})
	return err
}
