package model

import (
	"fmt"
	"slices"

	"rota/fsm/state"
)

// What is learned of how much trajectories generate. The model keeps what happened, and works out
// from it what must have been predicted when a stage began. It shares nothing with package
// sched/predict.

const (
	lengthClassesMax  = 512
	lengthExamplesMax = 256
	lengthFew         = 8
	lengthMany        = 16
	lengthTokensMax   = 1 << 40
	lengthUnknown     = 2048
	lengthMemory      = 4096
	lengthErrorMemory = 1024
)

type (
	lengthName  struct{ policy, class string }
	lengthClass struct {
		lengthName
		learnedAt    int64
		trajectories uint64
		stages       [9]lengthStage
		// output is what its trajectories generated, results what their tools said.
		output, results uint64
	}
	lengthStage struct {
		examples []lengthExample // by their place
		seen     uint64
		errors   [3]lengthMean // of what was predicted, and of its two parts
		siblings lengthMean
		slopes   [8]int64
	}
	lengthExample struct{ features, after []int }
	lengthMean    struct{ mean, seen int64 }

	// lengthTrace is what happened to a trajectory.
	lengthTrace struct {
		prompt  uint64
		turns   uint32
		output  uint64
		last    uint64
		context uint64
		result  uint64
		results uint64 // of all turns
		toolNS  int64
		stopped bool
		failed  bool
		marks   []lengthMark
	}
	lengthMark struct {
		stage    int
		features []int
		turns    uint32
		output   uint64
		// guess is where it is predicted to end: all in all, by near examples and by the plane.
		guess [3]int
		// said is how many siblings had finished, and sibling where they say that it ends.
		said    uint32
		sibling int
	}
	// lengthReport is what was reported of it.
	lengthReport struct {
		turns           uint32
		output, context uint64
		toolNS          int64
		finish          string
		failed          bool
	}
)

// lengths are the classes.
type lengths struct {
	all     map[lengthName]*lengthClass
	touched []lengthName
}

// quarters are the least numbers of each quarter of an octave; below 8 each number is one.
var quarters = func() (least []uint64) {
	for n, step := uint64(0), uint64(1); n < 1<<62; n += step {
		least = append(least, n)
		if len(least) > 8 && len(least)%4 == 1 {
			step *= 2
		}
	}
	return least
}()

// quarter returns in which quarter a number is.
func quarter(n uint64) int {
	i := len(quarters) - 1
	for quarters[i] > n {
		i--
	}
	return i
}

// lengthPosition is where a number is, in 1/256 of quarters.
func lengthPosition(n uint64) int {
	i := quarter(n)
	width := quarters[i+1] - quarters[i]
	return 256*i + int((256*(n-quarters[i])+128)/width)
}

// stage of so many turns: 0, 1, 2 to 3, 4 to 7, ... 128 and more.
func lengthStageOf(turns uint32) int {
	stage := 0
	for least := uint64(1); stage < 8 && uint64(turns) >= least; least *= 2 {
		stage++
	}
	return stage
}

func (l *lengths) class(name lengthName) *lengthClass {
	if c := l.all[name]; c != nil {
		return c
	}
	return &lengthClass{lengthName: name}
}

// begin is when a trajectory is opened; mean is what so many of its siblings have generated.
func (l *lengths) begin(name lengthName, prompt uint64, said uint32, mean uint64) *lengthTrace {
	t := &lengthTrace{prompt: min(prompt, lengthTokensMax)}
	t.mark(l.class(name), said, mean)
	return t
}

