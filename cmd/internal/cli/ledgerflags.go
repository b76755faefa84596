package cli

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
)

// ledgerFlags are the settings of a new cluster's ledger.
type ledgerFlags struct {
	slot          time.Duration
	slots         int64
	stretch, duty string
	policy        string
}

func (f *ledgerFlags) addTo(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.DurationVar(&f.slot, "ledger-slot", 0, "of a new cluster: length of a slot of the ledger (default 1s)")
	fs.Int64Var(&f.slots, "ledger-slots", 0, "of a new cluster: slots of the ledger's horizon (default 28800)")
	fs.StringVar(&f.stretch, "ledger-stretch", "", "of a new cluster: fraction by which cycles may be longer (default 0.05)")
	fs.StringVar(&f.duty, "ledger-duty", "", "of a new cluster: fraction of the time that may be reserved on a node group (default 0.9)")
	fs.StringVar(&f.policy, "ledger-policy", "", "of a new cluster: placement policy, spread, pack or isolated (default spread)")
	words(cmd, "ledger-policy", "spread", "pack", "isolated")
}

// apply puts the flags into settings; zero means the default.
func (f *ledgerFlags) apply(s *logv1.Settings) error {
	if f.slot < 0 || f.slots < 0 {
		return usageErrorf("--ledger-slot and --ledger-slots must not be negative")
	}
	s.LedgerSlotNs, s.LedgerSlots = int64(f.slot), f.slots
	var err error
	if s.LedgerStretchPpm, err = parsePart("--ledger-stretch", f.stretch); err != nil {
		return err
	}
	if s.LedgerDutyPpm, err = parsePart("--ledger-duty", f.duty); err != nil {
		return err
	}
	if f.policy == "" {
		return nil
	}
	policy := rotav1.PlacementPolicy_value["PLACEMENT_POLICY_"+strings.ToUpper(f.policy)]
	if policy == 0 {
		return usageErrorf("unknown --ledger-policy %q; use spread, pack or isolated", f.policy)
	}
	s.LedgerPolicy = uint32(policy)
	return nil
}

// parsePart reads a part of a whole, such as 0.05, as parts per million; empty is 0.
func parsePart(flag, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	part, err := strconv.ParseFloat(text, 64)
	ppm := math.Round(part * 1e6)
	if err != nil || !(ppm >= 1 && ppm <= 1e6) {
		return 0, usageErrorf("%s %q is not a fraction above 0 and up to 1, such as 0.05", flag, text)
	}
	return int64(ppm), nil
}
