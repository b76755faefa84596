package rpc

import (
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// checkGangSpec checks what an action says of its gang by itself.
func checkGangSpec(s *rotav1.ActionSpec) *violation {
	switch {
	case s.GangSize > state.GangSizeMax:
		return wrong("gang_size", "must be at most %d, is %d", state.GangSizeMax, s.GangSize)
	case s.GangSize == 0 && s.GangSpread != 0:
		return wrong("gang_spread", "is for members of a gang: give gang_size too")
	case s.GangSpread > rotav1.GangSpread_GANG_SPREAD_NODE:
		return wrong("gang_spread", "is unknown to this server: leave it out, or upgrade the servers")
	case s.GangSize == 0:
		return nil
	case s.TrajectoryId != 0:
		return wrong("trajectory_id", "must be empty for a member of a gang")
	case len(s.Resources.GetQuotas()) > 0:
		return wrong("resources.quotas", "must be empty for a member of a gang")
	case s.LossPolicy == rotav1.LossPolicy_LOSS_POLICY_RETRY:
		return wrong("loss_policy", "must not retry for a member of a gang: a gang runs at most once")
	}
	return nil
}

// checkGangs checks that each gang of a submission stands there as a whole. Whether its members ask
// for the same is for the state machine to say, which knows the classes of GPUs.
func checkGangs(specs []*rotav1.ActionSpec) *violation {
	for i := 0; i < len(specs); i++ {
		size := int(specs[i].GangSize)
		if size == 0 {
			continue
		}
		if size > len(specs)-i {
			return wrong("gang_size", "is %d, and only %d actions follow from here on: submit a gang in one request", size, len(specs)-i).in("actions[%d]", i)
		}
		for k := i; k < i+size; k++ {
			if specs[k].GangSize != specs[i].GangSize || specs[k].GangSpread != specs[i].GangSpread {
				return wrong("gang_size", "differs within the gang that begins with action %d: its members stand one after the other", i).in("actions[%d]", k)
			}
		}
		i += size - 1
	}
	return nil
}

// noGang refuses a gang where an action is by itself.
func noGang(s *rotav1.ActionSpec) *violation {
	if s.GetGangSize() == 0 {
		return nil
	}
	return wrong("gang_size", "must be 0: the members of a gang are submitted together")
}
