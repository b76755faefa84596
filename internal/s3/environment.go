package s3

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
)

// FromEnvironment returns a bucket with the credentials, region and endpoint of the environment, by
// the names that other tools use. The credentials may be in a file that the environment names.
func FromEnvironment(bucket string) (*Bucket, error) {
	if bucket == "" || strings.ContainsAny(bucket, "/?#") {
		return nil, errors.New("name a bucket and a key: s3://BUCKET/KEY")
	}
	b := &Bucket{Name: bucket, Region: os.Getenv("AWS_REGION"), HTTP: shared}
	var err error
	if b.Credentials, err = credentials(); err != nil {
		return nil, err
	}
	if b.Region == "" {
		b.Region = "us-east-1"
	}
	endpoint := os.Getenv("AWS_ENDPOINT_URL_S3")
	if endpoint == "" {
		endpoint = os.Getenv("AWS_ENDPOINT_URL")
	}
	if endpoint == "" {
		endpoint = "https://s3." + b.Region + ".amazonaws.com"
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Path != "" && u.Path != "/" || u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())) {
		return nil, errors.New("AWS_ENDPOINT_URL must be https://HOST:PORT, or http on a loopback address, without user and path")
	}
	b.Endpoint = u
	return b, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// credentials are those of the environment, else those of the profile AWS_PROFILE in the file
// AWS_SHARED_CREDENTIALS_FILE. No file is read that is not named.
func credentials() (Credentials, error) {
	c := Credentials{os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), os.Getenv("AWS_SESSION_TOKEN")}
	path := os.Getenv("AWS_SHARED_CREDENTIALS_FILE")
	switch {
	case c.AccessKey != "" && c.Secret != "":
		return c, nil
	case path == "":
		return c, errors.New("an object store needs credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a file with AWS_SHARED_CREDENTIALS_FILE")
	}
	profile := os.Getenv("AWS_PROFILE")
	if profile == "" {
		profile = "default"
	}
	return credentialsOf(path, profile)
}

// credentialsOf reads a profile of a file of credentials: sections in brackets, and lines NAME = VALUE.
func credentialsOf(path, profile string) (c Credentials, err error) {
	f, err := os.Open(path)
	if err != nil {
		return c, fmt.Errorf("AWS_SHARED_CREDENTIALS_FILE: %w", err)
	}
	defer f.Close()
	within := false
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "[") {
			within = strings.TrimSpace(strings.Trim(line, "[]")) == profile
			continue
		}
		name, value, _ := strings.Cut(line, "=")
		value = strings.TrimSpace(value)
		switch name = strings.TrimSpace(name); {
		case !within:
		case name == "aws_access_key_id":
			c.AccessKey = value
		case name == "aws_secret_access_key":
			c.Secret = value
		case name == "aws_session_token":
			c.Session = value
		}
	}
	if err := lines.Err(); err != nil {
		return c, fmt.Errorf("AWS_SHARED_CREDENTIALS_FILE: %w", err)
	}
	if c.AccessKey == "" || c.Secret == "" {
		return c, fmt.Errorf("AWS_SHARED_CREDENTIALS_FILE: %s has no aws_access_key_id and aws_secret_access_key in the profile %q; AWS_PROFILE names another", path, profile)
	}
	return c, nil
}
