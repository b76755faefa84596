package rpc

import (
	"net/url"
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// Limits of workers and reports.
const (
	tokenTimeMax         = time.Minute
	prefillMax           = time.Hour
	generationReportsMax = 1024
	workerReportsMax     = 64
)

// requireText checks a name that is no name of rota's own: any text.
func requireText(path, s string, bytesMax int) *violation {
	if s == "" {
		return wrong(path, "is required")
	}
	return checkText(path, s, bytesMax)
}

func checkWorker(w *rotav1.WorkerSpec) *violation {
	if w == nil {
		return wrong("name", "is required")
	}
	if v := firstOf(
		requireText("name", w.Name, state.WorkerNameBytesMax), requireText("policy", w.Policy, state.PolicyNameBytesMax),
		checkText("node", w.Node, state.WorkerNameBytesMax), checkText("hardware", w.Hardware, state.WorkerNameBytesMax), checkWorkerURL(w.Url),
	); v != nil {
		return v
	}
	_, known := rotav1.WorkerDialect_name[int32(w.Dialect)]
	switch {
	case !known:
		return wrong("dialect", "is not a dialect: %d", w.Dialect)
	case hasUnknown(w):
		return wrong("", "has fields that this server does not know: leave them out, or upgrade the servers")
	case w.Slots > state.WorkerSlotsMax:
		return wrong("slots", "must be at most %d, is %d", state.WorkerSlotsMax, w.Slots)
	}
	return checkWorkerProfile(w.Profile).in("profile")
}

func checkWorkerURL(text string) *violation {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return wrong("url", "must be of a server, such as http://10.0.0.7:8000, is %q", text)
	}
	return checkText("url", text, state.WorkerURLBytesMax)
}

func checkWorkerProfile(p *rotav1.WorkerProfile) *violation {
	if v := checkCount("points", "point", len(p.GetPoints()), state.WorkerPointsMax); v != nil {
		return v
	}
	if len(p.GetPoints()) == 0 {
		return wrong("points", "must have one at least: a batch size and the time for a token")
	}
	last := uint32(0)
	for i, point := range p.Points {
		switch t := point.GetTokenTime(); {
		case point.GetBatchSize() <= last:
			return wrong("batch_size", "must be above that of the point before, %d, is %d", last, point.GetBatchSize()).in("points[%d]", i)
		case t.AsDuration() <= 0:
			return wrong("token_time", "must be above 0").in("points[%d]", i)
		}
		if v := checkTimeout("token_time", point.TokenTime, tokenTimeMax); v != nil {
			return v.in("points[%d]", i)
		}
		last = point.BatchSize
	}
	return checkTimeout("prefill_1k", p.Prefill_1K, prefillMax)
}

func checkGenerationSpec(g *rotav1.GenerationSpec) *violation {
	if g == nil {
		return nil
	}
	if v := firstOf(requireText("policy", g.Policy, state.PolicyNameBytesMax), checkText("task_class", g.TaskClass, nameBytesMax)); v != nil {
		return v
	}
	if len(g.Hardware) > state.HardwaresMax {
		return wrong("hardware", "must have at most %d kinds, has %d", state.HardwaresMax, len(g.Hardware))
	}
	for _, h := range g.Hardware {
		if v := requireText("hardware", h, state.WorkerNameBytesMax); v != nil {
			return v
		}
	}
	if hasUnknown(g) {
		return wrong("", "has a field that this server does not know: upgrade the servers first")
	}
	return nil
}

func checkGenerationReports(req *rotav1.ReportGenerationsRequest) *violation {
	switch n, w := len(req.Generations), len(req.Workers); {
	case n > generationReportsMax:
		return wrong("generations", "must be at most %d, are %d", generationReportsMax, n)
	case w > workerReportsMax:
		return wrong("workers", "must be at most %d, are %d", workerReportsMax, w)
	case n+w == 0:
		return wrong("generations", "is required, if no worker is reported")
	}
	if v := checkRequest(req.RequestId, req.ExpireTime); v != nil {
		return v
	}
	for i, r := range req.Generations {
		if v := checkGenerationReport(r); v != nil {
			return v.in("generations[%d]", i)
		}
	}
	for i, r := range req.Workers {
		if v := requireText("worker", r.GetWorker(), state.WorkerNameBytesMax); v != nil {
			return v.in("workers[%d]", i)
		}
	}
	return nil
}

func checkGenerationReport(r *rotav1.GenerationReport) *violation {
	if most := max(r.GetOutputTokens(), r.GetContextTokens()); most > state.LengthTokensMax {
		return wrong("output_tokens", "and context_tokens must be at most %d, one is %d", uint64(state.LengthTokensMax), most)
	}
	return firstOf(
		requireID("trajectory_id", r.GetTrajectoryId()), checkText("worker", r.GetWorker(), state.WorkerNameBytesMax),
		checkDuration("generate_time", r.GetGenerateTime()), checkDuration("tool_time", r.GetToolTime()),
		checkText("finish_reason", r.GetFinishReason(), nameBytesMax),
	)
}
