package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/agent"
	"rota/agent/inventory"
	rotav1 "rota/api/gen/rota/v1"
)

// gpuDemandFlags are the flags of `rota run` about GPUs.
type gpuDemandFlags struct {
	gpus      []uint
	class     string
	memory    size
	model     string
	setup     time.Duration
	bandwidth rate
}

func (f *gpuDemandFlags) addTo(fs *pflag.FlagSet) {
	fs.UintSliceVar(&f.gpus, "gpus", nil, "numbers of GPUs that the action can use, from 1, 2, 4 and 8, such as 1,2,4")
	fs.StringVar(&f.class, "gpu-class", "", "class of the GPUs, such as H100 (default: the only class of the cluster)")
	fs.Var(&f.memory, "gpu-memory", "memory that the action uses on each GPU, such as 20GiB; 0: all")
	fs.StringVar(&f.model, "model", "", "model that must be in the memory of the GPUs")
	fs.DurationVar(&f.setup, "setup", 0, "time to load the model on GPUs that do not have it")
	fs.Var(&f.bandwidth, "bandwidth", "bandwidth of the network, such as 100Mbit")
}

// apply adds the flags to the action. With GPUs the least number of cores may be 0.
func (f *gpuDemandFlags) apply(r *rotav1.Resources) error {
	r.BandwidthBps = uint64(f.bandwidth)
	if len(f.gpus) == 0 {
		if f.class != "" || f.memory > 0 || f.model != "" || f.setup > 0 {
			return usageErrorf("--gpu-class, --gpu-memory, --model and --setup need --gpus")
		}
		return nil
	}
	r.Gpus = &rotav1.GpuDemand{Class: f.class, MemoryBytes: uint64(f.memory), Model: f.model}
	for _, k := range f.gpus {
		r.Gpus.Gpus = append(r.Gpus.Gpus, uint32(min(k, math.MaxUint32)))
	}
	if f.setup > 0 {
		r.Gpus.Setup = durationpb.New(f.setup)
	}
	return nil
}

// deviceFlags are the flags of an agent about its GPUs and its network.
type deviceFlags struct {
	gpus, simulated, health string
	bandwidth               rate
}

func (f *deviceFlags) addTo(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.gpus, "gpus", inventory.GPUsAuto, "GPUs to offer: all GPUs that NVML finds (auto), the same but fail if there are none (all), or none")
	fs.StringVar(&f.simulated, "simulated-gpus", "", "simulated GPUs to declare, such as 2xH100:80GiB")
	fs.StringVar(&f.health, "simulated-gpu-health", "", "file that says which simulated GPUs are sick, a line for each, such as: 3 XID 79")
	fs.Var(&f.bandwidth, "bandwidth", "bandwidth of the network to offer, such as 10Gbit; 0: none")
	words(cmd, "gpus", inventory.GPUsAuto, inventory.GPUsAll, inventory.GPUsNone)
}

func (f *deviceFlags) apply(cfg *agent.Config) error {
	cfg.GPUs, cfg.BandwidthBPS, cfg.SimulatedGPUHealth = f.gpus, uint64(f.bandwidth), f.health
	if f.simulated == "" {
		return nil
	}
	gpus, err := parseSimulated(f.simulated)
	cfg.SimulatedGPUs = gpus
	return err
}

func parseSimulated(text string) (*inventory.GPUs, error) {
	gpus, err := inventory.ParseSimulated(text, parseSize)
	if err != nil {
		return nil, usageErrorf("--simulated-gpus: %v", err)
	}
	return gpus, nil
}

// rate is a flag value in bits a second, such as 10Gbit.
type rate uint64

var rateUnits = []struct {
	suffix string
	bits   uint64
}{{"kbit", 1e3}, {"Mbit", 1e6}, {"Gbit", 1e9}, {"Tbit", 1e12}, {"bit", 1}}

// Type implements pflag.Value.
func (r *rate) Type() string { return "rate" }

// String implements pflag.Value.
func (r *rate) String() string { return formatRate(uint64(*r)) }

