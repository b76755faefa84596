package tensor

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"rota/internal/s3"
)

const (
	remoteScheme = "s3://"
	// objectWait bounds a request of one object to a store, with all its tries: a store that stands
	// still must not hold a state for ever.
	objectWait = 10 * time.Minute
	// manifestBytesMax bounds a manifest that a store sends.
	manifestBytesMax = 256 << 20
)

// isRemote says whether the place of a checkpoint is in an object store.
func isRemote(dir string) bool { return strings.HasPrefix(dir, remoteScheme) }

// remote is a place for checkpoints in an object store. Its keys have the form of a folder:
// PREFIX/blocks/HASH and PREFIX/states/DEPLOYMENT@VERSION@RANK. An object appears whole or not at all, and
// can be read as soon as the store has confirmed it, so there is nothing to sync and to rename.
type remote struct {
	store  *Store
	bucket *s3.Bucket
	prefix string // empty, or with a slash at its end
}

// splitRemote returns bucket and prefix of s3://BUCKET/PREFIX. It fails with ErrInvalid.
func splitRemote(address string) (bucket, prefix string, err error) {
	bucket, prefix, _ = s3.Parse(address)
	prefix = strings.TrimSuffix(prefix, "/")
	if bucket == "" || prefix != "" && (path.Clean("/"+prefix) != "/"+prefix || strings.ContainsAny(prefix, "?#\x00")) {
		return "", "", fmt.Errorf("%w: %q is no place in an object store; write it like s3://BUCKET/PREFIX", ErrInvalid, address)
	}
	return bucket, prefix, nil
}

// openRemote returns the place of an address, which must be within that of the options. The credentials
// are read each time, so they can change. It fails with ErrInvalid, ErrNoRemote or ErrRemote.
func (s *Store) openRemote(address string) (remote, error) {
	if s.options.Remote == "" {
		return remote{}, ErrNoRemote
	}
	bucket, prefix, err := splitRemote(address)
	if err != nil {
		return remote{}, err
	}
	ours, base, err := splitRemote(s.options.Remote)
	if err != nil {
		return remote{}, err
	}
	if bucket != ours || base != "" && prefix != base && !strings.HasPrefix(prefix, base+"/") {
		return remote{}, fmt.Errorf("%w: %s is not within %s, which is the --state-remote of the agent", ErrInvalid, address, s.options.Remote)
	}
	b, err := s3.FromEnvironment(bucket)
	if err != nil {
		return remote{}, fmt.Errorf("%w: %w", ErrRemote, err)
	}
	if prefix != "" {
		prefix += "/"
	}
	return remote{s, b, prefix}, nil
}

func (r remote) block(h hash) string { return r.prefix + blocksName + "/" + hex.EncodeToString(h[:]) }

func (r remote) manifest(k Key) string {
	return fmt.Sprintf("%s%s/%s@%d@%d", r.prefix, statesName, k.Deployment, k.Version, k.Rank)
}

// asking calls f with a context that ends when the store is interrupted, and says what its errors mean.
func (r remote) asking(f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(r.store.running, objectWait)
	defer cancel()
	err := f(ctx)
	switch {
	case err == nil, errors.Is(err, s3.ErrNotFound), errors.Is(err, s3.ErrTooLarge):
		return err
	case r.store.closing.Load():
		return ErrClosed
	}
	return fmt.Errorf("%w: %w", ErrRemote, err)
}

// put makes sure that a block is in the store, and says whether it had to be sent. An object that is
// there is read and compared, as in a folder.
func (r remote) put(h hash, data []byte) (sent bool, err error) {
	buffer, free := pageBuffer(uint64(len(data)))
	err = r.get(h, buffer, uint64(len(data)))
	free()
	if err == nil || !errors.Is(err, ErrCorrupt) {
		return false, err
	}
	return true, r.asking(func(ctx context.Context) error {
		return r.bucket.Put(ctx, r.block(h), bytes.NewReader(data), int64(len(data)))
	})
}

// get reads a block of n bytes into page. It fails with ErrCorrupt, also if the object is gone, with
// ErrRemote or ErrClosed.
func (r remote) get(h hash, page []byte, n uint64) error {
	var data []byte
	err := r.asking(func(ctx context.Context) (err error) {
		data, err = r.bucket.Read(ctx, r.block(h), page[:n:n], int64(n))
		return err
	})
	switch {
	case errors.Is(err, s3.ErrNotFound):
		return fmt.Errorf("block %x: %w: its object is gone", h[:8], ErrCorrupt)
	case errors.Is(err, s3.ErrTooLarge):
		return fmt.Errorf("block %x: %w: %w", h[:8], ErrCorrupt, err)
	case err != nil:
		return err
	case uint64(len(data)) != n:
		return fmt.Errorf("block %x: %w: %d of %d bytes", h[:8], ErrCorrupt, len(data), n)
	}
	if err := matches(page[:n], h); err != nil {
		return fmt.Errorf("block %x: %w", h[:8], err)
	}
	return nil
}

// publish puts the manifest of a state whose blocks are in the store: with it the state exists there.
func (r remote) publish(k Key, tensors []*tensor) error {
	data := encodeManifest(k, tensors)
	return r.asking(func(ctx context.Context) error {
		return r.bucket.Put(ctx, r.manifest(k), bytes.NewReader(data), int64(len(data)))
	})
}

// read returns the tensors of a state. It fails with ErrNotFound, ErrCorrupt, ErrRemote or ErrClosed.
func (r remote) read(k Key) ([]*tensor, error) {
	var data []byte
	err := r.asking(func(ctx context.Context) (err error) {
		data, err = r.bucket.Read(ctx, r.manifest(k), nil, manifestBytesMax)
		return err
	})
	switch {
	case errors.Is(err, s3.ErrNotFound):
		return nil, fmt.Errorf("%w: %s has no state %s", ErrNotFound, r.name(), k)
	case errors.Is(err, s3.ErrTooLarge):
		return nil, fmt.Errorf("manifest of %s in %s: %w: %w", k, r.name(), ErrCorrupt, err)
	case err != nil:
		return nil, err
	}
	return manifestOf(k, data, r.name())
}

// name is the address of the place.
func (r remote) name() string {
	return remoteScheme + r.bucket.Name + "/" + strings.TrimSuffix(r.prefix, "/")
}

// save writes a state to the store: the blocks first, as many at once as elsewhere, then the manifest. So
// a checkpoint that was cut off is no checkpoint, and the next try sends what is missing.
func (r remote) save(st *state, page pageOf) (wrote []bool, err error) {
	pieces := st.pieces()
	wrote, first := make([]bool, len(pieces)), firsts(pieces)
	err = r.store.each(pieces, func(i int, p piece) error {
		data, free, err := page(p)
		if err != nil {
			return err
		}
		defer free()
		if err := p.check(data[:p.bytes()]); err != nil {
			return fmt.Errorf("in memory: %w", err)
		}
		if first[i] {
			wrote[i], err = r.put(p.hash(), slices.Clip(data[:p.bytes()]))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return wrote, r.publish(st.key, st.tensors)
}
