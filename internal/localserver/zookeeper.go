package localserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ZooKeeperOptions are the wishes for ZooKeeper servers.
type ZooKeeperOptions struct {
	// Settings are lines of zoo.cfg. They take precedence over the defaults here: a
	// tick of 200ms, sessions from 400ms to 5m, 5s until a follower gives up a leader
	// that is silent. Containers that are empty are removed twice a second.
	Settings map[string]string
}

// ZooKeeper is a member of a private ensemble. It keeps its data in the folder
// "data" of Dir, and does not wait for the disk.
type ZooKeeper struct{ server }

// ZooKeeperEnsemble is a private ensemble of separate processes.
type ZooKeeperEnsemble struct{ Members []*ZooKeeper }

// StartZooKeeper starts an ensemble of a number of members, and returns when every
// member serves clients; ctx bounds only that. ErrNotInstalled if the machine has no
// Java or no ZooKeeper.
func StartZooKeeper(ctx context.Context, members int, o ZooKeeperOptions) (*ZooKeeperEnsemble, error) {
	java, err := findTool("java", "default-jre-headless", "openjdk")
	if err != nil {
		return nil, err
	}
	classes, err := findZooKeeper()
	if err != nil {
		return nil, err
	}
	var failure error
	for range 5 { // another process can take a port before a member does
		e := new(ZooKeeperEnsemble)
		if failure = e.start(ctx, java, classes, members, o.Settings); failure == nil {
			return e, nil
		}
		taken := strings.Contains(strings.ToLower(failure.Error()), "address already in use")
		failure = errors.Join(failure, e.Stop())
		if !taken {
			break
		}
	}
	return nil, failure
}

// findZooKeeper returns the class path.
func findZooKeeper() (string, error) {
	const debian = "/usr/share/java" // everybody's; the manifest names what ZooKeeper needs of it
	if _, err := os.Stat(filepath.Join(debian, "zookeeper.jar")); err == nil {
		return filepath.Join(debian, "zookeeper.jar") + ":" + filepath.Join(debian, "slf4j-simple.jar"), nil
	}
	for _, dir := range []string{"/opt/homebrew/opt/zookeeper/libexec/lib", "/usr/local/opt/zookeeper/libexec/lib"} {
		if _, err := os.Stat(dir); err == nil {
			return filepath.Join(dir, "*"), nil
		}
	}
	return "", notInstalled("ZooKeeper", "zookeeper default-jre-headless", "zookeeper")
}

func (e *ZooKeeperEnsemble) start(ctx context.Context, java, classes string, members int, settings map[string]string) error {
	peers := make(map[string]string)
	for i := range members {
		p, err := newProcess("zookeeper", java)
		if err != nil {
			return err
		}
		s := &ZooKeeper{server{process: p, end: terminate}}
		s.ready = func(ctx context.Context) error { _, err := s.mode(ctx); return err }
		e.Members = append(e.Members, s)
		var ports [3]int // of clients, peers, elections
		for j := range ports {
			if ports[j], err = FreePort(); err != nil {
				return err
			}
		}
		s.port = ports[0]
		if members > 1 {
			peers[fmt.Sprintf("server.%d", i+1)] = fmt.Sprintf("127.0.0.1:%d:%d", ports[1], ports[2])
		}
	}
	for i, s := range e.Members {
		config, err := s.configure(i+1, peers, settings)
		if err != nil {
			return err
		}
		s.args = []string{
			"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", // many start on a small machine
			"-Djava.net.preferIPv4Stack=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
			"-Dzookeeper.admin.enableServer=false", "-Dzookeeper.jmx.log4j.disable=true",
			"-Dzookeeper.4lw.commands.whitelist=srvr", "-Dzookeeper.forceSync=no",
			"-Dznode.container.checkIntervalMs=500",
			"-cp", classes, "org.apache.zookeeper.server.quorum.QuorumPeerMain", config,
		}
		if err := s.process.start(); err != nil {
			return err
		}
	}
	for _, s := range e.Members { // they become ready together
		if err := s.await(ctx, s.ready); err != nil {
			return err
		}
	}
	return nil
}

// configure writes the files of a member and returns the name of its zoo.cfg.
func (s *ZooKeeper) configure(id int, peers, settings map[string]string) (string, error) {
	data := filepath.Join(s.dir, "data")
	all := map[string]string{
		"dataDir":           data,
		"clientPort":        strconv.Itoa(s.port),
		"clientPortAddress": "127.0.0.1",
		"tickTime":          "200",
		"minSessionTimeout": "400",
		"maxSessionTimeout": "300000",
		"initLimit":         "100",
		"syncLimit":         "25",
		"maxClientCnxns":    "0",
	}
	maps.Copy(all, peers)
	maps.Copy(all, settings)
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&text, "%s=%s\n", name, all[name])
	}
	config := filepath.Join(s.dir, "zoo.cfg")
	err := errors.Join(
		os.Mkdir(data, 0o700),
		os.WriteFile(filepath.Join(data, "myid"), []byte(strconv.Itoa(id)), 0o644),
		os.WriteFile(config, []byte(text.String()), 0o644),
		s.user.own(data),
	)
	if err != nil {
		return "", fmt.Errorf("localserver: zookeeper: %w", err)
	}
	return config, nil
}

// Addrs returns where clients connect to.
func (e *ZooKeeperEnsemble) Addrs() []string {
	addrs := make([]string, len(e.Members))
	for i, s := range e.Members {
		addrs[i] = s.Addr()
	}
	return addrs
}

// Stop ends every member.
func (e *ZooKeeperEnsemble) Stop() error {
	var errs []error
	for _, s := range e.Members {
		errs = append(errs, s.Stop())
	}
	return errors.Join(errs...)
}

// Leads reports whether the member leads the others, or has none.
func (s *ZooKeeper) Leads(ctx context.Context) (bool, error) {
	mode, err := s.mode(ctx)
	return mode != "follower", err
}

// mode asks the member for its part, which it has only while it serves clients.
func (s *ZooKeeper) mode(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return "", err
	}
	defer closeQuietly(conn)
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return "", err
	}
	reply, err := io.ReadAll(conn)
	if err != nil {
		return "", err
	}
	_, rest, found := strings.Cut(string(reply), "Mode: ")
	mode, _, _ := strings.Cut(rest, "\n")
	if !found {
		return "", fmt.Errorf("localserver: zookeeper says %q", reply)
	}
	return mode, nil
}
