package tensor

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rota/internal/s3/s3test"
)

const bucketPlace = "s3://bucket/states"

// remotely has room for everything that a test does, and an object store.
func remotely(t *testing.T) (*s3test.Store, *Store, Options) {
	t.Helper()
	objects := s3test.New(t)
	o := roomy(t.TempDir())
	o.Remote = bucketPlace
	return objects, open(t, o), o
}

// TestCheckpointsInAnObjectStore: a state goes there from memory and from disk, equal blocks go once, and
// another agent has it back byte by byte.
func TestCheckpointsInAnObjectStore(t *testing.T) {
	objects, s, o := remotely(t)
	k, next := Key{"actor", 1, 0}, Key{"actor", 2, 0}
	weights, same := content{"w", "weights", text(1, BlockBytes+5)}, content{"same", "", text(1, BlockBytes)}
	empty, adam := content{"none", "", nil}, content{"adam", "", text(2, 100)}
	must(t, put(t, s, k, weights, same, empty))
	m, err := s.Checkpoint(k, bucketPlace+"/actor")
	if err != nil || m != (Moved{BlockBytes + 5, BlockBytes}) {
		t.Errorf("%+v, %v", m, err)
	}
	offload(t, s, k)
	if m, err := s.Checkpoint(k, bucketPlace+"/actor/"); err != nil || m.WrittenBytes != 0 {
		t.Errorf("the second time: %+v, %v", m, err)
	}
	must(t, put(t, s, next, weights, adam))
	if m, err := s.Checkpoint(next, bucketPlace+"/actor"); err != nil || m != (Moved{100, BlockBytes + 5}) {
		t.Errorf("the next version: %+v, %v", m, err)
	}
	if n := len(objects.Objects); n != 5 || objects.Objects["/states/actor/states/actor@1@0"] == nil {
		t.Errorf("%d objects", n)
	}
	must(t, s.Close())

	o.Dir = filepath.Join(t.TempDir(), "other")
	s = open(t, o)
	_, err = s.Load(bucketPlace+"/actor", k, Key{"critic", 7, 1})
	must(t, err)
	wantState(t, s, Key{"critic", 7, 1}, weights, same, empty)
	_, err = s.Load(bucketPlace+"/actor", k, k)
	must(t, err)
	_, err = s.Load(bucketPlace+"/actor", Key{"actor", 3, 0}, Key{"actor", 3, 0})
	wantError(t, err, ErrNotFound)
	if st := s.Stat(); st.Remote != bucketPlace || st.Corrupt != 0 {
		t.Errorf("%+v", st)
	}
}

// TestDamageInAnObjectStore: a block or a manifest that is cut or changed is noticed by load, and sent
// anew by the next checkpoint that has its bytes.
func TestDamageInAnObjectStore(t *testing.T) {
	objects, s, _ := remotely(t)
	k, twin := Key{"a", 1, 0}, Key{"a", 2, 0}
	must(t, put(t, s, k, content{"w", "", text(1, 100)}))
	_, err := s.Checkpoint(k, bucketPlace)
	must(t, err)
	offload(t, s, k) // else load takes what is in memory
	for key, whole := range objects.Objects {
		flipped := bytes.Clone(whole)
		flipped[len(whole)/2] ^= 4
		for name, data := range map[string][]byte{"flipped": flipped, "cut": whole[:len(whole)-1], "long": append(bytes.Clone(whole), 0), "empty": {}} {
			objects.Objects[key] = data
			if _, err := s.Load(bucketPlace, k, twin); err == nil || encodeError(err).Code != "CORRUPT" {
				t.Errorf("%s is %s: %v", key, name, err)
			}
		}
		delete(objects.Objects, key)
		if _, err := s.Load(bucketPlace, k, twin); err == nil {
			t.Errorf("%s is gone", key)
		}
		objects.Objects[key] = flipped
		_, err = s.Checkpoint(k, bucketPlace)
		must(t, err)
		if !bytes.Equal(objects.Objects[key], whole) {
			t.Errorf("%s was not sent anew", key)
		}
	}
	_, err = s.Load(bucketPlace, k, twin)
	must(t, err)
	if n := s.Stat().Corrupt; n < 4 {
		t.Errorf("%d times corrupt", n)
	}
}

// TestObjectStoresThatFail: a store that refuses fails the operation and nothing else. A checkpoint that
// was cut off does not exist, and the next try sends what is missing only.
func TestObjectStoresThatFail(t *testing.T) {
	objects, s, _ := remotely(t)
	k, twin := Key{"a", 1, 0}, Key{"a", 2, 0}
	w := content{"w", "", text(3, 3*BlockBytes)}
	must(t, put(t, s, k, w))
	objects.Before = func(r *http.Request) int {
		if r.Method == http.MethodPut && objects.Puts == 2 {
			return http.StatusForbidden
		}
		return 0
	}
	_, err := s.Checkpoint(k, bucketPlace)
	wantError(t, err, ErrRemote)
	if !strings.Contains(err.Error(), "403") {
		t.Errorf("%v says not why", err)
	}
	objects.Before = nil
	_, err = s.Load(bucketPlace, k, twin)
	wantError(t, err, ErrNotFound)
	if m, err := s.Checkpoint(k, bucketPlace); err != nil || m != (Moved{BlockBytes, 2 * BlockBytes}) {
		t.Errorf("the second try: %+v, %v", m, err)
	}
	objects.CutAfter, objects.Cuts = 1000, 1
	_, err = s.Load(bucketPlace, k, twin)
	must(t, err)
	wantState(t, s, twin, w)

	objects.Before = func(*http.Request) int { return http.StatusForbidden }
	_, err = s.Load(bucketPlace, k, Key{"a", 3, 0})
	wantError(t, err, ErrRemote)
	_, err = s.View(Key{"a", 3, 0})
	wantError(t, err, ErrNotFound)
}

// TestAnEndCutsOffAnObjectStore: an agent that ends does not wait for a store that stands still.
func TestAnEndCutsOffAnObjectStore(t *testing.T) {
	objects, s, _ := remotely(t)
	k := Key{"a", 1, 0}
	must(t, put(t, s, k, content{"w", "", text(1, 100)}))
	objects.Before = func(r *http.Request) int {
		s.Interrupt()
		<-r.Context().Done()
		return http.StatusForbidden
	}
	_, err := s.Checkpoint(k, bucketPlace)
	wantError(t, err, ErrClosed)
}

func TestPlacesInObjectStoresThatAreRefused(t *testing.T) {
	_, s, o := remotely(t)
	k := Key{"a", 1, 0}
	must(t, put(t, s, k, content{"w", "", text(1, 100)}))
	for _, elsewhere := range []string{"s3://", "s3://bucket", "s3://bucket/statesman", "s3://other/states", "s3://bucket/states/../x", "s3://bucket/states//x", "s3:///states"} {
		_, err := s.Checkpoint(k, elsewhere)
		wantError(t, err, ErrInvalid)
		_, err = s.Load(elsewhere, k, Key{"a", 2, 0})
		wantError(t, err, ErrInvalid)
	}
	without := open(t, roomy(t.TempDir()))
	must(t, put(t, without, k, content{"w", "", text(1, 100)}))
	_, err := without.Checkpoint(k, bucketPlace)
	wantError(t, err, ErrNoRemote)

	must(t, os.Unsetenv("AWS_SECRET_ACCESS_KEY"))
	_, err = s.Checkpoint(k, bucketPlace)
	wantError(t, err, ErrRemote)
	o.Dir = t.TempDir()
	_, err = Open(o)
	wantError(t, err, ErrOptions)
}
