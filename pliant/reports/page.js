"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("main");
const search = document.getElementById("search");

// ---- making elements: texts are only ever set as text, never as HTML

function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  fill(node, attributes, children);
  return node;
}
function drawn(name, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  fill(node, attributes, children);
  return node;
}
function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") node.addEventListener("click", value);
    else if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
}
function time(seconds) {
  if (seconds === null || seconds === undefined) return "unfinished";
  if (seconds >= 1) return `${seconds.toFixed(2)} s`;
  if (!seconds) return "0";
  return seconds >= 1e-3 ? `${(seconds * 1e3).toFixed(1)} ms` : `${(seconds * 1e6).toFixed(1)} µs`;
}
function plural(number, what) {
  return `${number} ${what}${number === 1 ? "" : "s"}`;
}
function place(position) {
  return position ? `${position.file}:${position.line}` : "";
}

function shortPlace(position) {
  return position ? `${position.file.split("/").at(-1)}:${position.line}` : "";
}

// ---- the first screen

function overview() {
  const tiles = Object.entries(data.counts).map(([name, value]) =>
    element("div", { class: "tile" },
      element("b", {}, Number.isInteger(value) ? String(value) : value.toFixed(2)),
      element("span", {}, name)));
  const advice = data.advice.map((one) =>
    element("button", { class: "advice", onclick: () => show(one.function) },
      element("b", {}, one.title), element("span", { class: "soft" }, one.text)));
  main.replaceChildren(
    element("h1", {}, data.title),
    element("div", { class: "soft" },
      data.functions.length ? `${time(data.seconds)} from the first event to the last, ` +
        plural(data.processes.length, "process").replace("processs", "processes") : ""),
    element("div", { class: "tiles" }, ...tiles),
    element("h2", {}, "Look at this first"),
    ...(advice.length ? advice : [element("p", {}, data.functions.length ?
      "Nothing stands out: all compiled functions run compiled, without graph breaks." :
      "Nothing was compiled. Either the program calls no compiled function, or the processes " +
      "that do were not recorded.")]),
    ...(data.functions.length ? [element("h2", {}, "Compilations and calls over time"),
      legend(), timeline(), ...slowest()] : []));
}
function legend() {
  const names = [["capture", "capture"], ["guards", "guards"], ["backend", "code generation"],
    ["recording", "recording this report"], ["abandoned", "given up"], ["call", "calls"],
    ["missed", "calls that waited"]];
  return element("div", { class: "legend soft" },
    ...names.flatMap(([kind, text]) => [element("i", { class: kind }), text]));
}
// ---- one function

function show(id) {
  const fn = data.functions[id];
  location.hash = `f${id}`;
  main.replaceChildren(...[
    element("h1", {}, fn.name), element("div", { class: "soft" }, `${fn.file}:${fn.line}`),
    fn.source.length ? source(fn) : element("p", { class: "soft" }, "The source can't be read."),
    element("h2", {}, plural(fn.compilations.length, "compilation")),
    ...fn.compilations.map((one, i) => compilation(one, i === 0))]);
  main.scrollTop = 0;
  choose(id);
}
function source(fn) {
  const lines = fn.source.flatMap((line) => {
    const name = `${fn.file.split("/").at(-1)}:${line.line}`;
    const row = element("div", {}, element("button", { class: "number",
      title: "show what became of this line", onclick: () => findLine(name) }, String(line.line)),
      element("span", {}, line.text || " "));
    return [linked(row, [name], [name], true), ...notes(line.notes)];
  });
  return element("pre", { class: "source" }, ...lines);
}
function notes(all) {
  const text = (note) => note.text + (note.times > 1 ? ` (${note.times} times)` : "");
  const guards = all.filter((note) => note.kind === "guard");
  return [
    ...all.filter((note) => note.kind !== "guard").map((note) =>
      element("div", { class: `note ${note.kind}` },
        `${note.kind === "break" ? "" : note.kind + ": "}${text(note)}`)),
    ...(guards.length ? [element("details", { class: "note guard" },
      element("summary", {}, plural(guards.length, "guard")),
      ...guards.map((note) => element("div", {}, text(note))))] : []),
  ];
}
function findLine(name) {
  const graph = main.querySelector(".graph-search");
  if (!graph) return;
  graph.value = name;
  graph.dispatchEvent(new Event("input"));
}

