// Command rota is the server, the agent and the command line of rota in one
// binary. See `rota help`.
package main

import (
	"os"

	"rota/cmd/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
