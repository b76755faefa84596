package autopilot

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestAZoneHasOneVoter: what is seen from 0 on, and all that is done when all times are over.
// What is done shows at once.
func TestAZoneHasOneVoter(t *testing.T) {
	on := Settings{Enabled: true, PromoteAfter: 10 * time.Second, RemoveAfter: 24 * time.Hour, VotersMin: 3}
	one := on
	one.VotersMin = 1
	for _, c := range []struct {
		name     string
		settings Settings
		seen     string
		want     []string
	}{
		{"a spare", on, "s1La s2b s3c s4-a", nil},
		{"a further zone", on, "s1La s2b s3c s4-d", []string{"promote s4"}},
		{"a server without a zone", on, "s1La s2b s3c s4-", []string{"promote s4"}},
		{"zones come before further votes", on, "s1La s2-a s3-b s4-c", []string{"promote s3", "promote s4"}},
		{"two zones are too few for three voters", on, "s1La s2-a s3-b s4-b", []string{"promote s3", "promote s2"}},
		{"the voter of a zone is dead", on, "s1La s2b+ s3c s4-a s5-b", []string{"demote s2", "promote s5"}},
		{"it is dead, and the spare is in another zone", on, "s1La s2b+ s3c s4-a", nil},
		{"it is dead, and its spare is unhealthy", on, "s1La s2b+ s3c s4-a s5-b~", nil},
		{"two are dead, and each has a spare", on, "s1La s2b+ s3c+ s4d s5e s6-b s7-c", []string{"demote s2", "demote s3", "promote s6", "promote s7"}},
		{"two are dead, and one has a spare", on, "s1La s2b+ s3c+ s4d s5e s6-b", nil},
		{"most are dead", on, "s1La s2b+ s3c+ s4-b s5-c", nil},
		{"all began as voters", on, "s1La s2a s3b s4b s5c s6c", []string{"demote s2", "demote s4", "demote s6"}},
		{"the leader keeps its vote", on, "s1a s2b s3c s4La", []string{"demote s1"}},
		{"the unhealthy one goes first", on, "s1La s2b~ s3c s4b", []string{"demote s2"}},
		{"no vote is taken while another voter is unhealthy", on, "s1La s2a s3b~ s4c", nil},
		{"as many voters as are to be", on, "s1La s2a s3b", nil},
		{"a single voter may be left", one, "s1La s2a s3b", []string{"demote s2"}},
		{"there is one zone only", on, "s1La s2a s3a s4a s5a", nil},
	} {
		p, servers := New(c.settings), seen(c.seen)
		p.Observe(0, servers)
		p.Observe(time.Hour, servers)
		var got []string
		for verb, s := p.Next(); verb != Wait && len(got) < 9; verb, s = p.Next() {
			got = append(got, verbs[verb]+" "+s.ID)
			i := slices.IndexFunc(servers, func(o Server) bool { return o.ID == s.ID })
			servers[i].Voter = verb == Promote
			p.Observe(time.Hour, servers)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestWhatASpareIsTold is what an operator reads.
func TestWhatASpareIsTold(t *testing.T) {
	p := New(Settings{Enabled: true, PromoteAfter: 10 * time.Second, RemoveAfter: time.Hour, VotersMin: 1})
	text := "s1La s2-a s3b+ s4-b s5c s6c"
	p.Observe(0, seen(text))
	p.Observe(4*time.Second, seen(text))
	want := []string{
		"", "is a spare: zone a has the voter s1", "is removed in 59m56s if it stays dead",
		"is a spare: zone b has the voter s3", "", "becomes a spare of zone c when all other voters have been healthy for 10s",
	}
	for i, s := range p.Servers() {
		if got := p.Plan(s); got != want[i] {
			t.Errorf("%s: %q, want %q", s.ID, got, want[i])
		}
	}
}

// TestChangesKeepTheMajority carries every change out on random clusters. None costs the
// majority, fewer voters than allowed are never left, and the changes come to an end.
func TestChangesKeepTheMajority(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := Settings{
			Enabled: true, PromoteAfter: time.Second, RemoveAfter: time.Minute,
			VotersMin: rapid.IntRange(1, 5).Draw(t, "least"),
		}
		p := New(set)
		zones := []string{"", "a", "b", "c"}
		servers := []Server{{ID: "leader", Voter: true, Leader: true, Zone: rapid.SampledFrom(zones).Draw(t, "zone")}}
		for i := range rapid.IntRange(0, 7).Draw(t, "others") {
			s := Server{ID: fmt.Sprint("s", i), Voter: rapid.Bool().Draw(t, "voter"), Dead: rapid.Bool().Draw(t, "dead"), Zone: rapid.SampledFrom(zones).Draw(t, "zone")}
			if !s.Dead && rapid.Bool().Draw(t, "unhealthy") {
				s.Reason = "behind"
			}
			servers = append(servers, s)
		}
		before, living := count(servers)
		majority := 2*living > before
		p.Observe(0, servers)
		p.Observe(time.Hour, servers)
		for steps := 0; ; steps++ {
			verb, chosen := p.Next()
			if verb == Wait {
				break
			}
			if steps > 2*len(servers)+8 {
				t.Fatal("the changes do not end")
			}
			voters, _ := count(servers)
			var next []Server
			for _, s := range servers {
				switch {
				case s.ID != chosen.ID:
				case verb == Promote && (s.Voter || !s.Healthy()):
					t.Fatalf("a vote for %+v", s)
				case verb == Promote && crowds(servers, s):
					t.Fatalf("a further vote in the zone of %+v, another zone has none: %+v", s, servers)
				case verb == Promote:
					s.Voter = true
				case verb == Demote && (!s.Voter || s.Leader):
					t.Fatalf("%+v is demoted", s)
				case verb == Demote && !s.Dead && (votes(servers, s) < 2 || voters <= set.VotersMin):
					t.Fatalf("%+v loses its vote: %+v", s, servers)
				case verb == Demote:
					s.Voter = false
				case !s.Dead || s.Leader:
					t.Fatalf("%+v is removed", s)
				default:
					continue
				}
				next = append(next, s)
			}
			servers = next
			if voters, alive := count(servers); 2*alive <= voters && (majority || chosen.Voter || verb == Promote) {
				t.Fatalf("%s %s leaves %d of %d voters", verbs[verb], chosen.ID, alive, voters)
			}
			p.Observe(time.Hour, servers)
		}
		after(t, set, servers, before)
	})
}

// after checks what there is when nothing is left to do.
func after(t *rapid.T, set Settings, servers []Server, before int) {
	voters, alive := count(servers)
	if voters < min(before, set.VotersMin) {
		t.Fatalf("%d voters are left of %d, %d are to be", voters, before, set.VotersMin)
	}
	sound := !slices.ContainsFunc(servers, func(s Server) bool { return s.Voter && !s.Healthy() })
	for _, s := range servers {
		switch elsewhere := voters > votes(servers, s); {
		case alive == voters && s.Healthy() && votes(servers, s) == 0:
			t.Fatalf("the zone of %+v has no voter: %+v", s, servers)
		case sound && voters > set.VotersMin && votes(servers, s) > 1 && elsewhere:
			t.Fatalf("the zone of %+v has %d of %d voters: %+v", s, votes(servers, s), voters, servers)
		}
	}
}

func count(servers []Server) (voters, alive int) {
	for _, s := range servers {
		if s.Voter {
			voters++
		}
		if s.Voter && !s.Dead {
			alive++
		}
	}
	return voters, alive
}

// votes counts the voters in the zone of a server.
func votes(servers []Server, of Server) (n int) {
	for _, s := range servers {
		if s.Voter && (s.ID == of.ID || of.Zone != "" && s.Zone == of.Zone) {
			n++
		}
	}
	return n
}

// crowds reports whether a vote for a server were a further one in its zone, while a zone
// with a healthy server has none.
func crowds(servers []Server, s Server) bool {
	return votes(servers, s) > 0 && slices.ContainsFunc(servers, func(o Server) bool { return o.Healthy() && votes(servers, o) == 0 })
}
