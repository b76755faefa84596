package fault

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rota/internal/process"
	"rota/jepsen/cluster"
)

// stranger is the name of an agent that does not belong to the cluster. No other line of
// a log has the word.
const stranger = "outsider"

// wrongKey starts an agent that has everything but the right key for gossip. It
// must find no server, and no server may learn of it.
func wrongKey(_ context.Context, w *World) (*Injection, error) {
	dir := filepath.Join(w.Dir, fmt.Sprintf("%s-%d", stranger, w.Record.Now()))
	key := filepath.Join(dir, "gossip.key")
	secret := make([]byte, 32)
	rand.Read(secret)
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(key, []byte(base64.StdEncoding.EncodeToString(secret)), 0o600)); err != nil {
		return nil, err
	}
	like := w.Cluster.Agents[0]
	args := slices.Clone(like.Args)
	for flag, value := range map[string]string{
		"--name": stranger, "--data-dir": filepath.Join(dir, "data"), "--gossip-key": key,
		"--listen": cluster.HubIP + ":7410", "--gossip": cluster.HubIP + ":7411",
	} {
		i := slices.Index(args, flag)
		if i < 0 {
			return nil, fmt.Errorf("agents are not told %s any more", flag)
		}
		args[i+1] = value
	}
	p := process.New(stranger, cluster.HubIP+":7410", dir, like.Binary, args...)
	p.Env = like.Env
	before := unreadable(w)
	if err := p.Start(); err != nil {
		return nil, err
	}
	return &Injection{Target: []string{stranger}, End: func(ctx context.Context) (string, error) {
		defer p.Stop(5 * time.Second)
		if !until(ctx, 10*time.Second, func() bool { return unreadable(w) > before }) {
			return "", nil
		}
		for _, m := range w.Cluster.Members() {
			if log, err := m.Log(); err == nil && strings.Contains(log, stranger) {
				return "", fmt.Errorf("%s knows of an agent with the wrong key", m.Name)
			}
		}
		return fmt.Sprintf("servers could not decrypt %d messages", unreadable(w)-before), nil
	}}, nil
}

// unreadable counts what servers got from our address and could not decrypt.
func unreadable(w *World) (n int) {
	for _, m := range w.Cluster.Servers {
		log, err := m.Log()
		if err == nil {
			n += strings.Count(log, "could decrypt the message from="+cluster.HubIP+":")
		}
	}
	return n
}
