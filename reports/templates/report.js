// Draws the matrix and the drill-down from the data in the page. Text reaches the page through text nodes only.
"use strict";
(() => {
  const D = JSON.parse(document.getElementById("data").textContent);
  const PASS = D.outcomes.indexOf("pass");
  const UNTESTED = D.outcomes.indexOf("untested");
  const FAILING = new Set(D.failing);
  const $ = (id) => document.getElementById(id);
  const number = (n) => n.toLocaleString("en-US");

  function el(tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
    }
    node.append(...children.filter((child) => child !== null));
    return node;
  }

  // table[backend][op] = Map(dtype -> Map(outcome -> count)); merged[backend][op] sums over the dtypes
  const table = D.backends.map(() => new Map());
  const merged = D.backends.map(() => new Map());
  for (const [b, op, dtype, ...parts] of D.matrix) {
    if (!table[b].has(op)) { table[b].set(op, new Map()); merged[b].set(op, new Map()); }
    const cell = new Map(), sum = merged[b].get(op);
    for (let i = 0; i < parts.length; i += 2) {
      cell.set(parts[i], parts[i + 1]);
      sum.set(parts[i], (sum.get(parts[i]) || 0) + parts[i + 1]);
    }
    table[b].get(op).set(dtype, cell);
  }
  const worst = (cell) => Math.min(...cell.keys());
  const total = (cell) => [...cell.values()].reduce((a, b) => a + b, 0);
  const failing = (cell) => [...cell].reduce((sum, [outcome, n]) => sum + (FAILING.has(outcome) ? n : 0), 0);
  const chip = (outcome, count) => el("span", { class: "chip o-" + D.outcomes[outcome] },
    el("b", { "aria-hidden": "true" }, D.symbols[outcome]), (count === undefined ? "" : " " + number(count)) + " " + D.outcomes[outcome]);

  const state = { view: D.backends.length > 1 ? -1 : 0, q: "", only: new Set(), differ: false, sort: "name", selected: null };

  // -- the matrix

  function columns() {
    if (state.view < 0) return D.backends.map((name, b) => ({ name, cell: (op) => merged[b].get(op), key: [b, -1] }));
    const used = D.dtypes.map((name, d) => ({ name, d })).filter(({ d }) => [...table[state.view].values()].some((row) => row.has(d)));
    return used.map(({ name, d }) => ({ name, cell: (op) => table[state.view].get(op)?.get(d), key: [state.view, d] }));
  }

  function rows(cols) {
    const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
    const list = [];
    D.ops.forEach((name, op) => {
      if (!words.every((word) => name.toLowerCase().includes(word))) return;
      const cells = cols.map((col) => col.cell(op));
      const present = cells.filter(Boolean);
      if (!present.length) return;
      if (state.only.size && !present.some((cell) => [...cell.keys()].some((outcome) => state.only.has(outcome)))) return;
      if (state.view < 0 && state.differ && new Set(cells.map((cell) => (cell ? worst(cell) : -1))).size < 2) return;
      const passed = present.reduce((sum, cell) => sum + (cell.get(PASS) || 0), 0);
      const all = present.reduce((sum, cell) => sum + total(cell), 0);
      list.push({ op, name, cells, worst: Math.min(...present.map(worst)), failing: present.reduce((sum, cell) => sum + failing(cell), 0), share: passed / all });
    });
    if (state.sort === "worst") list.sort((a, b) => a.worst - b.worst || b.failing - a.failing || a.op - b.op);
    if (state.sort === "least") list.sort((a, b) => a.share - b.share || a.op - b.op);
    return list;
  }

  function cellNode(cell, where, key, op) {
    if (!cell) return el("td", { title: "no sample of this op" });
    const show = worst(cell), all = total(cell), passed = cell.get(PASS) || 0;
    const mixed = cell.size > 1;
    const words = [...cell].map(([outcome, n]) => number(n) + " " + D.outcomes[outcome]).join(", ");
    const button = el("button", { type: "button", class: "cell o-" + D.outcomes[show], title: words, "aria-label": where + ": " + words,
      onclick: () => select({ op, backend: key[0], dtype: key[1] }, button) },
      el("b", { "aria-hidden": "true" }, D.symbols[show]),
      el("span", {}, mixed && passed ? number(passed) + "/" + number(all) : number(all)));
    if (mixed) {
      const mini = el("span", { class: "mini" });
      for (const [outcome, n] of cell) { const part = el("i", { class: "o-" + D.outcomes[outcome] }); part.style.flexGrow = n; mini.append(part); }
      button.append(mini);
    }
    return el("td", {}, button);
  }

  function draw() {
    const cols = columns(), list = rows(cols);
    const head = el("tr", {}, el("th", { scope: "col" }, "op"), ...cols.map((col) => el("th", { scope: "col" }, col.name)));
    const body = el("tbody");
    for (const row of list) {
      const opener = el("button", { type: "button", onclick: () => select({ op: row.op, backend: state.view, dtype: -1 }, opener) }, row.name);
      body.append(el("tr", {}, el("th", { scope: "row" }, opener),
        ...cols.map((col, i) => cellNode(row.cells[i], row.name + " " + col.name, col.key, row.op))));
    }
    $("grid").replaceChildren(el("thead", {}, head), body);
    $("count").textContent = number(list.length) + " of " + number(D.ops.length) + " ops. A cell shows its worst outcome, and how many of its cases pass.";
    $("differ-label").hidden = state.view >= 0 || D.backends.length < 2;
    for (const button of $("views").children) button.setAttribute("aria-pressed", String(Number(button.dataset.view) === state.view));
    for (const button of $("filters").children) button.setAttribute("aria-pressed", String(state.only.has(Number(button.dataset.outcome))));
    remember();
  }

  // -- the drill-down

  let opener = null;
  function select(where, from) {
    state.selected = where;
    opener?.setAttribute("aria-expanded", "false");
    opener = from || null;
    opener?.setAttribute("aria-expanded", "true");
    const { op, backend, dtype } = where;
    const inside = (b, o, d) => o === op && (backend < 0 || b === backend) && (dtype < 0 || d === dtype);
    const title = D.ops[op] + (backend >= 0 ? " on " + D.backends[backend] : "") + (dtype >= 0 ? ", " + D.dtypes[dtype] : "");
    const panel = $("panel");
    const body = el("tbody");
    D.backends.forEach((name, b) => {
      for (const [d, cell] of table[b].get(op) || []) {
        if (inside(b, op, d)) body.append(el("tr", {}, el("td", {}, name), el("td", {}, D.dtypes[d]), el("td", {}, ...[...cell].map(([outcome, n]) => chip(outcome, n)))));
      }
    });
    panel.replaceChildren(
      el("header", {}, el("h2", { id: "panel-title" }, title), el("button", { type: "button", class: "ghost", onclick: close }, "Close (Esc)")),
      el("table", {}, el("thead", {}, el("tr", {}, ...["backend", "dtype", "cases"].map((word) => el("th", { scope: "col" }, word)))), body));
    const cases = D.cases.filter(([b, o, d]) => inside(b, o, d));
    if (cases.length) panel.append(el("h3", {}, "Cases to look at"), ...cases.map(caseNode));
    const hidden = D.hidden.filter(([b, o, d]) => inside(b, o, d)).reduce((sum, [, , , n]) => sum + n, 0);
    if (hidden) panel.append(el("p", { class: "note" }, number(hidden) + " more cases are left out of this page; report.json lists them all."));
    const reasons = D.reasons.filter(([b, o]) => o === op && (backend < 0 || b === backend));
    if (reasons.length) panel.append(el("h3", {}, dtype < 0 ? "Reasons" : "Reasons, over every dtype"), el("ul", {}, ...reasons.map(([b, , outcome, reason, n]) =>
      el("li", {}, chip(outcome, n), " ", el("b", {}, D.backends[b]), " ", D.texts[reason]))));
    const untested = D.untested.filter(([o]) => o === op);
    if (untested.length) panel.append(el("h3", {}, "Not tested"), el("ul", {}, ...untested.map(([, reason, n]) => el("li", {}, chip(UNTESTED, n), " ", D.texts[reason]))));
    panel.hidden = false;
    panel.scrollTop = 0;
    panel.focus();
    remember();
  }

  function caseNode([b, , d, outcome, stage, kind, id, message, evidence, replay]) {
    const command = el("code", {}, D.texts[replay]);
    return el("article", {},
      el("p", {}, chip(outcome), " ", el("b", {}, D.backends[b]), " ", (D.texts[kind] ? D.texts[kind] + " " : "") + "at " + D.texts[stage] + ", " + D.dtypes[d]),
      el("p", { class: "note" }, el("code", {}, D.texts[id])),
      el("pre", {}, D.texts[message] || "(no message)"),
      D.texts[evidence] ? el("details", {}, el("summary", {}, "Evidence"), el("pre", {}, D.texts[evidence])) : null,
      el("div", { class: "cmd" }, command, el("button", { type: "button", class: "ghost", onclick: (event) => copy(command, event.currentTarget) }, "Copy")));
  }

  async function copy(node, button) {
    try {
      await navigator.clipboard.writeText(node.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(node);
      button.textContent = "Selected";
    }
  }

  function close() {
    $("panel").hidden = true;
    state.selected = null;
    opener?.setAttribute("aria-expanded", "false");
    opener?.focus();
    remember();
  }

  // -- the address remembers what is shown, so that a link to a cell can be shared

  function remember() {
    const parts = new URLSearchParams();
    if (state.view >= 0 && D.backends.length > 1) parts.set("view", D.backends[state.view]);
    if (state.q) parts.set("q", state.q);
    if (state.selected) {
      const { op, backend, dtype } = state.selected;
      parts.set("op", D.ops[op]);
      if (backend >= 0) parts.set("backend", D.backends[backend]);
      if (dtype >= 0) parts.set("dtype", D.dtypes[dtype]);
    }
    const text = parts.toString();
    if (text) history.replaceState(null, "", "#" + text);
    else if (location.hash.includes("=")) history.replaceState(null, "", "#matrix");
  }

  function recall() {
    if (!location.hash.includes("=")) return;
    const parts = new URLSearchParams(location.hash.slice(1));
    const view = D.backends.indexOf(parts.get("view"));
    if (view >= 0) state.view = view;
    state.q = parts.get("q") || "";
    const op = D.ops.indexOf(parts.get("op"));
    if (op >= 0) state.selected = { op, backend: D.backends.indexOf(parts.get("backend")), dtype: D.dtypes.indexOf(parts.get("dtype")) };
  }

  // -- controls

  if (D.backends.length > 1) {
    ["All backends", ...D.backends].forEach((name, i) => $("views").append(
      el("button", { type: "button", "data-view": i - 1, onclick: () => { state.view = i - 1; draw(); } }, name)));
  }
  const present = new Set(D.matrix.flatMap((entry) => entry.slice(3).filter((_, i) => i % 2 === 0)));
  D.outcomes.forEach((name, outcome) => {
    if (!present.has(outcome)) return;
    $("filters").append(el("button", { type: "button", class: "o-" + name, "data-outcome": outcome, title: "only ops that have " + name,
      onclick: () => { state.only.has(outcome) ? state.only.delete(outcome) : state.only.add(outcome); draw(); } }, D.symbols[outcome] + " " + name));
  });
  let timer = 0;
  $("q").addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => { state.q = $("q").value; draw(); }, 120); });
  $("sort").addEventListener("change", () => { state.sort = $("sort").value; draw(); });
  $("differ").addEventListener("change", () => { state.differ = $("differ").checked; draw(); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !$("panel").hidden) close();
    if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) { event.preventDefault(); $("q").focus(); }
  });
  for (const link of document.querySelectorAll("[data-op]")) {
    link.addEventListener("click", () => select({ op: D.ops.indexOf(link.dataset.op), backend: D.backends.indexOf(link.dataset.backend), dtype: -1 }, link));
  }
  for (const line of document.querySelectorAll("p.cmd")) {
    const command = line.querySelector("code");
    line.append(el("button", { type: "button", class: "ghost", onclick: (event) => copy(command, event.currentTarget) }, "Copy"));
  }

  const themes = ["auto", "light", "dark"];
  function theme(name) {
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    $("theme").textContent = "Theme: " + name;
    try { localStorage.setItem("torchstone-theme", name); } catch { /* a page opened from a file may have no storage */ }
  }
  let current = "auto";
  try { current = localStorage.getItem("torchstone-theme") || "auto"; } catch { /* as above */ }
  if (!themes.includes(current)) current = "auto";
  $("theme").addEventListener("click", () => { current = themes[(themes.indexOf(current) + 1) % 3]; theme(current); });
  theme(current);

  recall();
  $("q").value = state.q;
  const wanted = state.selected;
  draw();
  if (location.hash.includes("=")) $("matrix").scrollIntoView();
  if (wanted) select(wanted);
})();
