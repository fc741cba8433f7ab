package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/doctor"
	"github.com/go-fencing/fencing/cmd/fencectl/internal/target"
)

func newDoctor(a *app) *cobra.Command {
	var keys redisFlags
	var role string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what makes fencing unsafe, or a nuisance",
		Long: `Look at the database, at Redis, or at both and how they agree: versions, durability,
replication, the fence schema and its rights, triggers that are off or missing,
raises that wait, eviction, persistence, counters that expire, are poisoned or have
fallen behind. It only reads. What a role may not see, it leaves out and says so.

With --role it also says whether the role of a service may call what guards call.

Exit code 1 if a finding is FAIL; "warn" works, and will surprise you one day. Exit code 3
if a server could not be looked at: that is a FAIL too, and what was found elsewhere is
printed.`,
		Example: `  fencectl doctor --postgres postgres://owner@db/shop --redis redis://cache --role app`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := keys.check(); err != nil {
				return err
			}
			if role != "" && a.postgresSetting().Value == "" {
				return errors.New("--role: no database to look for it in; name one with --postgres, or in FENCING_POSTGRES_URL or DATABASE_URL")
			}
			return a.doctor(cmd.Context(), &keys, role)
		},
	}
	keys.add(a, cmd)
	cmd.Flags().StringVar(&role, "role", "", "`name` of the role of a service, whose rights are to be looked at")
	return cmd
}

func (a *app) doctor(ctx context.Context, keys *redisFlags, role string) error {
	if err := a.needServer("doctor"); err != nil {
		return err
	}
	// Bad addresses first: after those nothing was looked at.
	var d *database
	var address *target.Redis
	var err error
	if a.postgresSetting().Value != "" {
		if d, err = a.openDatabase(); err != nil {
			return err
		}
		defer d.close(ctx)
	}
	if a.redisSetting().Value != "" {
		if address, err = target.ParseRedis(a.redisSetting()); err != nil {
			return err
		}
	}
	all := []doctor.Finding{}
	var heights doctor.Heights
	var failures []error // one server that fails is no reason to say nothing of the other
	if d != nil {
		err := d.explain(d.look(ctx, func(tx pgx.Tx) (err error) {
			all, heights, err = doctor.Postgres(ctx, tx, d.address.String(), a.schema, role, keys.scheme.Counter)
			if errors.Is(err, doctor.ErrNoRole) {
				return badUsage("%w", err)
			}
			return err
		}))
		if errors.Is(err, errInput) {
			return err
		}
		if err != nil {
			failures, all = append(failures, err), append(all, doctor.Unseen(d.address.String(), a.line(err.Error())))
		}
	}
	if address != nil {
		found, err := a.doctorRedis(ctx, keys, heights)
		all = append(all, found...)
		if err != nil {
			failures, all = append(failures, err), append(all, doctor.Unseen(address.String(), a.line(err.Error())))
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := a.report(all); err != nil {
		return err
	}
	if len(failures) > 0 {
		return errors.Join(failures...)
	}
	if doctor.Worst(all) == doctor.Fail {
		return errAnswer
	}
	return nil
}

func (a *app) doctorRedis(ctx context.Context, keys *redisFlags, heights doctor.Heights) ([]doctor.Finding, error) {
	k, err := a.openRedis(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = k.client.Close() }() // it has only read
	found, err := doctor.Redis(ctx, k.client, k.masters, k.address.String(), keys.scheme.Counters(), heights)
	if err != nil {
		err = k.address.Unusable(err)
	}
	return found, err
}

func (a *app) report(all []doctor.Finding) error {
	if a.json {
		return a.printJSON(all)
	}
	server := ""
	for _, f := range all {
		if f.Server != server {
			server = f.Server
			if err := a.say("%s\n", server); err != nil {
				return err
			}
		}
		if err := a.say("  %-4s  %-12s %s\n", f.Level, f.Check, f.Says); err != nil {
			return err
		}
		if f.Do != "" {
			if err := a.say("  %-4s  %-12s → %s\n", "", "", f.Do); err != nil {
				return err
			}
		}
	}
	return nil
}
