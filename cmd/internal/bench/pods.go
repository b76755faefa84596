package bench

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"rota/agent/plan"
	"rota/agent/runtime"
)

// pods runs commands without the cluster, as pods of equal size on one machine: each at
// once, in a cgroup of the same weight, on all CPUs. It uses the supervisor that agents
// use, so a command starts as it does with rota.
type pods struct {
	client *runtime.Client

	mu     sync.Mutex
	last   uint64
	ending map[plan.Key]chan plan.Exit
}

// startPods starts a supervisor of its own in dir.
func startPods(ctx context.Context, binary, dir string) (*pods, error) {
	c, err := runtime.Dial(ctx, runtime.Options{
		Executable: binary, SuperviseOptions: runtime.SuperviseOptions{Dir: dir, Linger: time.Minute},
	})
	if err != nil {
		return nil, fmt.Errorf("start a supervisor: %w", err)
	}
	p := &pods{client: c, ending: map[plan.Key]chan plan.Exit{}}
	go p.deliver()
	return p, nil
}

func (p *pods) deliver() {
	for e := range p.client.Exits() {
		p.mu.Lock()
		if ended := p.ending[e.Key]; ended != nil {
			ended <- e
		}
		p.mu.Unlock()
	}
}

// stop kills what runs and ends the supervisor.
func (p *pods) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	// The benchmark is over, and the supervisor ends by itself when nothing runs.
	_ = p.client.Stop(ctx)
	p.client.Close()
}

// start starts a command and returns where its end will be. cpus are its own; nil: it
// shares all of them with the others.
func (p *pods) start(ctx context.Context, c command, cpus []int) (plan.Key, <-chan plan.Exit, error) {
	key, ended := p.next()
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	for k, v := range c.env {
		env = append(env, k+"="+v)
	}
	return key, ended, p.client.Start(ctx, runtime.Spec{Key: key, Argv: c.argv, Env: env, Dir: c.dir, CPUs: cpus})
}

// next is the key of another command, and where its end will be.
func (p *pods) next() (plan.Key, chan plan.Exit) {
	ended := make(chan plan.Exit, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	key := plan.Key{Action: p.last, Attempt: 1, Incarnation: 1}
	p.ending[key] = ended
	return key, ended
}

// run runs a command to its end and returns what it has written.
func (p *pods) run(ctx context.Context, c command) (stdout []byte, err error) {
	key, ended, err := p.start(ctx, c, nil)
	if err != nil {
		return nil, err
	}
	select {
	case e := <-ended:
		p.mu.Lock()
		delete(p.ending, key)
		p.mu.Unlock()
		if e.Reason != plan.ReasonExited || e.ExitCode != 0 {
			return nil, fmt.Errorf("%s ended with reason %d and exit code %d: %s%s", c.argv[0], e.Reason, e.ExitCode, e.Message, e.Stderr)
		}
		return e.Stdout, p.client.Forget(ctx, []plan.Key{key})
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