// follow is when turns were reported, or tokens of one that goes on.
func (l *lengths) follow(name lengthName, t *lengthTrace, r lengthReport, said uint32, mean uint64) {
	if r.turns == 0 {
		t.output = min(t.output+min(r.output, lengthTokensMax), lengthTokensMax)
		return
	}
	n := uint64(r.turns)
	output, context := min(r.output, lengthTokensMax), min(r.context, lengthTokensMax)
	last := output / n
	before := min(t.context+min(t.last+output-last, lengthTokensMax), lengthTokensMax)
	t.result = 0
	if t.turns > 0 && context > before {
		t.result = (context - t.context - (t.last + output - last)) / n
	}
	if known := min(max(t.context, t.prompt)+min(t.last+output-last, lengthTokensMax), lengthTokensMax); context > known {
		t.results = min(t.results+context-known, lengthTokensMax)
	}
	t.turns = uint32(min(uint64(t.turns)+n, 1<<32-1))
	t.output = min(t.output+output, lengthTokensMax)
	t.last, t.context = last, context
	t.toolNS = max(0, r.toolNS) / int64(n)
	t.stopped, t.failed = r.finish == "stop", r.failed
	t.mark(l.class(name), said, mean)
}

func (t *lengthTrace) mark(c *lengthClass, said uint32, mean uint64) {
	stage := lengthStageOf(t.turns)
	if n := len(t.marks); n > 0 && t.marks[n-1].stage == stage {
		return
	}
	m := lengthMark{stage: stage, features: t.features(), turns: t.turns, output: t.output, said: said}
	m.guess = c.guess(t.turns, m.features)
	if said > 0 {
		mean = min(mean, lengthTokensMax)
		left := mean / 4
		if mean > t.output {
			left = max(left, mean-t.output)
		}
		m.sibling = lengthPosition(left)
	}
	t.marks = append(t.marks, m)
}

func (t *lengthTrace) features() []int {
	f := make([]int, 8)
	f[0] = quarter(t.prompt)
	if t.turns == 0 {
		return f
	}
	grown := uint64(0)
	if t.context > t.prompt {
		grown = t.context - t.prompt
	}
	for i, n := range []uint64{t.output / uint64(t.turns), t.last, grown, uint64(t.toolNS / 1_000_000), t.result} {
		f[i+1] = quarter(n)
	}
	if t.stopped {
		f[6] = 8
	}
	if t.failed {
		f[7] = 8
	}
	return f
}

// guess is where a trajectory is predicted to end.
func (c *lengthClass) guess(turns uint32, features []int) (g [3]int) {
	stage := lengthStageOf(turns)
	if c.stages[0].seen == 0 {
		p := lengthPosition(lengthUnknown)
		return [3]int{p, p, p}
	}
	from := stage
	for from > 0 && len(c.stages[from].examples) < lengthFew {
		from--
	}
	g = c.stages[from].guess(features)
	if stage < 2 || stage == 8 || len(c.stages[stage+1].examples) < lengthFew {
		return g
	}
	begin := 1 << (stage - 1) // and the next stage begins with twice as many
	for i, next := range c.stages[stage+1].guess(features) {
		g[i] += (next - g[i]) * (int(turns) - begin) / begin
	}
	return g
}

func (g *lengthStage) guess(features []int) [3]int {
	var sum, weight uint64
	for _, x := range g.examples {
		d := 2
		for i, f := range features {
			d += max(f, x.features[i]) - min(f, x.features[i])
		}
		w := uint64(1<<32) / uint64(d*d)
		weight += w
		sum += w * uint64(x.after[0])
	}
	near := int(256*sum/weight) + 128
	if len(g.examples) < lengthMany {
		return [3]int{near, near, near}
	}
	plane := g.plane(features)
	most := max(1, g.errors[1].mean, g.errors[2].mean)
	fourth := func(e int64) int64 {
		r := e * 65_536 / most
		r = r * r / 65_536
		return max(1, r*r/65_536)
	}
	n, p := fourth(g.errors[1].mean), fourth(g.errors[2].mean)
	return [3]int{max(0, int((int64(near)*p+int64(plane)*n)/(n+p))), near, plane}
}

// column is a feature, or after the eighth the tokens.
func (x *lengthExample) column(i int) int {
	if i < len(x.features) {
		return x.features[i]
	}
	return x.after[0]
}

