package devcluster

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Free ports are taken from below those that Linux gives to outgoing connections
// (32768 and up, unless told otherwise): among those, the port of a server that
// was killed may be another process's connection when the server comes back.
const (
	portMin = 12000
	portMax = 32000
)

var ports struct {
	sync.Mutex
	next int
}

// FreePorts returns ports of loopback on which no process listens. No port is
// returned twice, and every process begins somewhere else.
func FreePorts(n int) ([]int, error) {
	ports.Lock()
	defer ports.Unlock()
	if ports.next == 0 {
		ports.next = portMin + rand.N(portMax-portMin)
	}
	var free []int
	var last error
	for range portMax - portMin {
		if len(free) == n {
			return free, nil
		}
		port := ports.next
		if ports.next++; ports.next == portMax {
			ports.next = portMin
		}
		if last = checkFree(port); last == nil {
			free = append(free, port)
		}
	}
	return nil, fmt.Errorf("no %d free ports between %d and %d: %w", n, portMin, portMax, last)
}

// checkFree tries both protocols: gossip needs them on the same port.
func checkFree(port int) error {
	l, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return err
	}
	defer l.Close()
	p, err := net.ListenPacket("udp", loopback(port))
	if err != nil {
		return err
	}
	return p.Close()
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// choosePorts returns two ports for each process: of the API and of gossip.
func choosePorts(config Config) ([]int, error) {
	n := config.Servers + config.Agents
	if config.BasePort == 0 {
		return FreePorts(2 * n)
	}
	var chosen []int
	for i := range n {
		for _, port := range []int{config.BasePort + 10*i, config.BasePort + 10*i + 1} {
			if err := checkFree(port); err != nil {
				return nil, fmt.Errorf("port %d is taken; is another cluster running? use another --port, or --port 0 for free ones: %w", port, err)
			}
			chosen = append(chosen, port)
		}
	}
	return chosen, nil
}
