package gossip

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"rota/api/pki"
)

const (
	// keysMax bounds the keys of a file: a message is tried with each.
	keysMax = 8
	// keysInterval is how often the file of keys is read again.
	keysInterval = 2 * time.Second
)

// LoadKeys reads keys in base64 from a file, one on each line, which only its owner may read
// (pki.ReadSecret). What is sent is encrypted with the first; what comes may be with any.
func LoadKeys(path string) (keys [][]byte, err error) {
	text, err := pki.ReadSecret(path)
	if err != nil {
		return nil, fmt.Errorf("gossip key: %w", err)
	}
	for _, line := range strings.Fields(string(text)) {
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(key) != keyBytes {
			return nil, fmt.Errorf("gossip key %d in %s: %w", len(keys)+1, path, ErrKey)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 || len(keys) > keysMax {
		return nil, fmt.Errorf("%s has %d gossip keys, and must have 1 to %d: %w", path, len(keys), keysMax, ErrKey)
	}
	return keys, nil
}

// watchKeys takes over what the file of keys says, whenever that changes. A file that cannot
// be read, or holds no keys, changes nothing.
func (g *Gossip) watchKeys(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for said := ""; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := g.readKeys()
		if err == nil {
			said = ""
		} else if said != err.Error() { // once, not at every look
			said = err.Error()
			g.logger.Warn("the gossip keys stay as they are", "error", err)
		}
	}
}

// readKeys takes over what the file of keys says.
func (g *Gossip) readKeys() error {
	g.keysMu.Lock()
	defer g.keysMu.Unlock()
	keys, err := LoadKeys(g.keyFile)
	if err != nil {
		return err
	}
	return g.useKeys(keys)
}

// useKeys makes a ring of the keys, the first of which is to encrypt. There is no moment at
// which a key is missing that is in both.
func (g *Gossip) useKeys(keys [][]byte) error {
	ring := g.ring
	had := ring.GetKeys()
	if slices.EqualFunc(had, keys, bytes.Equal) {
		return nil
	}
	for _, k := range keys {
		if err := ring.AddKey(k); err != nil {
			return err
		}
	}
	if err := ring.UseKey(keys[0]); err != nil {
		return err
	}
	changed := !bytes.Equal(had[0], keys[0])
	for _, k := range had {
		if !slices.ContainsFunc(keys, func(o []byte) bool { return bytes.Equal(o, k) }) {
			changed = true
			if err := ring.RemoveKey(k); err != nil {
				return err
			}
		}
	}
	if changed || len(keys) != len(had) {
		g.logger.Info("the gossip keys were changed", "keys", len(keys))
	}
	return nil
}
