package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) classCmd() *cobra.Command {
	return group("class", "See what rota has learned about classes of actions: their durations by number of cores",
		a.reads(a.classListCmd()), a.reads(a.classGetCmd()), a.classDeleteCmd())
}

func (a *app) classListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List classes", Args: exactly(),
		Example: "  rota class list",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			all := &rotav1.ListClassesResponse{}
			req := &rotav1.ListClassesRequest{Namespace: a.settings.namespace, PageSize: 1000}
			err := pages(ctx, a, c.Classes.ListClasses, req, &req.PageToken, func(page *rotav1.ListClassesResponse) {
				all.Classes = append(all.Classes, page.Classes...)
			})
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(all.Classes))
			for _, class := range all.Classes {
				rows = append(rows, []string{class.Name, fmt.Sprint(class.LiveActions), widthsText(class)})
			}
			return a.print(all, []string{"name", "live", "seen"}, rows)
		}),
	}
}

func (a *app) classGetCmd() *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Show one class: how long its actions take by number of cores, and how much they differ", Args: exactly("NAME"),
		Example: "  rota class get pytest",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			resp, err := call(ctx, a, c.Classes.GetClass, &rotav1.GetClassRequest{Namespace: a.settings.namespace, Name: args[0]})
			if err != nil {
				return err
			}
			class := resp.Class
			err = a.printFields(class, []field{
				{"class", class.GetName()}, {"namespace", class.GetNamespace()},
				{"live actions", fmt.Sprint(class.GetLiveActions())}, {"work", workText(class)},
			})
			if err == nil && !a.json() {
				drawClass(a.out, class)
			}
			return err
		}),
	}
}

func (a *app) classDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a class that no queued or running action uses", Args: exactly("NAME"),
		Example: "  rota class delete pytest",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			resp, err := call(ctx, a, c.Classes.DeleteClass, &rotav1.DeleteClassRequest{Namespace: a.settings.namespace, Name: args[0]})
			if err != nil {
				return err
			}
			return a.printFields(resp, []field{{"deleted", args[0]}})
		}),
	}
}

// widthsText is "1: 8s, 4: 2.5s".
func widthsText(c *rotav1.Class) string {
	all := make([]string, 0, len(c.Widths))
	for _, w := range c.Widths {
		all = append(all, fmt.Sprintf("%d: %v", w.Units, w.MeanDuration.AsDuration().Round(time.Millisecond)))
	}
	return strings.Join(all, ", ")
}

// knownFlags are the flags of `rota run` about the duration of an action.
type knownFlags struct {
	class   string
	size    uint64
	allowed []uint
	expect  time.Duration
	serial  string
	speedup string
}

func (f *knownFlags) addTo(fs *pflag.FlagSet) {
	fs.StringVar(&f.class, "class", "", "class of the action, such as pytest; rota learns its duration from earlier actions of the class")
	fs.Uint64Var(&f.size, "size-hint", 0, "how large the action is among those of its class, such as a number of tests, tokens or bytes; rota learns durations by size")
	fs.UintSliceVar(&f.allowed, "allowed-cores", nil, "numbers of cores that the action can use, such as 1,2,4,8; instead of --cores and --max-cores")
	fs.DurationVar(&f.expect, "expect", 0, "expected duration with one core, such as 30s; 0: unknown")
	fs.StringVar(&f.serial, "serial", "", "fraction of the action that more cores do not make faster, such as 0.1")
	fs.StringVar(&f.speedup, "speedup", "", "efficiency by number of cores, such as 2:0.95,4:0.8; instead of --serial")
}

// tell puts the known duration and speed-up into an action.
func (f *knownFlags) tell(spec *rotav1.ActionSpec) error {
	spec.Class, spec.SizeHint = f.class, f.size
	if len(f.allowed) > 0 {
		spec.Resources.Cores, spec.Resources.MaxCores = nil, 0
		for _, n := range f.allowed {
			spec.Resources.AllowedCores = append(spec.Resources.AllowedCores, uint32(min(n, 1<<32-1)))
		}
	}
	if f.expect == 0 && f.serial == "" && f.speedup == "" {
		return nil
	}
	spec.Profile = &rotav1.Profile{}
	if f.expect != 0 {
		spec.Profile.Duration = durationpb.New(f.expect)
	}
	switch {
	case f.serial != "" && f.speedup != "":
		return usageErrorf("--serial and --speedup both describe the effect of more cores; give only one of them")
	case f.serial != "":
		ppm, err := parseRatio("--serial", f.serial)
		spec.Profile.Speedup = &rotav1.Profile_SerialPpm{SerialPpm: ppm}
		return err
	case f.speedup != "":
		table, err := parseSpeedup(f.speedup)
		spec.Profile.Speedup = &rotav1.Profile_Table{Table: table}
		return err
	}
	return nil
}

// parseRatio reads a part of one as parts per million.
func parseRatio(flag, text string) (uint32, error) {
	ratio, err := strconv.ParseFloat(text, 64)
	if err != nil || !(ratio >= 0 && ratio <= 1) {
		return 0, usageErrorf("%s: %q is not a number from 0 to 1", flag, text)
	}
	return uint32(ratio*1_000_000 + 0.5), nil
}

func parseSpeedup(text string) (*rotav1.SpeedupTable, error) {
	table := &rotav1.SpeedupTable{}
	for _, pair := range strings.Split(text, ",") {
		cores, ratio, ok := strings.Cut(strings.TrimSpace(pair), ":")
		units, err := strconv.ParseUint(cores, 10, 32)
		if !ok || err != nil {
			return nil, usageErrorf("--speedup: %q is not CORES:EFFICIENCY, such as 4:0.8", pair)
		}
		ppm, err := parseRatio("--speedup", ratio)
		if err != nil {
			return nil, err
		}
		table.Points = append(table.Points, &rotav1.SpeedupPoint{Units: uint32(units), RatioPpm: ppm})
	}
	return table, nil
}
