package quorum

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// of returns voters with this server among them.
func of(others ...string) Voters { return Voters{Self: true, Others: others} }

func expectCallers(t *testing.T, what string, answers []Answer[string], want ...string) {
	t.Helper()
	var got []string
	for _, a := range answers {
		got = append(got, a.Caller)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q are answered, want %q", what, got, want)
	}
}

// An answer counts for the questions that were put before its message was sent.
func TestAnAnswerCountsForEarlierQuestions(t *testing.T) {
	var l Leadership[string]
	voters := of("b", "c")
	l.Ask("first", 10)
	ticket, waits := l.Send("b")
	if !waits {
		t.Fatal("b is not asked")
	}
	l.Ask("second", 11)
	expectCallers(t, "before any answer", l.Confirmed(voters))
	l.Confirm("b", ticket)
	expectCallers(t, "b answers the message of the first question", l.Confirmed(voters), "first")
	l.Confirm("c", ticket)
	expectCallers(t, "c answers such a message as well", l.Confirmed(voters))
	if ticket, waits = l.Send("c"); !waits {
		t.Fatal("c is not asked again")
	}
	l.Confirm("c", ticket)
	expectCallers(t, "c answers a newer message", l.Confirmed(voters), "second")
	if _, waits = l.Send("b"); waits {
		t.Error("b is asked though no question waits")
	}
}

// The index of an answer is the commit index of the time when its caller asked.
func TestAnAnswerHasTheIndexOfItsQuestion(t *testing.T) {
	var l Leadership[string]
	for i, caller := range []string{"a", "b", "c"} {
		l.Ask(caller, uint64(10+i))
	}
	ticket, _ := l.Send("x")
	l.Confirm("x", ticket)
	want := []Answer[string]{{"a", 10}, {"b", 11}, {"c", 12}}
	if got := l.Confirmed(of("x")); !slices.Equal(got, want) {
		t.Errorf("answers %v, want %v", got, want)
	}
}

// How many answers make a majority, for clusters of every size.
func TestMajority(t *testing.T) {
	for _, c := range []struct{ others, self, without int }{
		{0, 0, 1}, {1, 1, 1}, {2, 1, 2}, {3, 2, 2}, {4, 2, 3}, {5, 3, 3}, {6, 3, 4},
	} {
		voters := Voters{Self: true}
		for i := range c.others {
			voters.Others = append(voters.Others, fmt.Sprint(i))
		}
		if got := voters.majority(); got != c.self {
			t.Errorf("%d other voters: %d answers, want %d", c.others, got, c.self)
		}
		voters.Self = false
		if got := voters.majority(); got != c.without {
			t.Errorf("%d voters and a leader without a vote: %d answers, want %d", c.others, got, c.without)
		}
	}
}

// The voters of the moment count: one that was removed does not, and nothing is left to
// wait for when this server is the only one.
func TestVotersChangeWhileTheyAreAsked(t *testing.T) {
	var l Leadership[string]
	l.Ask("a", 1)
	ticket, _ := l.Send("b")
	l.Confirm("b", ticket)
	expectCallers(t, "b was removed, c and d were not", l.Confirmed(of("c", "d")))
	expectCallers(t, "a leader without a vote, and no voter", l.Confirmed(Voters{}))
	expectCallers(t, "no other voter is left", l.Confirmed(of()), "a")
	l.Ask("b", 1)
	expectCallers(t, "a cluster of one", l.Confirmed(of()), "b")
}

func TestLost(t *testing.T) {
	var l Leadership[string]
	l.Ask("a", 1)
	l.Ask("b", 2)
	if got := l.Lost(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%q learn that the leadership is lost, want both", got)
	}
	ticket, _ := l.Send("x")
	l.Confirm("x", ticket)
	expectCallers(t, "after all were answered", l.Confirmed(of("x")))
}

// Whatever order messages are sent and answered in, and however often: a question is
// answered exactly when a majority has confirmed it with messages that were sent later.
func TestNoQuestionIsConfirmedTooEarly(t *testing.T) {
	type message struct {
		to    string
		sent  int // after how many questions
		token Ticket
	}
	rapid.Check(t, func(t *rapid.T) {
		var l Leadership[int]
		voters := of([]string{"b", "c", "d", "e"}[:rapid.IntRange(1, 4).Draw(t, "others")]...)
		var under []message // messages that may still be answered
		proof := map[string]int{}
		questions, answered := 0, 0
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				l.Ask(questions, uint64(questions))
				questions++
			case 1:
				to := rapid.SampledFrom(voters.Others).Draw(t, "to")
				if token, ok := l.Send(to); ok {
					under = append(under, message{to, questions, token})
				}
			case 2:
				if len(under) > 0 {
					m := rapid.SampledFrom(under).Draw(t, "answered")
					l.Confirm(m.to, m.token)
					proof[m.to] = max(proof[m.to], m.sent)
				}
			}
			for _, a := range l.Confirmed(voters) {
				if a.Caller != answered || a.Index != uint64(answered) {
					t.Fatalf("question %d is answered with index %d, want question %d", a.Caller, a.Index, answered)
				}
				answered++
			}
			want := 0
			for q := range questions {
				confirmations := 1 // this server's own
				for _, id := range voters.Others {
					if proof[id] > q {
						confirmations++
					}
				}
				if 2*confirmations > len(voters.Others)+1 {
					want = q + 1
				}
			}
			if answered != want {
				t.Fatalf("%d questions are answered, a majority has confirmed %d", answered, want)
			}
		}
	})
}

// One call serves the readers that came before it left.
func TestReadersShareCalls(t *testing.T) {
	var r Readers[string]
	expect := func(what string, want ...string) {
		t.Helper()
		if got := r.Call(); !slices.Equal(got, want) {
			t.Errorf("%s: a call for %q, want %q", what, got, want)
		}
	}
	expect("nobody reads")
	r.Join("a")
	r.Join("b")
	expect("two readers", "a", "b")
	r.Join("c")
	expect("a reader that comes while the call is on its way", "c")
	r.Join("d")
	expect("two calls are on their way")
	r.Join("e")
	r.Returned()
	expect("one is back", "d", "e")
}

// A notice reaches no further than what this connection has sent.
func TestANoticeReachesNoFurtherThanWhatWasSent(t *testing.T) {
	var n Notices
	n.Sent(4, 10, 9)
	for _, step := range []struct {
		what         string
		commit, term uint64
		want         uint64
	}{
		{"told already", 9, 4, 0},
		{"committed", 10, 4, 10},
		{"beyond what was sent", 12, 4, 10},
		{"of an earlier term", 10, 3, 0},
		{"of a later term", 12, 5, 0},
	} {
		if got := n.Next(step.commit, step.term); got != step.want {
			t.Errorf("%s: a notice of %d, want %d", step.what, got, step.want)
		}
	}
	n.Sent(4, 10, 10) // the notice
	if got := n.Next(12, 4); got != 0 {
		t.Errorf("a second notice of %d, though nothing was sent since", got)
	}
	n.Sent(4, 11, 10)
	if got := n.Next(12, 4); got != 11 {
		t.Errorf("after entry 11 was sent: a notice of %d, want 11", got)
	}
}
