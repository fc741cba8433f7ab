package stack

import (
	"context"
	"errors"
	"net/netip"

	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"

	"github.com/go-fencing/fencing/internal/faultlink"
)

// A wire is what a replica reaches its master by.
type wire interface {
	master() string // its address, as the replica sees it
	cut() error     // stops what is on its way, without a word to either side
	close() error
}

func (processes) wire(_ context.Context, master, _ machine) (wire, error) {
	l, err := faultlink.New(master.Addr())
	return linkWire{l}, err
}

type linkWire struct{ *faultlink.Link }

func (w linkWire) master() string { return w.Addr() }
func (w linkWire) cut() error     { w.Cut(); return nil }
func (w linkWire) close() error   { return w.Close() }

// A networkWire is a network with the two on it. A link of ours will not do: a
// container does not reach the loopback interface that it listens on.
type networkWire struct {
	docker      *docker
	id          string
	from, to    *docked
	fromAddress string
}

func (d *docker) wire(ctx context.Context, master, replica machine) (wire, error) {
	w := &networkWire{docker: d, from: master.(*docked), to: replica.(*docked)}
	made, err := d.client.NetworkCreate(ctx, "fencing-"+w.from.id()[:12], client.NetworkCreateOptions{Labels: testcontainers.GenericLabels()})
	if err != nil {
		return nil, err
	}
	w.id = made.ID
	d.reaper.watch("network", w.id)
	if err := w.connect(ctx); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *networkWire) connect(ctx context.Context) error {
	for _, c := range []*docked{w.from, w.to} {
		options := client.NetworkConnectOptions{Container: c.id(), EndpointConfig: new(network.EndpointSettings)}
		if _, err := w.docker.client.NetworkConnect(ctx, w.id, options); err != nil {
			return err
		}
	}
	about, err := w.docker.client.ContainerInspect(ctx, w.from.id(), client.ContainerInspectOptions{})
	if err != nil {
		return err
	}
	for _, n := range about.Container.NetworkSettings.Networks {
		if n.NetworkID == w.id {
			w.fromAddress = netip.AddrPortFrom(n.IPAddress, 6379).String()
			return nil
		}
	}
	return errors.New("stack: the master has no address in the network that it was put on")
}

func (w *networkWire) master() string { return w.fromAddress }

func (w *networkWire) cut() error { return w.disconnect(w.to) }

func (w *networkWire) disconnect(c *docked) error {
	ctx, cancel := context.WithTimeout(context.Background(), callBound)
	defer cancel()
	_, err := w.docker.client.NetworkDisconnect(ctx, w.id, client.NetworkDisconnectOptions{Container: c.id(), Force: true})
	return err
}

func (w *networkWire) close() error {
	for _, c := range []*docked{w.from, w.to} {
		_ = w.disconnect(c) // it may have been cut off, or be gone; what matters is whether the network can go
	}
	ctx, cancel := context.WithTimeout(context.Background(), callBound)
	defer cancel()
	_, err := w.docker.client.NetworkRemove(ctx, w.id, client.NetworkRemoveOptions{})
	return err
}
