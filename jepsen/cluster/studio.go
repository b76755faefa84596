package cluster

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"rota/api/pki"
	"rota/internal/process"
)

// Policy is what all generators serve, as vLLM does.
const Policy = "essayist"

// The ports of generators and gateways begin there.
const (
	generatorPort = 8100
	gatewayPort   = 8000
)

// studioName is on the certificate of gateways.
const studioName = "gateways"

// addStudio makes the generators and the gateways.
func (c *Cluster) addStudio() error {
	if c.config.Gateways == 0 {
		return nil
	}
	files, err := c.Issue(pki.RoleClient, studioName)
	if err != nil {
		return err
	}
	for i := range c.config.Generators {
		m, err := c.newLocal(Generator, i, generatorPort)
		if err != nil {
			return err
		}
		// A step of 3 ms: an answer of some hundred tokens lasts long enough to be cut off.
		m.Args = []string{"engine", "simulate", "--listen", m.Addr, "--model", Policy, "--dialect", "vllm",
			"--step", "3ms", "--weights", filepath.Join(m.Dir, "weights")}
		c.Generators = append(c.Generators, m)
	}
	for i := range c.config.Gateways {
		m, err := c.newLocal(Gateway, i, gatewayPort)
		if err != nil {
			return err
		}
		m.Args = []string{"gateway", "--listen", m.Addr, "--servers", strings.Join(c.Addrs(), ","),
			"--ca", files.CA, "--cert", files.Cert, "--key", files.Key, "--wait", "20s", "--report-interval", "200ms"}
		c.Gateways = append(c.Gateways, m)
	}
	return nil
}

// newLocal makes a process on loopback, in the network of this process.
func (c *Cluster) newLocal(kind Kind, number, port int) (*Member, error) {
	const ip = "127.0.0.1"
	name := fmt.Sprintf("%s-%d", kind, number+1)
	dir := filepath.Join(c.config.Dir, name)
	if err := openFolder(dir); err != nil {
		return nil, err
	}
	addr := net.JoinHostPort(ip, strconv.Itoa(port+number))
	m := &Member{Process: process.New(name, addr, dir, c.config.Binary), Kind: kind, IP: ip, cluster: c}
	m.Env = append(m.Env, c.config.Env...)
	return m, nil
}
