package autopilot

import (
	"testing"
	"time"
)

// seen reads "s1L s2 s3+ s4-b": L leads, + is dead, ~ is unhealthy, ! is in quarantine, - does
// not vote, and a letter is the zone.
func seen(text string) (servers []Server) {
	var word string
	for _, r := range text + " " {
		if r != ' ' {
			word += string(r)
			continue
		}
		if word == "" {
			continue
		}
		s := Server{ID: word[:2], Voter: true}
		for _, mark := range word[2:] {
			switch mark {
			case 'L':
				s.Leader = true
			case '+':
				s.Dead = true
			case '~':
				s.Reason = "20,000 entries behind"
			case '!':
				s.CannotVote, s.Reason = true, "in quarantine"
			case '-':
				s.Voter = false
			default:
				s.Zone = string(mark)
			}
		}
		servers, word = append(servers, s), ""
	}
	return servers
}

var verbs = map[Verb]string{Wait: "wait", Promote: "promote", Demote: "demote", Remove: "remove"}

// TestWhatIsDoneNext: what is seen from 0 on, and what is done when all times are over.
func TestWhatIsDoneNext(t *testing.T) {
	on := Settings{Enabled: true, PromoteAfter: 10 * time.Second, RemoveAfter: time.Hour, VotersMin: 3}
	five := on
	five.VotersMin = 5
	for _, c := range []struct {
		name     string
		settings Settings
		seen     string
		at       time.Duration
		want     string
	}{
		{"all well", on, "s1L s2 s3", 2 * time.Hour, "wait"},
		{"a new server is not stable yet", on, "s1L s2 s3 s4-", 9 * time.Second, "wait"},
		{"a new server is stable", on, "s1L s2 s3 s4-", 10 * time.Second, "promote s4"},
		{"a new server is in quarantine", on, "s1L s2 s3 s4-!", time.Hour, "wait"},
		{"a voter is far behind", on, "s1L s2 s3~ s4-", time.Hour, "promote s4"},
		{"a voter is in quarantine", on, "s1L s2 s3! s4-", time.Hour, "wait"},
		{"one of four died, another is in quarantine: no majority", on, "s1L s2 s3! s4+", 9 * time.Hour, "wait"},
		{"one of five died, another is in quarantine", on, "s1L s2 s3 s4! s5+", time.Hour, "remove s5"},
		{"off", Settings{PromoteAfter: 1, RemoveAfter: 1}, "s1L s2 s3+ s4-", 9 * time.Hour, "wait"},
		{"one of three died: three are to stay", on, "s1L s2 s3+", 9 * time.Hour, "wait"},
		{"one of three died, its replacement is there", on, "s1L s2 s3+ s4-", time.Hour, "remove s3"},
		{"the replacement waits for the dead one", on, "s1L s2 s3+ s4-", time.Minute, "wait"},
		{"one of four died", on, "s1L s2 s3 s4+", time.Hour, "remove s4"},
		{"two of five died", on, "s1L s2 s3 s4+ s5+", time.Hour, "remove s4"},
		{"three of five died: no majority", on, "s1L s2 s3+ s4+ s5+", time.Hour, "wait"},
		{"a dead server without a vote", on, "s1L s2 s3 s4-+", time.Hour, "remove s4"},
		{"two of five died, one can be replaced: five are to stay", five, "s1L s2 s3 s4+ s5+ s6-", time.Hour, "wait"},
		{"two of five died, both can be replaced", five, "s1L s2 s3 s4+ s5+ s6- s7-", time.Hour, "remove s4"},
		{"dead servers are not removed", Settings{Enabled: true, VotersMin: 3}, "s1L s2 s3 s4+", time.Hour, "wait"},
		{"unhealthy is not dead", on, "s1L s2 s3 s4~", 9 * time.Hour, "wait"},
	} {
		p := New(c.settings)
		p.Observe(0, seen(c.seen))
		p.Observe(c.at, seen(c.seen))
		verb, s := p.Next()
		got := verbs[verb]
		if verb != Wait {
			got += " " + s.ID
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestATimeBeginsAnewWithEachChange: a server that flaps is neither removed nor promoted.
func TestATimeBeginsAnewWithEachChange(t *testing.T) {
	p := New(Settings{Enabled: true, PromoteAfter: 10 * time.Second, RemoveAfter: 20 * time.Second, VotersMin: 3})
	for i := range 100 {
		text := "s1L s2 s3 s4 s5-"
		if i%2 == 1 {
			text = "s1L s2 s3 s4+ s5-~"
		}
		p.Observe(time.Duration(i)*9*time.Second, seen(text))
		if verb, s := p.Next(); verb != Wait {
			t.Fatalf("step %d: %s %s", i, verbs[verb], s.ID)
		}
	}
}
