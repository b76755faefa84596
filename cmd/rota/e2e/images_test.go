package e2e

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"rota/agent/runtime/container"
	"rota/agent/runtime/container/containertest"
	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
	"rota/internal/need"
)

// puller is a cluster whose agent pulls from a registry.
type puller struct {
	*world
	daemon *containertest.Daemon
	r      *containertest.Registry
}

func newPuller(t *testing.T, args ...string) *puller {
	t.Helper()
	need.Containerd(t)
	p := &puller{daemon: containertest.Start(t), r: containertest.NewRegistry(t)}
	p.world = newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1, AgentArgs: append([]string{
		"--containerd", p.daemon.Address, "--rota-init", containertest.Init(t), "--pull", p.r.Host, "--registry-ca", p.r.CA,
	}, args...)})
	return p
}

// push stores an image with a shell and some bytes that gzip makes no smaller.
func (p *puller) push(name string, size int) string {
	p.Helper()
	filler := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte([]byte(fmt.Sprintf("%-32s", name)))).Read(filler)
	return p.r.Push(name, "1", containertest.LayerWith(p.T, filler))
}

// begin opens a trajectory with an image and submits a command in it. An attempt that an agent had accepted is lost with
// the agent, so there may be another one.
func (p *puller) begin(image string) (trajectory, action string) {
	p.Helper()
	trajectory = strings.Fields(p.must(p.addrs(), "trajectory", "open", "--memory", "16MiB", "--image", image))[1]
	return trajectory, strings.TrimSpace(p.must(p.addrs(), "run", "--detach", "--retry", "3", "--trajectory", trajectory, "--", "sh", "-c", "echo opened"))
}

// end waits for a command of begin, and closes its trajectory.
func (p *puller) end(trajectory, action string) {
	p.Helper()
	id, err := strconv.ParseUint(action, 10, 64)
	if err != nil {
		p.Fatal(err)
	}
	p.endAs([]uint64{id}, rotav1.EndReason_END_REASON_EXITED)
	p.must(p.addrs(), "trajectory", "close", trajectory)
}

// TestAnAgentIsKilledDuringAPull kills an agent that has a part of a layer. The next one downloads the rest and opens the
// sandbox, and the lease of the dead one ends within an hour. Then kills come at any moment.
func TestAnAgentIsKilledDuringAPull(t *testing.T) {
	t.Parallel()
	p := newPuller(t)
	agent := p.cluster.Agents[0]
	ready := p.push("team/ready", 1000)
	if out := p.must(p.addrs(), "image", "prefetch", ready); !strings.Contains(out, "node-1: ready after") {
		t.Errorf("a prefetch says %q", out)
	}
	if out, errs, _, code := p.rota(p.addrs(), "image", "prefetch", "--node", "node-1", p.r.Host+"/team/nothing:1"); code != 1 || !strings.Contains(out, "not in the registry") {
		t.Errorf("a prefetch of what is not there: exit code %d, %q, %q", code, out, errs.text.String())
	}
	image := p.push("team/tools", 6<<20)
	came, release := p.r.Hang(3 << 20)
	defer release()
	trajectory, action := p.begin(image)
	<-came
	p.until("containerd has a part of the layer", func() bool { return p.daemon.Ingested() >= 2<<20 })
	p.kill(agent)
	left := p.daemon.Leases(container.Namespace)
	if len(left) != 1 {
		t.Errorf("the dead agent has left the leases %v", left)
	}
	for _, l := range left {
		if ends, err := time.Parse(time.RFC3339, l.GetLabels()["containerd.io/gc.expire"]); err != nil || time.Until(ends) > time.Hour {
			t.Errorf("the lease of the dead agent ends at %v: %v", ends, err)
		}
	}
	release()
	p.start(agent)
	p.end(trajectory, action)
	if n := p.r.Resumed(); n != 1 {
		t.Errorf("the download went on %d times", n)
	}
	for round := range 6 {
		trajectory, action := p.begin(p.push(fmt.Sprint("team/more", round), 2<<20))
		time.Sleep(rand.N(400 * time.Millisecond)) // the moment of the kill
		p.kill(agent)
		p.start(agent)
		p.end(trajectory, action)
	}
	p.noSandboxes(p.daemon)
}

// TestImagesHaveALimit: an image goes after its last sandbox, and comes back for the next one. A pinned one stays.
func TestImagesHaveALimit(t *testing.T) {
	t.Parallel()
	p := newPuller(t, "--images-max", "1MiB")
	images := func() string { return p.must(p.addrs(), "image", "list", "--containerd", p.daemon.Address) }
	p.must(p.addrs(), "image", "import", containertest.Archive(t), "--name", "pinned:1", "--pin", "--containerd", p.daemon.Address)
	p.must(p.addrs(), "image", "import", containertest.Archive(t), "--name", "loose:1", "--containerd", p.daemon.Address)
	image := p.push("team/tools", 1<<20)
	for range 2 {
		trajectory, action := p.begin(image)
		p.until("the image that was imported is removed, which nothing uses", func() bool { return images() == image+"\npinned:1\n" })
		p.end(trajectory, action)
		p.until("the image is removed after the end of its sandbox", func() bool { return images() == "pinned:1\n" })
	}
	p.noSandboxes(p.daemon)
}
