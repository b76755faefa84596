package intake

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
)

// TestWhoSendsRefusedRequestsPaysForThem: with large requests of its own, for a while, and
// nobody else does.
func TestWhoSendsRefusedRequestsPaysForThem(t *testing.T) {
	large := func(id string) string {
		return fmt.Sprintf(`{"requestId":%q,"namespace":%q}`, id, strings.Repeat("x", 150<<10))
	}
	accept := service{submitted: func(*rotav1.SubmitActionsRequest) {}}
	for name, c := range map[string]struct {
		service     service
		contentType string
		body        string
	}{
		"malformed":             {accept, "application/proto", large("r")},
		"too costly":            {accept, "application/json", `{"actions":[{}` + strings.Repeat(",{}", 150_000) + `]}`},
		"refused by its server": {service{submitted: accept.submitted, refuses: connect.NewError(connect.CodeInvalidArgument, errors.New("wrong"))}, "application/json", large("r")},
	} {
		t.Run(name, func(t *testing.T) {
			budget := NewBudget(16 << 20)
			now := time.Now()
			budget.senders.now = func() time.Time { return now }
			sender := "mallory"
			limits := Limits{MessageBytes: 512 << 10, Budget: budget, Sender: func(context.Context) string { return sender }}
			bad, good := serve(t, c.service, limits), serve(t, accept, limits)
			refused := func(answer string) bool {
				return strings.Contains(answer, "OVERLOADED") && strings.Contains(answer, "mallory")
			}
			for n := 0; !refused(post(t, bad+submit, c.contentType, "", c.body)); n++ {
				if n == 100 {
					t.Fatal("it may send what is refused for ever")
				}
			}
			if budget.Blamed() == 0 {
				t.Error("nobody was counted as blamed")
			}
			if answer := post(t, good+submit, "application/json", "", `{}`); !strings.HasPrefix(answer, "200") {
				t.Errorf("its next small request is answered %q", answer)
			}
			sender = "alice"
			if answer := post(t, good+submit, "application/json", "", large("r")); !strings.HasPrefix(answer, "200") {
				t.Errorf("a large request of somebody else is answered %q", answer)
			}
			sender, now = "mallory", now.Add(amends)
			if answer := post(t, bad+submit, c.contentType, "", c.body); refused(answer) {
				t.Errorf("after %v its large requests are still refused: %q", amends, answer)
			}
			if left := budget.Used(); left != 0 {
				t.Errorf("%d bytes were not given back", left)
			}
		})
	}
}

// TestWhatIsAnsweredCostsNoCredit: a sender of good requests never runs out.
func TestWhatIsAnsweredCostsNoCredit(t *testing.T) {
	budget := NewBudget(16 << 20)
	unavailable := connect.NewError(connect.CodeUnavailable, errors.New("no leader"))
	url := serve(t, service{submitted: func(*rotav1.SubmitActionsRequest) {}, refuses: unavailable},
		Limits{MessageBytes: 1 << 20, Budget: budget, Sender: func(context.Context) string { return "alice" }})
	large := `{"requestId":"` + strings.Repeat("x", 150<<10) + `"}`
	for range 50 {
		if answer := post(t, url+submit, "application/json", "", large); !strings.HasPrefix(answer, "503") {
			t.Fatalf("answered %q", answer)
		}
	}
}

// TestSendersAreForgotten that owe nothing.
func TestSendersAreForgotten(t *testing.T) {
	now := time.Now()
	s := newSenders(1000)
	s.now = func() time.Time { return now }
	for i := range 3 * sendersMax {
		name := fmt.Sprint("agent-", i)
		if got := s.take(name, 1000, 0); got != hasRoom {
			t.Fatalf("%s: %v", name, got)
		}
		s.end(name, 1000, true)
		now = now.Add(amends / sendersMax)
	}
	if len(s.by) > 2*sendersMax {
		t.Errorf("%d senders are remembered", len(s.by))
	}
	if s.take("agent-0", 1001, 0) == hasRoom || s.take("agent-0", 1000, 0) != hasRoom {
		t.Error("a sender that has been forgotten may not take what others may")
	}
}

// TestTheLargestRequestIsAccepted, though it takes more than one sender's part.
func TestTheLargestRequestIsAccepted(t *testing.T) {
	const message = 256 << 10
	budget := NewBudget(ExpansionMax * message * 3 / 2)
	url := serve(t, service{submitted: func(*rotav1.SubmitActionsRequest) {}},
		Limits{MessageBytes: message, Budget: budget, Sender: func(context.Context) string { return "alice" }})
	// Of requests that grow, the last that the budget has room for takes most of it.
	for n := 1000; ; n += 1000 {
		answer := post(t, url+submit, "application/json", "", `{"actions":[{}`+strings.Repeat(",{}", n)+`]}`)
		if strings.Contains(answer, "TOO_LARGE") {
			break
		}
		if !strings.HasPrefix(answer, "200") {
			t.Fatalf("a request of %d actions is answered %q", n, answer)
		}
	}
}
