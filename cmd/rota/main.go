// Command rota is the server, the agent and the command line of rota in one
// binary. See `rota help`.
package main

import (
	"os"

	// The authorities that browsers trust, for machines and images that have no list of their own.
	_ "golang.org/x/crypto/x509roots/fallback"

	"rota/cmd/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
