package cli

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"rota/api/httpx"
	"rota/cmd/internal/bench"
)

func (a *app) benchGatewayCmd() *cobra.Command {
	var o bench.GatewayOptions
	cmd := &cobra.Command{
		Use: "gateway", Short: "Compare a gateway with a bare reverse proxy and with nginx", Args: exactly(),
		Long: `Sends chat requests to an engine that answers at once, in four ways: straight (direct),
through rota gateway, through Go's reverse proxy with nothing else in it (proxy), and through
nginx, if it is installed. Each way is a process of its own on loopback. The engine and the
clients are in this process, and the engine is a stand-in: it generates nothing.

All ways take turns in an order that rotates. A round before the first is not measured. The
added latency is the time to the first byte, above that of the direct way in the same round.
Figures are medians of all rounds; ranges are the least and the greatest round.`,
		Example: `  rota bench gateway
  rota bench gateway --streams 1,512 --tokens 0 -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkBenchGateway(&o); err != nil {
				return err
			}
			r, err := bench.Gateway(cmd.Context(), o, func(round int, way string, streams int, perSecond float64) {
				fmt.Fprintf(a.err, "round %d of %d, %-7s %4d streams: %.0f per second\n", round+1, o.Rounds, way, streams, perSecond)
			})
			if err != nil {
				return err
			}
			return a.printValue(r, []string{"streams", "way", "per second", "first ms", "p50 ms", "p99 ms", "added ms", "of nginx"}, gatewayRows(r))
		},
	}
	cmd.Flags().StringVar(&o.Nginx, "nginx", bench.FindNginx(), "nginx to compare with; \"\": none")
	cmd.Flags().IntSliceVar(&o.Streams, "streams", []int{1, 8, 64, 512}, "numbers of clients that send requests at the same time")
	cmd.Flags().IntVar(&o.Tokens, "tokens", 32, "events of an answer; 0: answers that are not streams")
	cmd.Flags().DurationVar(&o.Duration, "duration", 3*time.Second, "how long to measure each figure of a round")
	cmd.Flags().IntVar(&o.Rounds, "rounds", 5, "number of rounds")
	return cmd
}

func checkBenchGateway(o *bench.GatewayOptions) error {
	switch {
	case o.Rounds < 1:
		return usageErrorf("--rounds must be at least 1")
	case o.Tokens < 0 || o.Tokens > 1<<16:
		return usageErrorf("--tokens is %d; it must be between 0 and 65536", o.Tokens)
	case o.Duration <= 0:
		return usageErrorf("--duration must be more than 0")
	case len(o.Streams) == 0 || slices.Min(o.Streams) < 1 || slices.Max(o.Streams) > 4096:
		return usageErrorf("--streams must be numbers between 1 and 4096")
	}
	return nil
}

func gatewayRows(r *bench.GatewayResult) (rows [][]string) {
	ms := func(v float64) string { return fmt.Sprintf("%.3f", v) }
	for _, f := range r.Figures {
		added, share := "", ""
		if f.Way != "direct" {
			added = fmt.Sprintf("%.3f (%.3f to %.3f)", f.AddedMS.Median, f.AddedMS.Min, f.AddedMS.Max)
		}
		if f.OfNginx.Median > 0 {
			share = fmt.Sprintf("%.2f (%.2f to %.2f)", f.OfNginx.Median, f.OfNginx.Min, f.OfNginx.Max)
		}
		rows = append(rows, []string{strconv.Itoa(f.Streams), f.Way, fmt.Sprintf("%.0f", f.PerSecond), ms(f.FirstMS), ms(f.P50MS), ms(f.P99MS), added, share})
	}
	return rows
}

// bareProxyCmd is what a gateway is compared with.
func (a *app) bareProxyCmd() *cobra.Command {
	var listen, to string
	cmd := &cobra.Command{
		Use: "bare-proxy", Short: "Pass requests on to one address", Args: exactly(), Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := net.Listen("tcp", listen)
			if err != nil {
				return err
			}
			server := httpx.NewServer(bench.BareProxy(to))
			go func() {
				<-cmd.Context().Done()
				server.Close()
			}()
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "address to listen on")
	cmd.Flags().StringVar(&to, "to", "", "address to pass requests on to")
	return cmd
}
