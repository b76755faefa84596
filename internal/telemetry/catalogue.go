package telemetry

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Process is a kind of process that serves metrics.
type Process string

// Processes. Every process serves the metrics of Any.
const (
	Any     Process = "any"
	Server  Process = "server"
	Agent   Process = "agent"
	Gateway Process = "gateway"
)

// Kind is a type of metric.
type Kind string

// Kinds. A histogram is a native one, with classic buckets for those who scrape text.
const (
	Gauge     Kind = "gauge"
	Counter   Kind = "counter"
	Histogram Kind = "histogram"
)

// Def defines a metric.
type Def struct {
	Of     Process
	Kind   Kind
	Name   string
	Help   string
	Labels []string
	desc   *prometheus.Desc
}

var catalogue []*Def

// define adds a metric to the catalogue, when the program starts.
func define(of Process, kind Kind, name, help string, labels ...string) *Def {
	d := &Def{
		Of: of, Kind: kind, Name: name, Help: help, Labels: labels,
		desc: prometheus.NewDesc(name, help, labels, nil),
	}
	catalogue = append(catalogue, d)
	return d
}

// Catalogue returns all metrics, by process and name.
func Catalogue() []*Def {
	all := slices.Clone(catalogue)
	slices.SortFunc(all, func(a, b *Def) int {
		return cmp.Or(cmp.Compare(order[a.Of], order[b.Of]), cmp.Compare(a.Name, b.Name))
	})
	return all
}

var order = map[Process]int{Any: 0, Server: 1, Agent: 2, Gateway: 3}

// Table returns the metrics of a process as a table in Markdown.
func Table(of Process) string {
	var b strings.Builder
	b.WriteString("| metric | type | labels | |\n|---|---|---|---|\n")
	for _, d := range Catalogue() {
		if d.Of != of {
			continue
		}
		labels := make([]string, len(d.Labels))
		for i, l := range d.Labels {
			labels[i] = "`" + l + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", d.Name, d.Kind, strings.Join(labels, ", "), d.Help)
	}
	return b.String()
}

// Value is a sample of a gauge or a counter, for a Source.
func (d *Def) Value(v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d.desc, map[Kind]prometheus.ValueType{
		Gauge: prometheus.GaugeValue, Counter: prometheus.CounterValue,
	}[d.Kind], v, labels...)
}

// Counters returns a counter for each value of the labels.
func (d *Def) Counters() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.Name, Help: d.Help}, d.Labels)
}

// Counter returns a counter without labels.
func (d *Def) Counter() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: d.Name, Help: d.Help})
}

// Durations returns a histogram of seconds for each value of the labels.
func (d *Def) Durations() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(d.histogram(), d.Labels)
}

// Duration returns a histogram of seconds without labels.
func (d *Def) Duration() prometheus.Histogram { return prometheus.NewHistogram(d.histogram()) }

// histogram has buckets from 100 microseconds to 7 hours, each four times the one before. The
// native buckets are 10 % apart.
func (d *Def) histogram() prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: d.Name, Help: d.Help, Buckets: prometheus.ExponentialBuckets(0.0001, 4, 15),
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
		NativeHistogramMinResetDuration: time.Hour,
	}
}

// Source makes a collector of metrics that are read when asked for: read gives each of
// them to emit. Those of a kind that it does not know now are left out.
func Source(defs []*Def, read func(emit func(prometheus.Metric))) prometheus.Collector {
	return source{defs, read}
}

type source struct {
	defs []*Def
	read func(emit func(prometheus.Metric))
}

// Describe implements prometheus.Collector.
func (s source) Describe(out chan<- *prometheus.Desc) {
	for _, d := range s.defs {
		out <- d.desc
	}
}

// Collect implements prometheus.Collector. Nothing is held while the channel is full.
func (s source) Collect(out chan<- prometheus.Metric) {
	var all []prometheus.Metric
	s.read(func(m prometheus.Metric) { all = append(all, m) })
	for _, m := range all {
		out <- m
	}
}
