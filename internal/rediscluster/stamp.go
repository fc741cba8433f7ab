package rediscluster

import "github.com/redis/go-redis/v9"

// Stamp gives the commands of a pipeline its error where none of them has one of its own.
// go-redis leaves them without a value and without an error when the server refuses a new
// connection, because of its password for example: as if it had answered nothing.
func Stamp(cmds []redis.Cmder, err error) {
	if err == nil {
		return
	}
	for _, cmd := range cmds {
		if cmd.Err() != nil {
			return
		}
	}
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
}
