// Searches the tests of the newest runs. Its own file: only one page needs it.
"use strict";

pages.search = () => {
  const data = dashboard.get("search"), runs = dashboard.get("runs");
  if (!byId("found")) return;
  const SHOWN = 100;
  const numbers = (text) => text.split(" ").map(Number);
  // The names are sorted, and each has only what differs from the one before it.
  const shared = numbers(data.shared), names = [];
  data.names.split("\n").forEach((rest, n) => names.push((names[n - 1] || "").slice(0, shared[n]) + rest));
  const lower = names.map((it) => it.toLowerCase());
  const histories = data.histories.map(numbers), bad = new Set(data.bad);
  const columns = data.platforms.map((it) => ({ ...it, tests: numbers(it.tests) }));
  const word = (state) => state < 0 ? "no test" : data.states[state].split(":")[0];
  const KINDS = { failed: ["✗", "s0"], error: ["✗", "s0"], passed: ["✓", "s1"], skipped: ["s", "s4"], xfailed: ["x", "s2"], xpassed: ["x", "s2"], "no test": ["·", "s5"] };
  // Of a run, -1: it does not have the test. The first is the newest run.
  const history = (column, place) => column.tests[place] < 0 ? [] : histories[column.tests[place]];
  const newest = (column, place) => column.tests[place] < 0 ? -1 : histories[column.tests[place]][0];
  // A name as pytest prints it has the device of its platform.
  const device = data.devices.length ? new RegExp(`(?:-|\\b)(?:${data.devices.join("|")})-slot`, "g") : /$^/;
  const plain = (text) => text.replace(device, "-slot");

  const badge = (name) => make("span", { class: `badge ${KINDS[name][1]}` }, make("span", { "aria-hidden": "true" }, KINDS[name][0]), ` ${name}`);
  const item = (place) => {
    const groups = new Map();
    for (const it of columns) {
      const name = word(newest(it, place));
      groups.set(name, [...(groups.get(name) || []), it.label]);
    }
    const ordered = Object.keys(KINDS).filter((name) => groups.has(name));
    return make("li", {}, make("button", { type: "button", "data-place": place }, names[place]),
      make("p", {}, ...ordered.flatMap((name) => [badge(name), ` ${groups.get(name).join(", ")} `])));
  };

  const detail = (place) => {
    const panel = byId("detail");
    panel.hidden = place < 0;
    if (place < 0) return panel.replaceChildren();
    const close = make("button", { type: "button" }, "Close");
    close.addEventListener("click", () => { state.set({ test: "" }); detail(-1); byId("search").focus(); });
    const own = columns.filter((it) => it.tests[place] >= 0);
    const known = [...new Set(own.flatMap((it) => it.runs))].sort((a, b) => b - a);
    const rows = known.map((run) => {
      const page = runs.pages[runs.id[run]], text = `${runs.started[run]} ${runs.commit[run] ? runs.commit[run].slice(0, 12) : runs.id[run]}`;
      return [page ? make("a", { href: page }, text) : text, ...own.map((it) => {
        const at = it.runs.indexOf(run), found = at < 0 ? null : history(it, place)[at];
        return found === null ? "-" : found < 0 ? "no test" : make("span", {}, badge(word(found)), data.states[found].slice(word(found).length));
      })];
    });
    const title = `History of ${names[place]}`;
    panel.replaceChildren(make("h2", {}, names[place]), close, make("p", { class: "help" }, "The newest runs first. -: the run has no tests of this platform."),
      table(title, ["Run", ...own.map((it) => it.label)], rows));
    return undefined;
  };

  const filter = () => {
    const words = plain(state.get("search")).toLowerCase().split(/\s+/).filter(Boolean);
    const on = state.get("on"), outcome = state.get("outcome"), differing = state.get("differing") === "1";
    const chosen = columns.filter((it) => !on || it.name === on);
    const found = [];
    lower.forEach((name, place) => {
      if (!words.every((it) => name.includes(it))) return;
      if (outcome && !chosen.some((it) => word(newest(it, place)) === outcome)) return;
      if (differing && new Set(columns.map((it) => word(newest(it, place)))).size < 2) return;
      found.push(place);
    });
    // What failed first; then by name, which the places follow.
    const isBad = (place) => columns.some((it) => bad.has(newest(it, place)));
    found.sort((a, b) => isBad(b) - isBad(a) || a - b);
    byId("found").replaceChildren(...found.slice(0, SHOWN).map(item));
    const first = found.length > SHOWN ? `, the first ${SHOWN} are shown` : "";
    byId("count").textContent = `${number(found.length)} of ${number(names.length)} tests${first}`;
    detail(names.indexOf(plain(state.get("test"))));
  };
  byId("found").addEventListener("click", (event) => {
    const place = event.target.dataset.place;
    if (place === undefined) return;
    state.set({ test: names[place] });
    detail(+place);
    byId("detail").focus();
    byId("detail").scrollIntoView({ block: "nearest" });
  });
  const words = new Set(data.states.map((_, n) => word(n)));
  byId("outcome").append(...Object.keys(KINDS).filter((it) => it === "no test" || words.has(it)).map((it) => make("option", { value: it }, it)));
  byId("on").append(...columns.map((it) => make("option", { value: it.name }, it.label)));
  for (const name of ["search", "outcome", "on", "differing"]) bind(name, name, filter);
  filter();
};
