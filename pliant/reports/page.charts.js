"use strict";
// ---- calls and compilations over time

function timeline() {
  const width = 1000, lane = 22, left = 110;
  const end = Math.max(data.seconds, 1e-6);
  const x = (seconds) => left + (seconds / end) * (width - left - 20);
  const height = data.processes.length * 2 * lane + 40;
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", id: "timeline",
    "aria-label": "compilations and calls over time" });
  for (const [seconds, text] of ticks(end)) {
    svg.append(drawn("line", { class: "tick", x1: x(seconds), x2: x(seconds), y1: 4, y2: height - 22 }),
      drawn("text", { x: x(seconds), y: height - 8, "text-anchor": "middle" }, text));
  }
  data.processes.forEach((one, row) => {
    const name = processName(one);
    const y = row * 2 * lane + 8;
    svg.append(drawn("text", { x: 8, y: y + 12 }, name),
      drawn("text", { x: 8, y: y + lane + 10, class: "small" }, "calls"));
    for (const fn of data.functions) {
      for (const compiled of fn.compilations) {
        if (compiled.process === one.process) svg.append(...bars(fn, compiled, x, y));
      }
    }
    svg.append(...callBars(one.process, x, y + lane));
  });
  return svg;
}
function processName(one) {
  return one.rank === null ? `process ${one.process}` : `rank ${one.rank}`;
}
function ticks(end) {  // round numbers in one unit, about six of them
  const power = 10 ** Math.floor(Math.log10(end / 6));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => end / each <= 8);
  const [unit, name] = end >= 1 ? [1, "s"] : end >= 1e-3 ? [1e-3, "ms"] : [1e-6, "µs"];
  const digits = Math.max(0, -Math.floor(Math.log10(step / unit) + 1e-9));
  const found = [];
  for (let i = 0; i * step <= end * (1 + 1e-9); i++) {
    found.push([i * step, i ? `${((i * step) / unit).toFixed(digits)} ${name}` : "0"]);
  }
  return found;
}
function bars(fn, one, x, y) {
  const phases = Object.entries(one.phases);
  const parts = phases.length ? [...phases, ["recording", one.recording]] :
    [["abandoned", one.seconds || 0]];
  let start = one.start;
  return parts.map(([phase, seconds]) => {
    const bar = drawn("rect", { class: `bar ${phase}`, x: x(start), y, height: 18,
      width: Math.max(x(start + seconds) - x(start), 1), onclick: () => show(fn.id) },
      drawn("title", {}, `${one.name}, compilation ${one.index}: ${phase} ${time(seconds)}`));
    start += seconds;
    return bar;
  });
}
function callBars(process, x, y) {
  const taken = new Set();  // of what falls on one place, one is enough
  const found = [];
  for (const calls of data.calls.filter((one) => one.process === process)) {
    for (const [start, stop, count, hit] of calls.spans) {
      const from = x(start), to = x(stop), key = `${Math.round(from * 2)} ${hit}`;
      if (to - from < 0.5 && taken.has(key)) continue;
      taken.add(key);
      const waited = hit ? "" : waitedFor(calls, start, stop);
      found.push(drawn("rect", { class: `bar ${hit ? "call" : "missed"}`, x: from, y, height: 14,
        width: Math.max(to - from, 0.7), onclick: () => show(calls.function) },
        drawn("title", {}, `${calls.name}: ${plural(count, "call")}, ${time(stop - start)}${waited}`)));
    }
  }
  return found;
}
function waitedFor(calls, start, stop) {
  const compiled = data.functions[calls.function].compilations.filter((one) =>
    one.process === calls.process && one.start >= start - 1e-3 && one.start <= stop);
  if (!compiled.length) return ", no entry fitted";
  const sum = (name) => compiled.reduce((total, one) => total + (one[name] || 0), 0);
  return `, of which ${time(sum("seconds"))} waiting for ${compiled.map((one) =>
    `compilation ${one.index}`).join(", ")} and ${time(sum("recording"))} for its recording`;
}
function slowest() {
  const rows = [...data.calls].sort((a, b) => b.seconds - a.seconds).slice(0, 8);
  if (!rows.length) return [];
  const several = data.processes.length > 1;
  const of = (one) => processName(data.processes.find((each) => each.process === one.process));
  return [element("h2", {}, "Where the time went"), table(
    ["function", ...(several ? ["process"] : []), "calls", "time in calls", "each"],
    rows.map((one) => [
      element("button", { class: "link", onclick: () => show(one.function) }, one.name),
      ...(several ? [of(one)] : []),
      String(one.calls), time(one.seconds), time(one.seconds / Math.max(one.calls, 1))]))];
}
function table(names, rows) {
  return element("table", {},
    element("tr", {}, ...names.map((name) => element("th", {}, name))),
    ...rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, cell)))));
}
function bytes(number) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (number >= 1000 && unit + 1 < units.length) { number /= 1000; unit++; }
  return `${unit ? number.toFixed(1) : number} ${units[unit]}`;
}
function percent(share) { return `${(100 * share).toFixed(share < 0.1 ? 1 : 0)}%`; }