// moments are the mean feature or, after the eighth, tokens, times the number of examples, and
// the covariance with another one, times its square.
func (g *lengthStage) moments(i, j int) (sum, covariance int64) {
	var other, product int64
	for k := range g.examples {
		x := &g.examples[k]
		a, b := int64(x.column(i)), int64(x.column(j))
		sum += a
		other += b
		product += a * b
	}
	return sum, int64(len(g.examples))*product - sum*other
}

// plane is where the plane by least squares is.
func (g *lengthStage) plane(features []int) int {
	n := int64(len(g.examples))
	rise := int64(0)
	for i, f := range features {
		sum, _ := g.moments(i, i)
		rise += g.slopes[i] * (n*int64(f) - sum)
	}
	tokens, _ := g.moments(8, 8)
	return int(min(max(tokens*256/n+128+rise/(n*256), 0), int64(lengthPosition(lengthTokensMax))))
}

// tilt adjusts the slopes when an example has come: four times, each to what is best while the
// others stay.
func (g *lengthStage) tilt() {
	var c [8][9]int64
	for i := range c {
		for j := range c[i] {
			_, c[i][j] = g.moments(i, j)
		}
	}
	for range 4 {
		for i := range c {
			rest := c[i][8] << 16
			for j, slope := range g.slopes {
				if i != j {
					rest -= c[i][j] * slope
				}
			}
			g.slopes[i] = min(max(rest/(c[i][i]+80*int64(len(g.examples))), -1<<20), 1<<20)
		}
	}
}

// keep draws whether an example is kept, and where if there is no free place.
func (g *lengthStage) keep(x lengthExample) bool {
	n := g.seen
	g.seen++
	if len(g.examples) < lengthExamplesMax {
		g.examples = append(g.examples, x)
		return true
	}
	h := n + 11400714819323198485 // 2^64 by the golden ratio
	for _, step := range [...]struct {
		shift  int
		factor uint64
	}{{30, 13787848793156543929}, {27, 10723151780598845931}} {
		h ^= h >> step.shift
		h *= step.factor
	}
	h ^= h >> 31
	at := h % min(g.seen, lengthMemory)
	if at < lengthExamplesMax {
		g.examples[at] = x
	}
	return at < lengthExamplesMax
}

// learn is when a trajectory has ended, by itself or not.
func (l *lengths) learn(name lengthName, t *lengthTrace, cut bool, now int64) {
	c, taught := l.class(name), false
	for _, m := range t.marks {
		was := lengthPosition(t.output - m.output)
		if m.turns == t.turns || cut && was <= m.guess[0] {
			continue
		}
		taught = true
		g := &c.stages[m.stage]
		kept := g.keep(lengthExample{m.features, []int{quarter(t.output - m.output), quarter(uint64(t.turns - m.turns))}})
		for i, guess := range m.guess {
			g.errors[i].add(int64(was-guess) * int64(was-guess))
		}
		if kept {
			g.tilt()
		}
		if n := int64(m.said); n > 0 {
			g.siblings.add(int64(was-m.sibling) * int64(was-m.sibling) * n / (n + 1))
		}
	}
	if !taught {
		return
	}
	if l.all[name] == nil && len(l.all) == lengthClassesMax {
		l.forget()
	}
	if l.all == nil {
		l.all = make(map[lengthName]*lengthClass)
	}
	l.all[name] = c
	c.learnedAt, c.trajectories = now, c.trajectories+1
	c.output, c.results = min(c.output+t.output, lengthTokensMax), min(c.results+t.results, lengthTokensMax)
	for ; c.output >= 1<<24; c.output /= 2 {
		c.results /= 2
	}
	l.touched = append(l.touched, name)
}

// forget drops the class that learned longest ago; of several, the one whose names come first.
func (l *lengths) forget() {
	var stalest *lengthClass
	for _, c := range l.all {
		if stalest == nil || c.learnedAt < stalest.learnedAt || c.learnedAt == stalest.learnedAt && c.before(stalest) {
			stalest = c
		}
	}
	delete(l.all, stalest.lengthName)
	l.touched = append(l.touched, stalest.lengthName)
}

