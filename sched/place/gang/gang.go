package gang

import (
	"cmp"
	"math"
	"slices"
)

// Demand is what one member asks for. What is 0 does not bound how many fit.
type Demand struct {
	Cores             int
	Memory, Bandwidth uint64
	// Chunk is how many GPUs its chunk has.
	Chunk int
}

// Offer is what a node has for members. Chunks is how many chunks of the size that a member asks
// for it has.
type Offer struct {
	Cores             int
	Memory, Bandwidth uint64
	Chunks            int
}

// Room returns how many members fit into what a node has together, at most so many.
func (d Demand) Room(o Offer, most int) int {
	room := uint64(max(0, most))
	for _, r := range [...]struct{ has, asks uint64 }{
		{uint64(max(0, o.Cores)), uint64(max(0, d.Cores))}, {o.Memory, d.Memory}, {o.Bandwidth, d.Bandwidth},
	} {
		if r.asks > 0 {
			room = min(room, r.has/r.asks)
		}
	}
	if d.Chunk > 0 {
		room = min(room, uint64(max(0, o.Chunks)))
	}
	return int(min(room, math.MaxInt))
}

// Node is a node and how many members it has room for.
type Node struct {
	ID   uint64
	Room int
}

// Place puts members on nodes and returns how many each of the chosen nodes gets, the one with
// the most room first; nil if they do not fit. It chooses the fewest nodes, those with the most room. The last of
// them is the one with the least room that suffices. Of equals the first by ID is chosen.
// The order of the nodes does not matter; it is changed.
func Place(nodes []Node, members int) (shares []Node) {
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Or(cmp.Compare(b.Room, a.Room), cmp.Compare(a.ID, b.ID)) })
	for i, n := range nodes {
		if members <= 0 || n.Room <= 0 {
			break
		}
		if n.Room >= members {
			for _, tighter := range nodes[i:] {
				if tighter.Room >= members && tighter.Room < n.Room {
					n = tighter
				}
			}
		}
		share := min(n.Room, members)
		shares = append(shares, Node{n.ID, share})
		members -= share
	}
	if members > 0 {
		return nil
	}
	return shares
}