// ---- what belongs to one line: source, graph, residual code, kernels

// `lines`: of all calls that led to it. `own`: the innermost.
function linked(node, lines, own, isSource = false) {
  if (!lines.length) return node;
  node.linked = { lines: new Set(lines), own: new Set(own), isSource };
  node.classList.add("linkable");
  node.addEventListener("click", () => showLinked(node.classList.contains("linked") ? null : node));
  return node;
}
function belong(one, other) {
  const common = (a, b) => [...a].some((line) => b.has(line));
  if (one.isSource) return common(one.own, other.lines);
  return other.isSource ? common(one.lines, other.own) : common(one.own, other.own);
}
function showLinked(chosen) {
  for (const node of main.querySelectorAll(".linkable")) {
    node.classList.toggle("linked", chosen !== null && belong(chosen.linked, node.linked));
  }
  for (const box of main.querySelectorAll("pre, .kernels")) {  // where it is out of sight
    const first = box.contains(chosen) ? null : box.querySelector(".linked");
    if (first && box.scrollHeight > box.clientHeight) {
      const distance = first.getBoundingClientRect().top - box.getBoundingClientRect().top;
      box.scrollTop += distance - box.clientHeight / 3;
    }
  }
}
function graphCode(one) {
  const nodes = new Map(one.drawing.map((node) => [node.name, node]));
  return (one.graph || "").split("\n").map((text) => {
    const node = nodes.get(/^\s*(\w+)(?::[^=]*)? = /.exec(text)?.[1]);
    const comment = /^(\s*# )File: (?:.*\/)?([^/]*:\d+ in .*)$/.exec(text);
    const row = comment ? element("div", { class: "soft", title: text.trim() },
      comment[1] + comment[2]) : element("div", {}, text || " ");
    return node && node.line ? linked(row, node.lines, [node.line]) : row;
  });
}
function residualCode(one) {
  return (one.residual || "").trimEnd().split("\n").map((text, i) => {
    const lines = one.residual_lines[i + 1] ?? [];
    return linked(element("div", {}, text || " "), lines, lines.slice(-1));
  });
}
function code(title, rows) {
  return element("details", { open: "" }, element("summary", {}, title),
    element("pre", { class: "code" }, ...rows));
}
function kernels(one) {
  const rows = one.programs.flatMap((program) => program.fusion.map((row) => {
    const step = measuredStep(one, program, row.kernel);
    const together = step && step.kernels.length > 1 ? " *" : "";
    const cells = [row.kernel, listed(row.operators),
      step ? time(step.seconds / step.runs) + together : "", step ? bytes(step.bytes) + together : ""];
    if (program.function.endsWith(" backward")) cells[0] += " (backward)";
    return linked(element("tr", {}, ...cells.map((cell) => element("td", {}, cell))),
      row.lines ?? [], row.lines ?? []);
  }));
  if (!rows.length) return null;
  return element("details", { open: "" },
    element("summary", {}, plural(rows.length, "kernel")),
    element("div", { class: "kernels" }, element("table", {}, element("tr", {},
      ...["kernel", "operators", "time", "bytes"].map((name) => element("th", {}, name))), ...rows),
      rows.some((row) => row.textContent.includes(" *")) ? element("p", { class: "soft" },
        "* of kernels that are launched together") : null));
}
function measuredStep(one, program, kernel) {
  const backward = program.function.endsWith(" backward");
  const measured = one.measured.find((each) => each.program.endsWith(" backward") === backward);
  return measured?.steps.find((step) => step.kernels.includes(kernel));
}
function compilation(one, open) {
  const used = one.hits === null ? "" : `, used ${plural(one.hits, "time")}`;
  const bar = element("span", { class: "phases" }, ...Object.entries(one.phases).map(
    ([phase, seconds]) => element("i", { class: phase,
      style: `width:${(100 * seconds) / one.seconds}%`, title: `${phase} ${time(seconds)}` })));
  const node = element("details", open ? { open: "" } : {},
    element("summary", {}, element("b", {}, `Compilation ${one.index} of ${one.name}`),
      element("span", { class: "soft" },
        `${time(one.seconds)}, ${plural(one.nodes, "operation")}${used}`), bar,
      element("div", { class: "soft why" }, why(one))));
  const fillIn = () => {
    if (node.open && node.children.length === 1) node.append(...contents(one));
  };
  node.addEventListener("toggle", fillIn);  // large runs: what nobody opens is not made
  fillIn();
  return node;
}
function why(one) {
  const [reason, ...others] = new Set(one.reasons.map((each) => each.guard));
  if (reason) return `because of ${reason}${others.length ? `, and ${others.length} more` : ""}`;
  const name = / from line \d+$/.test(one.name) ? "goes on after a graph break" : "the first call";
  return one.index ? "no earlier entry fits" : name;
}
function contents(one) {
  return [
    ...one.troubles.map((text) => element("p", { class: "bad" }, text)),
    ...one.reasons.map((reason) => element("p", {},
      `Compilation ${reason.entry} does not fit: it needs ${reason.guard}`,
      reason.position ? element("span", { class: "soft" }, ` (${place(reason.position)})`) : null)),
    ...one.breaks.map((broken) => element("p", { class: "bad" },
      `Graph break at ${place(broken.position)}: ${broken.what}. ${broken.why} ${broken.remedy}`)),
    drawing(one),
    element("p", { class: "soft" },
      "Click a line of the source, the graph or the code, or a kernel, to see what belongs to it."),
    element("div", { class: "columns" },
      one.graph ? code("Graph", graphCode(one)) : null,
      element("div", {}, one.residual ? code("Residual code", residualCode(one)) : null,
        kernels(one))),
    list(`Guards: ${one.guards.length}, and ${one.routine} on code and classes`,
      one.guards.map((guard) => guard.text + (guard.line ? `    # ${guard.line}` : ""))),
    sizes(one.sizes),
    ...one.programs.map(program),
    ...one.measured.map(measuredPart),
    memory(one),
    part("Saved for the backward", one.partition),
    stages(one.stages),
  ].filter((node) => node !== null);
}
function part(title, text, open) {
  if (!text) return null;
  return element("details", open ? { open: "" } : {}, element("summary", {}, title),
    element("pre", {}, text));
}
function list(title, lines) {
  if (!lines.length) return null;
  return part(title, lines.join("\n"));
}
function sizes(rows) {
  if (!rows.length) return null;
  const asked = rows.filter((row) => row.kind === "question").length;
  return element("details", {},
    element("summary", {}, `Sizes: ${plural(rows.length - asked, "decision")}` +
      (asked ? `, ${plural(asked, "question")}` : "")),
    element("table", {},
      element("tr", {}, ...["what", "", "line"].map((name) => element("th", {}, name))),
      ...rows.map((row) => element("tr", {}, element("td", {}, row.kind),
        element("td", {}, row.text + (row.times > 1 ? ` (${row.times} times)` : "")),
        element("td", { class: "soft", title: place(row.position) }, shortPlace(row.position))))));
}
function program(one) {
  const called = Object.entries(one.called).map(([name, times]) => `${name} × ${times}`);
  const texts = one.kernels.map((text) => element("pre", {}, text));
  return element("details", { class: "program" },
    element("summary", {}, `${one.function}: ${plural(one.kernels.length, "kernel")}`,
      element("span", { class: "soft" },
        called.length ? `, PyTorch runs ${called.join(", ")}` : "")),
    fused(one.fusion, texts), ...texts);
}
function fused(rows, texts) {
  if (!rows.length) return null;
  const names = ["kernel", "what is fused in it", "what it reads from others, and why they are not fused"];
  const link = (name) => {
    const at = rows.findIndex((row) => row.kernel === name);
    if (at < 0) return listed([name]);  // a call of PyTorch
    return element("button", { class: "link", onclick: () => texts[at].scrollIntoView() }, name);
  };
  return element("table", { class: "fusion" },
    element("tr", {}, ...names.map((name) => element("th", {}, name))),
    ...rows.map((row) => element("tr", {}, element("td", {}, link(row.kernel)),
      element("td", {}, listed(row.operators)),
      element("td", {}, ...row.reads.map((read) => element("div", {},
        `${listed(read.by)} reads ${read.what.length ? `${listed(read.what)} from ` : ""}`,
        link(read.from), element("span", { class: "soft" }, `: ${read.why}`)))))));
}
function listed(operators) {
  const times = new Map();
  for (const full of operators) {
    const name = full.replace(/^aten\./, "").replace(/\.default$/, "");
    times.set(name, (times.get(name) ?? 0) + 1);
  }
  return [...times].map(([name, n]) => (n === 1 ? name : `${name} × ${n}`)).join(", ");
}
function stages(rows) {
  if (!rows.length) return null;
  return element("details", {}, element("summary", {}, "All stages"),
    ...rows.map((row) => part(`${row.of}: ${row.stage}`, row.text)));
}

// ---- the list of functions, and finding things

const buttons = data.functions.map((fn) => {
  const breaks = fn.compilations.reduce((sum, one) => sum + one.breaks.length, 0);
  const bad = fn.compilations.some((one) => one.troubles.length);
  return element("button", { class: "row", onclick: () => show(fn.id) },
    element("span", { class: bad ? "name bad" : "name" }, fn.name),
    element("small", {}, `${fn.file.split("/").slice(-2).join("/")}:${fn.line}`),
    element("small", {}, plural(fn.compilations.length, "compilation") +
      (breaks ? `, ${plural(breaks, "break")}` : "")));
});
const texts = data.functions.map(() => null);
function textOf(id) {
  texts[id] ??= JSON.stringify(data.functions[id]).toLowerCase();
  return texts[id];
}
function filter() {
  const wanted = search.value.trim().toLowerCase();
  buttons.forEach((button, id) => { button.hidden = wanted && !textOf(id).includes(wanted); });
}
function choose(id) {
  document.querySelectorAll(".chosen").forEach((node) => node.classList.remove("chosen"));
  (id === null ? document.getElementById("overview") : buttons[id]).classList.add("chosen");
}
function home() {
  history.replaceState(null, "", "#");
  overview();
  choose(null);
}
function step(by) {
  const seen = buttons.filter((button) => !button.hidden);
  const at = seen.findIndex((button) => button.classList.contains("chosen"));
  const next = seen[Math.min(Math.max(at + by, 0), seen.length - 1)];
  if (next) { next.click(); next.scrollIntoView({ block: "nearest" }); }
}
function theme() {
  const root = document.documentElement;
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
}
const KEYS = { "/": () => search.focus(), g: () => main.querySelector(".graph-search")?.focus(),
  j: () => step(1), k: () => step(-1), o: home, t: theme };
document.addEventListener("keydown", (event) => {
  if (event.target.classList.contains("graph-search")) {
    if (event.key === "Escape") {
      event.target.value = "";
      event.target.dispatchEvent(new Event("input"));
      event.target.blur();
    }
  } else if (event.target === search) {
    if (event.key === "Escape") { search.value = ""; filter(); search.blur(); }
    if (event.key === "Enter") buttons.find((button) => !button.hidden)?.click();
  } else if (KEYS[event.key] && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    KEYS[event.key]();
  }
});

document.title = `pliant report: ${data.title}`;
document.getElementById("title").textContent = data.title;
document.getElementById("about").textContent =
  Object.entries(data.about).map(([name, value]) => `${name} ${value}`).join("  ·  ");
document.getElementById("overview").addEventListener("click", home);
document.getElementById("theme").addEventListener("click", theme);
document.getElementById("functions").append(...buttons);
search.addEventListener("input", filter);
if (matchMedia("(prefers-color-scheme: dark)").matches) theme();
const asked = /^#f(\d+)$/.exec(location.hash);
if (asked && data.functions[asked[1]]) show(Number(asked[1])); else home();
