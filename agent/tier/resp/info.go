package resp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// infoMax is the longest answer to INFO that is read, in bytes.
const infoMax = 1 << 20

// info answers with what clients look for, and with all of the store's state in a section
// of its own. The names of sections are not looked at: it is all or nothing.
func info(c *conn, _ *command) {
	st := c.store.Stat()
	var b strings.Builder
	section := func(name string, fields ...any) {
		fmt.Fprintf(&b, "# %s\r\n", name)
		for i := 0; i < len(fields); i += 2 {
			fmt.Fprintf(&b, "%v:%v\r\n", fields[i], strings.NewReplacer("\r", " ", "\n", " ").Replace(fmt.Sprint(fields[i+1])))
		}
		b.WriteString("\r\n")
	}
	section("Server", "redis_version", version, "redis_mode", "standalone", "process_id", os.Getpid(),
		"uptime_in_seconds", int(time.Since(c.server.started).Seconds()))
	section("Clients", "connected_clients", c.server.clients(), "maxclients", connectionsMax)
	section("Memory", "used_memory", st.MemoryBytes+st.IndexBytes, "maxmemory", st.MemoryBytesMax)
	section("Stats", "keyspace_hits", st.MemoryHits+st.DiskHits, "keyspace_misses", st.Misses,
		"expired_keys", st.Expired, "evicted_keys", st.Evicted)
	section("Rota", "keys", st.Keys, "logical_bytes", st.LogicalBytes, "unique_bytes", st.UniqueBytes,
		"memory_bytes", st.MemoryBytes, "memory_bytes_max", st.MemoryBytesMax, "memory_items", st.MemoryItems,
		"index_bytes", st.IndexBytes, "disk", st.Disk, "disk_why", st.DiskWhy, "disk_direct", st.Direct,
		"disk_bytes", st.DiskBytes, "disk_bytes_max", st.DiskBytesMax, "disk_live_bytes", st.DiskLiveBytes,
		"disk_items", st.DiskItems, "disk_segments", st.Segments, "memory_hits", st.MemoryHits, "disk_hits", st.DiskHits,
		"misses", st.Misses, "demoted", st.Demoted, "evicted", st.Evicted, "expired", st.Expired,
		"corrupt", st.Corrupt, "lost", st.Lost)
	if files := c.server.Files; files != nil {
		directory, mounted := files()
		section("Files", "files_directory", directory, "files_mounted", mounted)
	}
	section("Keyspace", "db0", fmt.Sprintf("keys=%d,expires=0,avg_ttl=0", st.Keys))
	c.bulk(b.String())
}

// Info asks the server at an address, host:port or unix:/path, for its fields.
func Info(ctx context.Context, address, password string) (map[string]string, error) {
	network := "tcp"
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		network, address = "unix", path
	}
	var d net.Dialer
	nc, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { _ = nc.Close() })()
	r := bufio.NewReader(nc)
	if password != "" {
		if _, err := ask(nc, r, "AUTH", password); err != nil {
			return nil, err
		}
	}
	text, err := ask(nc, r, "INFO")
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			fields[k] = v
		}
	}
	return fields, nil
}

// ask sends a command and returns a line or a bulk string.
func ask(nc net.Conn, r *bufio.Reader, args ...string) (string, error) {
	request := fmt.Sprintf("*%d\r\n", len(args))
	for _, arg := range args {
		request += fmt.Sprintf("$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(nc, request); err != nil {
		return "", err
	}
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimRight(line, "\r\n")
	switch {
	case strings.HasPrefix(line, "+"):
		return line[1:], nil
	case strings.HasPrefix(line, "-"):
		return "", errors.New(line[1:])
	case !strings.HasPrefix(line, "$"):
		return "", fmt.Errorf("%.40q is no answer of a cache", line)
	}
	n, err := strconv.Atoi(line[1:])
	if err != nil || n < 0 || n > infoMax {
		return "", fmt.Errorf("%.40q is no answer of a cache", line)
	}
	b := make([]byte, n)
	_, err = io.ReadFull(r, b)
	return string(b), err
}
