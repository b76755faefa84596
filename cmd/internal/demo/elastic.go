package demo

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/proto"

	rotav1 "rota/api/gen/rota/v1"
)

const (
	// suiteClass is what the suites are known by.
	suiteClass = "suite"
	// suiteCoresMax is how many cores one can make use of.
	suiteCoresMax = 4
	// learnMax bounds how many suites run until rota knows a curve.
	learnMax = 8
)

// Elasticity is what a class of parallel test suites was given, by what rota had
// learned of it: its duration is not declared.
type Elasticity struct {
	Class string `json:"class"`
	// Learned is what `rota class get` shows before the two below.
	Learned []Width `json:"learned"`
	// CoresIdle is what a suite gets that is alone on the node, CoresBusy what each
	// gets of as many as there are cores.
	CoresIdle int   `json:"cores_idle"`
	CoresBusy []int `json:"cores_busy"`
}

// Width is a number of cores, and how long attempts took with it.
type Width struct {
	Cores    uint32  `json:"cores"`
	MeanMS   float64 `json:"mean_ms"`
	Attempts uint64  `json:"attempts"`
}

// beElastic has rota learn how long a suite takes, and shows what it does with
// that.
func (d *demo) beElastic(ctx context.Context) error {
	if d.cores < 2 {
		d.progress.say("a test suite cannot get more cores when the machine is idle: there is only one")
		return nil
	}
	d.progress.begin("a parallel test suite of unknown duration", 0, nil)
	e := &Elasticity{Class: suiteClass}
	for i := 0; len(e.Learned) < 2; i++ {
		if i == learnMax {
			return fmt.Errorf("after %d suites only one number of cores was tried", i)
		}
		widths, err := d.suites(ctx, 1)
		if err != nil {
			return err
		}
		d.progress.say("a suite of which little is known gets %d of %d cores", widths[0], d.cores)
		if err := d.learned(ctx, e); err != nil {
			return err
		}
	}
	idle, err := d.suites(ctx, 1)
	if err != nil {
		return err
	}
	e.CoresIdle = idle[0]
	d.progress.say("one that is alone gets %d", e.CoresIdle)
	e.CoresBusy, err = d.suites(ctx, d.cores)
	d.progress.say("%d at a time get %s", d.cores, list(e.CoresBusy))
	d.elasticity = e
	return err
}

// suites runs suites that are submitted together. It returns how many cores each
// saw.
func (d *demo) suites(ctx context.Context, n int) (widths []int, err error) {
	specs := make([]*rotav1.ActionSpec, n)
	for i := range specs {
		specs[i] = d.rota.spec([]string{d.tools.suite()})
		specs[i].Name, specs[i].Class = suiteClass, suiteClass
		specs[i].Resources = &rotav1.Resources{
			Cores: proto.Uint32(1), MaxCores: uint32(min(d.cores, suiteCoresMax)),
			Resizable: proto.Bool(false), // so that each says with how many cores it ran
		}
	}
	actions, err := d.rota.run(ctx, specs...)
	if err != nil {
		return nil, err
	}
	for _, a := range actions {
		line, _, _ := strings.Cut(string(a.GetResult().GetStdoutTail()), "\n")
		width, err := strconv.Atoi(strings.TrimPrefix(line, "cores "))
		if err != nil || !succeeded(a) {
			return nil, fmt.Errorf("suite %d: %v, %s", a.Id, a.State, a.GetResult().GetStdoutTail())
		}
		widths = append(widths, width)
	}
	return widths, nil
}

// learned reads what rota knows of the class.
func (d *demo) learned(ctx context.Context, e *Elasticity) error {
	resp, err := d.api.Classes.GetClass(ctx, &rotav1.GetClassRequest{Name: e.Class})
	if err != nil {
		return err
	}
	e.Learned = nil
	for _, w := range resp.Class.Widths {
		e.Learned = append(e.Learned, Width{w.Units, ms(w.MeanDuration.AsDuration()), w.Attempts})
	}
	return nil
}

// write writes the table for people.
func (e *Elasticity) write(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "class\tlearned: cores, mean\tcores when idle\tcores when %d come together\n", len(e.CoresBusy))
	for i, l := range e.Learned {
		name, idle, busy := "", "", ""
		if i == 0 {
			name, idle, busy = e.Class, strconv.Itoa(e.CoresIdle), list(e.CoresBusy)
		}
		mean := time.Duration(l.MeanMS * float64(time.Millisecond)).Round(time.Millisecond)
		fmt.Fprintf(table, "%s\t%d: %v of %d attempts\t%s\t%s\n", name, l.Cores, mean, l.Attempts, idle, busy)
	}
	table.Flush()
}

func list(numbers []int) string { return strings.Trim(fmt.Sprint(numbers), "[]") }
