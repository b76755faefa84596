package cluster

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"os"
	"path/filepath"

	"rota/api/pki"
)

// keys is the folder with the keys of a cluster.
type keys struct{ dir string }

// runnerName is on the certificate of this process.
const runnerName = "runner"

func (k keys) gossip() string { return filepath.Join(k.dir, "gossip.key") }

func (k keys) files(name string) pki.Files { return pki.FilesIn(k.dir, name) }

// make issues what everybody needs and returns the configuration of clients.
// Keys of an earlier cluster in the folder are used again.
func (k keys) make(members []*Member) (*tls.Config, error) {
	if _, err := os.Stat(k.gossip()); err == nil {
		return pki.ClientConfig(k.files(runnerName), pki.RoleServer)
	}
	if err := pki.NewCA(k.dir); err != nil {
		return nil, err
	}
	roles := map[string]pki.Role{runnerName: pki.RoleOperator}
	for _, m := range members {
		roles[m.Name] = pki.Role(m.Kind)
	}
	for name, role := range roles {
		if err := pki.Issue(k.dir, role, name); err != nil {
			return nil, err
		}
	}
	key := make([]byte, 32)
	rand.Read(key)
	if err := os.WriteFile(k.gossip(), []byte(base64.StdEncoding.EncodeToString(key)), 0o600); err != nil {
		return nil, err
	}
	return pki.ClientConfig(k.files(runnerName), pki.RoleServer)
}

// Issue makes a certificate for somebody who is no member.
func (c *Cluster) Issue(role pki.Role, name string) (pki.Files, error) {
	return c.keys.files(name), pki.Issue(c.keys.dir, role, name)
}
