package registry

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	ocireg "oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"oras.land/oras-go/v2/registry/remote/retry"

	"rota/api/pki"
)

const (
	// DefaultBytesMax is the most bytes that the layers of an image have, unless another limit is given.
	DefaultBytesMax = 32 << 30
	// triesMax is how often a request is sent.
	triesMax = 6
	// firstPause is before the second try, and pauseMax the longest pause, also if a registry asks for a longer one.
	firstPause = 500 * time.Millisecond
	pauseMax   = 30 * time.Second
	// answerMax is how long a registry may take to begin an answer.
	answerMax = 30 * time.Second
	// redirectsMax is how often one request is redirected.
	redirectsMax = 5
	plainHTTP    = "http://"
	docker       = "docker.io"
)

// ErrConfig says that the settings of registries cannot be used.
var ErrConfig = errors.New("registries of images")

// Options says which registries may be used, and how.
type Options struct {
	// Hosts are the registries, HOST or HOST:PORT. One on a loopback address may begin with http://,
	// which is the only way to do without TLS.
	Hosts []string
	// Auth is a config.json of Docker with credentials; empty: none. It is read for each image.
	Auth string
	// CA is a file of certificates that are trusted beside those of the system; empty: none.
	CA string
	// BytesMax bounds the layers of an image, compressed; 0: DefaultBytesMax.
	BytesMax uint64
	// Pause is before the second try of a request; 0: half a second. Later pauses are twice as long each.
	Pause time.Duration
}

// Client reads images. It may be used by several goroutines.
type Client struct {
	opts  Options
	plain map[string]bool // by host, whether it has no TLS
	http  *http.Client
}

// New checks the options, also the files that they name. Its error wraps ErrConfig.
func New(o Options) (*Client, error) {
	c := &Client{opts: o, plain: map[string]bool{}}
	c.opts.BytesMax = cmp.Or(o.BytesMax, DefaultBytesMax)
	for _, text := range o.Hosts {
		host, plain := strings.CutPrefix(text, plainHTTP)
		if (ocireg.Reference{Registry: host}).ValidateRegistry() != nil || strings.Contains(host, "@") {
			return nil, fmt.Errorf("%w: %q is not HOST or HOST:PORT", ErrConfig, text)
		}
		if plain && !loopback(host) {
			return nil, fmt.Errorf("%w: %s is not on this machine, so it needs HTTPS: leave out %s", ErrConfig, text, plainHTTP)
		}
		c.plain[strings.ToLower(host)] = plain
	}
	if _, err := c.credentials(); err != nil {
		return nil, err
	}
	roots, err := rootsWith(o.CA)
	if err != nil {
		return nil, err
	}
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	base.ResponseHeaderTimeout = answerMax
	policy := &retry.GenericPolicy{
		Retryable: temporary, Backoff: retry.ExponentialBackoff(cmp.Or(o.Pause, firstPause), 2, 0.5),
		MaxWait: pauseMax, MaxRetry: triesMax - 1,
	}
	c.http = &http.Client{
		Transport:     &retry.Transport{Base: base, Policy: func() retry.Policy { return policy }},
		CheckRedirect: checkRedirect,
	}
	return c, nil
}

// Allows returns an error for an image, by its full name, that may not be pulled.
func (c *Client) Allows(name string) error {
	ref, err := ocireg.ParseReference(name)
	if err != nil {
		return fmt.Errorf("%w: %q is not a name of a registry's image", ErrRefused, name)
	}
	if _, ok := c.plain[strings.ToLower(ref.Registry)]; !ok {
		return fmt.Errorf("%w: this node may not pull from %s; its operator allows that with --pull %s", ErrRefused, ref.Registry, ref.Registry)
	}
	return nil
}

func loopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// checkRedirect follows no redirect to plain HTTP, except from one port of this machine to another.
// The library sends no credentials to another host or port.
func checkRedirect(to *http.Request, via []*http.Request) error {
	switch {
	case len(via) >= redirectsMax:
		return fmt.Errorf("%w: it redirects again and again", errRedirect)
	case to.URL.Scheme == "https":
	case to.URL.Scheme == "http" && via[0].URL.Scheme == "http" && loopback(to.URL.Host):
	default:
		return fmt.Errorf("%w: it redirects to %s, which has no TLS", errRedirect, to.URL.Hostname())
	}
	return nil
}

// temporary says whether a request may succeed when it is sent again.
func temporary(resp *http.Response, err error) (bool, error) {
	if err == nil {
		return resp.StatusCode == http.StatusRequestTimeout || resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500, nil
	}
	var certificate *tls.CertificateVerificationError
	var noTLS tls.RecordHeaderError
	var name *net.DNSError
	never := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) && !isTimeout(err) ||
		errors.As(err, &certificate) || errors.As(err, &noTLS) || errors.As(err, &name) && name.IsNotFound
	if never {
		return false, err
	}
	return true, nil
}

// isTimeout tells a limit of the transport from the end of a context.
func isTimeout(err error) bool {
	var op net.Error
	return err != context.DeadlineExceeded && errors.As(err, &op) && op.Timeout()
}

func rootsWith(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: certificates: %w", ErrConfig, err)
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%w: %s has no certificate in PEM", ErrConfig, path)
	}
	return roots, nil
}

// credentials reads the file of credentials. It runs no program that the file names.
func (c *Client) credentials() (credentials.Store, error) {
	if c.opts.Auth == "" {
		return credentials.NewMemoryStore(), nil
	}
	b, err := pki.ReadSecret(c.opts.Auth)
	if err != nil {
		return nil, fmt.Errorf("%w: credentials: %w", ErrConfig, err)
	}
	store, err := credentials.NewMemoryStoreFromDockerConfig(b)
	if err != nil { // the cause may have a part of a secret
		return nil, fmt.Errorf("%w: %s is damaged: it must be JSON as Docker's config.json, with \"auths\"", ErrConfig, c.opts.Auth)
	}
	return store, nil
}

// repository has credentials for its own registry only.
func (c *Client) repository(name string) (*remote.Repository, error) {
	repo, err := remote.NewRepository(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %q is not a name of a registry's image", ErrRefused, name)
	}
	store, err := c.credentials()
	if err != nil {
		return nil, err
	}
	keys := []string{repo.Reference.Registry}
	if keys[0] == docker {
		keys = []string{"index.docker.io", docker, "registry-1.docker.io"}
	}
	find := func(ctx context.Context, host string) (auth.Credential, error) {
		for _, key := range keys {
			cred, err := store.Get(ctx, key)
			if host == repo.Reference.Host() && (err != nil || cred != auth.EmptyCredential) {
				return cred, err
			}
		}
		return auth.EmptyCredential, nil
	}
	client := &auth.Client{Client: c.http, Credential: find, Cache: auth.NewCache()}
	client.SetUserAgent("rota")
	repo.Client, repo.PlainHTTP, repo.MaxMetadataBytes = client, c.plain[strings.ToLower(repo.Reference.Registry)], metadataMax
	repo.ManifestMediaTypes = manifestTypes
	return repo, nil
}

// query is what may be signed in the address of a redirect.
var query = regexp.MustCompile(`\?[^"\s]*`)

// withoutURL is the cause of an error of a request, without what is secret of its address.
func withoutURL(err error) error {
	var request *url.Error
	if !errors.As(err, &request) {
		return errors.New(query.ReplaceAllString(err.Error(), ""))
	}
	for errors.As(err, &request) {
		err = request.Err
	}
	return err
}
