package agent

import (
	"testing"

	"rota/agent/plan"
	"rota/api/share"
)

// Readers that never go away take neither all files of the agent nor the room of other attempts.
func TestReadersOfOutputAreBounded(t *testing.T) {
	readers := share.New[plan.Key](readersMax)
	total := 0
	for action := range uint64(readersMax) {
		key := plan.Key{Action: action + 1, Attempt: 1}
		own := 0
		for ; ; own++ {
			if _, ok := readers.TakeUpTo(key, attemptReadersMax); !ok {
				break
			}
		}
		switch {
		case own > attemptReadersMax:
			t.Fatalf("%d readers of one attempt", own)
		case own == 0 && action < readersMax/4:
			t.Fatalf("beside %d attempts with as many readers as they get, another one gets none", action)
		}
		total += own
	}
	if total != readersMax {
		t.Errorf("%d readers in all", total)
	}
}
