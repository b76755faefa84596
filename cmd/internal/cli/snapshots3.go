package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rota/api/client"
	"rota/internal/s3"
	"rota/server/backup"
)

// saveTo writes a backup to a file, or to an object store through a temporary file.
func saveTo(ctx context.Context, c *client.Client, path string) (saved *backup.File, err error) {
	bucket, key, remote := s3.Parse(path)
	if !remote {
		return saveBackup(ctx, c, path)
	}
	b, err := objectBucket(bucket, key)
	if err != nil {
		return nil, err
	}
	err = inTemporaryFolder(func(tmp string) error {
		if saved, err = saveBackup(ctx, c, tmp); err != nil {
			return err
		}
		return putFile(ctx, b, key, tmp)
	})
	return saved, err
}

// withBackup opens a backup, of an object store if its path is one of it.
func withBackup(ctx context.Context, path string, fn func(*backup.File) error) error {
	open := func(file string) error {
		f, err := backup.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		return fn(f)
	}
	bucket, key, remote := s3.Parse(path)
	if !remote {
		return open(path)
	}
	b, err := objectBucket(bucket, key)
	if err != nil {
		return err
	}
	return inTemporaryFolder(func(tmp string) error {
		f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		if err := errors.Join(b.Get(ctx, key, f), f.Close()); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return open(tmp)
	})
}

// inTemporaryFolder calls with the path of a file in a folder that only this user can read.
func inTemporaryFolder(fn func(path string) error) error {
	dir, err := os.MkdirTemp("", "rota-backup-")
	if err != nil {
		return err
	}
	return errors.Join(fn(filepath.Join(dir, "rota.backup")), os.RemoveAll(dir))
}

// objectBucket returns the bucket of a backup with a key.
func objectBucket(bucket, key string) (*s3.Bucket, error) {
	if key == "" || strings.HasSuffix(key, "/") {
		return nil, usageErrorf("name the object, such as s3://%s/rota.backup", bucket)
	}
	b, err := s3.FromEnvironment(bucket)
	if err != nil {
		return nil, usageErrorf("%w", err)
	}
	return b, nil
}

func putFile(ctx context.Context, b *s3.Bucket, key, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return b.Put(ctx, key, f, info.Size())
}

// copies are those of the backups of a folder in an object store: PREFIX/CLUSTER-ID/NAME. So clusters
// that share a prefix do not remove each other's. Copies of earlier releases are PREFIX/NAME, which
// does not say whose they are: they stay until an operator removes them.
type copies struct {
	bucket *s3.Bucket
	prefix string
	retain int
	// missing is the newest backup while it has no copy.
	missing string
}

// newCopies returns nil without an address.
func newCopies(address string, retain int) (*copies, error) {
	if address == "" {
		return nil, nil
	}
	bucket, prefix, ok := s3.Parse(address)
	if !ok {
		return nil, usageErrorf("--copy-to must be s3://BUCKET/PREFIX, is %q", address)
	}
	b, err := s3.FromEnvironment(bucket)
	if err != nil {
		return nil, usageErrorf("%w", err)
	}
	if prefix = strings.TrimSuffix(prefix, "/"); prefix != "" {
		prefix += "/"
	}
	return &copies{bucket: b, prefix: prefix, retain: retain}, nil
}

// incomplete reports whether the newest backup has no copy yet.
func (c *copies) incomplete() bool { return c != nil && c.missing != "" }

// copyWait bounds the copy of one backup: a store that stands still must not stop the agent.
const copyWait = time.Hour

// add copies the backup that has no copy yet, and removes the oldest copies beyond those that are
// kept. Other objects stay.
func (c *copies) add(ctx context.Context) error {
	if !c.incomplete() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, copyWait)
	defer cancel()
	cluster, err := clusterOf(c.missing)
	if err != nil {
		return err
	}
	prefix := c.prefix + cluster + "/"
	if err := putFile(ctx, c.bucket, prefix+filepath.Base(c.missing), c.missing); err != nil {
		return err
	}
	c.missing = ""
	keys, err := c.bucket.List(ctx, prefix)
	if err != nil {
		return fmt.Errorf("it is stored, but older copies cannot be listed: %w", err)
	}
	var ours []string // in the order of time, as names are
	for _, key := range keys {
		if _, ok := backup.TimeOf(strings.TrimPrefix(key, prefix)); ok {
			ours = append(ours, key)
		}
	}
	slices.Sort(ours) // not every store lists in order
	for len(ours) > c.retain {
		if err := c.bucket.Delete(ctx, ours[0]); err != nil {
			return fmt.Errorf("it is stored, but an older copy cannot be removed: %w", err)
		}
		ours = ours[1:]
	}
	return nil
}

// clusterOf returns the ID of the cluster that a backup is of.
func clusterOf(path string) (string, error) {
	f, err := backup.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	id := f.Header.ClusterId
	if id == "" || strings.Contains(id, "/") {
		return "", fmt.Errorf("%s: the cluster ID %q names no folder of an object store", path, id)
	}
	return id, nil
}
