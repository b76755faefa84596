package client

import (
	"google.golang.org/protobuf/proto"

	rotav1 "rota/api/gen/rota/v1"
)

// Gang returns the actions of a gang of some size, copies of one: they start all at once or none does,
// and they end with the first that does not succeed. With spread, each runs on a node of its own.
// Submit them in one call:
//
//	ids, err := c.Submit(ctx, client.Gang(spec, 4, false)...)
//
// Their IDs follow one another. A command finds its place in ROTA_GANG_RANK, the hosts of all
// members in ROTA_GANG_HOSTS, and where they may meet in ROTA_GANG_ADDRESS.
func Gang(spec *rotav1.ActionSpec, size uint32, spread bool) []*rotav1.ActionSpec {
	members := make([]*rotav1.ActionSpec, size)
	for i := range members {
		members[i] = proto.CloneOf(spec)
		members[i].GangSize = size
		if spread {
			members[i].GangSpread = rotav1.GangSpread_GANG_SPREAD_NODE
		}
	}
	return members
}
