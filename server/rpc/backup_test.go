package rpc_test

import (
	"bytes"
	"testing"

	"github.com/cespare/xxhash/v2"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// TestABackupOfAnUnknownLevelIsNotProposed: whatever the caller says of the backup, no server is
// given one with which it would have to stop.
func TestABackupOfAnUnknownLevelIsNotProposed(t *testing.T) {
	w := newWorld(t)
	c, ctx := w.operators(), t.Context()
	later := w.machine.Fork()
	m := *later.Meta()
	m.Level = state.LevelMax + 1
	later.SetMeta(m)
	var b bytes.Buffer
	if err := later.Save(&b); err != nil {
		t.Fatal(err)
	}
	if _, err := c.StageRestore(ctx, &rotav1.StageRestoreRequest{Id: "u", Data: b.Bytes(), Force: true}); err != nil {
		t.Fatal(err)
	}
	_, err := c.CommitRestore(ctx, &rotav1.CommitRestoreRequest{
		Id: "u", Parts: 1, Sum: xxhash.Sum64(b.Bytes()), Force: true, FeatureLevel: uint32(state.LevelMin),
	})
	if reasonOf(err) != "LEVEL_UNSUPPORTED" {
		t.Errorf("the backup was answered %v", err)
	}
}
