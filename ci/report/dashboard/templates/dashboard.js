// Draws the plots, and filters, of the dashboard. Classic script without modules or requests: a
// page that was opened from a file may load neither. All texts of a run enter the page as text.
"use strict";

const dashboard = (() => {
  const values = new Map(), waiting = new Map();
  return {
    // Called by the files in data/.
    data(name, value) {
      values.set(name, value);
      (waiting.get(name) || []).forEach((ready) => ready(value));
    },
    get: (name) => values.get(name),
    // The data of this page, whose file is called data/KIND-….js.
    own(kind) {
      const found = [...values.keys()].find((name) => name.startsWith(`${kind}-`));
      return values.get(found);
    },
    // Loads a file of data/ if the page did not name it.
    load: (name) => values.has(name) ? Promise.resolve(values.get(name)) : new Promise((ready) => {
      if (!waiting.has(name)) {
        const script = document.createElement("script");
        script.src = `data/${name}.js`;
        document.head.append(script);
        waiting.set(name, []);
      }
      waiting.get(name).push(ready);
    }),
  };
})();

// Elements

const byId = (id) => document.getElementById(id);

function make(name, attributes = {}, ...children) {
  const space = make.svg.has(name) ? "http://www.w3.org/2000/svg" : null;
  const element = space ? document.createElementNS(space, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}
make.svg = new Set(["svg", "g", "path", "rect", "line", "text", "title"]);

function table(caption, headings, rows, numbers = new Set()) {
  const cell = (name, text, column, scope) =>
    make(name, { class: numbers.has(column) ? "number" : null, scope }, text);
  const head = make("tr", {}, ...headings.map((text, n) => cell("th", text, n, "col")));
  const body = rows.map((row) => make("tr", {}, ...row.map((text, n) =>
    n ? cell("td", text, n, null) : cell("th", text, n, "row"))));
  const whole = make("table", {}, make("caption", { class: "hidden" }, caption),
    make("thead", {}, head), make("tbody", {}, ...body));
  return make("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": caption }, whole);
}

// A table that is made when it is unfolded: of 2,000 runs it has as many rows.
function foldedTable(title, build) {
  const details = make("details", {}, make("summary", {}, `Table: ${title}`));
  details.refresh = () => {
    if (details.open) details.replaceChildren(details.firstElementChild, build());
  };
  details.addEventListener("toggle", details.refresh);
  return details;
}

// The part of the address after #: a link to it shows the same view.
const state = {
  get: (name) => new URLSearchParams(location.hash.slice(1)).get(name) || "",
  set(changes) {
    const words = new URLSearchParams(location.hash.slice(1));
    for (const [name, value] of Object.entries(changes)) {
      if (value) words.set(name, value); else words.delete(name);
    }
    for (const [name, value] of [...words]) if (!value) words.delete(name);
    history.replaceState(null, "", `#${words}`);
  },
};

// Keeps a control and the address in step.
function bind(id, name, changed) {
  const control = byId(id), isBox = control.type === "checkbox";
  const show = () => {
    const value = state.get(name);
    if (isBox) control.checked = value === "1";
    else control.value = value || (control.tagName === "SELECT" ? control.options[0].value : "");
  };
  control.addEventListener("input", () => {
    state.set({ [name]: isBox ? (control.checked ? "1" : "") : control.value });
    changed();
  });
  window.addEventListener("hashchange", () => { show(); changed(); });
  show();
  return control;
}

// Numbers

const number = (value, digits = 0) =>
  value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });

const isKnown = (value) => value !== null && value !== undefined;

// Units that a benchmark's duration may have, and the one in which a value has at least one digit before its point.
const DURATIONS = { s: 1, ms: 1e-3, us: 1e-6, ns: 1e-9 };
const COUNTED = ["tests", "lines", "units"]; // there is no half of one

function durationUnit(value, unit) {
  const seconds = Math.abs(value) * DURATIONS[unit];
  const name = Object.keys(DURATIONS).find((it) => seconds >= DURATIONS[it]) || "ns";
  return [DURATIONS[name] / DURATIONS[unit], name];
}

// As ci.facts.measures.amount.
function amount(value, unit) {
  if (!isKnown(value)) return "-";
  if (unit === "peak_bytes" || unit === "wheel_bytes") {
    for (const [size, name] of [[2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
      if (Math.abs(value) >= size || !value) return `${number(value / size, 1)} ${name}`;
    }
    return `${number(value)} bytes`;
  }
  if (unit === "wall_s" || unit === "cpu_s") {
    return `${number(value, Math.abs(value) >= 9.95 ? 0 : 1)} ${unit === "cpu_s" ? "CPU-s" : "s"}`;
  }
  if (unit === "percent") return `${number(value, 1)} %`;
  if (COUNTED.includes(unit)) return `${number(value)} ${unit}`;
  const [size, name] = DURATIONS[unit] && value ? durationUnit(value, unit) : [1, unit], shown = value / size;
  const digits = Math.abs(shown) >= 99.5 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 3 };
  return `${shown.toLocaleString("en-US", digits)} ${name}`.trim();
}

// Round values of an axis, at most `most` of them.
function ticks(low, high, most) {
  const span = high - low || 1, rough = span / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((it) => it >= rough);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step / 1e6; at += step) found.push(at);
  return found;
}

// The labels of round values: with the digits that tell them apart, bytes in round KiB or MiB.
function axis(low, high, most, unit) {
  const isBytes = unit === "peak_bytes" || unit === "wheel_bytes";
  const [size, name] = DURATIONS[unit] && high ? durationUnit(high, unit)
    : !isBytes ? [1, { wall_s: "s", cpu_s: "CPU-s", percent: "%" }[unit] || unit]
    : high >= 2 ** 20 ? [2 ** 20, "MiB"] : high >= 2 ** 10 ? [2 ** 10, "KiB"] : [1, "bytes"];
  const found = ticks(low / size, high / size, most), step = found.length > 1 ? found[1] - found[0] : 1;
  const isWhole = COUNTED.includes(unit), shown = isWhole ? found.filter((it) => Math.abs(it - Math.round(it)) < 1e-9) : found;
  const digits = isWhole ? 0 : Math.min(9, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9)));
  return shown.map((value) => [value * size, `${number(value, digits)} ${name}`]);
}

