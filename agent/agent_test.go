package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	rotav1 "rota/api/gen/rota/v1"

	"rota/agent/plan"
	"rota/agent/runtime/container/registry"
	"rota/internal/clock"
)

// config is that of an agent of a cluster, with a supervisor in memory.
func config(t testing.TB, c *cluster, s *supervisor) Config {
	cfg := Config{
		Name: "node-1", Dir: filepath.Join(t.TempDir(), "agent"), Servers: c.addresses, Listen: "127.0.0.1:0",
		Cores: 4, Oversubscribe: true, Process: Process{Enabled: true}, bootID: "boot",
	}
	if s != nil {
		cfg.dial = s.dial
	}
	return cfg
}

// start runs an agent until stop is called or the test ends.
func start(t testing.TB, cfg Config) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, cfg) }()
	stopped := false
	stop = func() {
		t.Helper()
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("the agent ended with: %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("the agent does not stop")
		}
	}
	t.Cleanup(stop)
	return stop
}

func checkLeaks(t *testing.T) {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
}

func TestAnActionFromGrantToReport(t *testing.T) {
	checkLeaks(t)
	c, s := newCluster(t, 1), newSupervisor(t)
	start(t, config(t, c, s))
	key := c.assign(41, "make", "-j{{cores}}")
	key2 := c.assign(42)
	s.untilRuns(key, key2)
	s.mu.Lock()
	spec := s.running[key]
	s.mu.Unlock()
	if !slices.Equal(spec.Argv, []string{"make", "-j1"}) || !slices.Contains(spec.Env, "ROTA_FENCING_TOKEN="+key.String()) {
		t.Errorf("started as %q with %q", spec.Argv, spec.Env)
	}
	s.finish(key)
	if r := c.result(key); r.Reason != rotav1.EndReason_END_REASON_EXITED || string(r.StdoutTail) != "done\n" {
		t.Errorf("reported %v", r)
	}
	s.until("the end to be forgotten", func(s *supervisor) bool { return len(s.ended) == 0 })
	s.untilRuns(key2)

	c.change(func() { c.desired[key2].Stop = true })
	if r := c.result(key2); r.Reason != rotav1.EndReason_END_REASON_CANCELED {
		t.Errorf("a stopped attempt was reported as %v", r)
	}
}

func TestWhatIsNoLongerDesiredIsKilled(t *testing.T) {
	c, s := newCluster(t, 1), newSupervisor(t)
	start(t, config(t, c, s))
	gone, stays := c.assign(1), c.assign(2)
	s.untilRuns(gone, stays)
	c.change(func() { delete(c.desired, gone) })
	s.until("the kill", func(s *supervisor) bool { return s.kills[gone] == plan.ReasonCanceled })
	s.untilRuns(stays)
}

// What nobody could run is refused with a sentence, and nothing else suffers.
func TestMalformedAssignments(t *testing.T) {
	c, s := newCluster(t, 1), newSupervisor(t)
	good := assignment(1)
	bad := map[uint64]struct {
		change func(*rotav1.Assignment)
		says   string
	}{
		10: {func(a *rotav1.Assignment) { a.Command = nil }, "no command"},
		11: {func(a *rotav1.Assignment) { a.Command.Argv = nil }, "command is empty"},
		12: {func(a *rotav1.Assignment) { a.Cpus = []uint32{4} }, "does not have"},
		13: {func(a *rotav1.Assignment) { a.Cpus = []uint32{1 << 31} }, "does not have"},
		14: {func(a *rotav1.Assignment) { a.Cpus = []uint32{1, 1} }, "twice"},
		15: {func(a *rotav1.Assignment) { a.Gpus = []uint32{0} }, "GPU 0, which"},
		16: {func(a *rotav1.Assignment) { a.RunTimeout.Seconds = -1 }, "negative"},
		17: {func(a *rotav1.Assignment) { a.Command.Env = map[string]string{"a=b": ""} }, "malformed"},
	}
	c.desired[plan.Key{Action: 1, Attempt: 1, Incarnation: 7}] = good
	for id, b := range bad {
		a := assignment(id)
		b.change(a)
		c.desired[plan.Key{Action: id, Attempt: 1, Incarnation: 7}] = a
	}
	noID, noAttempt, nothing := assignment(0), assignment(50), &rotav1.Assignment{}
	noAttempt.Attempt = 0
	c.script = []*rotav1.WatchNodeResponse{{Index: 1000, Assignments: []*rotav1.Assignment{noID, noAttempt, nothing, good, good}}}
	c.index = 2000
	c.incarnation, c.nextNumber = 7, 0

	start(t, config(t, c, s))
	runs := plan.Key{Action: 1, Attempt: 1, Incarnation: 7}
	s.untilRuns(runs)
	for id, b := range bad {
		r := c.result(plan.Key{Action: id, Attempt: 1, Incarnation: 7})
		if r.Reason != rotav1.EndReason_END_REASON_START_FAILED || !strings.Contains(r.Message, b.says) {
			t.Errorf("assignment %d: reported %v %q, want START_FAILED with %q", id, r.Reason, r.Message, b.says)
		}
	}
	s.untilRuns(runs)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.starts) != 1 || len(s.kills) != 0 {
		t.Errorf("started %v and killed %v, want only %v started", s.starts, s.kills, runs)
	}
}

