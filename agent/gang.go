package agent

import (
	"net"
	"strconv"
	"strings"

	rotav1 "rota/api/gen/rota/v1"
)

// Gangs are told one of these ports to meet at. The default range of ports that Linux gives to
// connections ends below them. Gangs of which one's members do not follow thousands of actions after
// those of the other have different ones.
const (
	gangPortMin = 61000
	gangPorts   = 4000
)

// gangEnv says where the attempt of an action stands in its gang, so that its members find each other.
// Nobody keeps the port free: it is where they may meet.
func gangEnv(env map[string]string, action uint64, gang *rotav1.GangPlace) {
	hosts := gang.GetHosts()
	if len(hosts) == 0 {
		return
	}
	first := action - uint64(gang.GetRank())
	port := strconv.FormatUint(gangPortMin+first%gangPorts, 10)
	env["ROTA_GANG_ID"] = strconv.FormatUint(first, 10)
	env["ROTA_GANG_RANK"] = strconv.FormatUint(uint64(gang.GetRank()), 10)
	env["ROTA_GANG_SIZE"] = strconv.Itoa(len(hosts))
	env["ROTA_GANG_HOSTS"] = strings.Join(hosts, ",")
	env["ROTA_GANG_PORT"] = port
	env["ROTA_GANG_ADDRESS"] = net.JoinHostPort(hosts[0], port)
}