// The width of a text in a plot, in pixels.
const textWidth = (() => {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = "11px system-ui, sans-serif";
  return (text) => pen.measureText(text).width;
})();

// The part of an axis that is shown; several plots may share it.
function makeView(low, high, least, changed) {
  const view = { from: low, to: high };
  const set = (from, to) => {
    // Whole runs or milliseconds, as the address has them: a link shows the same.
    const width = Math.min(Math.max(Math.round(to - from), least), high - low);
    view.from = Math.min(Math.max(Math.round(from), low), high - width);
    view.to = view.from + width;
    changed();
  };
  view.set = set;
  view.reset = () => set(low, high);
  view.isWhole = () => view.from <= low && view.to >= high;
  view.zoom = (factor, around) => set(around - (around - view.from) * factor, around + (view.to - around) * factor);
  view.showPlace = (at) => {
    const width = view.to - view.from;
    if (at < view.from) set(at, at + width); else if (at > view.to) set(at - width, at);
  };
  return view;
}

// The keys of a view; whether `key` is one of them.
function zoomByKey(key, view, around) {
  if (key === "+" || key === "=") view.zoom(0.5, around);
  else if (key === "-") view.zoom(2, around);
  else if (key === "0") view.reset();
  else return false;
  return true;
}

// Dragging over a plot chooses the part to show.
function dragToZoom(svg, view, toValue, area) {
  let begin = null, chosen = null;
  const place = (event) => Math.min(Math.max(event.clientX - svg.getBoundingClientRect().left, area().left), area().right);
  svg.addEventListener("pointerdown", (event) => {
    if (event.button === 0 && event.pointerType !== "touch") begin = place(event);
  });
  svg.addEventListener("pointermove", (event) => {
    if (begin === null) return;
    const now = place(event);
    if (!chosen) svg.append(chosen = make("rect", { class: "chosen", y: 0, height: "100%" }));
    chosen.setAttribute("x", Math.min(begin, now));
    chosen.setAttribute("width", Math.abs(now - begin));
  });
  window.addEventListener("pointerup", (event) => {
    if (begin === null) return;
    const ends = [begin, place(event)].sort((a, b) => a - b).map(toValue);
    const far = Math.abs(place(event) - begin) > 5;
    begin = null;
    if (chosen) chosen.remove();
    chosen = null;
    if (far) view.set(...ends);
  });
  svg.addEventListener("dblclick", view.reset);
}

// Trends

const SIGNS = {
  "open regression": ["▲", "open"], "suspected regression": ["△", "suspected"], "small rise": ["△", "suspected"],
  "past regression": ["▵", "past"], improvement: ["▼", "better"], "accepted rise": ["✓", "accepted"],
};
const DASHES = ["", "7 3", "2 3", "8 3 2 3", "12 4", "4 4"];

// One for each machine, and the last for all others: by its shape, a machine is known without color.
const SHAPES = [
  (x, y) => `M${x - 3.5},${y}a3.5,3.5 0 1,0 7,0a3.5,3.5 0 1,0 -7,0z`, (x, y) => `M${x - 3},${y - 3}h6v6h-6z`,
  (x, y) => `M${x},${y - 4.5}l4.5,4.5l-4.5,4.5l-4.5,-4.5z`, (x, y) => `M${x - 4},${y - 3}h8l-4,7z`,
  (x, y) => `M${x - 1.5},${y - 4.5}h3v9h-3z`, (x, y) => `M${x - 4.5},${y - 1.5}h9v3h-9z`,
  (x, y) => `M${x - 4},${y - 4}h8l-8,8h8z`,
];

