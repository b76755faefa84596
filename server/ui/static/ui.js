// Draws the charts of the overview and says when the server does not answer.
"use strict";
(function () {
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const charts = [];
  let samples = [];

  function options(element, names, colours) {
    const axis = { stroke: css("--text"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line") } };
    return {
      width: element.clientWidth, height: 180,
      series: [{}].concat(names.map((label, i) => ({ label, stroke: css(colours[i]), width: 1.5 }))),
      axes: [axis, Object.assign({ size: 60 }, axis)],
      scales: { y: { range: (u, min, max) => [0, Math.max(1, max * 1.1)] } },
    };
  }

  function columns(of) {
    return [0].concat(of).map((i) => samples.map((s) => s[i]));
  }

  const kinds = {
    depth: { of: [1, 2], names: ["queued", "running"], colours: ["--c1", "--c2"] },
    rate: { of: [3, 4], names: ["submitted", "ended"], colours: ["--c0", "--c4"] },
  };

  function draw() {
    for (const c of charts) c.plot.setData(columns(c.of));
  }

  function start() {
    document.querySelectorAll("[data-chart]").forEach((element) => {
      const k = kinds[element.dataset.chart];
      charts.push({ of: k.of, element, plot: new uPlot(options(element, k.names, k.colours), columns(k.of), element) });
    });
    if (charts.length === 0) return;
    fetchHistory();
    window.addEventListener("resize", () => charts.forEach((c) => c.plot.setSize({ width: c.element.clientWidth, height: 180 })));
  }

  // Asks for the samples of the last minutes, again whenever the server is there again. The page may have older ones than
  // a server that was started since, and newer ones may have come meanwhile.
  function fetchHistory() {
    if (charts.length === 0) return;
    fetch("/ui/history.json").then((r) => r.json()).then((all) => {
      const known = samples, first = all && all.length ? all[0][0] : Infinity;
      samples = known.filter((s) => s[0] < first);
      (all || []).concat(known).forEach(add);
      draw();
    }).catch(() => {}); // the charts begin with what comes
  }

  function add(s) {
    if (samples.length && samples[samples.length - 1][0] >= s[0]) return;
    samples.push(s);
    if (samples.length > 300) samples.shift();
  }

  function take() {
    const element = document.getElementById("sample");
    if (!element || charts.length === 0) return;
    add(JSON.parse(element.dataset.sample));
    draw();
  }

  // A page that nobody sees has no stream: a browser opens six connections to a server, for all its pages together.
  let source = null;
  const connect = htmx.createEventSource;
  htmx.createEventSource = (url) => (source = connect(url));
  document.addEventListener("visibilitychange", () => {
    const live = document.querySelector("[sse-connect]");
    if (!source || !live) return;
    if (document.hidden) source.close();
    else if (source.readyState === EventSource.CLOSED) {
      const again = live.cloneNode(true); // htmx connects for a new element
      live.replaceWith(again);
      htmx.process(again);
    }
  });
  // The session is over, so there is nothing to go on with.
  document.addEventListener("htmx:sseClose", (e) => {
    if (e.detail.type === "message") e.target.removeAttribute("sse-connect");
  });

  document.addEventListener("DOMContentLoaded", start);
  document.addEventListener("htmx:sseMessage", take);
  const offline = (hidden) => { document.getElementById("offline").hidden = hidden; };
  document.addEventListener("htmx:sseError", () => offline(false));
  document.addEventListener("htmx:sseOpen", () => { offline(true); fetchHistory(); });
})();
