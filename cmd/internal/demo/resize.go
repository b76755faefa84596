package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/bench"
	"rota/cmd/internal/devcluster"
)

// Resizing is how many cores a suite had while it ran: alone, beside another, which is
// the second of Shared, and alone again.
type Resizing struct {
	Alone  int   `json:"cores_alone"`
	Shared []int `json:"cores_shared"`
	After  int   `json:"cores_after"`
	// Changes are what the cores did, one after the other: a letter for each core that
	// a suite has, and a dot for each that is free.
	Changes []string `json:"changes"`
	// Noticed is how often the first suite itself saw that its cores had changed.
	Noticed int64 `json:"changes_noticed"`
}

const (
	// resizePatience is how long a change of cores may take, or the end of a suite beside other work.
	resizePatience = 2 * time.Minute
	// lookInterval is how often the cores are looked at.
	lookInterval = 20 * time.Millisecond
	// How long the first suite would take on all cores, and another.
	longSuite, shortSuite = 4 * time.Second, 400 * time.Millisecond
	// between two arrivals.
	betweenSuites = time.Second
)

// resize shows live how a suite makes room for others that come, and gets its cores back.
func (d *demo) resize(ctx context.Context) error {
	node, err := d.api.Nodes.GetNode(ctx, &rotav1.GetNodeRequest{Name: d.cluster.Agents[0].Name})
	switch {
	case err != nil:
		return err
	case d.cores < 2:
		return nil
	case !node.Node.Resizes:
		d.progress.say("the cores of a running action cannot be changed here: %s", node.Node.Runtime)
		return nil
	}
	d.progress.begin("running suites grow and shrink: a letter for each core", 0, nil)
	l := &live{demo: d, cpus: node.Node.FreeCpus}
	if l.binary, err = devcluster.Binary(d.options.Binary); err != nil {
		return err
	}
	if l.unit, err = bench.UnitTime(ctx, l.binary); err != nil {
		return err
	}
	d.resizing, err = l.show(ctx)
	return err
}

// live watches suites that run, and shows each change of their cores.
type live struct {
	*demo
	binary  string   // of suites
	cpus    []uint32 // of the node
	unit    time.Duration
	suites  []*liveSuite
	changes []string
}

type liveSuite struct {
	letter string
	action *rotav1.Action
}

func (s *liveSuite) cores() int  { return len(s.action.Cpus) }
func (s *liveSuite) ended() bool { return client.Final(s.action.State) }

// show has a long suite, and short ones that arrive while it runs.
func (l *live) show(ctx context.Context) (*Resizing, error) {
	r := &Resizing{}
	a, err := l.arrive(ctx, "A", longSuite)
	if err != nil {
		return nil, err
	}
	if err := l.until(ctx, "A has more than one core", func() bool { return a.cores() > 1 }); err != nil {
		return nil, err
	}
	r.Alone = a.cores()
	for _, letter := range []string{"B", "C"} {
		if err := l.wait(ctx, betweenSuites); err != nil {
			return nil, err
		}
		before := a.cores()
		b, err := l.arrive(ctx, letter, shortSuite)
		if err != nil {
			return nil, err
		}
		if err := l.until(ctx, "A makes room for "+letter, func() bool { return a.cores() < before && b.cores() > 0 }); err != nil {
			return nil, err
		}
		r.Shared = []int{a.cores(), b.cores()}
		if err := l.until(ctx, "A has the cores of "+letter, func() bool { return b.ended() && a.cores() > r.Shared[0] }); err != nil {
			return nil, err
		}
		r.After = a.cores()
	}
	if err := l.until(ctx, "all suites end", a.ended); err != nil {
		return nil, err
	}
	var report bench.SuiteReport
	if err := json.Unmarshal(a.action.GetResult().GetStdoutTail(), &report); err != nil || !succeeded(a.action) {
		return nil, fmt.Errorf("suite A: %v, %v, %w", a.action.State, a.action.Result, err)
	}
	r.Changes, r.Noticed = l.changes, report.Resizes
	l.progress.say("A had %d cores alone, %d beside another, %d afterwards", r.Alone, r.Shared[0], r.After)
	return r, nil
}

// arrive submits a suite that takes so long if it has all cores.
func (l *live) arrive(ctx context.Context, letter string, takes time.Duration) (*liveSuite, error) {
	units := int(takes/l.unit) * len(l.cpus)
	spec := l.rota.spec([]string{l.binary, "bench", "suite", "--workers", "{{cores}}", "--parallel", strconv.Itoa(units)})
	spec.Name = "suite-" + letter
	spec.Resources = &rotav1.Resources{Cores: proto.Uint32(1), MaxCores: uint32(len(l.cpus))}
	ids, err := l.rota.submit(ctx, spec)
	if err != nil {
		return nil, err
	}
	s := &liveSuite{letter: letter, action: &rotav1.Action{Id: ids[0]}}
	l.suites = append(l.suites, s)
	return s, nil
}

// wait looks on for a while.
func (l *live) wait(ctx context.Context, d time.Duration) error {
	end := time.Now().Add(d)
	return l.until(ctx, "a moment passes", func() bool { return time.Now().After(end) })
}

// until looks on until it is so.
func (l *live) until(ctx context.Context, what string, so func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, resizePatience)
	defer cancel()
	for {
		if err := l.look(ctx); err != nil {
			return fmt.Errorf("wait until %s: %w", what, err)
		}
		if so() {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %v until %s; the cores are %s", resizePatience, what, l.changes[len(l.changes)-1])
		case <-time.After(lookInterval):
		}
	}
}

// look reads what cores the suites have, and says it if that has changed.
func (l *live) look(ctx context.Context) (err error) {
	owner := map[uint32]string{}
	for _, s := range l.suites {
		if !s.ended() {
			if s.action, err = l.api.Get(ctx, s.action.Id); err != nil {
				return err
			}
		}
		for _, cpu := range s.action.Cpus {
			owner[cpu] = s.letter
		}
	}
	now := drawCores(l.cpus, owner)
	if n := len(l.changes); n == 0 || l.changes[n-1] != now {
		l.changes = append(l.changes, now)
		l.progress.say("cores  %s", now)
	}
	return nil
}

// drawCores draws a letter for each CPU, by who owns it.
func drawCores(cpus []uint32, owner map[uint32]string) string {
	var line strings.Builder
	for _, cpu := range cpus {
		letter := owner[cpu]
		if letter == "" {
			letter = "."
		}
		line.WriteString(letter)
	}
	return line.String()
}

// write says it for people.
func (r *Resizing) write(w io.Writer) {
	fmt.Fprintf(w, "a running suite had %d cores alone, %d beside another with %d, and %d afterwards (cores over time: %s)\n",
		r.Alone, r.Shared[0], r.Shared[1], r.After, strings.Join(r.Changes, " "))
}
