package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
)

const (
	engineBound = 10 * time.Second // for the engine to answer at all
	pullBound   = time.Minute      // for an image that is not there
)

// docker starts servers as containers.
type docker struct {
	provider      *testcontainers.DockerProvider
	client        client.APIClient
	host          string
	redisImage    string
	postgresImage string
	reaper        *reaper
}

// dockerEngine returns the engine that answers, with the images at hand.
func dockerEngine() (*docker, error) {
	// The library's own reaper is one more image that has to be there, and wants
	// the engine's socket inside a container. Ours is a process.
	if _, chosen := os.LookupEnv("TESTCONTAINERS_RYUK_DISABLED"); !chosen {
		if err := os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true"); err != nil {
			return nil, err
		}
	}
	d, err := within(engineBound, connect)
	if err != nil {
		return nil, err
	}
	d.redisImage = cmp.Or(os.Getenv(RedisImageEnv), "redis:7-alpine")
	d.postgresImage = cmp.Or(os.Getenv(PostgresImageEnv), "postgres:17-alpine")
	for _, image := range []string{d.redisImage, d.postgresImage} {
		if err := d.provide(image); err != nil {
			return nil, err
		}
	}
	d.reaper, err = startReaper()
	return d, err
}

// within bounds a call that takes no context: an engine that accepts connections
// and then says nothing must not hang the tests.
func within[T any](bound time.Duration, call func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			if p := recover(); p != nil { // the library panics where it finds no engine
				r.err = fmt.Errorf("%v", p)
			}
			done <- r
		}()
		r.value, r.err = call()
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-time.After(bound):
		var none T
		return none, fmt.Errorf("the container engine has not answered within %v", bound)
	}
}

func connect() (*docker, error) {
	log.SetDefault(log.NewNoopLogger())
	p, err := testcontainers.NewDockerProvider(testcontainers.WithLogger(log.NewNoopLogger()))
	if err != nil {
		return nil, err
	}
	d := &docker{provider: p, client: p.Client()}
	if d.host, err = p.DaemonHost(context.Background()); err != nil {
		return nil, err
	}
	// In a container the library takes the engine for that of the host outside,
	// though it may run beside us.
	if d.host == "localhost" || os.Getenv("TESTCONTAINERS_HOST_OVERRIDE") == "" && d.isHere() {
		d.host = "127.0.0.1"
	}
	return d, nil
}

// isHere reports whether the engine's own bridge is an interface of ours.
func (d *docker) isHere() bool {
	bridge, err := d.client.NetworkInspect(context.Background(), "bridge", client.NetworkInspectOptions{})
	if err != nil {
		return false
	}
	ours, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(ours, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && slices.ContainsFunc(bridge.Network.IPAM.Config, func(c network.IPAMConfig) bool {
			return prefix.Addr() == cmp.Or(c.Gateway, c.Subnet.Masked().Addr().Next()) // the default need not be spelled out
		})
	})
}

// provide pulls an image only if it is not there.
func (d *docker) provide(image string) error {
	ctx, cancel := context.WithTimeout(context.Background(), pullBound)
	defer cancel()
	_, err := d.client.ImageInspect(ctx, image)
	if !errdefs.IsNotFound(err) {
		return err
	}
	if err := d.provider.PullImage(ctx, image); err != nil {
		return fmt.Errorf("image %s is not there and cannot be pulled: %w", image, err)
	}
	return nil
}

func (d *docker) startRedis(ctx context.Context, args []string) (machine, error) {
	cmd := append([]string{"redis-server", "--protected-mode", "no", "--dir", "/data", "--save", "", "--appendonly", "no"}, args...)
	c := &docked{docker: d, port: "6379/tcp", data: "/data", ready: redisAnswers}
	c.request = testcontainers.ContainerRequest{Image: d.redisImage, Cmd: cmd}
	return c, c.create(ctx)
}

func (d *docker) startPostgres(ctx context.Context, settings map[string]string) (machine, error) {
	cmd := []string{"postgres", "-c", "max_connections=200"}
	for name, value := range postgresSettings(settings) {
		cmd = append(cmd, "-c", name+"="+value)
	}
	c := &docked{docker: d, port: "5432/tcp", data: "/pgdata", password: testPassword, ready: postgresAnswers}
	c.request = testcontainers.ContainerRequest{
		Image: d.postgresImage, Cmd: cmd,
		Env: map[string]string{"POSTGRES_PASSWORD": testPassword, "PGDATA": c.data},
	}
	return c, c.create(ctx)
}

func (d *docker) describe(_, _ string) string {
	return fmt.Sprintf("containers (%s, %s)", d.redisImage, d.postgresImage)
}

func (d *docker) close() error {
	return errors.Join(d.reaper.close(), d.provider.Close())
}

// publish binds a port of the container to one of the host that stays the same
// when the container is started again.
func (d *docker) publish(request *testcontainers.ContainerRequest, port string, hostPort int) error {
	inside, err := network.ParsePort(port)
	if err != nil {
		return err
	}
	binding := network.PortBinding{HostPort: strconv.Itoa(hostPort)}
	if d.host == "127.0.0.1" {
		binding.HostIP = netip.MustParseAddr(d.host) // and not on every interface
	}
	request.ExposedPorts = []string{port}
	request.HostConfigModifier = func(c *container.HostConfig) {
		c.PortBindings = network.PortMap{inside: {binding}}
	}
	return nil
}
