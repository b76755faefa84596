package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/go-hclog"

	"rota/agent/gpuhealth"
	"rota/agent/internal/record"
	"rota/agent/inventory"
	"rota/api/backoff"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/internal/clock"
)

const (
	// gpuReadEvery is how often GPUs are read, gpuFileEvery the file of simulated ones.
	gpuReadEvery = 5 * time.Second
	gpuFileEvery = 200 * time.Millisecond
	// gpuFileClear is for how long a line of that file has to be gone.
	gpuFileClear = time.Second
	// gpuFileMax is how many bytes of that file are read.
	gpuFileMax = 64 << 10
)

// gpuWatch watches the GPUs of the node, and knows which are sick.
type gpuWatch struct {
	log   hclog.Logger
	gpus  int
	open  func() (inventory.Probe, error)
	probe inventory.Probe // nil: there is nothing to ask; only watch uses it
	file  string          // of simulated GPUs; empty: none
	// remembered is where events are kept beyond the end of the process, of one boot.
	remembered, bootID string

	mu         sync.Mutex
	judge      *gpuhealth.Judge
	sick       []gpuhealth.Sick
	changed    chan struct{} // closed and replaced when others are sick
	looked     chan struct{} // closed when the GPUs were read once
	complained string        // of the file
}

// rememberedGPUs is what the file of events has.
type rememberedGPUs struct {
	Boot   string            `json:"boot"`
	Events []gpuhealth.Event `json:"events"`
}

// openGPUs returns the watch of the node's GPUs, nil if it has none. GPUs that cannot be asked
// are taken to be well, as they were before anybody asked.
func (a *agent) openGPUs(bootID string) (*gpuWatch, error) {
	g := a.inv.GPUs
	if g == nil {
		return nil, nil
	}
	w := &gpuWatch{
		log: a.log.Named("gpus"), gpus: g.Count, file: a.cfg.SimulatedGPUHealth, changed: make(chan struct{}), looked: make(chan struct{}),
		open: a.inv.Probe, remembered: filepath.Join(a.cfg.Dir, "gpus.events"), bootID: bootID,
	}
	clear := gpuhealth.ClearAfter
	if g.Simulated() {
		clear = int64(gpuFileClear)
	}
	if probe := a.cfg.gpuProbe; probe != nil {
		w.open = func() (inventory.Probe, error) { return probe, nil }
	}
	w.judge = gpuhealth.New(g.Count, clear)
	return w, w.remember()
}

// untilLooked waits until the GPUs were read once. A driver that hangs does not keep the agent from
// its work.
func (w *gpuWatch) untilLooked(ctx context.Context, within time.Duration) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-w.looked:
	case <-ctx.Done():
	case <-timer.C:
		w.log.Error("the driver does not say how the GPUs are: it may hang; starting without, and the GPUs are taken to be well", "waited", within)
	}
}

// remember restores the events of this boot. A file that cannot be read is as good as none: what
// is still wrong shows again.
func (w *gpuWatch) remember() error {
	data, err := os.ReadFile(w.remembered)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("read what happened to GPUs: %w", err)
	}
	var r rememberedGPUs
	if err := json.Unmarshal(data, &r); err != nil {
		w.log.Error("what happened to GPUs before is lost: its file is damaged", "file", w.remembered, "error", err)
		return nil
	}
	if r.Boot == w.bootID {
		w.judge.Remember(r.Events)
	}
	return nil
}

// sickCount is how many GPUs are sick.
func (w *gpuWatch) sickCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.sick)
}

// watch looks until the context ends.
func (w *gpuWatch) watch(ctx context.Context) error {
	var err error
	if w.probe, err = w.open(); err != nil {
		w.log.Error("the health of the GPUs is not watched", "error", err)
	}
	w.look()
	close(w.looked)
	every := gpuReadEvery
	if w.file != "" {
		every = gpuFileEvery
	}
	switch {
	case w.probe != nil:
		defer w.probe.Close()
	case w.file == "": // nobody can be asked
		<-ctx.Done()
	}
	for ctx.Err() == nil {
		if w.look(); w.probe == nil {
			_ = backoff.Sleep(ctx, every)
			continue
		}
		for end := time.Now().Add(every); ctx.Err() == nil && time.Now().Before(end); {
			if gpu, xid, ok := w.probe.Wait(time.Second); ok {
				w.happened(gpu, xid)
			}
		}
	}
	return ctx.Err()
}

