package rpc_test

import (
	"context"
	"testing"

	rotav1 "rota/api/gen/rota/v1"
)

const secret = "sk-0123456789"

// Whoever reads an action learns which headers and variables it has and not what they
// say; the node that carries it out does.
func TestSecretsOfAnActionAreForItsNodeOnly(t *testing.T) {
	w := newWorld(t)
	command := spec("true")
	command.Command.Env = map[string]string{"API_KEY": secret}
	call := &rotav1.ActionSpec{Http: &rotav1.HttpCall{Url: "http://127.0.0.1:1/", Headers: map[string]string{"Authorization": secret}}}
	ids := []uint64{w.submit(command), w.submit(call)}

	seen := []*rotav1.Action{w.get(ids[0]), w.get(ids[1])}
	list, err := w.actions().ListActions(t.Context(), &rotav1.ListActionsRequest{})
	if err != nil || len(list.Actions) != 2 {
		t.Fatalf("%v, %v", list, err)
	}
	for _, a := range append(seen, list.Actions...) {
		for name, value := range a.Spec.GetCommand().GetEnv() {
			if name != "API_KEY" || value != "[redacted]" {
				t.Errorf("variable %s of action %d is %q", name, a.Id, value)
			}
		}
		for name, value := range a.Spec.GetHttp().GetHeaders() {
			if name != "Authorization" || value != "[redacted]" {
				t.Errorf("header %s of action %d is %q", name, a.Id, value)
			}
		}
		if len(a.Spec.GetCommand().GetEnv())+len(a.Spec.GetHttp().GetHeaders()) != 1 {
			t.Errorf("action %d says nothing of what it was given: %v", a.Id, a.Spec)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan string, len(ids))
	go w.agent("n1", nil).serve(ctx, func(as *rotav1.Assignment) *rotav1.ActionResult {
		got <- as.GetCommand().GetEnv()["API_KEY"] + as.GetHttp().GetHeaders()["Authorization"]
		return exited(0)
	})
	for range ids {
		if value := <-got; value != secret {
			t.Errorf("the node was given %q", value)
		}
	}
	cancel()
}
