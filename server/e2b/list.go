package e2b

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	rotav1 "rota/api/gen/rota/v1"
)

// listMax is the most sandboxes of one page, and the default.
const listMax = 100

// list pages through the sandboxes of a namespace. The next page is in a header.
func (e *E2B) list(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	states := statesOf(query)
	req, err := listRequest(query)
	if err != nil {
		failWith(w, err)
		return
	}
	req.Namespace = r.Header.Get(namespaceHeader)
	resp, err := e.apiFor(r, r.Header.Get(keyHeader)).trajectories.ListTrajectories(r.Context(), req)
	if err != nil {
		failWith(w, err)
		return
	}
	page := make([]listed, 0, len(resp.Trajectories))
	for _, t := range resp.Trajectories {
		if len(states) > 0 && !slices.Contains(states, stateOf(t)) {
			continue // a page may have fewer than were asked for
		}
		page = append(page, newListed(t, e.opts.Templates.of(t)))
	}
	if resp.NextPageToken != "" {
		w.Header().Set("X-Next-Token", resp.NextPageToken)
	}
	answer(w, http.StatusOK, page)
}

// statesOf are the states that are asked for: SDKs repeat the parameter or join with commas.
func statesOf(query url.Values) []string {
	if joined := strings.Join(query["state"], ","); joined != "" {
		return strings.Split(joined, ",")
	}
	return nil
}

// limitIn is how many a page may have.
func limitIn(query url.Values) (uint32, error) {
	text := query.Get("limit")
	if text == "" {
		return listMax, nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || n == 0 {
		return 0, invalid("limit is a number from 1 on")
	}
	return uint32(min(n, listMax)), nil
}

func listRequest(query url.Values) (*rotav1.ListTrajectoriesRequest, error) {
	req := &rotav1.ListTrajectoriesRequest{
		States: []rotav1.TrajectoryState{rotav1.TrajectoryState_TRAJECTORY_STATE_OPEN},
		Labels: map[string]string{}, PageSize: listMax, PageToken: query.Get("nextToken"), NewestFirst: true,
	}
	// The pairs are encoded one by one, and then as a query.
	pairs, err := url.ParseQuery(query.Get("metadata"))
	if err != nil {
		return nil, invalid("metadata is not a query of pairs")
	}
	for key, values := range pairs {
		key, err := url.QueryUnescape(key)
		value, err2 := url.QueryUnescape(values[0])
		if err != nil || err2 != nil || len(values) > 1 {
			return nil, invalid("metadata is not a query of pairs")
		}
		req.Labels[key] = value
	}
	if name := query.Get("template"); name != "" {
		req.Labels[templateLabel] = name
	}
	if req.PageSize, err = limitIn(query); err != nil {
		return nil, err
	}
	switch order := query.Get("order"); order {
	case "", "desc":
	case "asc":
		req.NewestFirst = false
	default:
		return nil, invalid("order is asc or desc, not %.40q", order)
	}
	if text := query.Get("startedAfter"); text != "" {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return nil, invalid("startedAfter is a time such as 2026-01-02T15:04:05Z")
		}
		req.OpenedSince = timestamppb.New(at)
	}
	return req, nil
}
