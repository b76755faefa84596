package state

import (
	"fmt"
	"math/bits"
)

const (
	// LengthClassesMax bounds the classes of lengths. A further one takes the place of the one
	// that has learned nothing for longest.
	LengthClassesMax = 512
	// LengthExamplesMax bounds the examples of a stage. A further one takes the place of another
	// one, or none, so that they are a sample of all that came and follow a policy that changes.
	LengthExamplesMax = 256
	// LengthStages is how many stages a trajectory can go through; see LengthStageOf.
	LengthStages = 9
	// LengthFeatures is how many features an example has.
	LengthFeatures = 8
	// LengthTokensMax bounds the tokens that are learned from.
	LengthTokensMax = 1 << 40
	// LengthExampleBytes is the size of an example: its features, and the buckets of the tokens
	// and of the turns that were generated after it.
	LengthExampleBytes = LengthFeatures + 2
	// LengthSumMax is at how many tokens the sums of a class are halved: they follow a policy that
	// changes.
	LengthSumMax = 1 << 24
	// lengthNameBytesMax bounds each of the two names of a class.
	lengthNameBytesMax = 128
	// lengthPositionMax is beyond every position; see LengthMark.
	lengthPositionMax = 1 << 16
)

// LengthClass is what was learned of how much the trajectories of one policy and one task class
// generate. Package sched/predict learns and predicts.
type LengthClass struct {
	Policy, Name string
	// LearnedAt is the log time of the trajectory that was learned last, in nanoseconds.
	LearnedAt int64
	// Trajectories counts those that were learned.
	Trajectories uint64
	// Stages are those from the first on; at most LengthStages.
	Stages []LengthStage
	// OutputTokens is what its trajectories generated, ResultTokens what their prompts had beyond
	// the first prompt and what was generated. Both are halved at LengthSumMax.
	OutputTokens, ResultTokens uint64
}

// LengthStage is what was learned of trajectories that had as many turns.
type LengthStage struct {
	// Seen counts examples, also those that are not kept.
	Seen uint64
	// Examples have LengthExampleBytes each, one behind the other.
	Examples []byte
	// Error is the mean squared error of what was predicted, NearError and PlaneError those of its
	// two parts, and SiblingError that of what siblings had generated, as if there were infinitely
	// many of them; of SiblingsSeen examples. In squares of 1/256 bucket.
	Error, NearError, PlaneError uint64
	SiblingsSeen                 uint64
	SiblingError                 uint64
	Plane                        LengthPlane
}

// LengthPlane is the plane by least squares through the examples of a stage.
type LengthPlane struct {
	// Sums over the examples: of features, of tokens, and of their products. XX has those of
	// features i and j, j up to i, at i(i+1)/2+j.
	X  [LengthFeatures]uint64
	Y  uint64
	XX [LengthFeatures * (LengthFeatures + 1) / 2]uint64
	XY [LengthFeatures]uint64
	// Slopes are in 1/65,536 buckets for each bucket of a feature.
	Slopes [LengthFeatures]int64
}

// LengthTrace is what is kept of a trajectory that generates, to predict how much it generates
// yet, and to learn from it at its end.
type LengthTrace struct {
	PromptTokens uint64
	// Turns that have ended, and all tokens that they generated.
	Turns        uint32
	OutputTokens uint64
	// LastOutputTokens is what the last turn generated, ContextTokens what its prompt had, and
	// ToolResultTokens what that had beyond the turn before.
	LastOutputTokens, ContextTokens, ToolResultTokens uint64
	// ResultTokens is what all prompts had beyond the first one and what was generated.
	ResultTokens uint64
	// ToolNS is the time between the last turn and the one before, in nanoseconds.
	ToolNS int64
	// Stopped: the last turn did not end with a tool call.
	Stopped bool
	// Failed: the last tool call failed.
	Failed bool
	// Marks are made when a stage begins, ascending by stage.
	Marks []LengthMark
}

