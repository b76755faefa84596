package bench

import (
	"net"
	"os"

	"rota/cmd/internal/devcluster"
)

// startNull starts a process that serves NullHandler.
func startNull(binary string) (*devcluster.Process, error) {
	binary, err := devcluster.Binary(binary)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	l.Close()
	dir, err := os.MkdirTemp("", "rota-null-")
	if err != nil {
		return nil, err
	}
	p := devcluster.NewProcess("null", addr, dir, binary, "bench", "null-server", "--listen", addr)
	return p, p.Start()
}
