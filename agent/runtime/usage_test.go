package runtime_test

import (
	"slices"
	"testing"

	"rota/agent/plan"
	"rota/agent/runtime"
)

// TestUsageFile: what an attempt says that it used of quotas is part of its end, however it ends.
func TestUsageFile(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode string) { saysUsed(t, dial(t, options(t.TempDir(), mode))) })
}

// Also as another user that has a /tmp of its own.
func TestUsageFileOfAnIsolatedAttempt(t *testing.T) {
	saysUsed(t, dial(t, isolated(t, "")))
}

func saysUsed(t *testing.T, c *runtime.Client) {
	for i, x := range []struct {
		script string
		want   []plan.QuotaUse
	}{
		{"true", nil},
		{"echo tokens 1834 >>$ROTA_USAGE_FILE; echo cents 0 >>$ROTA_USAGE_FILE", []plan.QuotaUse{{Quota: "tokens", Units: 1834}, {Quota: "cents"}}},
		{"echo tokens 1 >>$ROTA_USAGE_FILE; echo tokens 2 >>$ROTA_USAGE_FILE; kill -9 $$", []plan.QuotaUse{{Quota: "tokens", Units: 3}}},
		{"printf 'tokens 1\ntokens 2' >$ROTA_USAGE_FILE", []plan.QuotaUse{{Quota: "tokens", Units: 1}}},
		{"printf 'x\n\n a b c\ntokens -1\ntokens 1.5\nTOKENS 1\n../x 1\ntokens 4\n' >$ROTA_USAGE_FILE", []plan.QuotaUse{{Quota: "tokens", Units: 4}}},
		{"echo tokens 18446744073709551615 >$ROTA_USAGE_FILE; echo tokens 5 >>$ROTA_USAGE_FILE", []plan.QuotaUse{{Quota: "tokens", Units: 1_000_000_000}}},
		{"for i in 1 2 3 4 5 6 7 8 9; do echo q$i 1; done >$ROTA_USAGE_FILE; echo q8 1 >>$ROTA_USAGE_FILE", []plan.QuotaUse{
			{Quota: "q1", Units: 1}, {Quota: "q2", Units: 1}, {Quota: "q3", Units: 1}, {Quota: "q4", Units: 1},
			{Quota: "q5", Units: 1}, {Quota: "q6", Units: 1}, {Quota: "q7", Units: 1}, {Quota: "q8", Units: 2},
		}},
		{"{ echo tokens 1; head -c 2000000 /dev/zero; echo; echo tokens 5; } >$ROTA_USAGE_FILE", []plan.QuotaUse{{Quota: "tokens", Units: 1}}},
		{"rm -f $ROTA_USAGE_FILE; ln -s /etc/passwd $ROTA_USAGE_FILE; true", nil},
		{"rm -f $ROTA_USAGE_FILE; mkfifo $ROTA_USAGE_FILE; true", nil},
	} {
		spec := shell(key(uint64(i+1)), x.script)
		spec.Throttles = true
		if e := runOne(t, c, spec); !slices.Equal(e.Usage, x.want) {
			t.Errorf("%s: used %v, want %v (%s)", x.script, e.Usage, x.want, e.Stderr)
		}
	}
	if e := runOne(t, c, shell(key(100), `test -z "$ROTA_USAGE_FILE"`)); e.Reason != plan.ReasonExited || e.ExitCode != 0 {
		t.Errorf("an attempt without quotas has such a file: %+v", e)
	}
}
