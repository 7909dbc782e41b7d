"use strict";
// ---- the graph as a drawing: calls are folded until somebody opens them

const MANY = 14;  // visible boxes, beyond which calls are folded at first
const FEW = 24;  // nodes that were searched for and are unfolded; calls with more stay folded

function drawing(one) {
  if (!one.drawing.length) return null;
  const view = { nodes: visibleNodes(one.drawing), open: new Set(), wanted: "" };
  const paths = new Set(view.nodes.flatMap((node) => prefixes(node)));
  if (view.nodes.length <= MANY) paths.forEach((path) => view.open.add(path));
  const search = element("input", { type: "search", class: "graph-search",
    placeholder: "Search the graph: operator, module, line", "aria-label": "search the graph" });
  const count = element("span", { class: "soft" });
  const place = element("div", { class: "canvas" });
  const redraw = () => { place.replaceChildren(canvas(view, redraw)); };
  const openAll = (all) => { view.open = new Set(all ? paths : []); redraw(); };
  search.addEventListener("input", () => {
    view.wanted = search.value.trim().toLowerCase();
    const hits = view.wanted ? view.nodes.filter((node) => matches(node, view.wanted)) : [];
    if (hits.length <= FEW) hits.forEach((node) => prefixes(node).forEach((path) => view.open.add(path)));
    count.textContent = view.wanted ? plural(hits.length, "node") : "";
    redraw();
    place.querySelector(".found")?.scrollIntoView({ block: "nearest", inline: "center" });
  });
  redraw();
  const hidden = one.drawing.length - view.nodes.length;
  return element("details", { class: "drawing", open: "" },
    element("summary", {}, "Graph, drawn", element("span", { class: "soft" },
      hidden ? ` without ${plural(hidden, "parameter")}` : "")),
    element("div", { class: "tools" }, search, count,
      element("button", { onclick: () => openAll(true) }, "Open all"),
      element("button", { onclick: () => openAll(false) }, "Fold all")),
    place);
}
function visibleNodes(nodes) {
  // Parameters of modules are many and tell little: their owner is in the name of the call.
  const hidden = new Set(nodes.filter((node) => node.op === "placeholder" && node.module)
    .map((node) => node.name));
  return nodes.filter((node) => !hidden.has(node.name));
}
function prefixes(node) {
  return node.path.map((_, depth) => node.path.slice(0, depth + 1).join(" › "));
}
function matches(node, wanted) {
  return [node.name, node.label, ...node.lines, ...node.path].some((text) =>
    text.toLowerCase().includes(wanted));
}
function boxesOf(view) {
  const boxes = new Map(), boxOf = new Map(), sizes = new Map();
  view.nodes.flatMap(prefixes).forEach((path) => sizes.set(path, (sizes.get(path) ?? 0) + 1));
  view.nodes.forEach((node) => {
    const folded = prefixes(node).find((path) => !view.open.has(path) && sizes.get(path) > 1);
    const key = folded ?? `node ${node.name}`;
    if (!boxes.has(key)) boxes.set(key, { key, folded, nodes: [], reads: new Set(), layer: 0 });
    boxes.get(key).nodes.push(node);
    boxOf.set(node.name, boxes.get(key));
  });
  for (const box of boxes.values()) {
    for (const node of box.nodes) {
      for (const name of node.reads) {
        const source = boxOf.get(name);
        if (source && source !== box) box.reads.add(source);
      }
    }
  }
  const list = [...boxes.values()], placed = new Set();
  for (const box of list) {  // in the order in which they run
    for (const source of box.reads) {
      if (placed.has(source)) box.layer = Math.max(box.layer, source.layer + 1);
    }
    placed.add(box);
  }
  return list;
}
function canvas(view, redraw) {
  const wide = 216, high = 62, boxes = boxesOf(view);
  const layers = [];
  for (const box of boxes) (layers[box.layer] ??= []).push(box);
  const most = Math.max(...layers.map((layer) => layer.length));
  const width = Math.max(most * wide, 420), height = layers.length * high + 10;
  layers.forEach((layer, row) => layer.forEach((box, i) => {
    box.x = (width - layer.length * wide) / 2 + i * wide + 8;
    box.y = row * high + 8;
  }));
  const svg = drawn("svg", { width, height, class: "graph", role: "group",
    "aria-label": `a graph of ${boxes.length} boxes` });
  svg.append(...boxes.flatMap((box) => [...box.reads].map((source) => edge(source, box, wide))));
  svg.append(...boxes.map((box) => boxShape(box, view, redraw, wide)));
  return svg;
}
function edge(from, to, wide) {
  const x1 = from.x + (wide - 16) / 2, y1 = from.y + 40, x2 = to.x + (wide - 16) / 2, y2 = to.y;
  const middle = (y1 + y2) / 2;
  return drawn("path", { class: "edge", d: `M${x1},${y1} C${x1},${middle} ${x2},${middle} ${x2},${y2}` });
}
function boxShape(box, view, redraw, wide) {
  const [node] = box.nodes;
  const found = view.wanted && box.nodes.some((one) => matches(one, view.wanted));
  const toggle = () => {
    if (box.folded) view.open.add(box.folded);
    else if (node.path.length) view.open.delete(prefixes(node).at(-1));
    redraw();
  };
  const [name, module] = (box.folded ?? "").split(" › ").at(-1).split(" · ");
  const title = box.folded ? (module ? name.replace(/\.forward$/, "") : name) : node.label;
  const below = box.folded ? `${module ? `${module}, ` : ""}${plural(box.nodes.length, "node")}` :
    node.op === "placeholder" ? "input" : node.line;
  const group = drawn("g", { class: `box ${box.folded ? "fold" : node.op}${found ? " found" : ""}`,
    transform: `translate(${box.x},${box.y})`, tabindex: 0, role: "button", onclick: toggle },
    drawn("rect", { width: wide - 16, height: 40, rx: 6 }),
    drawn("text", { x: 8, y: 17 }, short(title)),
    drawn("text", { x: 8, y: 33, class: "small" }, short(below, 33)),
    drawn("title", {}, [...(box.folded ? [box.folded] : node.path), node.line, node.name].join("\n")));
  group.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(); }
  });
  return group;
}
function short(text, most = 26) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
