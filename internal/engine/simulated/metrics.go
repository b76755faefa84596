package simulated

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"rota/internal/engine/model"
)

// metric is one metric of an engine, under the name that the real one has.
type metric struct {
	name  string
	kind  prometheus.ValueType
	value func(l model.Load) float64
}

func usage(l model.Load) float64   { return float64(l.KVTokens) / float64(l.KVTokensMax) }
func running(l model.Load) float64 { return float64(l.Running) }
func queued(l model.Load) float64  { return float64(l.Waiting) }
func hits(l model.Load) float64    { return float64(l.Cached) }
func prompts(l model.Load) float64 { return float64(l.Cached + l.Computed) }
func outputs(l model.Load) float64 { return float64(l.Generated) }

var vllmMetrics = []metric{
	{"vllm:num_requests_running", prometheus.GaugeValue, running},
	{"vllm:num_requests_waiting", prometheus.GaugeValue, queued},
	{"vllm:kv_cache_usage_perc", prometheus.GaugeValue, usage},
	{"vllm:prefix_cache_queries_total", prometheus.CounterValue, prompts},
	{"vllm:prefix_cache_hits_total", prometheus.CounterValue, hits},
	{"vllm:prompt_tokens_total", prometheus.CounterValue, prompts},
	{"vllm:generation_tokens_total", prometheus.CounterValue, outputs},
	{"vllm:num_preemptions_total", prometheus.CounterValue, func(l model.Load) float64 { return float64(l.Preempted) }},
	{"vllm:request_success_total", prometheus.CounterValue, func(l model.Load) float64 { return float64(l.Finished) }},
}

var sglangMetrics = []metric{
	{"sglang:num_running_reqs", prometheus.GaugeValue, running},
	{"sglang:num_queue_reqs", prometheus.GaugeValue, queued},
	{"sglang:num_used_tokens", prometheus.GaugeValue, func(l model.Load) float64 { return float64(l.KVTokens) }},
	{"sglang:token_usage", prometheus.GaugeValue, usage},
	{"sglang:cache_hit_rate", prometheus.GaugeValue, func(l model.Load) float64 { return hits(l) / max(prompts(l), 1) }},
	{"sglang:prompt_tokens_total", prometheus.CounterValue, prompts},
	{"sglang:generation_tokens_total", prometheus.CounterValue, outputs},
	{"sglang:num_requests_total", prometheus.CounterValue, func(l model.Load) float64 { return float64(l.Submitted) }},
}

// collector reads all metrics from one look at the engine.
type collector struct {
	e     *engine
	of    []metric
	descs []*prometheus.Desc
}

func (e *engine) metrics(of []metric) http.HandlerFunc {
	c := &collector{e: e, of: of}
	for _, m := range of {
		c.descs = append(c.descs, prometheus.NewDesc(m.name, "Of a simulated engine.", nil, prometheus.Labels{"model_name": e.o.Model, "engine": "simulated"}))
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP
}

func (c *collector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		descs <- d
	}
}

func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	l := c.e.driver.load()
	for i, m := range c.of {
		metrics <- prometheus.MustNewConstMetric(c.descs[i], m.kind, m.value(l))
	}
}