// ---- kernels against what the machine can do

function measuredPart(one) {
  const kernels = one.steps.filter((step) => step.kind === "kernel" && step.least > 0);
  const limit = (step) => Math.max(step.bytes / one.bandwidth, step.operations / one.arithmetic);
  const rows = [...one.steps].sort((a, b) => b.seconds - a.seconds).map((step) => [
    step.name, step.kind, String(step.runs), time(step.seconds), time(step.least),
    bytes(step.bytes), step.kind === "kernel" ? `${bytes(step.bytes / step.least)}/s` : "",
    step.kind === "kernel" ? percent(limit(step) / step.least) : ""]);
  return element("details", { class: "measured" },
    element("summary", {}, `Measured: ${one.program}`, element("span", { class: "soft" },
      ` ${time(one.steps.reduce((sum, step) => sum + step.seconds, 0))} in ` +
      `${plural(one.steps.length, "step")}`)),
    kernels.length ? roofline(kernels, one) : null,
    element("p", { class: "soft" }, `This machine copies ${bytes(one.bandwidth)}/s and does ` +
      `${(one.arithmetic / 1e9).toFixed(0)} billion operations a second. A kernel whose tensors ` +
      "are in the caches can be above the roof; a very short one is all overhead."),
    table(["step", "by", "runs", "time", "fastest", "bytes", "bandwidth", "of the limit"], rows));
}
function roofline(kernels, one) {
  const width = 700, height = 300, left = 60, bottom = 34;
  const points = kernels.map((step) => ({ step, x: Math.max(step.operations, 1) /
    Math.max(step.bytes, 1), y: Math.max(step.operations, 1) / step.least }));
  const ridge = one.arithmetic / one.bandwidth;
  const xs = [...points.map((p) => p.x), ridge / 30, ridge * 4];
  const ys = [...points.map((p) => p.y), one.arithmetic * 1.6];
  const [low, high] = [Math.log10(Math.min(...xs)) - 0.2, Math.log10(Math.max(...xs)) + 0.2];
  const [least, most] = [Math.log10(Math.min(...ys)) - 0.3, Math.log10(Math.max(...ys)) + 0.1];
  const px = (v) => left + ((Math.log10(v) - low) / (high - low)) * (width - left - 16);
  const py = (v) => 12 + ((most - Math.log10(v)) / (most - least)) * (height - bottom - 12);
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, class: "roofline", role: "img",
    "aria-label": "kernels against the limits of the machine" });
  const edge = 10 ** low;
  svg.append(
    drawn("polyline", { class: "roof", points: [[edge, edge * one.bandwidth],
      [ridge, one.arithmetic], [10 ** high, one.arithmetic]]
      .map(([a, b]) => `${px(a)},${py(Math.max(b, 10 ** least))}`).join(" ") }),
    drawn("text", { x: px(ridge) + 6, y: py(one.arithmetic) - 6 }, "arithmetic"),
    drawn("text", { x: px(ridge / 4), y: py(one.arithmetic / 4) - 10, "text-anchor": "end" },
      "memory"),
    drawn("text", { x: width / 2, y: height - 8, "text-anchor": "middle" },
      "operations for each byte"),
    drawn("text", { x: 6, y: 24 }, "op/s"));
  for (let power = Math.ceil(low); power <= high; power++) {
    svg.append(drawn("text", { x: px(10 ** power), y: height - bottom + 14,
      "text-anchor": "middle", class: "small" }, `10^${power}`));
  }
  for (let power = Math.ceil(least); power <= most; power++) {
    svg.append(drawn("text", { x: left - 6, y: py(10 ** power) + 4, "text-anchor": "end",
      class: "small" }, `10^${power}`));
  }
  const longest = Math.max(...kernels.map((step) => step.seconds));
  for (const point of points) {
    svg.append(drawn("circle", { class: "kernel", cx: px(point.x), cy: py(point.y),
      r: 4 + 8 * Math.sqrt(point.step.seconds / longest), tabindex: 0 },
      drawn("title", {}, `${point.step.name}: ${time(point.step.least)}, ` +
        `${bytes(point.step.bytes)}, ${point.step.operations} operations`)));
  }
  return svg;
}

