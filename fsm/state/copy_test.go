package state

import (
	"reflect"
	"strings"
	"testing"
)

// TestACopySharesAllTrees: after a copy, every table and every index knows that it is shared. One that does
// not know it is written to in place, in all copies at once.
func TestACopySharesAllTrees(t *testing.T) {
	s := New()
	s.Copy()
	if n := wantShared(t, reflect.ValueOf(db(s)).Elem(), "containers"); n < len(tables)+len(indexed) {
		t.Errorf("there are %d trees, which are fewer than tables and indexes", n)
	}
}

// wantShared looks for trees in a struct, and returns how many there are.
func wantShared(t *testing.T, v reflect.Value, path string) (trees int) {
	if v.Kind() != reflect.Struct {
		return 0
	}
	if name := v.Type().Name(); strings.HasPrefix(name, "set[") || strings.HasPrefix(name, "dict[") {
		if v.FieldByName("tree").IsNil() || !v.FieldByName("shared").Bool() {
			t.Errorf("%s is not made with the state, or its copy does not share it", path)
		}
		return 1
	}
	for i := range v.NumField() {
		trees += wantShared(t, v.Field(i), path+"."+v.Type().Field(i).Name)
	}
	return trees
}

// TestForkedSharesAreApart: what is written to a copy changes no index of the original.
func TestForkedSharesAreApart(t *testing.T) {
	s := New()
	s.SetMeta(Meta{Level: LevelResizing})
	s.PutPool(&Pool{ID: 1, Name: "p"})
	s.PutQuota(&Quota{ID: 1, Name: "q", Kind: QuotaConcurrency, Limit: 9, Keys: 1})
	s.PutNamespace(&Namespace{ID: 1, Name: "a"})
	s.PutNamespace(&Namespace{ID: 2, Name: "b"})
	equipped := func(id ActionID) *Action {
		return &Action{
			ID: id, Namespace: 1, Pool: 1, State: ActionQueued, CoresMin: 1, CoresMax: 1,
			Needs: &Needs{Quotas: []QuotaUse{{Quota: 1, Units: 1}}}, QuotasHeld: 1, QuotaKeys: []uint32{0},
		}
	}
	s.PutAction(equipped(1))
	s.Copy().PutAction(equipped(2))
	if h := s.HeldWithUnits(1, 1); h.Promised.Running != 1 {
		t.Errorf("%d actions have units, and there is 1: the other is in a copy", h.Promised.Running)
	}
	if err := s.checkIndexes(s.rebuild()); err != nil {
		t.Error(err)
	}
}
