package httpx

import "net"

// OnLoopback reports whether the host of an address is this machine by its own name or number:
// what is sent there in clear stays on it.
func OnLoopback(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }
