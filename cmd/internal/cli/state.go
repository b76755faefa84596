package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rota/agent"
	"rota/agent/tensor"
	"rota/agent/tensor/device"
)

// stateAnswerMax is how long the state manager may take to answer.
const stateAnswerMax = 10 * time.Second

// stateFlags are the flags of an agent about its state manager.
type stateFlags struct {
	memory, diskSize size
	disk, listen     string
	remote           string
	device           stateDevice
}

// stateDevice is a flag value: simulated:SIZE, cuda:INDEX, cuda:INDEX:SIZE or none.
type stateDevice device.Spec

// Type implements pflag.Value.
func (d *stateDevice) Type() string { return "device" }

// String implements pflag.Value.
func (d *stateDevice) String() string {
	switch {
	case d.Kind == device.Simulated:
		return fmt.Sprintf("%s:%s", d.Kind, formatSize(d.Bytes))
	case d.Kind == device.CUDA && d.Bytes > 0:
		return fmt.Sprintf("%s:%d:%s", d.Kind, d.Index, formatSize(d.Bytes))
	case d.Kind == device.CUDA:
		return fmt.Sprintf("%s:%d", d.Kind, d.Index)
	}
	return "none"
}

// Set implements pflag.Value.
func (d *stateDevice) Set(text string) (err error) {
	parts := strings.Split(text, ":")
	var set stateDevice
	switch {
	case text == "none":
	case parts[0] == string(device.Simulated) && len(parts) == 2:
		set.Kind = device.Simulated
		set.Bytes, err = parseSize(parts[1])
	case parts[0] == string(device.CUDA) && (len(parts) == 2 || len(parts) == 3):
		set.Kind = device.CUDA
		if set.Index, err = strconv.Atoi(parts[1]); err == nil && len(parts) == 3 {
			set.Bytes, err = parseSize(parts[2])
		}
	default:
		err = errors.New("it is neither none nor one of these")
	}
	sized := set.Kind == device.Simulated || len(parts) == 3
	switch {
	case err == nil && sized && set.Bytes == 0:
		err = errors.New("its size is 0")
	case err == nil && set.Index < 0:
		err = errors.New("GPUs are numbered from 0")
	}
	if err != nil {
		return fmt.Errorf("%q is no device for states; write it like simulated:4GiB, cuda:0 or cuda:0:40GiB: %w", text, err)
	}
	*d = set
	return nil
}

func (f *stateFlags) addTo(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.Var(&f.memory, "state-memory", "memory for weights and optimizers of workers, such as 64GiB, which the node then does not offer; 0: no state manager")
	fs.StringVar(&f.disk, "state-disk", "", "folder for states on disk (default: memory only)")
	fs.Var(&f.diskSize, "state-disk-size", "maximum size of states on disk, such as 1TiB; needed with --state-disk")
	fs.StringVar(&f.remote, "state-remote", "", "where checkpoints of states in an object store may be, s3://BUCKET/PREFIX; credentials are in the environment, as for backups (default: none)")
	fs.Var(&f.device, "state-device", "device memory for states: cuda:INDEX[:SIZE] for a GPU, simulated:SIZE for memory of the agent that stands for one, or none")
	fs.StringVar(&f.listen, "state-listen", "", "socket of the state manager, unix:/path (default: "+agent.StateSocket+" in --data-dir)")
}

func (f *stateFlags) apply(cfg *agent.Config) {
	cfg.State = agent.State{MemoryBytes: uint64(f.memory), Dir: f.disk, DiskBytes: uint64(f.diskSize), Listen: f.listen, Remote: f.remote, Device: device.Spec(f.device)}
}

func (a *app) stateCmd() *cobra.Command {
	return group("state", "See the training states that this node holds", a.stateListCmd(), a.stateStatCmd())
}

// asking makes a command that asks the state manager of this machine.
func asking(cmd *cobra.Command, ask func(c *tensor.Client, args []string) error) *cobra.Command {
	address := cmd.Flags().String("address", "unix:"+filepath.Join("rota-agent", agent.StateSocket), "socket of the state manager, unix:/path")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), stateAnswerMax)
		defer cancel()
		c, err := tensor.Dial(ctx, *address)
		if err != nil {
			return fmt.Errorf("state manager at %s: %w; is an agent with --state-memory running there, as your user?", *address, err)
		}
		defer c.Close()
		return ask(c, args)
	}
	return cmd
}

