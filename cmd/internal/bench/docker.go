package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

// docker is a client of a Docker's API (Docker Engine API v1.41), of the few calls that are measured.
type docker struct{ http *http.Client }

func newDocker(socket string) *docker {
	return &docker{&http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
		MaxIdleConnsPerHost: 64,
	}}}
}

func (d *docker) close() { d.http.CloseIdleConnections() }

// call sends JSON, or a stream, and decodes the answer into out; nil: it is read to its end.
func (d *docker) call(ctx context.Context, method, path string, in, out any) error {
	body, kind := io.Reader(nil), "application/json"
	switch in := in.(type) {
	case nil:
	case io.Reader:
		body, kind = in, "application/x-tar"
	default:
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://docker/v1.41"+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", kind)
	resp, err := d.http.Do(req)
	if err != nil {
		return fmt.Errorf("docker: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // more about the same error
		return fmt.Errorf("docker: %s %s: %s: %s", method, path, resp.Status, bytes.TrimSpace(said))
	}
	if out != nil {
		return json.NewDecoder(resp.Body).Decode(out)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// load gives Docker an image.
func (d *docker) load(ctx context.Context, archive string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	return d.call(ctx, http.MethodPost, "/images/load?quiet=1", f, nil)
}

// unload removes an image.
func (d *docker) unload(ctx context.Context, image string) error {
	return d.call(ctx, http.MethodDelete, "/images/"+image+"?force=1", nil, nil)
}

// runContainer makes and starts a container without a network, as `docker run --detach` does.
func (d *docker) runContainer(ctx context.Context, name, image string, argv []string) (id string, err error) {
	var made struct{ ID string }
	err = d.call(ctx, http.MethodPost, "/containers/create?name="+name, map[string]any{
		"Image": image, "Cmd": argv, "HostConfig": map[string]any{"NetworkMode": "none"},
	}, &made)
	if err != nil {
		return "", err
	}
	if err := d.call(ctx, http.MethodPost, "/containers/"+made.ID+"/start", nil, nil); err != nil {
		return "", errors.Join(err, d.remove(ctx, made.ID))
	}
	return made.ID, nil
}

// setCores is `docker update --cpus`.
func (d *docker) setCores(ctx context.Context, id string, cores int) error {
	return d.call(ctx, http.MethodPost, "/containers/"+id+"/update", map[string]any{"NanoCpus": cores * 1_000_000_000}, nil)
}

// exec is `docker exec`: it runs a command to its end, and fails if that fails.
func (d *docker) exec(ctx context.Context, id string, argv []string) error {
	var made struct{ ID string }
	err := d.call(ctx, http.MethodPost, "/containers/"+id+"/exec", map[string]any{"AttachStdout": true, "AttachStderr": true, "Cmd": argv}, &made)
	if err != nil {
		return err
	}
	// The output ends with the command.
	if err := d.call(ctx, http.MethodPost, "/exec/"+made.ID+"/start", map[string]any{"Detach": false}, nil); err != nil {
		return err
	}
	for {
		var ended struct{ ExitCode *int }
		if err := d.call(ctx, http.MethodGet, "/exec/"+made.ID+"/json", nil, &ended); err != nil {
			return err
		}
		switch {
		case ended.ExitCode == nil: // Docker does not know yet that it has ended
		case *ended.ExitCode != 0:
			return fmt.Errorf("docker exec: %v ended with exit code %d", argv, *ended.ExitCode)
		default:
			return nil
		}
	}
}

// remove kills and removes a container.
func (d *docker) remove(ctx context.Context, id string) error {
	return d.call(ctx, http.MethodDelete, "/containers/"+id+"?force=1", nil, nil)
}