// LengthMark is a trajectory when it came to a stage, and what was predicted then. Positions are
// in 1/256 of buckets of LifetimeBucket.
type LengthMark struct {
	Stage    uint8
	Features [LengthFeatures]uint8
	// Turns and OutputTokens are those until then.
	Turns        uint32
	OutputTokens uint64
	// Guess is the position of the tokens that examples predicted, of which Near and Plane are the
	// parts.
	Guess, Near, Plane uint32
	// Siblings is how many had finished, SiblingGuess the position of the tokens that they
	// predicted.
	Siblings, SiblingGuess uint32
}

// LengthStageOf returns the stage of a trajectory with so many turns: they begin with 0, 1, 2, 4
// and so on to 128 turns.
func LengthStageOf(turns uint32) int { return min(bits.Len32(turns), LengthStages-1) }

// LengthStageTurns returns with how many turns a stage begins.
func LengthStageTurns(stage int) uint32 {
	if stage == 0 {
		return 0
	}
	return 1 << (stage - 1)
}

func (r *LengthClass) code(c *codec) {
	c.text(&r.Policy)
	c.text(&r.Name)
	signed(c, &r.LearnedAt)
	number(c, &r.Trajectories)
	list(c, &r.Stages, func(c *codec, g *LengthStage) {
		number(c, &g.Seen)
		c.bytes(&g.Examples)
		number(c, &g.Error)
		number(c, &g.NearError)
		number(c, &g.PlaneError)
		number(c, &g.SiblingsSeen)
		number(c, &g.SiblingError)
		g.Plane.code(c)
	})
	number(c, &r.OutputTokens)
	number(c, &r.ResultTokens)
}

func (p *LengthPlane) code(c *codec) {
	for _, sums := range [][]uint64{p.X[:], p.XX[:], p.XY[:]} {
		for i := range sums {
			number(c, &sums[i])
		}
	}
	number(c, &p.Y)
	for i := range p.Slopes {
		signed(c, &p.Slopes[i])
	}
}

func (t *LengthTrace) code(c *codec) {
	number(c, &t.PromptTokens)
	number(c, &t.Turns)
	number(c, &t.OutputTokens)
	number(c, &t.LastOutputTokens)
	number(c, &t.ContextTokens)
	number(c, &t.ToolResultTokens)
	signed(c, &t.ToolNS)
	c.flag(&t.Stopped)
	c.flag(&t.Failed)
	list(c, &t.Marks, func(c *codec, m *LengthMark) {
		number(c, &m.Stage)
		for i := range m.Features {
			number(c, &m.Features[i])
		}
		number(c, &m.Turns)
		number(c, &m.OutputTokens)
		number(c, &m.Guess)
		number(c, &m.Near)
		number(c, &m.Plane)
		number(c, &m.Siblings)
		number(c, &m.SiblingGuess)
	})
	number(c, &t.ResultTokens)
}

// Check reports what in a trace cannot be.
func (t *LengthTrace) Check() error {
	if t.OutputTokens > LengthTokensMax || t.PromptTokens > LengthTokensMax || t.ContextTokens > LengthTokensMax || t.ResultTokens > LengthTokensMax || t.ToolNS < 0 || len(t.Marks) > LengthStages {
		return fmt.Errorf("a trace has numbers that cannot be: %+v", *t)
	}
	last := -1
	for _, m := range t.Marks {
		if int(m.Stage) <= last || LengthStageOf(m.Turns) != int(m.Stage) || m.Turns > t.Turns || m.OutputTokens > t.OutputTokens || max(m.Guess, m.Near, m.Plane, m.SiblingGuess) >= lengthPositionMax {
			return fmt.Errorf("a trace of %d turns and %d tokens has a mark that cannot be: %+v", t.Turns, t.OutputTokens, m)
		}
		last = int(m.Stage)
	}
	return nil
}

// lengthKey finds a class by its names. The length of the first name comes before it, so that
// no two pairs of names have the same key.
func lengthKey(policy, name string) string {
	return string([]byte{byte(len(policy))}) + policy + name
}

// learned orders classes of lengths by when they learned last.
type learned struct {
	at  int64
	key string
}

func (a learned) less(b learned) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	return a.key < b.key
}

// LengthClass returns a class by its names, nil if there is none.
func (s *State) LengthClass(policy, name string) *LengthClass {
	return db(s).lengths.get(lengthKey(policy, name))
}

