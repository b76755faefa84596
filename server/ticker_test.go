package server

import (
	"testing"

	"github.com/hashicorp/go-hclog"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm"
	"rota/server/replica"
)

// TestACommandBeforeTheBootstrap: a leader takes commands as soon as it is ready,
// so that of an agent that tries to register may be applied, and refused, before
// the bootstrap is proposed.
func TestACommandBeforeTheBootstrap(t *testing.T) {
	ok := func() error { return nil }
	l := &leader{machine: fsm.New(fsm.Options{}), verify: ok, propose: ok}
	register := &logv1.Command{Verb: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{Name: "n"}}}
	results, err := l.ProposeLocal(t.Context(), register)
	if err != nil || results[0].GetRefusal().GetReason() != "NOT_BOOTSTRAPPED" {
		t.Fatal(results, err)
	}
	s := &Server{
		machine: l.machine, logger: hclog.NewNullLogger(),
		cfg: Config{Bootstrap: []replica.Server{{ID: "s", Address: "127.0.0.1:1"}}},
	}
	s.bootstrap(t.Context(), l)
	if !l.machine.Bootstrapped() {
		t.Error("the cluster was never bootstrapped")
	}
}