func TestWithoutAProcessRuntimeOwnersAreToldHowToTurnItOn(t *testing.T) {
	c := newCluster(t, 1)
	cfg := config(t, c, nil)
	cfg.Process.Enabled = false
	start(t, cfg)
	c.until("registration", func(c *cluster) bool { return len(c.registered) > 0 })
	key := c.assign(1)
	if r := c.result(key); r.Reason != rotav1.EndReason_END_REASON_START_FAILED || !strings.Contains(r.Message, "--allow-process") {
		t.Errorf("reported %v", r)
	}
	if said := c.registered[0].Runtime; !strings.Contains(said, "off") {
		t.Errorf("the node says that its runtime is %q", said)
	}
}

func TestTheLeaseEnds(t *testing.T) {
	checkLeaks(t)
	c, s := newCluster(t, 1), newSupervisor(t)
	c.lease = 2 * time.Second
	s.deadlineTakes = 100 * time.Millisecond
	start(t, config(t, c, s))
	key := c.assign(1)
	s.untilRuns(key)
	s.mu.Lock()
	deadline := s.deadline
	s.mu.Unlock()
	if left := time.Duration(deadline - clock.Boottime()); left <= 0 || left > c.lease-c.lease/4 {
		t.Errorf("the supervisor was given a deadline %v ahead", left)
	}

	c.change(func() { c.noLeases = true })
	s.until("the kill", func(s *supervisor) bool { return s.kills[key] == plan.ReasonNodeLost })
	if r := c.result(key); r.Reason != rotav1.EndReason_END_REASON_NODE_LOST {
		t.Errorf("reported %v", r)
	}
	// Registered again, but without a lease nothing is started; the fake fails
	// the test if it is. What is only refused needs none.
	c.until("another registration", func(c *cluster) bool { return len(c.registered) > 1 })
	waits := c.assign(2)
	refused := c.assign(3, "")
	c.result(refused)
	c.change(func() { c.noLeases = false })
	s.untilRuns(waits)
	// The supervisor still knew the old deadline when there was a new lease.
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused > 0 {
		t.Errorf("%d attempts were sent to the supervisor before the new deadline", s.refused)
	}
}

func TestTheClusterGivesTheNodeUp(t *testing.T) {
	for name, how := range map[string]func(*cluster){
		"fenced":                         func(c *cluster) { c.fenced = true; c.incarnation = 0 },
		"with another incarnation":       func(c *cluster) { c.incarnation = 5000; c.nextNumber = 5001 },
		"fenced, but the same is kept":   func(c *cluster) { c.fenced = true },
		"fenced, and nobody leases more": func(c *cluster) { c.fenced, c.noLeases = true, true },
	} {
		t.Run(name, func(t *testing.T) {
			c, s := newCluster(t, 1), newSupervisor(t)
			start(t, config(t, c, s))
			key := c.assign(1)
			s.untilRuns(key)
			c.change(func() { how(c) })
			s.until("the kill", func(s *supervisor) bool { return s.kills[key] == plan.ReasonNodeLost })
			c.until("another registration", func(c *cluster) bool { return len(c.registered) > 1 })
			c.change(func() { c.noLeases = false })
			next := c.assign(2)
			s.untilRuns(next)
		})
	}
}

// What does not die keeps everything new from being started.
func TestNothingStartsBesideWhatDoesNotDie(t *testing.T) {
	c, s := newCluster(t, 1), newSupervisor(t)
	start(t, config(t, c, s))
	key := c.assign(1)
	s.untilRuns(key)
	s.lock()
	s.immortal = true
	s.unlock()
	c.change(func() { c.incarnation = 0 })
	s.until("the kill", func(s *supervisor) bool { return s.kills[key] != 0 })
	c.mu.Lock()
	registrations := len(c.registered)
	c.mu.Unlock()
	if registrations != 1 {
		t.Errorf("registered %d times while an attempt still ran", registrations)
	}
	s.lock()
	s.immortal = false
	s.unlock() // the kill is repeated
	c.until("another registration", func(c *cluster) bool { return len(c.registered) > 1 })
	s.untilRuns(c.assign(2))
}

