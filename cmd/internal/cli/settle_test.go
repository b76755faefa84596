package cli

import (
	"strings"
	"testing"

	rotav1 "rota/api/gen/rota/v1"
)

func TestSettleFlag(t *testing.T) {
	for _, c := range []struct {
		quotas, settles []string
		call            bool
		wrong           string // empty: it is right
	}{
		{[]string{"tokens=2000", "calls"}, []string{"tokens=usage"}, true, ""},
		{[]string{"tokens=2000", "cents=3"}, []string{"tokens=usage.total_tokens", "cents=usage.cost*100"}, true, ""},
		{[]string{"tokens"}, []string{"tokens=usage"}, false, "$ROTA_USAGE_FILE"},
		{[]string{"tokens"}, []string{"cents=usage"}, true, "needs --quota cents=UNITS"},
		{[]string{"tokens"}, []string{"tokens"}, true, "the rule is empty"},
		{[]string{"tokens"}, []string{"tokens=a..b"}, true, "is not a path"},
		{[]string{"tokens"}, []string{"tokens=usage", "tokens=n"}, true, "twice"},
	} {
		quotas, err := parseQuotas(c.quotas)
		if err != nil {
			t.Fatal(err)
		}
		switch err := settleQuotas(quotas, c.settles, c.call); {
		case c.wrong == "" && err != nil:
			t.Errorf("%v: %v", c.settles, err)
		case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%v: %v, want %q", c.settles, err, c.wrong)
		case c.wrong == "" && quotas[0].Settle != strings.TrimPrefix(c.settles[0], "tokens="):
			t.Errorf("%v: the rule is %q", c.settles, quotas[0].Settle)
		}
	}
}

func TestUsageTexts(t *testing.T) {
	act := &rotav1.Action{
		Spec:       &rotav1.ActionSpec{Resources: &rotav1.Resources{Quotas: []*rotav1.QuotaDemand{{Quota: "tokens", Units: 2000}, {Quota: "calls"}}}},
		QuotaUsage: []*rotav1.QuotaUse{{Quota: "tokens", Units: 1834}, {Quota: "calls", Units: 1}},
	}
	if got, want := usageText(act), "1834 of tokens (2000 expected), 1 of calls"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	for want, q := range map[string]*rotav1.Quota{
		"":                                     {},
		"1 attempt, which used 7":              {SettledAttempts: 1, SettledUnits: 7},
		"4 attempts, which used 25 on average": {SettledAttempts: 4, SettledUnits: 103},
	} {
		if got := settledText(q); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
}
