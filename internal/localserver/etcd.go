package localserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Etcd is a member of a private etcd cluster. It keeps its data in Dir.
type Etcd struct {
	server
	peer int // port
}

// URL returns where clients connect to.
func (s *Etcd) URL() string { return "http://" + s.Addr() }

// EtcdCluster is a private etcd cluster of separate processes.
type EtcdCluster struct{ Members []*Etcd }

// StartEtcd starts a cluster of a number of members, and returns when every member
// says that it is well; ctx bounds only that. ErrNotInstalled if the machine has no
// etcd.
func StartEtcd(ctx context.Context, members int) (*EtcdCluster, error) {
	path, err := findTool("etcd", "etcd-server", "etcd")
	if err != nil {
		return nil, err
	}
	var failure error
	for range 5 { // another process can take a port before a member does
		c := new(EtcdCluster)
		if failure = c.start(ctx, path, members); failure == nil {
			return c, nil
		}
		taken := strings.Contains(failure.Error(), "address already in use")
		failure = errors.Join(failure, c.Stop())
		if !taken {
			break
		}
	}
	return nil, failure
}

func (c *EtcdCluster) start(ctx context.Context, path string, members int) error {
	var peers []string
	for i := range members {
		p, err := newProcess("etcd", path)
		if err != nil {
			return err
		}
		s := &Etcd{server: server{process: p, end: terminate}}
		s.ready = s.answers
		c.Members = append(c.Members, s)
		if s.port, err = FreePort(); err != nil {
			return err
		}
		if s.peer, err = FreePort(); err != nil {
			return err
		}
		peers = append(peers, fmt.Sprintf("m%d=%s", i, s.peerURL()))
	}
	for i, s := range c.Members {
		s.args = []string{
			"--name", fmt.Sprintf("m%d", i), "--data-dir", filepath.Join(s.dir, "data"),
			"--listen-client-urls", s.URL(), "--advertise-client-urls", s.URL(),
			"--listen-peer-urls", s.peerURL(), "--initial-advertise-peer-urls", s.peerURL(),
			"--initial-cluster", strings.Join(peers, ","), "--initial-cluster-token", c.Members[0].peerURL(),
		}
		if err := s.process.start(); err != nil {
			return err
		}
	}
	for _, s := range c.Members { // they become ready together
		if err := s.await(ctx, s.ready); err != nil {
			return err
		}
	}
	return nil
}

// URLs returns where clients connect to.
func (c *EtcdCluster) URLs() []string {
	urls := make([]string, len(c.Members))
	for i, s := range c.Members {
		urls[i] = s.URL()
	}
	return urls
}

// Stop ends every member.
func (c *EtcdCluster) Stop() error {
	var errs []error
	for _, s := range c.Members {
		errs = append(errs, s.Stop())
	}
	return errors.Join(errs...)
}

func (s *Etcd) peerURL() string {
	return "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(s.peer))
}

// answers asks for the health of the member, which needs a leader.
func (s *Etcd) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+"/health", nil)
	if err != nil {
		return err
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer closeQuietly(reply.Body)
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("localserver: etcd's health is %s", reply.Status)
	}
	return nil
}
