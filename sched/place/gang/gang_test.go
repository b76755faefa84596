package gang

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestRoom(t *testing.T) {
	for _, c := range []struct {
		name string
		d    Demand
		o    Offer
		want int
	}{
		{"cores", Demand{Cores: 2}, Offer{Cores: 7}, 3},
		{"memory", Demand{Cores: 1, Memory: 4}, Offer{Cores: 7, Memory: 9}, 2},
		{"bandwidth", Demand{Cores: 1, Memory: 4, Bandwidth: 10}, Offer{Cores: 7, Memory: 9, Bandwidth: 10}, 1},
		{"chunks", Demand{Chunk: 2}, Offer{Cores: 0, Chunks: 4}, 4},
		{"no chunks", Demand{Chunk: 2}, Offer{Cores: 9}, 0},
		{"at most", Demand{Cores: 1}, Offer{Cores: 100}, 8},
		{"less than nothing", Demand{Cores: 1}, Offer{Cores: -1}, 0},
	} {
		if got := c.d.Room(c.o, 8); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// fewest is the least number of nodes on which the members fit, by trying all subsets; -1 if
// they do not fit.
func fewest(nodes []Node, members int) (count int) {
	count = -1
	for set := range 1 << len(nodes) {
		room, n := 0, 0
		for i := range nodes {
			if set&(1<<i) != 0 {
				room, n = room+nodes[i].Room, n+1
			}
		}
		if room >= members && (count < 0 || n < count) {
			count = n
		}
	}
	return count
}

// TestPlaceIsExact compares with all subsets: members are placed if and only if they fit, on the
// fewest nodes, and no node gets more than it has room for.
func TestPlaceIsExact(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var nodes []Node
		for i := range rapid.IntRange(0, 9).Draw(r, "nodes") {
			nodes = append(nodes, Node{uint64(i + 1), rapid.IntRange(0, 5).Draw(r, "room")})
		}
		members := rapid.IntRange(1, 20).Draw(r, "members")
		want := fewest(nodes, members)
		shuffled := rapid.Permutation(nodes).Draw(r, "order")
		got := Place(shuffled, members)
		if (got != nil) != (want >= 0) || got != nil && len(got) != want {
			r.Fatalf("%d members on %v: %v, want %d nodes", members, nodes, got, want)
		}
		placed, seen := 0, map[uint64]bool{}
		for _, s := range got {
			if s.Room <= 0 || s.Room > nodes[s.ID-1].Room || seen[s.ID] {
				r.Fatalf("%d members on %v: %v", members, nodes, got)
			}
			placed, seen[s.ID] = placed+s.Room, true
		}
		if got != nil && placed != members {
			r.Fatalf("%d of %d members were placed: %v", placed, members, got)
		}
		if again := Place(slices.Clone(nodes), members); !slices.Equal(again, got) {
			r.Fatalf("the order of the nodes matters: %v and %v", got, again)
		}
	})
}

func TestTheLastNodeIsTheTightest(t *testing.T) {
	got := Place([]Node{{1, 8}, {2, 3}, {3, 2}, {4, 4}}, 10)
	if want := []Node{{1, 8}, {3, 2}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
