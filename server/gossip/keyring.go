package gossip

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/pki"
)

// Errors of a change of keys, one for each fact.
var (
	// ErrNoKeys: there are no keys that could be changed.
	ErrNoKeys = errors.New("this process gossips without keys: give it --gossip-key, or stop it")
	// ErrUnknownKey: the process does not have the key.
	ErrUnknownKey = errors.New("the gossip key is not installed")
	// ErrPrimary: the process sends with the key.
	ErrPrimary = errors.New("the gossip key is in use: use another one first")
	// ErrTooManyKeys: the file has as many keys as it may have.
	ErrTooManyKeys = errors.New("remove a gossip key first")
)

// KeyID names a key without giving it away: 16 hexadecimal digits of its SHA-256.
func KeyID(key []byte) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:8])
}

// ChangeKeyring implements rotav1connect.KeyringServiceHandler. The file is written first,
// so that a restart does not forget what the process has said that it has.
func (g *Gossip) ChangeKeyring(_ context.Context, req *rotav1.ChangeKeyringRequest) (*rotav1.ChangeKeyringResponse, error) {
	g.keysMu.Lock()
	defer g.keysMu.Unlock()
	resp := &rotav1.ChangeKeyringResponse{}
	var have [][]byte
	if g.ring != nil {
		have = g.ring.GetKeys()
	}
	keys, err := changed(have, req)
	if err == nil && !slices.EqualFunc(have, keys, bytes.Equal) {
		err = g.saveKeys(keys)
	}
	if err != nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, err)
	}
	for _, k := range keys {
		resp.Ids = append(resp.Ids, KeyID(k))
	}
	return resp, nil
}

// changed returns the keys as a request wants them.
func changed(have [][]byte, req *rotav1.ChangeKeyringRequest) ([][]byte, error) {
	at := func(id string) int {
		return slices.IndexFunc(have, func(k []byte) bool { return KeyID(k) == id })
	}
	keys := slices.Clone(have)
	wanted := len(req.Install) > 0 || req.Use != "" || req.Remove != ""
	switch {
	case wanted && len(have) == 0:
		return nil, ErrNoKeys
	case len(req.Install) > 0 && len(req.Install) != keyBytes:
		return nil, ErrKey
	case len(req.Install) > 0 && at(KeyID(req.Install)) < 0:
		if len(have) == keysMax {
			return nil, fmt.Errorf("there are %d gossip keys: %w", keysMax, ErrTooManyKeys)
		}
		keys = append(keys, slices.Clone(req.Install))
	case req.Use != "":
		i := at(req.Use)
		if i < 0 {
			return nil, ErrUnknownKey
		}
		keys = slices.Insert(slices.Delete(keys, i, i+1), 0, have[i])
	case req.Remove != "":
		switch i := at(req.Remove); {
		case i == 0:
			return nil, ErrPrimary
		case i > 0:
			keys = slices.Delete(keys, i, i+1)
		}
	}
	return keys, nil
}

// saveKeys writes the file of keys and takes them over.
func (g *Gossip) saveKeys(keys [][]byte) error {
	if g.keyFile == "" {
		return ErrNoKeys
	}
	var text bytes.Buffer
	for _, k := range keys {
		text.WriteString(base64.StdEncoding.EncodeToString(k))
		text.WriteByte('\n')
	}
	if err := pki.ReplaceFile(g.keyFile, text.Bytes(), 0o600); err != nil {
		return fmt.Errorf("the gossip keys stay as they are: %w: put the file of --gossip-key where this process may write, or change it by hand", err)
	}
	return g.useKeys(keys)
}
