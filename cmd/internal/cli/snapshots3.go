package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"rota/internal/s3"
	"rota/server/backup"
)

// saveTo has a backup saved to a file, or to an object store through a temporary file.
func saveTo(ctx context.Context, path string, save func(ctx context.Context, path string) (*backup.File, error)) (saved *backup.File, err error) {
	bucket, key, remote := s3.Parse(path)
	if !remote {
		return save(ctx, path)
	}
	b, err := objectBucket(bucket, key)
	if err != nil {
		return nil, err
	}
	err = inTemporaryFolder(func(tmp string) error {
		if saved, err = save(ctx, tmp); err != nil {
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

func putFile(ctx context.Context, b objectStore, key, path string) error {
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
//
// They are made by a goroutine of their own, one at a time. All methods but add are for one other
// goroutine, and do nothing for nil.
type copies struct {
	// open returns the bucket with the credentials of now. It is called for each copy: credentials
	// end and are replaced while the agent runs.
	open   func() (objectStore, error)
	prefix string
	retain int
	// missing is the newest backup while it has no copy.
	missing string
	// busy: a copy is being made; its end comes over done.
	busy bool
	done chan copied
	// retryAt: no copy is tried before it. pause was the time until then, 0 after a copy: a copy that
	// fails again is tried more rarely, as each try reads the whole backup.
	retryAt time.Time
	pause   time.Duration
	// newest is the time of the newest backup that this agent has copied.
	newest time.Time
}

// objectStore is what copies need of a bucket.
type objectStore interface {
	Put(ctx context.Context, key string, from io.ReaderAt, size int64) error
	List(ctx context.Context, prefix string) ([]string, error)
	Delete(ctx context.Context, key string) error
}

// copied is how the copy of a backup ended. It may be stored though older ones could not be removed.
type copied struct {
	path   string
	stored bool
	err    error
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
	open := func() (objectStore, error) { return s3.FromEnvironment(bucket) }
	if _, err := open(); err != nil { // it is known at the start
		return nil, usageErrorf("%w", err)
	}
	if prefix = strings.TrimSuffix(prefix, "/"); prefix != "" {
		prefix += "/"
	}
	return &copies{open: open, prefix: prefix, retain: retain, done: make(chan copied, 1)}, nil
}

const (
	// copyWait bounds the copy of one backup: a store that stands still must not stop the agent.
	copyWait = time.Hour
	// copyRetryMax is the longest pause between two tries of a copy.
	copyRetryMax = 5 * time.Minute
)

// want says which backup is the newest: it takes the place of one that has no copy yet.
func (c *copies) want(path string) {
	if c != nil {
		c.missing = path
	}
}

// begin starts a copy if one is missing, and returns how long it is until it is worth another call;
// an end of a copy is, too.
func (c *copies) begin(ctx context.Context) time.Duration {
	if c == nil || c.busy || c.missing == "" {
		return math.MaxInt64
	}
	if pause := time.Until(c.retryAt); pause > 0 {
		return pause
	}
	c.busy = true
	go func(path string) {
		stored, err := c.add(ctx, path)
		c.done <- copied{path, stored, err}
	}(c.missing)
	return math.MaxInt64
}

// ended is where the end of a copy comes from.
func (c *copies) ended() <-chan copied {
	if c == nil {
		return nil
	}
	return c.done
}

// note takes in the end of a copy, and reports whether it is tried again.
func (c *copies) note(done copied) (again bool) {
	c.busy = false
	if done.stored {
		c.pause = 0
		if at, ok := backup.TimeOf(filepath.Base(done.path)); ok {
			c.newest = at
		}
		if c.missing == done.path {
			c.missing = ""
		}
		return false
	}
	c.pause = min(max(2*c.pause, backupRetry), copyRetryMax)
	c.retryAt = time.Now().Add(c.pause)
	return c.missing == done.path
}

// wait returns when no copy is being made.
func (c *copies) wait() {
	if c != nil && c.busy {
		<-c.done
	}
}

// add copies a backup, and removes the oldest copies beyond those that are kept. Other objects stay.
func (c *copies) add(ctx context.Context, path string) (stored bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, copyWait)
	defer cancel()
	bucket, err := c.open()
	if err != nil {
		return false, err
	}
	cluster, err := clusterOf(path)
	if err != nil {
		return false, err
	}
	prefix := c.prefix + cluster + "/"
	if err := putFile(ctx, bucket, prefix+filepath.Base(path), path); err != nil {
		return false, err
	}
	keys, err := bucket.List(ctx, prefix)
	if err != nil {
		return true, fmt.Errorf("it is stored, but older copies cannot be listed: %w", err)
	}
	var ours []backup.Kept
	for _, key := range keys {
		if at, ok := backup.TimeOf(strings.TrimPrefix(key, prefix)); ok {
			ours = append(ours, backup.Kept{Path: key, Time: at})
		}
	}
	backup.SortByAge(ours, time.Now())
	for len(ours) > c.retain {
		if err := bucket.Delete(ctx, ours[0].Path); err != nil {
			return true, fmt.Errorf("it is stored, but an older copy cannot be removed: %w", err)
		}
		ours = ours[1:]
	}
	return true, nil
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