// before: short names of policies come first.
func (n lengthName) before(o *lengthClass) bool {
	if len(n.policy) != len(o.policy) {
		return len(n.policy) < len(o.policy)
	}
	return n.policy+n.class < o.policy+o.class
}

func (m *lengthMean) add(value int64) {
	m.seen++
	m.mean += (value - m.mean) / min(m.seen, lengthErrorMemory)
}

// touchAll has all classes compared.
func (l *lengths) touchAll() {
	for name := range l.all {
		l.touched = append(l.touched, name)
	}
}

// compare: the classes that learned something are what the model has, and there are as many.
func (l *lengths) compare(s *state.State) error {
	if got := s.LengthClassCount(); got != len(l.all) {
		return fmt.Errorf("there are %d classes of lengths, must be %d", got, len(l.all))
	}
	for _, name := range l.touched {
		want, got := l.all[name], s.LengthClass(name.policy, name.class)
		if (want == nil) != (got == nil) {
			return fmt.Errorf("class of lengths %q is there: %v, must be: %v", name, got != nil, want != nil)
		}
		if want == nil {
			continue
		}
		if err := want.compare(got); err != nil {
			return fmt.Errorf("class of lengths %q: %w", name, err)
		}
	}
	l.touched = l.touched[:0]
	return nil
}

func (c *lengthClass) compare(got *state.LengthClass) error {
	stages := len(c.stages)
	for stages > 0 && c.stages[stages-1].seen == 0 {
		stages--
	}
	if got.LearnedAt != c.learnedAt || got.Trajectories != c.trajectories || len(got.Stages) != stages {
		return fmt.Errorf("it learned %d trajectories in %d stages until %d, must be %d in %d until %d",
			got.Trajectories, len(got.Stages), got.LearnedAt, c.trajectories, stages, c.learnedAt)
	}
	if got.OutputTokens != c.output || got.ResultTokens != c.results {
		return fmt.Errorf("it generated %d tokens and was told %d, must be %d and %d", got.OutputTokens, got.ResultTokens, c.output, c.results)
	}
	for i := range got.Stages {
		g, w := &got.Stages[i], &c.stages[i]
		numbers := []uint64{uint64(len(g.Examples)), g.Seen, g.Error, g.NearError, g.PlaneError, g.SiblingsSeen, g.SiblingError}
		must := []uint64{10 * uint64(len(w.examples)), w.seen, uint64(w.errors[0].mean), uint64(w.errors[1].mean), uint64(w.errors[2].mean), uint64(w.siblings.seen), uint64(w.siblings.mean)}
		if !slices.Equal(numbers, must) || g.Plane.Slopes != w.slopes {
			return fmt.Errorf("stage %d has bytes, examples seen, three errors, siblings seen and their error %d and slopes %d, must be %d and %d", i, numbers, g.Plane.Slopes, must, w.slopes)
		}
		for j, x := range w.examples {
			if row := g.Examples[10*j : 10*j+10]; !slices.EqualFunc(row, slices.Concat(x.features, x.after), func(a byte, b int) bool { return int(a) == b }) {
				return fmt.Errorf("stage %d has example %d, must be %d", i, row, x)
			}
		}
	}
	return nil
}

// row is what the state must keep of a trajectory.
func (t *lengthTrace) row() state.LengthTrace {
	must := state.LengthTrace{PromptTokens: t.prompt, Turns: t.turns, OutputTokens: t.output, LastOutputTokens: t.last, ContextTokens: t.context,
		ToolResultTokens: t.result, ResultTokens: t.results, ToolNS: t.toolNS, Stopped: t.stopped, Failed: t.failed}
	for _, m := range t.marks {
		x := state.LengthMark{Stage: uint8(m.stage), Turns: m.turns, OutputTokens: m.output, Guess: uint32(m.guess[0]), Near: uint32(m.guess[1]), Plane: uint32(m.guess[2]), Siblings: m.said, SiblingGuess: uint32(m.sibling)}
		for i, f := range m.features {
			x.Features[i] = uint8(f)
		}
		must.Marks = append(must.Marks, x)
	}
	return must
}