// TestAMachineThatChangedIsEmptyBeforeItRegisters: the cluster gives what it ran to other nodes at once.
func TestAMachineThatChangedIsEmptyBeforeItRegisters(t *testing.T) {
	c, s := newCluster(t, 1), newSupervisor(t)
	cfg := config(t, c, s)
	stop := start(t, cfg)
	key := c.assign(1)
	s.untilRuns(key)
	stop()
	s.immortal = true
	cfg.Cores = 2
	start(t, cfg)
	s.until("a kill", func(s *supervisor) bool { return s.kills[key] != 0 })
	c.mu.Lock()
	registered := len(c.registered)
	c.mu.Unlock()
	if registered != 1 {
		t.Error("it registered as another machine while the attempt still ran")
	}
	s.finish(key)
	c.until("another registration", func(c *cluster) bool { return len(c.registered) > 1 })
}

func TestARestartedAgentTakesOver(t *testing.T) {
	checkLeaks(t)
	c, s := newCluster(t, 1), newSupervisor(t)
	cfg := config(t, c, s)
	stop := start(t, cfg)
	runs, ends := c.assign(1), c.assign(2)
	s.untilRuns(runs, ends)
	stop()
	if len(s.kills) != 0 {
		t.Fatalf("stopping the agent killed %v", s.kills)
	}
	s.finish(ends)
	start(t, cfg)
	if r := c.result(ends); r.Reason != rotav1.EndReason_END_REASON_EXITED {
		t.Errorf("what ended meanwhile was reported as %v", r)
	}
	s.finish(runs)
	if r := c.result(runs); r.Reason != rotav1.EndReason_END_REASON_EXITED {
		t.Errorf("what ran on was reported as %v", r)
	}
	// It reports what it knows in the incarnation that it has, registered again or not.
	c.until("another registration", func(c *cluster) bool { return len(c.registered) > 1 })
	if first, second := c.registered[0], c.registered[1]; second.Incarnation != 8 || second.JournalId != first.JournalId {
		t.Errorf("registered again as %v", second)
	}
}

// Whether it was started before the agent died nobody knows, so it is not.
func TestAnAcceptedAttemptIsNeverStartedAgain(t *testing.T) {
	c, s := newCluster(t, 1), newSupervisor(t)
	cfg := config(t, c, s)
	stop := start(t, cfg)
	key := c.assign(1)
	s.untilRuns(key)
	stop()
	s.lock()
	delete(s.running, key)
	s.unlock()
	start(t, cfg)
	if r := c.result(key); r.Reason != rotav1.EndReason_END_REASON_SUPERVISOR_LOST {
		t.Errorf("reported %v", r)
	}
}

func TestTheMachineWasRestarted(t *testing.T) {
	c, s := newCluster(t, 1), newSupervisor(t)
	cfg := config(t, c, s)
	stop := start(t, cfg)
	unknown, known := c.assign(1), c.assign(2)
	s.untilRuns(unknown, known)
	stop()
	s.lock()
	clear(s.running)
	s.ended[known] = plan.Exit{Key: known, Reason: plan.ReasonSupervisorLost}
	s.unlock()
	cfg.bootID = "another boot"
	start(t, cfg)
	for _, key := range []plan.Key{unknown, known} {
		if r := c.result(key); r.Reason != rotav1.EndReason_END_REASON_NODE_LOST {
			t.Errorf("%s was reported as %v", key, r)
		}
	}
}

func TestTheSupervisorDies(t *testing.T) {
	for name, forgetful := range map[string]bool{"and its successor knows": false, "and its successor knows nothing": true} {
		t.Run(name, func(t *testing.T) {
			c, s := newCluster(t, 1), newSupervisor(t)
			start(t, config(t, c, s))
			key := c.assign(1)
			s.untilRuns(key)
			s.crash(forgetful)
			if r := c.result(key); r.Reason != rotav1.EndReason_END_REASON_SUPERVISOR_LOST {
				t.Errorf("reported %v", r)
			}
			s.untilRuns(c.assign(2))
		})
	}
}

// A supervisor that dies as an agent starts is followed by another.
func TestTheSupervisorDiesAsAnAgentStarts(t *testing.T) {
	c, s := newCluster(t, 1), newSupervisor(t)
	s.diesBeforeList = 2
	start(t, config(t, c, s))
	s.untilRuns(c.assign(1))
}

