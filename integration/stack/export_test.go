package stack

import (
	"context"

	"github.com/moby/moby/client"
)

// ContainerOf returns the id of the container that a server is, or "".
func ContainerOf(r *Redis) string {
	if c, ok := r.machine.(*docked); ok {
		return c.id()
	}
	return ""
}

// ContainerExists reports whether there is a container of that id.
func ContainerExists(id string) bool {
	_, err := servers.engine.(*docker).client.ContainerInspect(context.Background(), id, client.ContainerInspectOptions{})
	return err == nil
}