// ---- memory over time

function memory(one) {
  const programs = one.programs.filter((program) => program.memory.length > 1);
  if (!programs.length) return null;
  const steps = programs.flatMap((program) => program.memory.map(([name, size]) =>
    ({ program: program.function, name, size })));
  const peak = Math.max(...steps.map((step) => step.size), 1);
  const width = 900, height = 200, left = 70, top = 22;
  const x = (i) => left + (i / steps.length) * (width - left - 12);
  const y = (size) => top + (1 - size / peak) * (height - top - 24);
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, class: "memory", role: "img",
    "aria-label": "bytes in use, step by step" });
  let at = 0;
  programs.forEach((program, number) => {
    program.memory.forEach(([name, size], i) => {
      svg.append(drawn("rect", { class: number % 2 ? "use other" : "use", x: x(at), y: y(size),
        width: Math.max(x(at + 1) - x(at) - 0.4, 0.6), height: y(0) - y(size) },
        drawn("title", {}, `${program.function}, step ${i}, ${name}: ${bytes(size)}`)));
      at += 1;
    });
    svg.append(drawn("text", { x: x(at - program.memory.length) + 2, y: height - 6 },
      program.function.endsWith(" backward") ? "backward" : program.function));
  });
  svg.append(drawn("text", { x: left - 6, y: y(peak) + 4, "text-anchor": "end" }, bytes(peak)),
    drawn("text", { x: left - 6, y: y(0), "text-anchor": "end" }, "0"));
  const sum = (rows) => rows.reduce((total, [, size]) => total + size, 0);
  const lists = [["saved for the backward", one.saved], ["computed again", one.computed_again]];
  return element("details", { class: "memory-use" },
    element("summary", {}, `Memory: at most ${bytes(peak)} allocated`, element("span",
      { class: "soft" }, one.saved.length ? `, ${bytes(sum(one.saved))} saved for the backward (inputs included), ` +
        `${bytes(sum(one.computed_again))} computed again instead` : "")),
    svg,
    ...lists.filter(([, rows]) => rows.length).map(([name, rows]) => table([name, "bytes"],
      grouped(rows).map(([what, size, times]) => [
        times > 1 ? `${what} × ${times}` : what, bytes(size * times)]))));
}
function grouped(rows) {  // equal rows as one, the largest first
  const groups = new Map();
  for (const [what, size] of rows) {
    const key = `${what} ${size}`;
    groups.set(key, [what, size, (groups.get(key)?.[2] ?? 0) + 1]);
  }
  return [...groups.values()].sort((a, b) => b[1] * b[2] - a[1] * a[2]);
}