// A plot of values over runs. `spec` has title, unit, most (of the axis), count, label(place), series,
// bands, levels, marks; a series has name, values, and isCold(place) or lines.
function trend(spec, view) {
  const height = 200, area = { left: 58, right: 0, top: 20, bottom: height - 22 };
  const svg = make("svg", {
    class: "plot", height, tabindex: 0, role: "application", "aria-roledescription": "plot", "aria-label":
      `${spec.title}, ${number(spec.count)} runs. A table follows. Arrow keys move, plus and minus zoom.`,
  });
  const output = make("output");
  const folded = foldedTable(spec.title, () => {
    const places = [];
    for (let at = Math.ceil(view.to); at >= view.from; at--) if (at < spec.count) places.push(at);
    const rows = places.map((at) => [spec.label(at), ...spec.series.map((it) => amount(it.values[at], spec.unit)),
      ...(spec.note ? [spec.note(at)] : [])]);
    const headings = ["Run", ...spec.series.map((it) => it.name), ...(spec.note ? ["Environment"] : [])];
    return table(spec.title, headings, rows, new Set(spec.series.map((_, n) => n + 1)));
  });
  const key = make("div", { class: "legend key" });
  const figure = make("figure", { "data-plot": spec.name }, make("figcaption", {}, spec.title), svg, key, output, folded);
  let cursor = null, scale = null;

  function draw() {
    const width = svg.clientWidth || 560, first = Math.max(0, Math.floor(view.from));
    const last = Math.min(spec.count - 1, Math.ceil(view.to));
    area.right = width - 8;
    const shown = spec.series.flatMap((it) => it.values.slice(first, last + 1)).filter(isKnown);
    let low = shown.length ? shown.reduce((a, b) => Math.min(a, b)) : 0;
    let high = shown.length ? shown.reduce((a, b) => Math.max(a, b)) : 1;
    const margin = (high - low || Math.abs(high) || 1) * 0.08;
    low = low >= 0 ? Math.max(0, low - margin) : low - margin;
    high = Math.min(high + margin, spec.most || Infinity);
    const values = axis(low, high, 4, spec.unit);
    area.left = Math.max(58, ...values.map(([, text]) => Math.ceil(textWidth(text)) + 8));
    scale = {
      x: (at) => area.left + (at - view.from) / (view.to - view.from || 1) * (area.right - area.left),
      y: (value) => area.bottom - (value - low) / (high - low) * (area.bottom - area.top),
      back: (x) => view.from + (x - area.left) / (area.right - area.left) * (view.to - view.from),
    };
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.dataset.low = low;
    svg.dataset.high = high;
    const parts = [...bands(first, last), ...axes(values, first, last)];
    spec.series.forEach((it, n) => parts.push(...(it.lines ? lines(it, n, first, last) : points(it, first, last))));
    for (const it of spec.levels || []) {
      if (it.to >= view.from && it.from <= view.to) parts.push(line(it.style || "level", Math.max(it.from, view.from), it.level, Math.min(it.to, view.to), it.level));
    }
    for (const it of spec.marks || []) if (it.at >= view.from && it.at <= view.to) parts.push(...mark(it));
    svg.replaceChildren(...parts);
    if (cursor !== null) move(cursor, false);
    folded.refresh();
  }

  const line = (name, fromX, fromY, toX, toY) => make("line", {
    class: name, x1: scale.x(fromX).toFixed(1), y1: scale.y(fromY).toFixed(1), x2: scale.x(toX).toFixed(1), y2: scale.y(toY).toFixed(1),
  });

  function axes(values, first, last) {
    const parts = [];
    for (const [value, text] of values) {
      const y = scale.y(value).toFixed(1);
      parts.push(make("line", { class: "axis", x1: area.left, x2: area.right, y1: y, y2: y }),
        make("text", { x: area.left - 4, y: +y + 4, "text-anchor": "end" }, text));
    }
    const room = Math.max(1, Math.floor((area.right - area.left) / 90)), step = Math.max(1, Math.ceil((last - first) / room));
    let before = "";
    for (let at = first; at <= last; at += step) {
      if (scale.x(at) > area.right - 62) break;
      const [day, time] = spec.started(at).split(" ");
      const text = day === before ? time : day; // of several runs of one day, the first has its date
      before = day;
      parts.push(make("text", { class: "tick", x: scale.x(at), y: height - 6, "text-anchor": "start" }, text));
    }
    return parts;
  }

  function bands(first, last) {
    const parts = [];
    for (const it of spec.bands || []) {
      if (it.to < first || it.from > last) continue;
      const from = Math.max(area.left, scale.x(it.from - 0.5)), to = Math.min(area.right, scale.x(it.to + 0.5));
      if (it.band % 2) parts.push(make("rect", { class: "band", x: from, width: Math.max(0, to - from), y: area.top, height: area.bottom - area.top }));
      if (to - from > 14) parts.push(make("text", { x: from + 3, y: 12 }, make("title", {}, it.text), `E${it.band + 1}`));
    }
    return parts;
  }

  // One path for all circles and one for all triangles: 2,000 elements would take longer to draw.
  function points(it, first, last) {
    if (it.shape !== undefined) return shapes(it, first, last);
    let warm = "", cold = "";
    for (let at = first; at <= last; at++) {
      const value = it.values[at];
      if (!isKnown(value)) continue;
      const x = scale.x(at).toFixed(1), y = scale.y(value).toFixed(1);
      if (it.isCold(at)) cold += `M${x},${y - 4}l4,7h-8z`; else warm += `M${x},${y}h0`;
    }
    return [make("path", { class: "points k0", d: warm }), make("path", { class: "cold k3", d: cold })];
  }

  // Hollow with a cold cache.
  function shapes(it, first, last) {
    const paths = { "": "", " hollow": "" };
    for (let at = first; at <= last; at++) {
      if (!isKnown(it.values[at])) continue;
      paths[it.isCold(at) ? " hollow" : ""] += SHAPES[it.shape](+scale.x(at).toFixed(1), +scale.y(it.values[at]).toFixed(1));
    }
    return Object.entries(paths).map(([name, d]) => make("path", { class: `machine m${it.shape}${name}`, d }));
  }

  function lines(it, n, first, last) {
    let path = "", pen = "M";
    for (let at = first; at <= last; at++) {
      const value = it.values[at];
      if (!isKnown(value)) { pen = "M"; continue; }
      path += `${pen}${scale.x(at).toFixed(1)},${scale.y(value).toFixed(1)}`;
      pen = "L";
    }
    return [make("path", { class: `lines k${n % 6}`, "stroke-dasharray": DASHES[Math.floor(n / 6 + n) % 6], d: path })];
  }

  function mark(it) {
    const [sign, name] = SIGNS[it.kind], x = scale.x(it.at).toFixed(1);
    return [make("line", { class: `mark ${name}`, x1: x, x2: x, y1: area.top, y2: area.bottom }),
      make("text", { class: `sign ${name}`, x, y: area.top - 2, "text-anchor": "middle" }, make("title", {}, `${it.kind}: ${it.text}`), sign)];
  }

  function move(at, moved = true) {
    cursor = Math.min(Math.max(Math.round(at), 0), spec.count - 1);
    if (moved) view.showPlace(cursor);
    svg.querySelectorAll(".cursor").forEach((it) => it.remove());
    if (cursor < view.from || cursor > view.to) return;
    const x = scale.x(cursor).toFixed(1);
    svg.append(make("line", { class: "cursor", x1: x, x2: x, y1: area.top, y2: area.bottom }));
    const found = spec.series.filter((it) => isKnown(it.values[cursor]))
      .map((it) => `${spec.series.length > 1 ? `${it.name} ` : ""}${amount(it.values[cursor], spec.unit)}`);
    const near = (spec.marks || []).filter((it) => it.at === cursor).map((it) => `${it.kind}: ${it.text}`);
    output.textContent = [spec.label(cursor), ...(spec.about(cursor) ? [spec.about(cursor)] : []), found.join(", ") || "no value", ...near].join("; ");
  }

  svg.addEventListener("pointermove", (event) => move(scale.back(event.clientX - svg.getBoundingClientRect().left), false));
  svg.addEventListener("keydown", (event) => {
    const at = cursor === null ? spec.count : cursor;
    const steps = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: spec.count - 1 };
    if (event.key in steps) move(steps[event.key]);
    else if (event.key === "Enter" && cursor !== null && spec.open) spec.open(cursor);
    else if (!zoomByKey(event.key, view, Math.min(at, spec.count - 1))) return;
    event.preventDefault();
  });
  dragToZoom(svg, view, (x) => scale.back(x), () => area);
  if (spec.series.length > 1) {
    spec.series.forEach((it, n) => key.append(it.shape !== undefined
      ? make("span", { class: "machines" }, make("svg", { width: 14, height: 12, "aria-hidden": "true" }, make("path", { class: `machine m${it.shape}`, d: SHAPES[it.shape](7, 6) })), `${it.name}: ${it.title}`)
      : make("span", {}, make("svg", { width: 26, height: 8, "aria-hidden": "true" },
      make("path", { class: `lines k${n % 6}`, "stroke-dasharray": DASHES[Math.floor(n / 6 + n) % 6], d: "M0,4h26" })), it.name)));
  }
  figure.draw = draw;
  figure.move = move;
  return figure;
}

