package rpc

import (
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
)

// unknown is a field of a later version: number 1000, a varint.
var unknown = protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 1)

// costs are those of a good action with one thing changed.
var costs = []struct {
	name  string
	spoil func(*rotav1.ActionSpec)
	want  string // empty: nothing is wrong
}{
	{"a set", func(s *rotav1.ActionSpec) { s.Resources = &rotav1.Resources{AllowedCores: []uint32{1, 2, 4}} }, ""},
	{"a curve", func(s *rotav1.ActionSpec) { s.Profile = curve(2, 950_000, 4, 800_000) }, ""},
	{"cores said twice", func(s *rotav1.ActionSpec) { s.Resources.AllowedCores = []uint32{1, 2} }, "resources.allowed_cores says all about cores: leave out cores and max_cores"},
	{"set of no cores", func(s *rotav1.ActionSpec) {
		s.Resources = &rotav1.Resources{AllowedCores: []uint32{0, 2}}
	}, "resources.allowed_cores must be at least 1 each, has 0"},
	{"set that falls", func(s *rotav1.ActionSpec) {
		s.Resources = &rotav1.Resources{AllowedCores: []uint32{1, 4, 4}}
	}, "resources.allowed_cores must ascend: 4 comes after 4"},
	{"set beyond any node", func(s *rotav1.ActionSpec) {
		s.Resources = &rotav1.Resources{AllowedCores: []uint32{1, 513}}
	}, "resources.allowed_cores must be at most 512 each, has 513"},
	{"class", func(s *rotav1.ActionSpec) { s.Class = strings.Repeat("c", 129) }, "class must have at most 128 bytes, has 129"},
	{"size of nothing", func(s *rotav1.ActionSpec) { s.SizeHint = 5 }, "class is required with size_hint, which says how large the action is among those of its class"},
	{"profile of no time", func(s *rotav1.ActionSpec) {
		s.Profile = &rotav1.Profile{Duration: durationpb.New(0)}
	}, "profile.duration must not be 0: leave it out if it is not known"},
	{"profile of negative time", func(s *rotav1.ActionSpec) {
		s.Profile = &rotav1.Profile{Duration: durationpb.New(-1)}
	}, "profile.duration must not be negative, is -1ns"},
	{"more serial than all", func(s *rotav1.ActionSpec) {
		s.Profile = &rotav1.Profile{Speedup: &rotav1.Profile_SerialPpm{SerialPpm: 1_000_001}}
	}, "profile.serial_ppm must be at most 1000000, is 1000001"},
	{"no points", func(s *rotav1.ActionSpec) { s.Profile = curve() }, "profile.table.points must have at least one point"},
	{"points that fall back", func(s *rotav1.ActionSpec) { s.Profile = curve(4, 900_000, 2, 950_000) }, "profile.table.points must ascend in units, from 1 to 1048576: 2 comes after 4"},
	{"better than perfect", func(s *rotav1.ActionSpec) { s.Profile = curve(2, 1_000_001) }, "profile.table.points must have ratios between 1 and 1000000 ppm: it is 1000001 for 2 units"},
	{"one unit is one", func(s *rotav1.ActionSpec) { s.Profile = curve(1, 999_999) }, "profile.table.points must have a ratio of 1000000 ppm for 1 unit: it is 999999"},
	{"slower with more", func(s *rotav1.ActionSpec) { s.Profile = curve(4, 800_000, 8, 390_000) }, "profile.table.points must not fall in speed: 8 units would be slower than 4"},
	{"no cores, and nothing else to wait for", func(s *rotav1.ActionSpec) {
		s.Resources = &rotav1.Resources{Cores: proto.Uint32(0)}
	}, "resources.cores must be at least 1: only an action with quotas or GPUs can do without"},
	{"cores beyond any node", func(s *rotav1.ActionSpec) {
		s.Resources = &rotav1.Resources{Cores: proto.Uint32(math.MaxUint32)}
	}, "resources.cores must be at most 512, is 4294967295"},
	{"most below the least", func(s *rotav1.ActionSpec) {
		s.Resources = &rotav1.Resources{Cores: proto.Uint32(4), MaxCores: 2}
	}, "resources.max_cores must be 0 or at least cores, which is 4; is 2"},
	{"memory that overflows", func(s *rotav1.ActionSpec) {
		s.Resources = &rotav1.Resources{MemoryBytes: math.MaxUint64}
	}, "resources.memory_bytes must be at most 1 PiB, is 18446744073709551615 bytes"},
	{"bandwidth that overflows", func(s *rotav1.ActionSpec) {
		s.Resources = &rotav1.Resources{BandwidthBps: math.MaxUint64}
	}, "resources.bandwidth_bps must be at most 1125899906842624 bit/s, is 18446744073709551615"},
	{"quota without a name", func(s *rotav1.ActionSpec) {
		s.Resources = &rotav1.Resources{Quotas: []*rotav1.QuotaDemand{{Units: 1}}}
	}, "resources.quotas[0].quota is required"},
	{"quota named twice", func(s *rotav1.ActionSpec) {
		s.Resources = &rotav1.Resources{Quotas: []*rotav1.QuotaDemand{{Quota: "a"}, {Quota: "a"}}}
	}, "resources.quotas[1].quota is named twice: add up the units"},
	{"empty set of GPUs", func(s *rotav1.ActionSpec) {
		s.Resources = &rotav1.Resources{Gpus: &rotav1.GpuDemand{}}
	}, "resources.gpus.gpus must have at least one number: of 1, 2, 4 and 8"},
	{"negative set-up", func(s *rotav1.ActionSpec) {
		s.Resources = &rotav1.Resources{Gpus: &rotav1.GpuDemand{Gpus: []uint32{1}, Model: "m", Setup: durationpb.New(-1)}}
	}, "resources.gpus.setup must not be negative, is -1ns"},
	{"memory of GPUs that overflows", func(s *rotav1.ActionSpec) {
		s.Resources = &rotav1.Resources{Gpus: &rotav1.GpuDemand{Gpus: []uint32{1}, MemoryBytes: math.MaxUint64}}
	}, "resources.gpus.memory_bytes must be at most 1 PiB, is 18446744073709551615 bytes"},
	{"profile longer than any", func(s *rotav1.ActionSpec) {
		s.Profile = &rotav1.Profile{Duration: &durationpb.Duration{Seconds: 315_576_000_000}}
	}, "profile.duration must be at most 720h0m0s, is 2562047h47m16.854775807s"},
	{"point of no units", func(s *rotav1.ActionSpec) { s.Profile = curve(0, 1_000_000) }, "profile.table.points must ascend in units, from 1 to 1048576: 0 comes after 0"},
	{"point of no speed", func(s *rotav1.ActionSpec) { s.Profile = curve(2, 0) }, "profile.table.points must have ratios between 1 and 1000000 ppm: it is 0 for 2 units"},
	{"point that overflows", func(s *rotav1.ActionSpec) { s.Profile = curve(math.MaxUint32, 1) }, "profile.table.points must ascend in units, from 1 to 1048576: 4294967295 comes after 0"},
	{"unknown resource", func(s *rotav1.ActionSpec) {
		s.Resources.ProtoReflect().SetUnknown(unknown)
	}, " has fields that this server does not know: leave them out, or upgrade the servers"},
	{"unknown word in a point", func(s *rotav1.ActionSpec) {
		s.Profile = curve(2, 950_000)
		s.Profile.GetTable().Points[0].ProtoReflect().SetUnknown(unknown)
	}, " has fields that this server does not know: leave them out, or upgrade the servers"},
}

func TestCostsAreRefusedWithThePathOfWhatIsWrong(t *testing.T) {
	for _, c := range costs {
		t.Run(c.name, func(t *testing.T) {
			s := goodSpec()
			c.spoil(s)
			err := checkSpec(s).err()
			if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

// curve is a profile by pairs of units and ratios.
func curve(pairs ...uint32) *rotav1.Profile {
	t := &rotav1.SpeedupTable{}
	for i := 0; i < len(pairs); i += 2 {
		t.Points = append(t.Points, &rotav1.SpeedupPoint{Units: pairs[i], RatioPpm: pairs[i+1]})
	}
	return &rotav1.Profile{Speedup: &rotav1.Profile_Table{Table: t}}
}