// Set implements pflag.Value.
func (r *rate) Set(text string) error {
	number, unit := strings.TrimSpace(text), uint64(1)
	for _, u := range rateUnits {
		if rest, ok := strings.CutSuffix(number, u.suffix); ok {
			number, unit = strings.TrimSpace(rest), u.bits
			break
		}
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || !(f >= 0) || f*float64(unit) >= 1<<63 {
		return fmt.Errorf("%q is not a bandwidth; write it like 10Gbit, 2.5Gbit or 100Mbit", text)
	}
	*r = rate(f * float64(unit))
	return nil
}

func formatRate(n uint64) string {
	out := "0"
	for _, u := range rateUnits[:4] {
		if n >= u.bits {
			out = strconv.FormatFloat(float64(n)/float64(u.bits), 'f', -1, 64) + u.suffix
		}
	}
	if n > 0 && n < 1000 {
		out = fmt.Sprintf("%dbit", n)
	}
	return out
}

// sayNoGPUs says why a list of GPUs is empty. An empty list is no failure.
func (a *app) sayNoGPUs() {
	if !a.json() {
		a.say("no node has GPUs; start agents on nodes with GPUs, or with --simulated-gpus")
	}
}

func (a *app) gpuCmd() *cobra.Command {
	return group("gpu", "See the GPUs of nodes, what holds them and what is in their memory, and take them out of use", a.reads(a.gpuListCmd()), a.gpuDisableCmd(), a.gpuEnableCmd())
}

func (a *app) gpuListCmd() *cobra.Command {
	var (
		pool string
		each bool
	)
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the GPUs of nodes", Args: exactly(),
		Long: `Each node has a line with a map of its GPUs: '.' is a free GPU, a letter is a held GPU. GPUs
of the same action have the same letter. '#' is a GPU that a turn has as a member of a node
group, and 'x' one that is out of use. After the map come the reasons, the node groups that GPUs
belong to, with the turns that have them and the next reservation, and the models in GPU memory. The
model that is evicted last comes first.

With --each, each GPU has a line: the action or the turn that has it, its models, and why it is
idle.`,
		Example: "  rota gpu list\n  rota gpu list --each",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			if each {
				return a.eachGPU(cmd.Context(), c, pool)
			}
			nodes, err := a.allNodes(cmd.Context(), pool)
			if err != nil {
				return err
			}
			groups, next, err := a.groupsWithNext(cmd.Context(), c, pool)
			if err != nil {
				return err
			}
			all := &rotav1.ListNodesResponse{}
			var rows [][]string
			for _, n := range nodes {
				if n.GetGpus() != nil {
					all.Nodes = append(all.Nodes, n)
					rows = append(rows, []string{n.Name, nodeState(n), n.Gpus.Class, formatSize(n.Gpus.MemoryBytes), chunkMap(n), unhealthyText(n), groupsOn(n.Name, groups, next), residentsText(n)})
				}
			}
			if len(rows) == 0 {
				a.sayNoGPUs()
			}
			return a.print(all, []string{"node", "state", "class", "memory", "gpus", "out of use", "node groups", "resident models"}, rows)
		},
	}
	cmd.Flags().StringVar(&pool, "pool", "", "list only nodes of this pool")
	cmd.Flags().BoolVar(&each, "each", false, "a line for each GPU, with the reason why it is idle")
	return cmd
}

// chunkMap draws the GPUs of a node, such as "AAAA.B.x". What is neither free nor an action's
// nor out of use is a turn's: "####".
func chunkMap(n *rotav1.Node) string {
	drawn := []byte(strings.Repeat("#", int(n.GetGpus().GetCount())))
	for _, k := range n.GetFreeGpus() {
		if int(k) < len(drawn) {
			drawn[k] = '.'
		}
	}
	for _, g := range n.GetUnhealthyGpus() {
		if int(g.Gpu) < len(drawn) && outOfUse(g) {
			drawn[g.Gpu] = 'x'
		}
	}
	for i, h := range n.GetHeldChunks() {
		for k := range h.GetChunk().GetGpus() {
			if at := int(h.Chunk.First + k); at < len(drawn) {
				drawn[at] = byte('A' + i%26)
			}
		}
	}
	return string(drawn)
}

// residentsText names the models in the memory of a node's GPUs, the most recently used
// model first.
func residentsText(n *rotav1.Node) string {
	var out []string
	for i := len(n.GetResidentModels()) - 1; i >= 0; i-- {
		m := n.ResidentModels[i]
		out = append(out, fmt.Sprintf("%s on %s (%s, used %s)", m.Model, gpuRange(m.Chunk), formatSize(m.MemoryBytes), formatTime(m.LastUseTime)))
	}
	return strings.Join(out, ", ")
}

// gpuRange is "4" or "4-5".
func gpuRange(c *rotav1.GpuChunk) string {
	if c.GetGpus() <= 1 {
		return fmt.Sprint(c.GetFirst())
	}
	return fmt.Sprintf("%d-%d", c.GetFirst(), c.GetFirst()+c.GetGpus()-1)
}

// gpusText is a node's GPUs in one line, empty if it has none.
func gpusText(n *rotav1.Node) string {
	if n.GetGpus() == nil {
		return ""
	}
	return fmt.Sprintf("%d %s with %s, %s", n.Gpus.Count, n.Gpus.Class, formatSize(n.Gpus.MemoryBytes), chunkMap(n))
}

func bandwidthText(n *rotav1.Node) string {
	if n.GetBandwidthBps() == 0 {
		return ""
	}
	return fmt.Sprintf("%s of %s", formatRate(n.FreeBandwidthBps), formatRate(n.BandwidthBps))
}

// setUpText is what loading its model is taken to cost a running action.
func setUpText(act *rotav1.Action) string {
	if act.GetSetup() == nil {
		return ""
	}
	return act.Setup.AsDuration().String()
}