// Draws figures again after their width or the view changed.
function drawn(figures) {
  let asked = false;
  const draw = () => {
    asked = false;
    figures().forEach((it) => it.draw());
  };
  const later = () => {
    if (!asked) requestAnimationFrame(draw);
    asked = true;
  };
  window.addEventListener("resize", later);
  return later;
}

// Pages

const pages = {
  overview() {
    const entries = [...document.querySelectorAll(".attention > li")];
    if (!entries.length) return;
    const filter = () => {
      const kind = state.get("kind"), platform = state.get("platform");
      for (const it of entries) {
        it.hidden = Boolean(kind && it.dataset.kind !== kind) || Boolean(platform && !it.dataset.platforms.split(" ").includes(platform));
      }
      byId("attention-count").textContent = `${entries.filter((it) => !it.hidden).length} shown`;
    };
    bind("attention-kind", "kind", filter);
    bind("attention-platform", "platform", filter);
    filter();
  },

  platform() {
    const runs = dashboard.get("runs"), data = dashboard.own("platform");
    // Plots follow the branch; data has the runs of other branches too, for comparisons.
    const line = data.line, count = line.length, run = (at) => data.runs[line[at]];
    const pick = (column) => line.map((place) => column[place]);
    const environments = pick(data.environment), isCold = (at) => environments[at] >= 0 && /^cold/.test(data.environments[environments[at]].cache);
    const common = {
      count, isCold,
      label: (at) => `${runs.started[run(at)]} ${runs.id[run(at)]}${runs.commit[run(at)] ? ` (${runs.commit[run(at)]})` : ""}`,
      started: (at) => runs.started[run(at)],
      about: (at) => runs.about[runs.commit[run(at)]],
      open: (at) => { const page = runs.pages[runs.id[run(at)]]; if (page) location.href = page; },
    };
    const bands = [];
    environments.forEach((it, at) => {
      if (it < 0) return;
      const { band, text } = data.environments[it], before = bands[bands.length - 1];
      if (before && before.band === band) before.to = at; else bands.push({ band, text, from: at, to: at });
    });
    let figures = [], tests = [];
    const later = drawn(() => [...figures, ...tests]);
    const view = makeView(0, Math.max(1, count - 1), Math.min(3, Math.max(1, count - 1)), () => {
      const whole = view.isWhole();
      state.set({ from: whole ? "" : runs.id[run(Math.round(view.from))], to: whole ? "" : runs.id[run(Math.round(view.to))] });
      later();
    });
    const select = byId("measure");
    for (const it of data.measures) select.append(make("option", { value: it.name }, it.title));
    select.append(make("option", { value: "all" }, `all ${data.measures.length}`));
    // Times with a cold cache are several times those with a warm one: apart unless asked for.
    const colds = line.filter((_, at) => isCold(at)).length, kinds = [["warm", "warm or none", count - colds], ["cold", "cold", colds]]
      .filter((it) => it[2]).sort((a, b) => b[2] - a[2]);
    const option = (value, text, runs) => make("option", { value }, `${text} (${number(runs)} runs)`);
    byId("cache").append(...kinds.map(([value, text, runs]) => option(value, text, runs)), ...(colds && colds < count ? [option("both", "both", count)] : []));
    // Links to the open regressions that the chosen measures or runs leave out.
    const elsewhere = (shown, cache) => {
      const names = new Set(shown.map((it) => it.name)), links = new Map();
      for (const it of data.marks) {
        const own = isCold(it.at) ? "cold" : "warm";
        if (it.kind !== "open regression" || !data.first.includes(it.measure)) continue;
        if (names.has(it.measure) && (cache === "both" || cache === own)) continue;
        const words = `${new URLSearchParams({ measure: names.has(it.measure) ? state.get("measure") : it.measure, cache: own })}`;
        if (!links.has(words)) links.set(words, { own, titles: new Set() });
        links.get(words).titles.add(data.measures.find((known) => known.name === it.measure).title);
      }
      byId("elsewhere").replaceChildren(...(links.size ? ["Open regressions that are not shown: "] : []), ...[...links].flatMap(([words, it], n) =>
        [n ? "; " : "", make("a", { href: `#${words}` }, `${[...it.titles].join(", ")}${it.own === "cold" ? " with a cold compiler cache" : ""}`)]));
    };
    // The machines of these runs, the most used first; each has its number from its first run on.
    const machineAt = (at) => environments[at] < 0 ? -1 : data.environments[environments[at]].machine;
    const uses = data.machines.map((_, machine) => line.filter((_, at) => machineAt(at) === machine).length);
    const used = [...uses.keys()].filter((it) => uses[it]).sort((a, b) => uses[b] - uses[a] || a - b);
    if (byId("machine")) byId("machine").append(...used.map((it) => option(String(it + 1), `M${it + 1}: ${data.machines[it]}`, uses[it])));
    const shapeOf = (machine) => Math.min(used.indexOf(machine), SHAPES.length - 1);
    const overlaid = (values, isCold) => {
      const own = used.slice(0, SHAPES.length - 1), rest = used.slice(SHAPES.length - 1);
      const apart = own.map((it, shape) => ({ name: `M${it + 1}`, title: `${data.machines[it]} (${number(uses[it])} runs)`, shape, of: [it] }));
      if (rest.length) apart.push({ name: "others", title: `${number(rest.length)} other machines`, shape: SHAPES.length - 1, of: rest });
      return apart.map((it) => ({ ...it, isCold, values: values.map((value, at) => it.of.includes(machineAt(at)) ? value : null) }));
    };
    const cost = () => {
      const name = state.get("measure"), cache = state.get("cache") || kinds[0][0];
      const machine = used.includes(state.get("machine") - 1) ? state.get("machine") - 1 : null, isOverlaid = machine === null && used.length > 1;
      const isShown = (at) => machine === null || machineAt(at) === machine;
      const shown = data.measures.filter((it) => name === "all" || (name ? it.name === name : data.first.includes(it.name)));
      shown.sort((a, b) => data.first.indexOf(a.name) - data.first.indexOf(b.name));
      figures = (shown.length ? shown : data.measures.slice(0, 5)).map((it) => {
        const values = pick(it.values).map((value, at) => !isShown(at) || cache !== "both" && isCold(at) !== (cache === "cold") ? null : value);
        return trend({
          ...common, name: it.name, title: it.title, unit: it.unit, bands: isOverlaid ? [] : bands,
          series: isOverlaid ? overlaid(values, isCold) : [{ name: it.title, values, isCold }],
          note: (at) => environments[at] < 0 ? "-" : `E${data.environments[environments[at]].band + 1}, ${data.environments[environments[at]].cache}`,
          levels: data.levels.filter((level) => level.measure === it.name && isShown(level.from) && (cache === "both" || isCold(level.from) === (cache === "cold")))
            .map((level) => isOverlaid ? { ...level, style: `machine-level m${shapeOf(machineAt(level.from))}` } : level),
          marks: data.marks.filter((mark) => mark.measure === it.name && isShown(mark.at) && (cache === "both" || isCold(mark.at) === (cache === "cold"))),
        }, view);
      });
      byId("cost").replaceChildren(...figures);
      elsewhere(shown, cache);
      later();
    };
    const outcome = (name) => data.counts[name] ? [{ name, values: pick(data.counts[name]), lines: true }] : [];
    const reasons = Object.entries(data.skips.reasons).map(([name, values]) =>
      ({ name, lines: true, values: [...Array(data.skips.from).fill(null), ...values] }));
    const total = line.map((place) => Object.values(data.counts).reduce((sum, it) => sum + (it[place] || 0), 0) || null);
    const share = total.map((all, at) => all && 100 * (1 - ((data.counts.skipped || [])[line[at]] || 0) / all));
    for (const [name, title, unit, series, most] of [
      ["counts", "Tests by outcome", "tests", ["passed", "skipped", "xfailed", "xpassed"].flatMap(outcome)],
      ["failures", "Failures", "tests", ["failed", "errors"].flatMap(outcome)],
      ["executed", "Executed share", "percent", [{ name: "executed", values: share, lines: true }], 100],
      ["skips", "Skips by reason", "tests", reasons],
    ]) if (series.length) tests.push(trend({ ...common, name, title, unit, bands, series, most }, view));
    byId("tests").replaceChildren(...tests);
    bind("measure", "measure", cost);
    bind("cache", "cache", cost);
    if (byId("machine")) bind("machine", "machine", cost);
    byId("range").addEventListener("input", (event) => {
      const newest = Number(event.target.value);
      if (newest) view.set(count - newest, count - 1); else view.reset();
    });
    byId("reset").addEventListener("click", () => { byId("range").value = ""; view.reset(); });
    const place = (id) => line.findIndex((it) => runs.id[data.runs[it]] === id);
    const restore = () => {
      const from = place(state.get("from")), to = place(state.get("to")), at = place(state.get("run"));
      if (from >= 0 && to > from) view.set(from, to);
      else if (at >= 0) view.set(at - 15, at + 15);
      cost();
      if (at >= 0) requestAnimationFrame(() => requestAnimationFrame(() => [...figures, ...tests].forEach((it) => it.move(at, false))));
    };
    restore();
  },

  run() {
    const data = dashboard.own("run");
    const later = drawn(() => shown ? [shown] : []);
    let shown = null, of = null;
    const show = () => {
      // A link to the section of a platform shows its timeline too.
      const known = [state.get("platform"), decodeURIComponent(location.hash.slice(1)), Object.keys(data.platforms)[0]];
      const platform = known.find((it) => Object.hasOwn(data.platforms, it));
      byId("timeline-platform").value = platform;
      if (of !== platform) {
        shown = timeline(data.platforms[platform], platform, later);
        byId("timeline").replaceChildren(shown);
        of = platform;
      }
      shown.find(state.get("find"));
      later();
    };
    bind("timeline-platform", "platform", () => { state.set({ from: "", to: "" }); show(); });
    bind("timeline-find", "find", show);
    byId("reset").addEventListener("click", () => shown.view.reset());
    byId("trace").addEventListener("click", () => {
      const blob = new Blob([JSON.stringify(chromeTrace(data))], { type: "application/json" });
      const link = make("a", { href: URL.createObjectURL(blob), download: `${data.run}.trace.json` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
    show();
  },

  operators() {
    const data = dashboard.get("operators");
    if (!byId("heat")) return;
    const body = make("tbody"), head = make("tr", {}, make("th", { scope: "col" }, "Overload"),
      ...data.platforms.map((it) => make("th", { scope: "col" }, it.label)));
    byId("heat").append(make("colgroup", {}, make("col"), ...data.platforms.map(() => make("col"))), make("thead", {}, head), body);
    const cells = data.statuses.map((it, n) => make("td", { class: `status s${n}`, title: it.name },
      make("span", { "aria-hidden": "true" }, it.symbol), make("span", { class: "hidden" }, it.name)));
    const made = new Map();
    const row = (place) => made.get(place) || made.set(place, make("tr", {}, make("th", { scope: "row" }, make("button", { type: "button", "data-place": place }, data.overloads[place])),
      ...data.platforms.map((it) => {
        const cell = cells[it.status[place]].cloneNode(true);
        const reasons = new Set(it.tests[place].filter((_, n) => n % 2).map((state) => data.states[state]));
        if (data.statuses[it.status[place]].name === "skipped") cell.title = cell.lastChild.textContent = [...reasons].join("; ");
        return cell;
      }))).get(place);
    // A screen of rows at once, more when the reader comes near: 1,440 of them take a second.
    const SCREEN = 30;
    let rest = [];
    const grow = () => {
      observer.disconnect();
      body.append(...rest.splice(0, SCREEN).map(row));
      if (rest.length) observer.observe(body.lastElementChild);
    };
    const observer = new IntersectionObserver((seen) => { if (seen.some((it) => it.isIntersecting)) grow(); },
      { root: byId("heat").parentElement, rootMargin: "200px" });
    const filter = () => {
      const text = state.get("search").toLowerCase(), on = state.get("on");
      const status = data.statuses.findIndex((it) => it.name === state.get("status")), differing = state.get("differing") === "1";
      const columns = data.platforms.filter((it) => !on || it.name === on);
      const found = [...data.overloads.keys()].filter((place) => data.overloads[place].toLowerCase().includes(text)
        && (status < 0 || columns.some((it) => +it.status[place] === status))
        && (!differing || new Set(data.platforms.map((it) => it.status[place])).size > 1));
      body.replaceChildren();
      rest = [...found];
      grow();
      byId("count").textContent = `${number(found.length)} of ${number(data.overloads.length)} overloads`;
      detail(data.overloads.indexOf(state.get("overload")));
    };
    const detail = (place) => {
      const panel = byId("detail");
      panel.hidden = place < 0;
      if (place < 0) return;
      const close = make("button", { type: "button" }, "Close");
      close.addEventListener("click", () => { state.set({ overload: "" }); detail(-1); });
      const keys = new Map();
      data.platforms.forEach((it, column) => {
        const pairs = it.tests[place];
        for (let n = 0; n < pairs.length; n += 2) {
          if (!keys.has(pairs[n])) keys.set(pairs[n], Array(data.platforms.length).fill("·"));
          keys.get(pairs[n])[column] = data.states[pairs[n + 1]];
        }
      });
      const listed = [...keys].map(([key, states]) => [...data.tests[key].split("\n"), ...states]).sort((a, b) => a[1] - b[1] || (a[2] < b[2] ? -1 : 1));
      const headings = ["Test", "Slot", "dtype", ...data.platforms.map((it) => it.label)];
      panel.replaceChildren(make("h3", {}, data.overloads[place]), close, table(`${data.overloads[place]}: tests on each platform`, headings, listed));
    };
    body.addEventListener("click", (event) => {
      const place = event.target.dataset && event.target.dataset.place;
      if (place === undefined) return;
      state.set({ overload: data.overloads[place] });
      detail(+place);
      byId("detail").focus();
      byId("detail").scrollIntoView({ block: "nearest" });
    });
    for (const name of ["search", "status", "on", "differing"]) bind(name, name, filter);
    filter();
  },

  compare() {
    const runs = dashboard.get("runs");
    for (const it of document.querySelectorAll("details.comparison")) {
      it.open = it.dataset.pair === state.get("pair");
      if (it.open) it.scrollIntoView();
      it.firstElementChild.addEventListener("click", () => state.set({ pair: it.open ? "" : it.dataset.pair }));
    }
    byId("run-ids").append(...runs.id.map((id, n) => make("option", { value: id },
      `${runs.started[n]} ${runs.branches[runs.branch[n]] || ""} ${runs.commit[n] || ""} ${runs.about[runs.commit[n]] || ""}`)).reverse());
    let choice = 0;
    const show = async () => {
      const own = ++choice; // of choices, only the last one is shown, whatever arrives first
      const sides = ["base", "head"].map((it) => ({ id: state.get(it), platform: byId(`${it}-platform`).value }));
      const unknown = sides.filter((it) => it.id && !runs.id.includes(it.id));
      if (unknown.length) return byId("figures").replaceChildren(`No run is named ${unknown[0].id}.`);
      if (!sides.every((it) => it.id)) return byId("figures").replaceChildren("Name two runs.");
      for (const it of sides) {
        it.data = await dashboard.load(runs.platforms.find((known) => known.name === it.platform).data);
        if (own !== choice) return undefined;
        it.place = it.data.runs.indexOf(runs.id.indexOf(it.id));
        if (it.place < 0) return byId("figures").replaceChildren(`Run ${it.id} has no result of ${it.platform}.`);
      }
      return byId("figures").replaceChildren(...figures(...sides));
    };
    for (const it of ["base", "head"]) {
      bind(it, it, show);
      bind(`${it}-platform`, `${it}-platform`, show);
    }
    show();
  },
};
pages["older run"] = pages.run;

// The figures of two results, side by side.
function figures(base, head) {
  const environment = (it) => it.data.environment[it.place] < 0 ? "not recorded" : it.data.environments[it.data.environment[it.place]].text;
  const notes = [];
  if (environment(base) !== environment(head)) notes.push(make("p", {}, make("strong", {}, "Times are not comparable: the environments differ.")));
  const facts = [["Result", base.data.product[base.place], head.data.product[head.place]], ["Environment", environment(base), environment(head)]];
  const change = (before, after, unit) => {
    if (!isKnown(before) || !isKnown(after)) return "-";
    const size = before ? ` (${after >= before ? "+" : "-"}${number(100 * Math.abs(after / before - 1), 1)} %)` : "";
    return `${after >= before ? "+" : "-"}${amount(Math.abs(after - before), unit)}${size}`;
  };
  const pair = (name, before, after, unit) => [name, amount(before, unit), amount(after, unit), change(before, after, unit)];
  const names = new Map([...base.data.measures, ...head.data.measures].map((it) => [it.name, it]));
  const value = (side, name) => { const it = side.data.measures.find((known) => known.name === name); return it ? it.values[side.place] : null; };
  const measures = [...names.values()].map((it) => pair(it.title, value(base, it.name), value(head, it.name), it.unit)).filter((it) => it[1] !== "-" || it[2] !== "-");
  const counts = [...new Set([...Object.keys(base.data.counts), ...Object.keys(head.data.counts)])]
    .map((name) => pair(name, (base.data.counts[name] || [])[base.place], (head.data.counts[name] || [])[head.place], "tests"));
  const numbers = new Set([1, 2, 3]), columns = ["base", "head", "change"];
  return [table("Facts", ["Fact", "base", "head"], facts), ...notes, make("h3", {}, "Tests"), table("Tests", ["Outcome", ...columns], counts, numbers),
    make("h3", {}, "Cost"), table("Cost", ["Measure", ...columns], measures, numbers)];
}

// The timeline of a platform

const FILLS = { stage: "stage", compile: "compile", link: "link", other: "other", passed: "t-passed", failed: "t-failed", skipped: "t-skipped", "short tests": "short" };

function timeline(data, platform, later) {
  const rowHeight = 20, top = 18, height = top + rowHeight * data.lanes.length + 20;
  const end = data.spans.reduce((most, it) => Math.max(most, it[3] + it[4]), 1);
  const begin = data.spans.reduce((least, it) => Math.min(least, it[3]), 0);
  const svg = make("svg", {
    class: "plot", height, tabindex: 0, role: "application", "aria-roledescription": "timeline", "aria-label":
      `Timeline of ${platform}, ${number(data.spans.length)} spans. A table follows. Arrow keys move from span to span.`,
  });
  const output = make("output"), area = { left: 0, right: 0 };
  const seconds = (ms) => `${number(ms / 1000, Math.abs(ms) < 10000 ? 3 : 1)} s`;
  const described = (it) => `${data.lanes[it[0]]}: ${data.names[it[2]]}, ${data.kinds[it[1]]}, ${seconds(it[4])} from ${seconds(it[3])}`;
  const MOST = 500;
  const folded = foldedTable("spans in view", () => {
    const found = data.spans.filter((it) => it[3] + it[4] >= view.from && it[3] <= view.to && isFound(it)).sort((a, b) => b[4] - a[4]);
    const rows = found.slice(0, MOST).map((it) => [data.names[it[2]], data.lanes[it[0]], data.kinds[it[1]], seconds(it[3]), seconds(it[4])]);
    const parts = make("div", {}, table("Spans in view, the longest first", ["Name", "Lane", "Kind", "Begin", "Duration"], rows, new Set([3, 4])));
    if (found.length > MOST) parts.append(make("p", {}, `and ${number(found.length - MOST)} more: zoom in to see them`));
    return parts;
  });
  const kinds = make("div", { class: "legend key" }, ...data.kinds.map((it) => make("span", {},
    make("svg", { width: 14, height: 10, "aria-hidden": "true" }, make("rect", { class: `span ${FILLS[it] || "other"}`, width: 14, height: 10 })), it)));
  const figure = make("figure", {}, svg, kinds, output, folded);
  if (data.left_out.length) figure.prepend(make("p", { class: "help" }, `Not placed: ${data.left_out.join("; ")}.`));
  const words = () => {
    const from = Number(state.get("from")), to = Number(state.get("to"));
    return to > from ? [from, to] : null;
  };
  const wanted = words();
  let selected = null, text = "";
  const view = makeView(begin, end, Math.min(1, end), () => {
    state.set({ from: view.isWhole() ? "" : String(Math.round(view.from)), to: view.isWhole() ? "" : String(Math.round(view.to)) });
    later();
  });
  const isFound = (it) => !text || data.names[it[2]].toLowerCase().includes(text);
  const x = (at) => area.left + (at - view.from) / (view.to - view.from) * (area.right - area.left);
  const back = (at) => view.from + (at - area.left) / (area.right - area.left) * (view.to - view.from);

  figure.view = view;
  figure.find = (wantedText) => { text = wantedText.toLowerCase(); };
  figure.draw = () => {
    const width = svg.clientWidth || 600;
    area.left = width < 500 ? 64 : 96;
    area.right = width - 6;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const parts = ticks(view.from, view.to, Math.max(2, Math.floor(width / 130))).flatMap((at) => [
      make("line", { class: "axis", x1: x(at), x2: x(at), y1: top, y2: height - 20 }),
      make("text", { x: x(at), y: height - 6, "text-anchor": x(at) > area.right - 24 ? "end" : "middle" }, seconds(at).replace(/\.0+ s/, " s"))]);
    data.lanes.forEach((lane, n) => parts.push(make("text", { class: "value", x: 2, y: top + n * rowHeight + 14 }, lane)));
    const crosses = [], filled = new Map(); // the last drawn pixel of each lane and kind: what is thinner shares one
    data.spans.forEach((it, n) => {
      if (it[3] + it[4] < view.from || it[3] > view.to) return;
      const from = Math.max(x(it[3]), area.left), wide = Math.min(x(it[3] + it[4]), area.right) - from, key = `${it[0]} ${it[1]}`;
      if (wide < 0.5 && n !== selected && isFound(it) && Math.floor(from) === filled.get(key)) return;
      filled.set(key, Math.floor(from));
      const name = `span ${FILLS[data.kinds[it[1]]] || "other"}${isFound(it) ? "" : " dim"}${n === selected ? " selected" : ""}`;
      // Color is not alone: what was skipped is half as high, and what failed has a cross.
      const kind = data.kinds[it[1]], y = top + it[0] * rowHeight + 2, low = kind === "skipped" ? (rowHeight - 4) / 2 : 0;
      parts.push(make("rect", { class: name, x: from.toFixed(1), y: y + low, width: Math.max(wide, 0.8).toFixed(1), height: rowHeight - 4 - low, "data-span": n }));
      if (kind === "failed") crosses.push(make("text", { class: "cross", x: from + wide / 2, y: y + 12, "text-anchor": "middle" }, "✗"));
      if (wide > 60 && !low) parts.push(make("text", { class: "inside", x: from + 4, y: y + 12 }, data.names[it[2]].split("::").pop().slice(0, Math.floor(wide / 7))));
    });
    svg.replaceChildren(...parts, ...crosses);
    folded.refresh();
  };
  const select = (n) => {
    selected = n;
    output.textContent = described(data.spans[n]);
    const [, , , from, wide] = data.spans[n];
    view.showPlace(from + wide / 2);
    later();
  };
  svg.addEventListener("pointermove", (event) => {
    const n = event.target.dataset && event.target.dataset.span;
    if (n !== undefined) output.textContent = described(data.spans[n]);
  });
  svg.addEventListener("click", (event) => {
    const n = event.target.dataset && event.target.dataset.span;
    if (n !== undefined) select(+n);
  });
  svg.addEventListener("keydown", (event) => {
    const at = selected === null ? -1 : selected, now = data.spans[Math.max(at, 0)];
    const around = selected === null ? (view.from + view.to) / 2 : now[3] + now[4] / 2;
    const inLane = (lane) => data.spans.findIndex((it) => it[0] === lane && it[3] + it[4] >= now[3]);
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      const next = Math.min(Math.max(at + (event.key === "ArrowRight" ? 1 : -1), 0), data.spans.length - 1);
      select(next);
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const lane = Math.min(Math.max(now[0] + (event.key === "ArrowDown" ? 1 : -1), 0), data.lanes.length - 1);
      const next = inLane(lane);
      select(next >= 0 ? next : data.spans.findIndex((it) => it[0] === lane));
    } else if (!zoomByKey(event.key, view, around)) return;
    event.preventDefault();
  });
  dragToZoom(svg, view, back, () => area);
  if (wanted) view.set(...wanted);
  return figure;
}

// https://ui.perfetto.dev reads it: a process for each platform, a thread for each lane.
function chromeTrace(data) {
  const traceEvents = [];
  Object.entries(data.platforms).forEach(([platform, of], process) => {
    const pid = process + 1, about = (name, tid, value) => traceEvents.push({ ph: "M", name, pid, tid, args: { name: value } });
    about("process_name", 0, platform);
    of.lanes.forEach((lane, n) => about("thread_name", n + 1, lane));
    for (const [lane, kind, name, from, wide] of of.spans) {
      traceEvents.push({ ph: "X", pid, tid: lane + 1, name: of.names[name], cat: of.kinds[kind], ts: from * 1000, dur: wide * 1000 });
    }
  });
  return { traceEvents, displayTimeUnit: "ms", otherData: { run: data.run } };
}

// A page with a running run shows what was written since. An old page stops: nothing rewrites it, and
// it does not know whether its run goes on.
function refresh() {
  const { refresh: seconds, made } = document.body.dataset, STALE_S = 3600;
  if (!seconds) return;
  bind("pause", "pause", () => {});
  const age = () => (Date.now() - Date.parse(made)) / 1000;
  const look = () => {
    if (age() > STALE_S) {
      document.querySelectorAll(".badge.running").forEach((it) => it.replaceChildren("unknown"));
      byId("stale").textContent = "This page is older than an hour and no longer refreshed. Write the dashboard again to see how the run ended.";
    } else if (state.get("pause")) setTimeout(look, 1000 * seconds);
    else location.reload();
  };
  if (age() > STALE_S) look(); else setTimeout(look, 1000 * seconds);
}

document.addEventListener("DOMContentLoaded", () => {
  refresh();
  document.addEventListener("click", async (event) => {
    const button = event.target.closest && event.target.closest("[data-copy]");
    if (!button) return;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "Copied";
    } catch { // a page from a file may not be allowed to: select the text instead
      getSelection().selectAllChildren(button.previousElementSibling);
      button.textContent = "Selected";
    }
  });
  const show = pages[document.body.dataset.page.trim()];
  if (show) show();
  document.documentElement.dataset.ready = "1";
});
