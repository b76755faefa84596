package chunk

import "math/bits"

// Level is the size of a chunk as a power of two: a chunk of level a has 2^a
// GPUs.
type Level uint8

const (
	// Levels is how many levels there are: chunks have 1, 2, 4 or 8 GPUs
	// (ARL-Tangram §5.3).
	Levels = 4
	// UnitsMax is the size of the largest chunk in GPUs.
	UnitsMax = 1 << (Levels - 1)
	// GPUsMax is how many GPUs a node can have.
	GPUsMax = 64
)

// LevelFor returns the smallest level whose chunks have room for that many GPUs:
// a, with 2^(a-1) < units <= 2^a (§5.3). False if there is none.
func LevelFor(units int) (Level, bool) {
	if units < 1 || units > UnitsMax {
		return 0, false
	}
	return Level(bits.Len(uint(units - 1))), true
}

// Units returns how many GPUs a chunk of the level has.
func (l Level) Units() int { return 1 << l }

// Chunk is an aligned run of GPUs of one node, [Start, Start+2^Level), where
// 2^Level divides Start: the only sets of GPUs that are ever allocated (§5.3).
type Chunk struct {
	Start uint8
	Level Level
}

// Valid reports whether the chunk is aligned and lies within a node of that many
// GPUs.
func (c Chunk) Valid(gpus int) bool {
	return c.Level < Levels && int(c.Start)%c.Level.Units() == 0 && c.End() <= min(gpus, GPUsMax)
}

// Units returns how many GPUs the chunk has.
func (c Chunk) Units() int { return c.Level.Units() }

// End is the first GPU after the chunk.
func (c Chunk) End() int { return int(c.Start) + c.Units() }

// GPUs returns the chunk as a set.
func (c Chunk) GPUs() Set { return (1<<c.Units() - 1) << c.Start }

// parent returns the chunk of a higher level that the chunk is part of.
func (c Chunk) parent(l Level) Chunk {
	return Chunk{Start: c.Start &^ uint8(l.Units()-1), Level: l}
}

// compare orders chunks by start, then by level.
func (c Chunk) compare(d Chunk) int {
	if c.Start != d.Start {
		return int(c.Start) - int(d.Start)
	}
	return int(c.Level) - int(d.Level)
}
