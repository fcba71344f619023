"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { clusters, colors, columns, marks, pairs, points } = data;
  const STRONGEST = 20; // columns of a waterfall
  const root = document.documentElement;
  const $ = (selector, from = document) => from.querySelector(selector);
  const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];
  root.classList.add("scripted");

  // ---- Elements and numbers. Text is never inserted as HTML.

  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== null) element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null));
    return element;
  }
  const name = (text) => make("bdi", { title: text }, text);
  const clusterName = (k) => (k < 0 ? "noise" : clusters[k].name);
  const tagOf = (k) => (k < 0 ? "×" : clusters[k].tag); // fits into a chip
  const labelOf = (k) => (k < 0 ? "×" : clusters[k].label);
  function chip(k, text = tagOf(k)) {
    const label = { class: text === tagOf(k) ? "chip" : "chip whole", "data-k": k, title: clusterName(k) };
    if (!document.getElementById("c" + k)) return make("span", label, make("bdi", {}, text));
    return make("a", { ...label, href: "#c" + k, "aria-label": k < 0 ? "Noise" : `Cluster ${labelOf(k)}: ${clusterName(k)}` }, make("bdi", {}, text));
  }
  const named = (k) => make("span", { class: "named" }, chip(k, labelOf(k)), " ", make("bdi", { title: clusterName(k) }, clusterName(k)));
  const minus = (text) => text.replace(/^-(?=[0.]*$)/, "").replace("-", "−"); // no sign before a zero
  // Numbers and shares are printed as in common/numbers.py
  const marked = (text) => text.replace(".", marks.decimal);
  const grouped = (text, nDigits = marks.n_digits) => {
    const [whole, ...decimals] = text.split(".");
    const isLong = whole.replace("-", "").length >= nDigits && /^-?\d+$/.test(whole);
    const separated = isLong ? whole.replace(/\B(?=(\d{3})+$)/g, marks.thousands) : whole;
    return [separated, ...decimals].join(marks.decimal);
  };
  const parsed = (text) => Number(text.replaceAll(marks.thousands, "").replace(marks.decimal, ".").replace("−", "-"));
  const tiny = (value, decimals) => marked(value.toExponential(decimals)).replaceAll("-", "−");
  const isTiny = (value) => value !== 0 && Math.abs(value) < 1e-3;
  function number(value) {
    if (isTiny(value)) return tiny(value, 2);
    return minus(grouped(Math.abs(value) < 1000 ? String(Number(value.toPrecision(3))) : value.toFixed()));
  }
  function percent(share, sign = "+") {
    const nearest = Math.round(share);
    const off = Math.abs(share - nearest);
    const close = Math.abs(nearest) <= 1 && off > 0 && off < 0.01;
    const shown = close ? 100 * nearest + (Math.sign(share - nearest) * Math.max(1, Math.round(1000 * off))) / 10 : Math.round(100 * share);
    return minus((share > 0 ? sign : "") + marked(close ? shown.toFixed(1) : String(shown)) + "%");
  }

  // A <data> element shows the raw or the standardised value and stores the other one.
  const units = $("#units");
  const valueAt = (column, at) => (points.values.length ? points.values[column][at] : null);
  function value(column, printed) {
    if (printed === null) return "missing";
    const { mean, spread, unit, n_digits: nDigits } = columns[column];
    const isNumber = typeof printed === "number";
    const plain = isNumber ? printed : parsed(printed.replace(unit, ""));
    const written = isNumber ? grouped(String(printed), nDigits) : printed;
    const raw = minus(unit && !written.endsWith(unit) && Number.isFinite(plain) ? `${written} ${unit}` : written);
    if (mean === null || !spread || !Number.isFinite(plain)) return name(String(printed));
    const scaled = (plain - mean) / spread;
    const standardised = minus(marked((scaled < 0 ? "" : "+") + scaled.toFixed(2)));
    return units && units.ariaPressed === "true" ? make("data", { value: raw }, standardised) : make("data", { value: standardised }, raw);
  }
  const valued = (column, at) => make("span", { class: "valued" }, name(columns[column].name), "=", value(column, valueAt(column, at)));

  // ---- Highlights: the cluster or branch under the pointer, otherwise the clusters selected in the legend.

  const pinned = new Set();
  let hovered = null; // {clusters: Set, from, to}: nodes from ... to - 1 of a branch; from is null for whole clusters
  const byRow = new Map(points.rows.map((row, at) => [row, at]));

  function litCluster(k) {
    if (hovered) return hovered.clusters.has(k);
    return !pinned.size || pinned.has(k);
  }
  function litPoint(at) {
    if (hovered && hovered.from !== null) return points.leaf[at] >= hovered.from && points.leaf[at] < hovered.to;
    return litCluster(points.cluster[at]);
  }
  function paint() {
    for (const element of $$(".card, .entry, .leaf, .bycluster")) {
      element.classList.toggle("dim", !litCluster(Number(element.dataset.k)));
    }
    draw();
  }
  function hover(next) {
    const same = (next && next.key) === (hovered && hovered.key);
    hovered = next;
    if (!same) paint();
  }
  function hoverOf(target) {
    if (!(target instanceof Element)) return null;
    const node = target.closest(".node");
    const chosen = target.closest("[data-k]");
    if (node && !target.closest(".chip")) {
      const branch = node.closest("li");
      const leaves = branch.matches(".leaf") ? [branch] : $$(".leaf", branch);
      const { node: from, end: to } = branch.dataset;
      return { key: "n" + from, from: Number(from), to: Number(to), clusters: new Set(leaves.map((leaf) => Number(leaf.dataset.k))) };
    }
    // Only the head of a card reacts to the pointer
    if (!chosen || (chosen.matches(".card") && !target.closest("summary"))) return null;
    const k = Number(chosen.dataset.k);
    return { key: "k" + k, from: null, clusters: new Set([k]) };
  }
  for (const event of ["pointerover", "focusin"]) {
    document.addEventListener(event, ({ target }) => {
      if (target.id !== "canvas") hover(hoverOf(target));
    });
  }
  document.addEventListener("pointerleave", () => hover(null));

  // ---- Map

  const canvas = $("#canvas");
  const tip = $("#tip");
  const size = points.rows.length > 2000 ? 2.4 : points.rows.length > 400 ? 3.2 : 4.5;
  let selected = -1;
  let places = []; // in CSS pixels

  function draw() {
    if (!canvas || !canvas.clientWidth) return;
    const wide = canvas.clientWidth;
    const fine = window.devicePixelRatio || 1;
    const style = getComputedStyle(canvas);
    if (canvas.width !== Math.round(wide * fine)) canvas.width = canvas.height = Math.round(wide * fine);
    const pen = canvas.getContext("2d");
    pen.setTransform(fine, 0, 0, fine, 0, 0);
    pen.clearRect(0, 0, wide, wide);
    const edge = 20;
    const scale = (wide - 2 * edge) / 1000;
    places = points.x.map((x, at) => [edge + x * scale, edge + points.y[at] * scale]);
    const lit = points.rows.map((_, at) => litPoint(at));
    for (const pass of [false, true]) {
      pen.globalAlpha = pass ? 0.85 : 0.1;
      for (let at = 0; at < places.length; at++) {
        if (lit[at] !== pass) continue;
        const k = points.cluster[at];
        pen.fillStyle = k < 0 ? "#8a8f98" : colors[k];
        pen.beginPath();
        pen.arc(places[at][0], places[at][1], size, 0, 7);
        pen.fill();
      }
    }
    pen.globalAlpha = 1;
    labels(pen, style);
    if (selected >= 0) {
      for (const [width, ink] of [[6, style.backgroundColor], [2.5, style.color]]) {
        pen.lineWidth = width;
        pen.strokeStyle = ink;
        pen.beginPath();
        pen.arc(...places[selected], size + 5, 0, 7);
        pen.stroke();
      }
    }
  }
  const middles = clusters.map((_, k) => {
    const mine = points.rows.map((_, at) => at).filter((at) => points.cluster[at] === k);
    const middle = (values) => mine.map((at) => values[at]).sort((a, b) => a - b)[mine.length >> 1];
    return mine.length ? [middle(points.x), middle(points.y)] : null;
  });
  function labels(pen, style) {
    const scale = (canvas.clientWidth - 40) / 1000;
    pen.font = `650 ${clusters.length > 12 ? 10 : 12}px ${style.fontFamily}`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    const shown = [...clusters.keys()].filter((k) => middles[k] && litCluster(k)).sort((a, b) => middles[a][1] - middles[b][1]);
    const placed = []; // from the top: a label that would cover others moves below them
    for (const k of shown) {
      const tag = tagOf(k);
      const x = 20 + middles[k][0] * scale;
      const half = Math.max(pen.measureText(tag).width / 2 + 4, 9);
      let y = 20 + middles[k][1] * scale;
      for (const other of placed) {
        if (Math.abs(x - other.x) < half + other.half && Math.abs(y - other.y) < 20) y = other.y + 20;
      }
      placed.push({ x, y, half });
      placed.sort((a, b) => a.y - b.y);
      y = Math.min(y, canvas.clientWidth - 12);
      pen.fillStyle = style.backgroundColor;
      pen.strokeStyle = colors[k];
      pen.lineWidth = 2;
      pen.beginPath();
      pen.roundRect(x - half, y - 9, 2 * half, 18, 5);
      pen.fill();
      pen.stroke();
      pen.fillStyle = style.color;
      pen.fillText(tag, x, y + 0.5);
    }
  }
  function nearest(event) {
    const box = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let [best, least] = [-1, 14 ** 2];
    places.forEach(([a, b], at) => {
      const apart = (a - x) ** 2 + (b - y) ** 2;
      if (apart < least) [best, least] = [at, apart];
    });
    return best;
  }
  const pointName = (at) => (points.names ? points.names[at] : "row " + points.rows[at]);

  if (canvas) {
    canvas.addEventListener("pointermove", (event) => {
      const at = nearest(event);
      tip.hidden = at < 0;
      if (at < 0) return hover(null);
      const k = points.cluster[at];
      hover({ key: "k" + k, from: null, clusters: new Set([k]) });
      tip.replaceChildren(name(pointName(at)), make("br"), k < 0 ? "" : `cluster ${labelOf(k)}: `, make("bdi", {}, clusterName(k)));
      const left = Math.min(places[at][0] + 12, canvas.clientWidth - tip.offsetWidth);
      Object.assign(tip.style, { left: Math.max(0, left) + "px", top: places[at][1] + 14 + "px" });
    });
    canvas.addEventListener("pointerleave", () => {
      tip.hidden = true;
      hover(null);
    });
    canvas.addEventListener("click", (event) => {
      const at = nearest(event);
      if (at >= 0) select(at);
    });
    const ways = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    canvas.addEventListener("keydown", (event) => {
      const way = ways[event.key];
      if (!way) return;
      event.preventDefault();
      if (selected < 0) return select(0);
      // The nearest point whose direction is within 45 degrees of the arrow
      let [best, least] = [-1, Infinity];
      places.forEach(([x, y], at) => {
        const [dx, dy] = [x - places[selected][0], y - places[selected][1]];
        const ahead = dx * way[0] + dy * way[1];
        const aside = Math.abs(dx * way[1] + dy * way[0]);
        if (ahead > 0 && ahead >= aside && ahead + 2 * aside < least) [best, least] = [at, ahead + 2 * aside];
      });
      if (best >= 0) select(best);
    });
    new ResizeObserver(draw).observe(canvas);
  }
  for (const entry of $$(".entry")) {
    entry.addEventListener("click", () => {
      const k = Number(entry.dataset.k);
      if (!pinned.delete(k)) pinned.add(k);
      entry.setAttribute("aria-pressed", pinned.has(k));
      hovered = null;
      paint();
    });
  }

  // ---- A point

  function select(at) {
    selected = at;
    const [cluster, competitor, logit] = [points.cluster[at], points.competitor[at], points.logit[at]];
    const input = $("#row");
    if (document.activeElement !== input) input.value = points.names ? points.names[at] : points.rows[at];
    const title = make("h3", {}, name(pointName(at)), " ", cluster < 0 ? "is " : "", named(cluster));
    const next = competitor < 0 ? null : make("p", { class: "quiet" }, cluster < 0 ? "Nearest cluster " : "Nearest other cluster ", named(competitor), logit === null ? "" : ` · logit ${number(logit)}`);
    const shown = $(`figure[data-item="${points.rows[at]}"]`);
    const media = shown ? make("figure", {}, ...$$("img, p", shown).map((part) => part.cloneNode(true))) : null;
    $("#detail").replaceChildren(...[title, next, media, ...waterfall(at), ...change(at), ...path(at)].filter(Boolean));
    draw();
  }
  function waterfall(at) {
    const relevant = points.relevance.map((shares, column) => [column, shares[at]]).filter(([, share]) => share);
    // What is absent, such as most words and genes, is grouped: a reader expects what is there
    const isAbsent = ([column]) => columns[column].is_sparse && Number(valueAt(column, at)) === 0;
    const present = relevant.filter((entry) => !isAbsent(entry));
    const absent = relevant.filter(isAbsent);
    const strongest = present.sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, STRONGEST);
    const logit = points.logit[at];
    const total = points.total[at];
    if (!relevant.length || logit === null || !total) return [];
    const whole = logit / total; // shares are those of the sum of sizes
    const residual = points.residual ? points.residual[at] / total : 0;
    const hasResidual = Math.abs(residual) > 0.006;
    const rows = strongest.map(([column, share]) => [valued(column, at), share]);
    const addGroup = (n, words, share) => rows.push([make("span", { class: "quiet" }, `${number(n)} ${words}${n === 1 ? "" : "s"}`), share]);
    if (absent.length) addGroup(absent.length, data.kind === "texts" ? "absent word" : "absent column", absent.reduce((sum, [, share]) => sum + share, 0));
    const rest = whole - residual - rows.reduce((sum, row) => sum + row[1], 0);
    const remaining = data.n_columns - strongest.length - absent.length;
    if (remaining > 0 && Math.abs(rest) > 0.006) addGroup(remaining, "further column", rest);
    if (hasResidual) rows.push([make("span", { class: "quiet" }, "residual"), residual]);
    let [sum, least, most] = [0, Math.min(0, whole), Math.max(0, whole)];
    for (const [, share] of rows) {
      sum += share;
      [least, most] = [Math.min(least, sum), Math.max(most, sum)];
    }
    const zero = (-least / (most - least)) * 100;
    const across = (share) => ((share - least) / (most - least)) * 100;
    const digits = Math.max(0, 2 - Math.floor(Math.log10(total)));
    const fixed = (part) => (isTiny(total) ? tiny(part, 1) : minus(marked(part.toFixed(digits))));
    const grid = make("div", { class: "fall", style: `--zero:${zero}%` });
    const bar = (from, to, kind) => {
      const style = `left:${across(Math.min(from, to))}%;width:${across(Math.max(from, to)) - across(Math.min(from, to))}%`;
      return make("i", { class: kind, style, ...(kind ? {} : { "data-k": points.cluster[at] }) });
    };
    sum = 0;
    for (const [label, share] of rows) {
      const kind = share >= 0 ? "for" : "against";
      grid.append(label, make("span", { class: "track" }, bar(sum, sum + share, kind)), make("span", { class: "n" }, (share > 0 ? "+" : "") + fixed(share * total)));
      sum += share;
    }
    grid.append(make("span", { class: "sum" }, "logit"), make("span", { class: "track" }, bar(0, whole, "")), make("span", { class: "n sum" }, fixed(logit)));
    const words = hasResidual ? "Relevance of the columns and residual, which add up to the logit" : "Relevance of the columns, which adds up to the logit";
    return [make("h4", {}, words), grid];
  }
  function change(at) {
    const found = points.changes[at];
    if (!found && points.changes.some((change) => change)) {
      const call = make("code", {}, `neonxc.counterfactual(model, X.iloc[[${points.rows[at]}]])`);
      return [make("p", { class: "quiet" }, "Its smallest change to another cluster, in Python: ", call)];
    }
    if (!found) return [];
    const { cluster, distance, values } = found;
    const list = make("ol", {}, ...values.map(([column, after]) => make("li", {}, name(columns[column].name), value(column, valueAt(column, at)), "→", value(column, after))));
    return [make("h4", {}, `Smallest change to ${cluster < 0 ? "noise" : "another cluster"}: ${number(distance)} standard deviations`), make("p", { class: "quiet" }, named(cluster)), list];
  }
  function path(at) {
    for (const node of $$(".onpath")) node.classList.remove("onpath");
    const leaf = document.getElementById("t" + points.leaf[at]);
    if (!leaf) return [];
    const steps = [];
    for (let item = leaf; item; item = item.parentElement.closest("li")) {
      const node = $(".node", item);
      node.classList.add("onpath");
      const parent = item.parentElement.closest("li");
      if (parent) {
        $("details", parent).open = true;
        steps.unshift(make("li", {}, make("code", { dir: "auto" }, $("code", parent).textContent), make("span", { class: "answer" }, $(".answer", node).textContent)));
      }
    }
    const end = make("li", {}, named(Number(leaf.dataset.k)));
    return [make("h4", {}, "Path through the tree"), make("ol", {}, ...steps, end)];
  }
  function find(text) {
    // Names come first: those of a data frame may be numbers, too, and the page calls points by their names
    const named = points.names ? points.names.indexOf(text) : -1;
    if (named >= 0) return named;
    return text.trim() && byRow.has(Number(text)) ? byRow.get(Number(text)) : -1;
  }
  const input = $("#row");
  if (input) {
    input.addEventListener("input", () => {
      const at = find(input.value);
      const wrong = at < 0 && input.value.trim() !== "";
      input.setAttribute("aria-invalid", wrong);
      $("#rowhelp").textContent = wrong ? "is not among the points of the map" : "";
      if (at >= 0) select(at);
    });
  }
  document.addEventListener("click", ({ target }) => {
    const item = target.closest("[data-row]");
    if (item) select(byRow.get(Number(item.dataset.row)));
    const link = target.closest('a[href^="#c"]');
    const card = link && document.getElementById(link.hash.slice(1));
    if (card && card.matches(".card")) {
      card.open = true;
      card.hidden = false;
    }
  });

  // ---- Cards: order, filter

  const cards = $$(".card");
  function arrange() {
    const by = $("#sort").value;
    const wanted = $("#filter").value.trim().toLowerCase();
    const orders = {
      given: (a, b) => (a.dataset.k >>> 0) - (b.dataset.k >>> 0), // noise (-1) comes last
      size: (a, b) => b.dataset.size - a.dataset.size,
      fidelity: (a, b) => a.dataset.fidelity - b.dataset.fidelity,
      name: (a, b) => a.dataset.name.localeCompare(b.dataset.name),
    };
    $("#cards").append(...cards.sort(orders[by]));
    for (const card of cards) card.hidden = !card.textContent.toLowerCase().includes(wanted);
    const found = cards.filter((card) => !card.hidden).length;
    $("#found").textContent = wanted ? `${found} of ${cards.length}` : "";
  }
  if (cards.length) {
    $("#sort").addEventListener("change", arrange);
    $("#filter").addEventListener("input", arrange);
    const unfold = $("#unfold");
    const label = () => (unfold.textContent = cards.every((card) => card.open) ? "Fold all" : "Unfold all");
    unfold.addEventListener("click", () => {
      const open = !cards.every((card) => card.open);
      for (const card of cards) card.open = open;
    });
    for (const card of cards) card.addEventListener("toggle", label);
    label();
  }

  // ---- A against B

  const [a, b] = [$("#a"), $("#b")];
  if (a) {
    const known = new Map(pairs.flatMap((pair) => [[pair.a + "," + pair.b, pair], [pair.b + "," + pair.a, pair]]));
    const option = (k) => make("option", { value: k }, `${labelOf(k)} · ${clusterName(k)}`);
    const all = clusters.map((_, k) => k).filter((k) => pairs.some((pair) => pair.a === k || pair.b === k));
    a.append(...all.map(option));
    const others = (k) => all.filter((other) => known.has(k + "," + other));
    const choose = (first, second) => {
      a.value = first;
      b.replaceChildren(...others(first).map(option));
      b.value = known.has(first + "," + second) ? second : others(first)[0];
      duel(Number(a.value), Number(b.value));
    };
    a.addEventListener("change", () => choose(Number(a.value), Number(b.value)));
    b.addEventListener("change", () => duel(Number(a.value), Number(b.value)));
    $("#swap").addEventListener("click", () => choose(Number(b.value), Number(a.value)));

    const duel = (first, second) => {
      const { a: low, relevance } = known.get(first + "," + second);
      const most = Math.max(...relevance.map(([, share]) => Math.abs(share)), 0.02);
      const grid = make("div", { class: "duel" });
      grid.append(make("span"), make("span", { class: "n" }, chip(first)), make("span", { class: "n" }, chip(second)), make("span"), make("span"));
      for (const [column, share, ...typical] of relevance) {
        const bar = make("i", { class: share < 0 ? "against" : "for", style: `width:${(100 * Math.abs(share)) / most}%` });
        const [own, other] = low === first ? typical : [...typical].reverse();
        grid.append(
          make("span", {}, name(columns[column].name)),
          make("span", { class: "n", title: own }, own),
          make("span", { class: "n", title: other }, other),
          make("span", { class: "track" }, bar),
          make("span", { class: "n" }, percent(share, "")),
        );
      }
      $("#duel").replaceChildren(grid);
    };
    choose(all[0], -1);
  }

  // ---- Theme, units, copying, printing

  const theme = $("#theme");
  const darkness = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : darkness.matches);
  const themed = () => {
    theme.setAttribute("aria-pressed", dark());
    draw();
  };
  theme.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    themed();
  });
  darkness.addEventListener("change", themed);
  if (units) {
    units.addEventListener("click", () => {
      for (const element of $$("data")) [element.textContent, element.value] = [element.value, element.textContent];
      units.ariaPressed = String(units.ariaPressed !== "true");
    });
  }
  for (const button of $$(".copy")) {
    button.addEventListener("click", async () => {
      const code = $("pre", button.closest(".code"));
      try {
        await navigator.clipboard.writeText(code.textContent);
      } catch {
        getSelection().selectAllChildren(code); // the clipboard may not be available in a frame
        document.execCommand("copy");
      }
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
  }
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = $$("details:not([open])");
    for (const part of folded) part.open = true;
  });
  addEventListener("afterprint", () => {
    for (const part of folded) part.open = false;
  });

  for (const part of $$(".cut, .node :is(code, .name), .named bdi:last-child")) part.title = part.textContent;
  for (const mark of $$("a.chip")) mark.title = clusterName(Number(mark.dataset.k));
  themed();
  const first = $("#cards [data-row]");
  if (canvas && points.rows.length) select(first ? byRow.get(Number(first.dataset.row)) : 0);
})();
