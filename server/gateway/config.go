package gateway

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"rota/api/pki"
)

// DefaultListen is loopback: nothing else is served without TLS.
const DefaultListen = "127.0.0.1:8000"

// Config says how a gateway runs. Zero values become those of Defaults.
type Config struct {
	// Listen is host:port.
	Listen string
	// Servers are those of the cluster, as host:port.
	Servers []string
	// TLS are the certificates for talking to servers.
	TLS pki.Files
	// Cert and Key are the PEM files that clients see. ClientCA, if set, is what clients'
	// certificates must be from.
	Cert, Key, ClientCA string
	// APIKeys is a file with one key in each line, of which clients must have one.
	APIKeys string
	// WorkerCA is a PEM file with the authority of workers that use https; the system's if
	// empty. WorkerKey is a file with the API key of the workers.
	WorkerCA, WorkerKey string
	// LeastLoaded sends requests without a trajectory to the least loaded worker.
	LeastLoaded bool
	// Wait is how long a request waits for a worker, or until its trajectory is resumed.
	Wait time.Duration
	// TokenTimeout is how long a worker may send nothing; negative: forever.
	TokenTimeout time.Duration
	// ClientTimeout is how long a client may not read, or not send the rest of its request.
	ClientTimeout time.Duration
	// KeepAlive is how long a stream may be silent before its client is sent a comment; negative:
	// forever.
	KeepAlive time.Duration
	// RequestsMax is how many requests run and wait at once, BodyBytesMax the size of one, and
	// BytesMax what all of them may hold in memory: as they came, as they are sent on, and what
	// comes back.
	RequestsMax, BodyBytesMax, BytesMax int64
	// ReportInterval is how often the cluster is told what was generated; ReportTurns how many
	// turns make a report that does not wait for it.
	ReportInterval time.Duration
	ReportTurns    int
	// Drain is how long requests may take yet when the gateway stops.
	Drain time.Duration

	// Version of the program, for its metrics.
	Version string
	Logger  hclog.Logger
}

// Defaults are the values that zeros in a Config stand for.
func Defaults() Config {
	return Config{
		Listen: DefaultListen, Wait: 5 * time.Minute, TokenTimeout: 2 * time.Minute, ClientTimeout: 2 * time.Minute, KeepAlive: 15 * time.Second,
		RequestsMax: 16384, BodyBytesMax: 64 << 20, BytesMax: 2 << 30,
		ReportInterval: 500 * time.Millisecond, ReportTurns: 256, Drain: 5 * time.Minute,
	}
}

// Errors of a configuration.
var (
	ErrNoServers = errors.New("a gateway needs the address of at least one server of the cluster")
	ErrOpen      = errors.New("an address beyond loopback needs TLS and a check of who the client is: " +
		"a certificate and its key, and either an authority of clients or a file of API keys")
	errKeys = errors.New("a file of API keys has one key in each line, of at least 16 characters without spaces or colons")
)

func orDefault[T comparable](v *T, d T) {
	if *v == *new(T) {
		*v = d
	}
}

func (c *Config) check() error {
	d := Defaults()
	orDefault(&c.Listen, d.Listen)
	orDefault(&c.Wait, d.Wait)
	orDefault(&c.TokenTimeout, d.TokenTimeout)
	orDefault(&c.ClientTimeout, d.ClientTimeout)
	orDefault(&c.KeepAlive, d.KeepAlive)
	orDefault(&c.RequestsMax, d.RequestsMax)
	orDefault(&c.BodyBytesMax, d.BodyBytesMax)
	orDefault(&c.BytesMax, d.BytesMax)
	orDefault(&c.ReportInterval, d.ReportInterval)
	orDefault(&c.ReportTurns, d.ReportTurns)
	orDefault(&c.Drain, d.Drain)
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	switch {
	case len(c.Servers) == 0:
		return ErrNoServers
	case c.RequestsMax < 0 || c.BodyBytesMax < 0 || (c.BytesMax-headBytes)/2 < c.BodyBytesMax || c.ReportTurns < 0:
		return errors.New("limits of a gateway are positive, and all requests together are at least twice as large as one, which is sent on as a copy, and 1 MiB for its header")
	case (c.Cert == "") != (c.Key == ""), c.ClientCA != "" && c.Cert == "":
		return errors.New("a certificate for clients needs its key, and an authority of clients needs both")
	}
	return nil
}

// open returns nil if clients beyond this machine may reach the address.
func (c *Config) open(addr net.Addr) error {
	if pki.AllowPlaintext(addr) == nil || c.Cert != "" && (c.ClientCA != "" || c.APIKeys != "") {
		return nil
	}
	return fmt.Errorf("%s: %w", addr, ErrOpen)
}

// clientTLS is what clients connect to; nil without TLS.
func (c *Config) clientTLS() (*tls.Config, error) {
	if c.Cert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate for clients: %w", err)
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}
	if c.ClientCA != "" {
		if conf.ClientCAs, err = pki.ReadAuthorities(c.ClientCA); err != nil {
			return nil, err
		}
		conf.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return conf, nil
}

func (c *Config) workerTLS() (*tls.Config, error) {
	if c.WorkerCA == "" {
		return nil, nil
	}
	roots, err := pki.ReadAuthorities(c.WorkerCA)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}, nil
}

// keys are the hashes of API keys; nil: none is asked for.
type keys map[[sha256.Size]byte]bool

func loadKeys(file string) (keys, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	k := keys{}
	for line := range strings.Lines(strings.TrimPrefix(string(text), "\ufeff")) {
		key := strings.TrimSpace(line)
		if key == "" || strings.HasPrefix(key, "#") {
			continue
		}
		if len(key) < 16 || strings.ContainsAny(key, " \t:") {
			return nil, fmt.Errorf("%s: %w", file, errKeys)
		}
		k[sha256.Sum256([]byte(key))] = true
	}
	if len(k) == 0 {
		return nil, fmt.Errorf("%s is empty: %w", file, errKeys)
	}
	return k, nil
}

func (k keys) has(key string) bool { return k[sha256.Sum256([]byte(key))] }

// loadKey reads a file with one key.
func loadKey(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	key := strings.TrimSpace(string(text))
	if key == "" || strings.ContainsAny(key, " \t\r\n") {
		return "", fmt.Errorf("%s must hold one API key and nothing else", file)
	}
	return key, nil
}
