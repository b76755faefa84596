package tensor

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
)

// Everything at once, with a race detector to watch.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	s := open(t, roomy(t.TempDir()))
	checkpoints := filepath.Join(t.TempDir(), "c")
	for version := range uint64(4) {
		must(t, put(t, s, Key{"shared", version, 0}, content{"w", "", text(int(version), 50_000)}))
	}
	foreseen := []error{ErrNotFound, ErrExists, ErrOffloaded}
	var wg sync.WaitGroup
	for worker := range 6 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(worker), 1))
			for range 60 {
				version := r.Uint64N(4)
				k, twin := Key{"shared", version, 0}, Key{"twin", version, 0}
				var err error
				switch r.IntN(6) {
				case 0:
					_, err = s.Offload(k)
				case 1:
					err = s.Restore(k)
				case 2:
					_, err = s.Checkpoint(k, checkpoints)
				case 3:
					_, err = s.Copy(k, twin)
				case 4:
					err = s.Drop(twin)
				case 5:
					var slab *Slab
					slab, err = s.Read(Slice{Deployment: "shared", Version: version, Name: "w", Offset: []uint64{10}, Shape: []uint64{9000}})
					if err == nil {
						if !bytes.Equal(slab.segment.mem[:9000], text(int(version), 50_000)[10:9010]) {
							t.Error("a slice has other bytes")
						}
						slab.Close()
					}
				}
				known := err == nil
				for _, fact := range foreseen {
					known = known || errors.Is(err, fact)
				}
				if !known {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for version := range uint64(4) {
		k := Key{"shared", version, 0}
		must(t, s.Restore(k))
		wantState(t, s, k, content{"w", "", text(int(version), 50_000)})
		must(t, s.Drop(k))
		_ = s.Drop(Key{"twin", version, 0})
	}
	if st := s.Stat(); st.Corrupt > 0 || st.MemoryBytes+st.DiskBytes > 0 || st.Blocks > 0 {
		t.Errorf("%+v", st)
	}
}
