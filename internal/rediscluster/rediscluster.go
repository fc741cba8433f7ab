// Package rediscluster does what go-redis leaves to do when a server does not answer: a
// client of Redis Cluster looks for the new master, and the commands of a pipeline have
// its error.
package rediscluster

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// Heed is told the error of a command, if any, and lets a client for Cluster look up
// in the background which node has which slot when the error means that a node did
// not answer. go-redis does so when a node sends it elsewhere, which a dead one never
// does: left alone it asks that one until its ClusterStateReloadInterval is over, a
// minute by default, when another node has long had the slot.
//
// It is cheap: the client has at most one such question under way, five a second.
func Heed(rdb redis.UniversalClient, err error) {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok || err == nil || errors.Is(err, context.Canceled) {
		return
	}
	if _, answered := errors.AsType[redis.Error](err); !answered {
		cluster.ReloadState(context.Background())
	}
}
