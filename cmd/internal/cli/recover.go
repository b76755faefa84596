package cli

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"rota/fsm"
	"rota/server/replica"
)

func (a *app) recoverCmd() *cobra.Command {
	var dir string
	var voters []string
	var yes bool
	cmd := &cobra.Command{
		Use: "recover", Short: "Make a new cluster from the disk of one server, after a majority was lost for good", Args: exactly(),
		Long: `Works on the data folder of a stopped server, as the user of that server, when so many servers have lost their disks that
the others are no majority. Choose the server whose log reached furthest: without --yes, the
command only shows how far it did. Entries after that are known only to the servers that are
lost, and are gone, even if they were acknowledged.

The server of the folder becomes the only voter of a cluster with a new ID. Start it, then
add others with empty folders, as "rota operator raft join" says. Never start a server of the
old cluster again with its old folder. If one starts all the same, it and the new cluster
refuse each other.

What ran when the majority was lost counts as lost, as after a restored backup: the lost
servers may have told agents what this one does not know. The cluster has feature level 3 at
least afterwards, so all servers must run this release.`,
		Example: "  rota operator recover --data /var/lib/rota --voters s1=10.0.0.1:7400\n" +
			"  rota operator recover --data /var/lib/rota --voters s1=10.0.0.1:7400 --yes",
		RunE: func(*cobra.Command, []string) error {
			list, err := parseServers(voters)
			if err != nil {
				return err
			}
			if dir == "" || len(list) != 1 {
				return usageErrorf("give --data DIR and --voters ID=HOST:PORT with one server, that of the folder: " +
					"others join it later with empty folders, as their states may differ from its own")
			}
			return a.recover(dir, list[0], yes)
		},
	}
	cmd.Flags().StringVar(&dir, "data", "", "data folder of the stopped server")
	cmd.Flags().StringSliceVar(&voters, "voters", nil, "the server of the folder, ID=HOST:PORT, with the address that it will advertise")
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

// recovery is the result of the command, as JSON.
type recovery struct {
	Dir       string   `json:"dir"`
	Index     uint64   `json:"index"`
	Term      uint64   `json:"term"`
	Behind    uint64   `json:"behind,omitempty"`
	Members   []string `json:"members"`
	Recovered bool     `json:"recovered"`
	ClusterID string   `json:"clusterId,omitempty"`
	Attempts  uint32   `json:"attemptsLost"`
}

func (a *app) recover(dir string, voter replica.Server, yes bool) error {
	if err := checkOwner(dir, os.Geteuid()); err != nil {
		return err
	}
	found, err := replica.Inspect(dir)
	if err != nil {
		return err
	}
	if err := found.Check(voter); err != nil {
		return err
	}
	r := recovery{Dir: dir, Index: found.Index, Term: found.Term, Behind: found.Behind}
	for _, s := range found.Members {
		r.Members = append(r.Members, s.ID+" at "+s.Address)
	}
	a.say("the newest entry here is %d of term %d; entries after %d known only to lost servers are gone", found.Index, found.Term, found.Index)
	if found.Behind > 0 {
		a.say("this disk has lost entries itself: its log had reached %d", found.Behind)
	}
	if !yes {
		if err := a.printRecovery(&r); err != nil {
			return err
		}
		return &codeError{exitError, errors.New("nothing was changed. Compare the other folders that are left, take the one with the highest term and index, " +
			"make sure that no server of the cluster runs, and add --yes")}
	}
	r.ClusterID = rand.Text()
	r.Attempts, err = replica.Recover(replica.Recovery{
		Dir: dir, Voter: voter, ClusterID: r.ClusterID, Release: Version, Machine: fsm.New(fsm.Options{}),
	})
	if err != nil {
		return err
	}
	r.Recovered = true
	return a.printRecovery(&r)
}

func (a *app) printRecovery(r *recovery) error {
	if a.json() {
		return writeJSON(a.out, r)
	}
	fields := []field{{"folder", r.Dir}, {"newest entry", fmt.Sprintf("%d of term %d", r.Index, r.Term)}, {"members", strings.Join(r.Members, ", ")}}
	if r.Recovered {
		fields = append(fields, field{"cluster", r.ClusterID},
			field{"attempts lost", fmt.Sprintf("%d, which ran when the majority was lost", r.Attempts)},
			field{"next", "start the server, then rota operator raft join and add-voter for servers with empty folders"})
	}
	a.writeFields(fields)
	return nil
}

// checkOwner refuses a folder that belongs to another user: its server could not read the
// files that this process would leave there.
func checkOwner(dir string, euid int) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	if owner == euid {
		return nil
	}
	return fmt.Errorf("%s belongs to user %s, and this is user %s: the server could not read the files that the command leaves there; "+
		"run it as that user, with: sudo -u '%s' rota operator recover", dir, userName(owner), userName(euid), userName(owner))
}

// userName is the name of a user, or #ID as sudo has it.
func userName(uid int) string {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return "#" + strconv.Itoa(uid)
	}
	return u.Username
}
