package agent

import (
	"slices"
	"strings"
	"testing"

	"rota/agent/plan"
	rotav1 "rota/api/gen/rota/v1"
)

// TestAMemberFindsItsGang: all members are told the same place to meet, at rank 0, and each its own
// rank. What a command asks for does not change that.
func TestAMemberFindsItsGang(t *testing.T) {
	for _, c := range []struct {
		name   string
		action uint64
		gang   *rotav1.GangPlace
		want   string
	}{
		{"first", 8123, &rotav1.GangPlace{Rank: 0, Hosts: []string{"10.0.0.1", "10.0.0.2"}},
			"ADDRESS=10.0.0.1:61123 HOSTS=10.0.0.1,10.0.0.2 ID=8123 PORT=61123 RANK=0 SIZE=2"},
		{"last", 8124, &rotav1.GangPlace{Rank: 1, Hosts: []string{"10.0.0.1", "10.0.0.2"}},
			"ADDRESS=10.0.0.1:61123 HOSTS=10.0.0.1,10.0.0.2 ID=8123 PORT=61123 RANK=1 SIZE=2"},
		{"IPv6", 3999, &rotav1.GangPlace{Rank: 0, Hosts: []string{"fd00::1"}},
			"ADDRESS=[fd00::1]:64999 HOSTS=fd00::1 ID=3999 PORT=64999 RANK=0 SIZE=1"},
		{"none", 5, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := assignment(c.action, "train")
			a.Gang, a.Command.Env = c.gang, map[string]string{"ROTA_GANG_RANK": "9"}
			spec, err := specs().spec(plan.Key{Action: c.action, Attempt: 1}, a)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, kv := range spec.Env {
				if place, ok := strings.CutPrefix(kv, "ROTA_GANG_"); ok {
					got = append(got, place)
				}
			}
			slices.Sort(got)
			if strings.Join(got, " ") != c.want {
				t.Errorf("%v, want %s", got, c.want)
			}
		})
	}
}
