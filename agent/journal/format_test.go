package journal

import (
	"reflect"
	"testing"

	"rota/agent/internal/record"
	"rota/agent/plan"
)

// FuzzDecode gives the decoder arbitrary files, and arbitrary records in a
// frame that checks out. What it takes for a journal must be one: what it says
// survives being written and read again.
func FuzzDecode(f *testing.F) {
	k := plan.Key{Action: 300, Attempt: 1, Incarnation: 7}
	c := content{id: "id", boot: "boot-1", incarnation: 7, attempts: map[plan.Key]State{k: {Reported: true, Rebooted: true}}, machine: "machine"}
	file := c.encode()
	f.Add(file)
	f.Add(file[:len(file)-3])
	f.Add(file[len(magic)+record.HeaderSize:])
	f.Add(keyRecords(kindAccepted, []plan.Key{k}))
	f.Fuzz(func(t *testing.T, data []byte) {
		framed := record.Append(record.Append([]byte(magic), stringRecord(kindIdentity, "id")), data)
		for _, file := range [][]byte{data, framed} {
			c, valid, err := decode(file)
			if err != nil {
				continue
			}
			if valid > len(file) {
				t.Fatalf("%d valid bytes of %d", valid, len(file))
			}
			again, _, err := decode(c.encode())
			if err != nil || !reflect.DeepEqual(again, c) {
				t.Fatalf("written and read again: %+v (%v), was %+v", again, err, c)
			}
		}
	})
}
