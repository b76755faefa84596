package bench

import (
	"testing"
	"time"

	"rota/cmd/internal/rotatest"
)

// All ways pass all requests on, and take turns.
func TestGateway(t *testing.T) {
	for _, tokens := range []int{0, 3, 32} {
		turns := map[string]int{}
		o := GatewayOptions{Binary: rotatest.Binary(t), Nginx: FindNginx(), Streams: []int{1, 4}, Tokens: tokens, Duration: 100 * time.Millisecond, Rounds: 1}
		r, err := Gateway(t.Context(), o, func(_ int, way string, _ int, perSecond float64) {
			if turns[way]++; perSecond <= 0 {
				t.Errorf("%s: %f per second", way, perSecond)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		ways := 3
		if o.Nginx != "" {
			ways++
		}
		if len(r.Figures) != 2*ways || turns["gateway"] != 2 || turns["proxy"] != 2 || turns["direct"] != 2 {
			t.Errorf("%+v, %v", r, turns)
		}
		for _, f := range r.Figures {
			if f.FirstMS <= 0 || f.P50MS < f.FirstMS || f.P99MS < f.P50MS || (f.OfNginx.Median > 0) != (o.Nginx != "") {
				t.Errorf("%+v", f)
			}
		}
	}
}
