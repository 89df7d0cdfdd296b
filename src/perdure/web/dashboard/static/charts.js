// Charts and sparklines of the last hour: what was kept, and what the stream brings. It tells of the node
// that answers alone: of others, what was kept is asked for again with each step.
(async () => {
  "use strict";
  const page = window.perdure;
  const source = document.querySelector("[data-history]").dataset.history;
  const isOwn = !source.includes("?");
  let step = 10, times = [], series = {};
  const load = async () => {
    // Nobody has touched the page: the login does not last longer for it.
    const answer = await fetch(source, { headers: { "X-Perdure-Auto": "1" } });
    if (!answer.ok) return false;
    const history = await answer.json();
    step = history.step_s;
    const length = Math.max(0, ...Object.values(history.series).map((each) => each.length));
    const until = history.until_us ? Math.floor(history.until_us / 1e6) : Math.floor(Date.now() / 1000);
    // A broker that has just started has few points: at least five minutes are shown.
    const shown = Math.max(length, 30);
    times = Array.from({ length: shown }, (_, at) => until - (shown - 1 - at) * step);
    series = {};
    for (const [name, values] of Object.entries(history.series)) series[name] = [...Array(shown - values.length).fill(null), ...values];
    return true;
  };
  if (!await load()) return;
  const HEIGHT = 170, POINTS = 360, SPARK = 60, LEAST = { us: 1000, cores: 0.1 };
  const live = (data, name) => data.rates[name] ?? data[name] ?? null;

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const charts = [];
  // While nobody points at a value the legend has the last one: uPlot clears it then, also when it has drawn first.
  const last = (plot) => { if (plot.legend.idx == null) plot.setLegend({ idx: times.length - 1 }); };
  const draw = () => {
    for (const made of charts.splice(0)) { made.plot.destroy(); }
    for (const box of document.querySelectorAll("[data-chart]")) {
      const names = box.dataset.chart.split(" "), labels = box.dataset.labels.split(" ");
      const format = page.formats[box.dataset.unit];
      const colours = [colour("--accent"), colour("--second")];
      const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
      const plot = new uPlot({
        width: box.clientWidth, height: HEIGHT, padding: [8, 18, 0, 0],
        cursor: { points: { size: 6 }, sync: { key: "hour" } },
        legend: { live: true },
        hooks: { setLegend: [last] },
        scales: { x: { time: true }, y: { range: (_, low, high) => [0, Math.max(LEAST[box.dataset.unit] ?? 4, (high ?? 0) * 1.12)] } },
        axes: [{ ...axis, space: 84, values: (_, values) => values.map((at) => new Date(at * 1000).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" })) }, { ...axis, size: 64, values: (_, values) => values.map((each) => format(each)) }],
        series: [{ value: (_, at) => at == null ? "" : new Date(at * 1000).toLocaleTimeString() }, ...names.map((_, at) => ({
          label: labels[at], stroke: colours[at], width: 1.6, points: { show: false },
          fill: at === 0 ? colours[at] + "18" : undefined, value: (_, value) => value == null ? "–" : format(value),
        }))],
      }, [times, ...names.map((name) => series[name] ?? times.map(() => null))], box);
      charts.push({ plot, names, box });
    }
  };
  const sparks = () => {
    for (const svg of document.querySelectorAll("[data-spark]")) {
      const values = (series[svg.dataset.spark] ?? []).filter((each) => each != null).slice(-SPARK);
      if (values.length < 2) continue;
      const high = Math.max(1, ...values), low = Math.min(...values, 0);
      const points = values.map((each, at) => `${(at * 120 / (values.length - 1)).toFixed(1)},${(26 - 22 * (each - low) / (high - low)).toFixed(1)}`).join(" ");
      svg.innerHTML = `<polygon points="0,28 ${points} 120,28"/><polyline points="${points}"/>`;
    }
  };
  draw();
  sparks();
  document.addEventListener("theme", draw);
  new ResizeObserver(() => { for (const { plot, box } of charts) if (plot.width !== box.clientWidth) plot.setSize({ width: box.clientWidth, height: HEIGHT }); })
    .observe(document.querySelector(".charts"));
  const show = () => {
    for (const { plot, names } of charts) {
      plot.setData([times, ...names.map((name) => series[name] ?? times.map(() => null))]);
      if (plot.cursor.idx == null) plot.setLegend({ idx: times.length - 1 });
    }
    sparks();
  };
  let asked = Date.now();
  page.listeners.push(async (data) => {
    if (!isOwn) {
      if (Date.now() - asked < step * 1000) return;
      asked = Date.now();
      if (await load()) show();
      return;
    }
    const now = Math.floor(data.as_of_us / 1e6);
    if (times.length && now - times[times.length - 1] < step) return;
    times.push(now);
    if (times.length > POINTS) times.shift();
    for (const [name, values] of Object.entries(series)) {
      values.push(live(data, name));
      if (values.length > POINTS) values.shift();
    }
    show();
  });
})();