// LengthClasses visits all classes of lengths.
func (s *State) LengthClasses(fn func(*LengthClass) bool) { db(s).lengths.scan("", fn) }

// LengthClassesOf returns the names of the classes of lengths of a policy.
func (s *State) LengthClassesOf(policy string) (names []string) {
	s.LengthClasses(func(r *LengthClass) bool {
		if r.Policy == policy {
			names = append(names, r.Name)
		}
		return true
	})
	return names
}

// LengthClassCount returns how many classes of lengths there are.
func (s *State) LengthClassCount() int { return db(s).lengths.rows.Len() }

// PutLengthClass stores a class of lengths.
func (s *State) PutLengthClass(r *LengthClass) {
	key := lengthKey(r.Policy, r.Name)
	if old := db(s).lengths.put(db(s).enc, key, r); old != nil {
		db(s).index.lengthsLearned.Delete(learned{old.LearnedAt, key})
	}
	db(s).index.lengthsLearned.Set(learned{r.LearnedAt, key})
}

// DeleteLengthClass forgets a class of lengths.
func (s *State) DeleteLengthClass(policy, name string) {
	key := lengthKey(policy, name)
	if old := db(s).lengths.delete(key); old != nil {
		db(s).index.lengthsLearned.Delete(learned{old.LearnedAt, key})
	}
}

// StalestLengthClass returns the class of lengths that has learned nothing for longest, nil if
// there is none.
func (s *State) StalestLengthClass() *LengthClass {
	l, _ := db(s).index.lengthsLearned.Min()
	return db(s).lengths.get(l.key)
}

// checkLengths: there are not too many classes, and what each remembers is whole and bounded.
func (s *State) checkLengths() (err error) {
	s.LengthClasses(func(r *LengthClass) bool {
		switch {
		case len(r.Policy) == 0 || max(len(r.Policy), len(r.Name)) > lengthNameBytesMax || len(r.Stages) > LengthStages:
			err = fmt.Errorf("class of lengths %q of policy %q has %d stages", r.Name, r.Policy, len(r.Stages))
		case r.OutputTokens >= LengthSumMax || r.ResultTokens > LengthTokensMax:
			err = fmt.Errorf("class of lengths %q of policy %q generated %d tokens, with %d of results", r.Name, r.Policy, r.OutputTokens, r.ResultTokens)
		case r.LearnedAt > s.meta.Now || r.LearnedAt < 0 || r.Trajectories == 0:
			err = fmt.Errorf("class of lengths %q of policy %q learned %d trajectories, the last at %d ns", r.Name, r.Policy, r.Trajectories, r.LearnedAt)
		}
		for i := range r.Stages {
			if g := &r.Stages[i]; err == nil && !g.sound(r.Trajectories) {
				err = fmt.Errorf("stage %d of class of lengths %q of policy %q has %d bytes of examples after %d, with siblings %d, in %d trajectories",
					i, r.Name, r.Policy, len(g.Examples), g.Seen, g.SiblingsSeen, r.Trajectories)
			}
		}
		return err == nil
	})
	if n := s.LengthClassCount(); err == nil && n > LengthClassesMax {
		err = fmt.Errorf("there are %d classes of lengths", n)
	}
	return err
}

// sound: all examples are there until there is no place for more, and no trajectory gave two.
func (g *LengthStage) sound(trajectories uint64) bool {
	const errorMax = lengthPositionMax * lengthPositionMax
	return len(g.Examples) == int(min(g.Seen, LengthExamplesMax))*LengthExampleBytes && g.Seen <= trajectories && g.SiblingsSeen <= g.Seen &&
		max(g.Error, g.NearError, g.PlaneError, g.SiblingError) <= errorMax && (g.Seen > 0 || g.Error == 0) && (g.SiblingsSeen > 0 || g.SiblingError == 0) && g.summed()
}

// summed: the sums of the plane are those of the examples.
func (g *LengthStage) summed() bool {
	var x [LengthFeatures]uint64
	var y uint64
	for b := g.Examples; len(b) > 0; b = b[LengthExampleBytes:] {
		for i := range x {
			x[i] += uint64(b[i])
		}
		y += uint64(b[LengthFeatures])
	}
	return x == g.Plane.X && y == g.Plane.Y
}