// look reads how the GPUs are now.
func (w *gpuWatch) look() {
	holding, ok := w.readFile()
	if w.probe != nil { // which may take long of a broken GPU
		holding = map[int][]gpuhealth.Condition{}
		for gpu := range w.gpus {
			holding[gpu] = w.probe.Conditions(gpu)
		}
	}
	now := clock.Boottime()
	w.mu.Lock()
	defer w.mu.Unlock()
	for gpu := range w.gpus {
		if ok {
			w.judge.Read(now, gpu, holding[gpu]...)
		}
	}
	w.judged()
}

// happened takes an XID into account, and remembers one that is critical. Nothing that asks how the
// GPUs are waits for the disk. One goroutine calls it.
func (w *gpuWatch) happened(gpu int, xid uint64) {
	w.mu.Lock()
	critical := w.judge.Happened(clock.Boottime(), gpu, xid)
	if critical {
		w.judged()
	}
	events := w.judge.Events()
	w.mu.Unlock()
	if !critical {
		w.log.Info("the driver reports an XID that is not the GPU's fault, or again", "gpu", gpu, "xid", xid)
		return
	}
	if err := record.ReplaceJSON(w.remembered, rememberedGPUs{w.bootID, events}); err != nil {
		w.log.Error("what happened to a GPU will be forgotten when the agent starts again", "error", err)
	}
}

// judged tells whoever waits if others are sick now. The caller holds mu.
func (w *gpuWatch) judged() {
	sick := w.judge.Sick()
	if slices.Equal(sick, w.sick) {
		return
	}
	for _, s := range sick {
		if !slices.Contains(w.sick, s) {
			w.log.Warn("a GPU is sick: it is used for nothing new", "gpu", s.GPU, "reason", s.Reason)
		}
	}
	for _, s := range w.sick {
		if !slices.ContainsFunc(sick, func(is gpuhealth.Sick) bool { return is.GPU == s.GPU }) {
			w.log.Info("a GPU is well again", "gpu", s.GPU, "was", s.Reason)
		}
	}
	w.sick = sick
	close(w.changed)
	w.changed = make(chan struct{})
}

// readFile reads which simulated GPUs are sick; false: nothing is known, as the file cannot be
// read or understood, so what was known stays.
func (w *gpuWatch) readFile() (map[int][]gpuhealth.Condition, bool) {
	if w.file == "" {
		return nil, true
	}
	var stated map[int][]gpuhealth.Condition
	data, err := readAtMost(w.file, gpuFileMax)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = nil // all are well
	case err == nil:
		stated, err = gpuhealth.ParseStated(string(data), w.gpus)
	}
	complaint := ""
	if err != nil {
		complaint = err.Error()
	}
	if complaint != w.complained && err != nil {
		w.log.Error("cannot tell which simulated GPUs are sick; correct the file", "file", w.file, "error", err)
	}
	w.complained = complaint
	return stated, err == nil
}

func readAtMost(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > most:
		return nil, fmt.Errorf("%s is not a file of at most %d bytes", path, most)
	}
	return os.ReadFile(path)
}

// state returns which GPUs are sick, and a channel that is closed when that changes.
func (w *gpuWatch) state() ([]gpuhealth.Sick, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sick, w.changed
}

// reportGPUs tells the cluster which GPUs are sick: as an incarnation begins, since what the
// cluster knows may be old, and when it changes.
func (a *agent) reportGPUs(ctx context.Context, incarnation uint64) {
	pause := newRounds(50*time.Millisecond, 10*time.Second)
	for {
		var sick []gpuhealth.Sick
		var changed <-chan struct{}
		heard := a.untilHeard(ctx, pause, func() error {
			sick, changed = a.gpus.state()
			err := a.sendGPUs(ctx, incarnation, sick)
			if len(sick) == 0 && connect.CodeOf(err) == connect.CodeFailedPrecondition {
				return nil // a cluster of a level that knows no sick GPUs believes none to be
			}
			return err
		}, func(err error) {
			a.log.Warn("the cluster does not know yet which GPUs are sick, or cannot know it; trying on", "sick", len(sick), "error", err)
		})
		if !heard {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

func (a *agent) sendGPUs(ctx context.Context, incarnation uint64, sick []gpuhealth.Sick) error {
	req := &rotav1.ReportGpusRequest{Name: a.cfg.Name, Incarnation: incarnation}
	for _, s := range sick {
		req.Sick = append(req.Sick, &rotav1.SickGpu{Gpu: uint32(s.GPU), Reason: s.Reason})
	}
	_, err := call(ctx, a.servers, reportTimeout,
		func(ctx context.Context, c rotav1connect.AgentServiceClient) (*rotav1.ReportGpusResponse, error) {
			return c.ReportGpus(ctx, req)
		})
	return err
}
