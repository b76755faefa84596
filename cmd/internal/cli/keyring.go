package cli

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/pki"
)

func (a *app) keyringCmd() *cobra.Command {
	return group("keyring", "See and change the gossip keys of all servers and agents",
		a.reads(a.keyringListCmd()), a.keyringInstallCmd(),
		a.keyringStepCmd("use", rotav1.ChangeGossipKeysRequest_OPERATION_USE, "Encrypt with an installed key from now on",
			"The command changes nothing unless every server, and the agent of every node that is up,\nhas the key."),
		a.keyringStepCmd("remove", rotav1.ChangeGossipKeysRequest_OPERATION_REMOVE, "Accept a key no longer",
			"The command changes nothing if a process encrypts with the key or does not answer."))
}

func (a *app) keyringListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "Show which process has which gossip key", Args: exactly(),
		Long: `Asks every server, and the agent of every node that is up. A key is shown by its ID, the
first 16 hexadecimal digits of its SHA-256. The command exits with 1 if a process does not
answer.`,
		Example: "  rota operator keyring list",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			resp, err := call(ctx, a, c.Operator.ListGossipKeys, &rotav1.ListGossipKeysRequest{})
			if err != nil {
				return err
			}
			return a.printKeyring(resp, resp.Members)
		}),
	}
}

func (a *app) keyringInstallCmd() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "install", Short: "Give every process a new gossip key, which it accepts and does not use yet", Args: exactly(),
		Long: `A server makes a random key and hands it to all servers and agents over TLS. Nobody sees
it. Each process writes it into its file of --gossip-key. Repeat the command until every
process has the key: as long as the same server leads and the key is not in use, it hands out
the same one. With --file it is always the one of the file.`,
		Example: "  rota operator keyring install\n  rota operator keyring install --file new.key",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			req := &rotav1.ChangeGossipKeysRequest{Operation: rotav1.ChangeGossipKeysRequest_OPERATION_INSTALL}
			if file != "" {
				text, err := pki.ReadSecret(file)
				if err != nil {
					return err
				}
				if req.Key, err = base64.StdEncoding.DecodeString(strings.TrimSpace(string(text))); err != nil {
					return usageErrorf("--file: %s holds no key in base64", file)
				}
			}
			return a.changeKeyring(ctx, c, req)
		}),
	}
	cmd.Flags().StringVar(&file, "file", "", "file of mode 0600 with the key, 32 bytes in base64 (default: a new random key)")
	return cmd
}

func (a *app) keyringStepCmd(use string, operation rotav1.ChangeGossipKeysRequest_Operation, short, long string) *cobra.Command {
	return &cobra.Command{
		Use: use + " ID", Short: short, Long: long, Args: exactly("ID"),
		Example: "  rota operator keyring " + use + " 0f1e2d3c4b5a6978",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			return a.changeKeyring(ctx, c, &rotav1.ChangeGossipKeysRequest{Operation: operation, Id: args[0]})
		}),
	}
}

func (a *app) changeKeyring(ctx context.Context, c *client.Client, req *rotav1.ChangeGossipKeysRequest) error {
	resp, err := call(ctx, a, c.Operator.ChangeGossipKeys, req)
	if err != nil {
		return err
	}
	return a.printKeyring(resp, resp.Members)
}

// printKeyring prints a row for each key. It is an error if a process did not answer.
func (a *app) printKeyring(resp proto.Message, members []*rotav1.GossipMember) error {
	uses, has := map[string]int{}, map[string]int{}
	var silent []string
	gossiping := 0
	for _, m := range members {
		if m.Error != "" {
			silent = append(silent, m.Name+": "+m.Error)
		}
		if len(m.Keys) > 0 {
			gossiping++
			uses[m.Keys[0]]++
		}
		for _, id := range m.Keys {
			has[id]++
		}
	}
	rows := make([][]string, 0, len(has))
	for _, id := range slices.Sorted(maps.Keys(has)) {
		rows = append(rows, []string{id, fmt.Sprintf("%d of %d", has[id], gossiping), fmt.Sprintf("%d of %d", uses[id], gossiping)})
	}
	if err := a.print(resp, []string{"key", "installed", "in use"}, rows); err != nil {
		return err
	}
	if len(silent) > 0 {
		return &codeError{exitError, fmt.Errorf("not all processes answered as they should: %s", strings.Join(silent, "; "))}
	}
	return nil
}
