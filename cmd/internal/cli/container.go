package cli

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"rota/agent/runtime/container"
	rotav1 "rota/api/gen/rota/v1"
)

// importMax is how long the import of an image may take.
const importMax = time.Hour

// containerFlags say which container the actions of a trajectory run in.
type containerFlags struct {
	image, user, network string
	readOnly             bool
}

func (f *containerFlags) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.image, "image", "", "run the actions in a container of this image, which the nodes have: a name such as python:3.12, or an OCI archive in the agent's --images")
	cmd.Flags().StringVar(&f.user, "user", "", "user of the commands in the container, USER or USER:GROUP (default: that of the image)")
	cmd.Flags().StringVar(&f.network, "network", none, "what the container reaches: none, or host (all that the node reaches)")
	cmd.Flags().BoolVar(&f.readOnly, "read-only-root", false, "let the commands write to /workspace and temporary files only")
	words(cmd, "network", none, "host")
}

// spec returns nil without an image.
func (f *containerFlags) spec() (*rotav1.Container, error) {
	c := &rotav1.Container{Image: f.image, User: f.user, ReadOnlyRoot: f.readOnly}
	switch f.network {
	case none:
	case "host":
		c.Network = rotav1.Network_NETWORK_HOST
	default:
		return nil, usageErrorf("--network must be none or host, not %q", f.network)
	}
	if f.image != "" {
		return c, nil
	}
	if f.user != "" || f.readOnly || f.network != none {
		return nil, usageErrorf("--user, --network and --read-only-root are of a container; name its --image")
	}
	return nil, nil
}

func (a *app) imageCmd() *cobra.Command {
	return group("image", "See and import images of containers on this machine", a.imageImportCmd(), a.imageListCmd())
}

func (a *app) imageImportCmd() *cobra.Command {
	var address, name string
	cmd := &cobra.Command{
		Use: "import FILE", Short: "Import an OCI archive into the containerd of this machine", Args: exactly("FILE"),
		Example: "  sudo rota image import python.tar --name python:3.12",
		RunE: func(cmd *cobra.Command, args []string) error {
			return withContainerd(cmd.Context(), address, func(ctx context.Context, c *container.Containerd) error {
				f, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer f.Close()
				names, err := c.Import(ctx, f, name)
				return a.printImages(names, err)
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the image (default: that in the archive)")
	cmd.Flags().StringVar(&address, "containerd", container.DefaultAddress, "socket of containerd")
	return cmd
}

func (a *app) imageListCmd() *cobra.Command {
	var address string
	cmd := &cobra.Command{
		Use: "list", Short: "List the images that rota has in the containerd of this machine", Args: exactly(),
		Example: "  sudo rota image list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withContainerd(cmd.Context(), address, func(ctx context.Context, c *container.Containerd) error {
				names, err := c.ImageNames(ctx)
				return a.printImages(names, err)
			})
		},
	}
	cmd.Flags().StringVar(&address, "containerd", container.DefaultAddress, "socket of containerd")
	return cmd
}

func (a *app) printImages(names []string, err error) error {
	if a.json() && err == nil {
		return writeJSON(a.out, map[string][]string{"images": append([]string{}, names...)})
	}
	for _, name := range names {
		fmt.Fprintln(a.out, printable(name))
	}
	return err
}

func withContainerd(ctx context.Context, address string, do func(context.Context, *container.Containerd) error) error {
	ctx, cancel := context.WithTimeout(ctx, importMax)
	defer cancel()
	c, err := container.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer c.Close()
	return do(ctx, c)
}
