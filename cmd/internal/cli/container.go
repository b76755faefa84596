package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rota/agent/runtime/container"
	"rota/agent/runtime/container/registry"
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
	cmd.Flags().StringVar(&f.image, "image", "", "run the actions in a container of this image, which the nodes have or may pull: a name such as python:3.12, or an OCI archive in the agent's --images")
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
	return group("image", "See, import, pull and prefetch images of containers", a.imageImportCmd(), a.imagePullCmd(), a.imagePrefetchCmd(), a.imageListCmd())
}

func (a *app) imageImportCmd() *cobra.Command {
	var address, name string
	var pin bool
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
				if err == nil && pin {
					err = pinAll(ctx, c, names)
				}
				return a.printImages(names, err)
			})
		},
	}
	addPin(cmd, &pin)
	cmd.Flags().StringVar(&name, "name", "", "name of the image (default: that in the archive)")
	cmd.Flags().StringVar(&address, "containerd", container.DefaultAddress, "socket of containerd")
	return cmd
}

// registryFlags say how registries are used.
type registryFlags struct {
	auth, ca string
	most     string
}

func (f *registryFlags) addTo(fs *pflag.FlagSet) {
	fs.StringVar(&f.auth, "registry-auth", "", "file with credentials of registries, as Docker's config.json; only its owner may read it, and the programs that it names are not run")
	fs.StringVar(&f.ca, "registry-ca", "", "file of certificates in PEM that registries are trusted by, beside those of the system")
	fs.StringVar(&f.most, "pull-max", "32GiB", "pull no image whose layers have more bytes than this before they are unpacked")
}

func (f *registryFlags) apply(o *registry.Options) error {
	most, err := parseSize(f.most)
	if err == nil && most == 0 {
		err = errors.New("it is 0, and an image needs some bytes")
	}
	if err != nil {
		return usageErrorf("--pull-max: %w", err)
	}
	o.Auth, o.CA, o.BytesMax = f.auth, f.ca, most
	return nil
}

func (a *app) imagePullCmd() *cobra.Command {
	var address string
	var plain, pin bool
	var f registryFlags
	cmd := &cobra.Command{
		Use: "pull IMAGE", Short: "Pull an image from its registry into the containerd of this machine", Args: exactly("IMAGE"),
		Long: `Pulls an image as an agent with --pull does, and asks the registry even if the machine has an
image of this name: trajectories that open later get what the tag names now.`,
		Example: "  sudo rota image pull python:3.12",
		RunE: func(cmd *cobra.Command, args []string) error {
			host := container.RegistryOf(args[0])
			if plain {
				host = "http://" + host
			}
			o := registry.Options{Hosts: []string{host}}
			if err := f.apply(&o); err != nil {
				return err
			}
			return withContainerd(cmd.Context(), address, func(ctx context.Context, c *container.Containerd) error {
				p, err := container.NewPuller(c, container.PullOptions{Registry: o, Logger: hclog.NewNullLogger()})
				if err != nil {
					return err
				}
				if err := p.Pull(ctx, args[0]); err != nil {
					return err
				}
				if pin {
					err = pinAll(ctx, c, args)
				}
				return a.printImages(args, err)
			})
		},
	}
	f.addTo(cmd.Flags())
	addPin(cmd, &pin)
	cmd.Flags().BoolVar(&plain, "plain-http", false, "use no TLS; for a registry on this machine only")
	cmd.Flags().StringVar(&address, "containerd", container.DefaultAddress, "socket of containerd")
	return cmd
}

func addPin(cmd *cobra.Command, pin *bool) {
	cmd.Flags().BoolVar(pin, "pin", false, "have agents with --images-max never remove the image")
}

func pinAll(ctx context.Context, c *container.Containerd, names []string) error {
	for _, name := range names {
		if err := c.Pin(ctx, name); err != nil {
			return err
		}
	}
	return nil
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