func TestADamagedJournal(t *testing.T) {
	c, s := newCluster(t, 1), newSupervisor(t)
	cfg := config(t, c, s)
	stop := start(t, cfg)
	key := c.assign(1)
	s.untilRuns(key)
	stop()
	path := filepath.Join(cfg.Dir, "agent.journal")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-2] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, cfg)
	c.until("another registration", func(c *cluster) bool { return len(c.registered) > 1 })
	s.mu.Lock()
	if _, runs := s.running[key]; runs {
		t.Error("registered from nothing while an old attempt ran")
	}
	s.mu.Unlock()
	if first, second := c.registered[0], c.registered[1]; second.Incarnation != 0 || second.JournalId == first.JournalId {
		t.Errorf("registered as %v after %v", second, first)
	}
	s.untilRuns(c.assign(2))
}

func TestReportsAreRepeatedUntilTheyAreConfirmed(t *testing.T) {
	c, s := newCluster(t, 1), newSupervisor(t)
	cfg := config(t, c, s)
	stop := start(t, cfg)
	key := c.assign(1)
	s.untilRuns(key)
	c.change(func() { c.noReports = true })
	s.finish(key)
	c.until("three tries", func(c *cluster) bool { return c.reported >= 3 })
	stop()
	before := c.reported
	start(t, cfg) // the end is still known after a restart
	c.until("a try of the next agent", func(c *cluster) bool { return c.reported > before })
	c.change(func() { c.noReports = false })
	if r := c.result(key); string(r.StdoutTail) != "done\n" {
		t.Errorf("reported %v", r)
	}
}

func TestAnotherServerTakesOver(t *testing.T) {
	checkLeaks(t)
	c, s := newCluster(t, 3), newSupervisor(t)
	start(t, config(t, c, s))
	s.untilRuns(c.assign(1))
	for i, srv := range c.listeners[:2] {
		srv.Close()
		s.untilRuns(c.assign(uint64(10 + i)))
	}
	if len(c.registered) != 1 {
		t.Errorf("registered %d times, want once", len(c.registered))
	}
}

func TestServersAreDiscovered(t *testing.T) {
	c, s := newCluster(t, 1), newSupervisor(t)
	cfg := config(t, c, s)
	cfg.Servers = nil
	cfg.Discover = func(context.Context) []string { return c.addresses }
	start(t, cfg)
	s.untilRuns(c.assign(1))
}

func TestKillOnExit(t *testing.T) {
	c, s := newCluster(t, 1), newSupervisor(t)
	cfg := config(t, c, s)
	cfg.KillOnExit = true
	stop := start(t, cfg)
	s.untilRuns(c.assign(1), c.assign(2))
	stop()
	if len(s.running) != 0 {
		t.Errorf("%d attempts run after the agent's end", len(s.running))
	}
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"a bad name":                           func(c *Config) { c.Name = "Node 1" },
		"no directory":                         func(c *Config) { c.Dir = "" },
		"no server":                            func(c *Config) { c.Servers = nil },
		"an address without a port":            func(c *Config) { c.Servers = []string{"server-1"} },
		"plain text on every interface":        func(c *Config) { c.Listen = "0.0.0.0:0" },
		"a certificate without key and CA":     func(c *Config) { c.TLS.Cert = "cert.pem" },
		"a data directory that is a file":      func(c *Config) { c.Dir = "/dev/null" },
		"TLS files that cannot be read at all": func(c *Config) { c.TLS.Cert, c.TLS.Key, c.TLS.CA = "/no/a", "/no/b", "/no/c" },
		"registries without containers":        func(c *Config) { c.Containers.Pull.Hosts = []string{"docker.io"} },
		"a limit of images without containers": func(c *Config) { c.Containers.ImagesBytesMax = 1 },
		"credentials without registries":       func(c *Config) { c.Containers = Containers{Address: "auto", Pull: registry.Options{Auth: os.Args[0]}} },
		"credentials that everybody can read": func(c *Config) {
			c.Containers = Containers{Address: "auto", Pull: registry.Options{Hosts: []string{"docker.io"}, Auth: os.Args[0]}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t, &cluster{addresses: []string{"127.0.0.1:1"}}, newSupervisor(t))
			change(&cfg)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			if err := Run(ctx, cfg); !errors.Is(err, ErrConfig) {
				t.Errorf("the agent ran: %v, want ErrConfig", err)
			}
		})
	}
}
