package fsm

import (
	"github.com/cockroachdb/datadriven"

	"rota/jepsen/model"
)

// failpoint panics at the decisions that a story names.
func failpoint(d *datadriven.TestData) func(stage) {
	pool, quota, group, placement := d.HasArg("pool"), d.HasArg("quota"), d.HasArg("group"), d.HasArg("placement")
	migration, rollout := d.HasArg("migration"), d.HasArg("rollout")
	command := !pool && !quota && !group && !placement && !migration && !rollout
	return func(s stage) {
		if pool && s.pool != 0 || quota && s.quota != 0 || group && s.group != 0 || placement && s.placement || migration && s.migration != 0 || rollout && s.rollout != 0 || command && s.command == 0 {
			panic("planted")
		}
	}
}

// noting notes at which decisions fail panics.
func noting(fail func(stage), planted *[]model.Planted) func(stage) {
	return func(s stage) {
		defer func() {
			if r := recover(); r != nil {
				*planted = append(*planted, model.Planted{
					Command: s.command, Pool: s.pool, Quota: s.quota, Group: s.group, Migration: s.migration, Rollout: s.rollout, Placement: s.placement,
				})
				panic(r)
			}
		}()
		fail(s)
	}
}
