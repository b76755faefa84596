package cli

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
)

func TestQuotaState(t *testing.T) {
	for want, q := range map[string]*rotav1.Quota{
		"":               {Limit: 4, Keys: 2, EffectiveUnits: 8, Adaptive: true, ThrottledAttempts: 3},
		"halted: broken": {Limit: 4, Keys: 1, Halted: "broken", PausedFor: durationpb.New(time.Second)},
		"overdrawn by 3: an overdrawn key grants nothing until enough of its units have come back": {Limit: 4, Keys: 1, EffectiveUnits: 4, OverdrawnUnits: 3},
		"paused for 12s: the provider refused calls":                                               {Limit: 4, Keys: 1, EffectiveUnits: 2, PausedFor: durationpb.New(12 * time.Second)},
		"grants 5 of 8: the provider refused calls; each success raises this":                      {Limit: 4, Keys: 2, EffectiveUnits: 5},
		"the provider has refused calls: adapt with rota quota update openai --adaptive":           {Name: "openai", Limit: 4, Keys: 1, EffectiveUnits: 4, ThrottledAttempts: 1},
	} {
		if got := quotaState(q); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
	q := &rotav1.Quota{Limit: 4, Keys: 2}
	for want, use := range map[string]*rotav1.QuotaKeyUse{
		"1 held, 2 in windows":                          {HeldUnits: 1, WindowUnits: 2, EffectiveUnits: 4},
		"1 held, 0 in windows, grants 2, paused for 3s": {HeldUnits: 1, EffectiveUnits: 2, PausedFor: durationpb.New(3 * time.Second)},
	} {
		if got := quotaKeyText(q, use); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
}
