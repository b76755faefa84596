package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"rota/agent/inventory"
)

// machine identifies what the node registers of its machine. The cluster gives up all that a node runs
// when one of these changes (sameMachine in package fsm). A change of this text at an upgrade has the
// agent kill all that it runs, so a new resource leaves it as it is while there is none.
func (a *agent) machine() string {
	text, err := json.Marshal(struct {
		Pool      string
		Memory    uint64
		NUMA      [][]int
		GPUs      []any `json:",omitempty"`
		Bandwidth uint64
	}{a.cfg.Pool, a.inv.MemoryBytes, a.inv.NUMA, gpusOf(a.inv.GPUs), a.cfg.BandwidthBPS})
	if err != nil {
		panic(err) // there is nothing in it that JSON does not know
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// gpusOf are the class, number and memory of GPUs; nil: there are none.
func gpusOf(g *inventory.GPUs) []any {
	if g == nil {
		return nil
	}
	return []any{g.Class, g.Count, g.MemoryBytes}
}