func (a *app) stateListCmd() *cobra.Command {
	return asking(&cobra.Command{
		Use: "list [DEPLOYMENT]", Short: "List the states of this node", Args: cobra.MaximumNArgs(1),
		Long: `Lists the states that the agent on this machine holds: their keys, which are deployment,
policy version and rank, their bytes, and whether they are on the device, in memory or on disk. A state
that is "damaged" is lost and can only be dropped.`,
		Example: "  rota state list\n  rota state list actor --address unix:/run/rota/state.sock -o json",
	}, func(c *tensor.Client, args []string) error {
		deployment := ""
		if len(args) > 0 {
			deployment = args[0]
		}
		states, err := c.List(deployment)
		if err != nil {
			return err
		}
		return a.printStates(states)
	})
}

func (a *app) printStates(states []tensor.Info) error {
	if a.json() {
		if states == nil {
			states = []tensor.Info{}
		}
		return writeJSON(a.out, states)
	}
	var rows [][]string
	for _, s := range states {
		rows = append(rows, []string{s.Key.String(), formatSize(s.Bytes), fmt.Sprint(s.Tensors), statePlace(s)})
	}
	writeTable(a.out, []string{"state", "size", "tensors", "where"}, rows)
	return nil
}

func statePlace(s tensor.Info) string {
	if s.Damaged != "" {
		return "damaged: " + s.Damaged
	}
	var places []string
	for _, p := range []struct {
		name string
		in   bool
	}{{"device", s.OnDevice}, {"memory", s.InMemory}, {"disk", s.OnDisk}} {
		if p.in {
			places = append(places, p.name)
		}
	}
	return strings.Join(places, ", ")
}

func (a *app) stateStatCmd() *cobra.Command {
	return asking(&cobra.Command{
		Use: "stat [DEPLOYMENT/VERSION/RANK]", Short: "Show what the state manager holds, or one state", Args: cobra.MaximumNArgs(1),
		Long: `Asks the state manager of the agent on this machine. Without a state: bytes and limits of
device, memory and disk, and how many bytes deduplication saves. With a state: its tensors. Counts start
when the agent starts.`,
		Example: "  rota state stat\n  rota state stat actor/3/0\n  rota state stat --address unix:/run/rota/state.sock -o json",
	}, func(c *tensor.Client, args []string) error {
		if len(args) == 0 {
			st, err := c.Stat()
			if err != nil {
				return err
			}
			return a.printStateStat(st)
		}
		k, err := tensor.ParseKey(args[0])
		if err != nil {
			return usageErrorf("%w", err)
		}
		i, err := c.Info(k)
		if err != nil {
			return err
		}
		return a.printState(i)
	})
}

func (a *app) printState(i tensor.Info) error {
	if a.json() {
		return writeJSON(a.out, i)
	}
	var rows [][]string
	for _, t := range i.Details {
		part := "whole"
		if t.Global != nil {
			part = fmt.Sprintf("from %v of %v", t.Offset, t.Global)
		}
		rows = append(rows, []string{t.Name, t.DType, fmt.Sprint(t.Shape), part, t.Group})
	}
	writeTable(a.out, []string{"tensor", "type", "shape", "part", "group"}, rows)
	fmt.Fprintln(a.out)
	return a.printFields(nil, []field{{"State", i.Key.String()}, {"Size", formatSize(i.Bytes)}, {"Where", statePlace(i)}})
}

func (a *app) printStateStat(st tensor.Stat) error {
	if a.json() {
		return writeJSON(a.out, st)
	}
	disk := "none"
	if st.DiskBytesMax > 0 {
		disk = fmt.Sprintf("%s of %s, in %d blocks", formatSize(st.DiskBytes), formatSize(st.DiskBytesMax), st.Blocks)
		if st.DirectIO {
			disk += ", with direct I/O"
		}
		if st.SpareBytes > 0 {
			disk += ", and " + formatSize(st.SpareBytes) + " of spare files"
		}
	}
	memory := fmt.Sprintf("%s of %s", formatSize(st.MemoryBytes), formatSize(st.MemoryBytesMax))
	if st.ReadyBytes > 0 {
		memory += ", and " + formatSize(st.ReadyBytes) + " ready to be filled"
	}
	onDevice := "none"
	if st.Device != "" {
		onDevice = fmt.Sprintf("%s, %s of %s", st.Device, formatSize(st.DeviceBytes), formatSize(st.DeviceBytesMax))
	}
	return a.printFields(nil, []field{
		{"States", fmt.Sprintf("%d, of %s", st.States, formatSize(st.LogicalBytes))},
		{"Device", onDevice},
		{"Memory", memory},
		{"Disk", disk},
		{"Remote", cmp.Or(st.Remote, "none")},
		{"Written", fmt.Sprintf("%s, to disk and checkpoints", formatSize(st.WrittenBytes))},
		{"Unchanged", fmt.Sprintf("%s, not written again", formatSize(st.UnchangedBytes))},
		{"Corrupt", fmt.Sprint(st.Corrupt)},
	})
}
