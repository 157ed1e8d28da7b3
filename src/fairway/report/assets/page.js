// The report and the live page: colours, summary, configuration, pictures, trials. Texts are only ever set as text.
"use strict";

const fairway = (() => {
  const byId = (id) => document.getElementById(id);

  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }

  // --- light and dark ---

  const system = matchMedia("(prefers-color-scheme: dark)");
  const redrawn = new Set();  // what is to be drawn again when colours change

  function remembered() {
    try { return localStorage.getItem("fairway-theme"); } catch { return null; }
  }
  function isDark() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : system.matches;
  }
  function showTheme() {
    const button = byId("theme");
    if (button) {
      button.hidden = false;
      button.textContent = isDark() ? "Light" : "Dark";
      button.setAttribute("aria-label", isDark() ? "Light: switch to light colours" : "Dark: switch to dark colours");
    }
    for (const draw of redrawn) draw();
  }
  function startTheme() {
    const chosen = remembered();
    if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
    byId("theme")?.addEventListener("click", () => {
      document.documentElement.dataset.theme = isDark() ? "light" : "dark";
      try { localStorage.setItem("fairway-theme", document.documentElement.dataset.theme); } catch { /* not kept */ }
      showTheme();
    });
    system.addEventListener("change", showTheme);
    showTheme();
  }

  // --- the summary and a configuration ---

  const STATES = { running: "running", ended: "ended", idle: "nobody works on it" };

  function showState(element, state) {
    element.dataset.state = state;
    element.textContent = STATES[state] || "";
  }

  function showSummary(study) {
    showState(byId("state"), study.state);
    const facts = study.facts.map((fact) => make("li", { "data-role": fact.role || null },
      make("span", { class: "label" }, fact.label),
      make("span", { class: "value" }, fact.value + (fact.error ? " " : ""), fact.error ? make("small", null, fact.error) : null),
      make("span", { class: "note" }, fact.note)));
    const shown = [study.headline, ...study.sentences].join("\n");
    if (showSummary.last !== shown) {  // a reader's selection stays while nothing changes
      byId("headline").textContent = study.headline;
      byId("sentences").textContent = study.sentences.join(" ");
      showSummary.last = shown;
    }
    byId("facts").replaceChildren(...facts);
    showBadge(study.badge);
    showCertificate(study.certificate);
    const section = byId("configuration"), certified = study.certificate?.configuration, shipped = certified || study.best;
    section.hidden = !shipped;
    if (shipped) {
      const kind = certified ? "certified" : study.feasible ? "best" : "closest";
      byId("configuration-title").textContent = `The ${kind} configuration: trial ${count(shipped.number)}`;
      showConfiguration(section, shipped);
    }
    for (const id of ["changes", "later"]) {
      byId(id).hidden = !study[id].length;
      showLines(byId(id).querySelector("tbody"), study[id]);
    }
  }

  function showLines(body, lines) {
    body.replaceChildren(...lines.map(([label, value]) => make("tr", null,
      make("th", { scope: "row" }, label), make("td", { class: "value" }, value))));
  }

  function showBadge(badge) {
    const place = byId("badge");
    place.hidden = !badge;
    if (!badge || place.textContent === badge.words + badge.sentence) return;  // a screen reader says it once
    place.dataset.kind = badge.kind;
    place.firstElementChild.textContent = badge.words;
    place.lastElementChild.textContent = badge.sentence;
  }

  function showCertificate(certificate) {
    const section = byId("certificate");
    section.hidden = !certificate;
    if (!certificate) return;
    byId("certificate-title").textContent = certificate.title;
    const [attempts, cells] = section.querySelectorAll("table.tested");
    section.querySelector(".warnings").replaceChildren(...certificate.warnings.map((text) => make("li", null, text)));
    showTable(attempts, certificate.attempts);
    showTable(cells, certificate.cells);
    section.querySelector(".cells").hidden = !certificate.cells.rows.length;
    showLines(section.querySelector(".config tbody"), certificate.facts);
  }

  function showTable(table, { headings, rows }) {
    table.tHead.replaceChildren(make("tr", null, ...headings.map((text) => make("th", { scope: "col" }, text))));
    table.tBodies[0].replaceChildren(...rows.map((row) =>
      make("tr", null, ...row.map((text) => make("td", { "data-result": /^(passed|failed)$/.test(text) ? text : null }, text)))));
  }

  function showConfiguration(section, configuration) {
    section.copied = configuration.json;
    const rows = configuration.parameters.map((one) => {
      const place = one.at === null ? null : make("span", { class: "place", "aria-hidden": "true" }, make("i"));
      if (place) place.firstChild.style.left = `${100 * Math.min(Math.max(one.at, 0), 1)}%`;
      return make("tr", null, make("th", { scope: "row" }, one.name), make("td", { class: "value", title: one.exact }, one.value),
        make("td", { class: "range" }, place, one.range));
    });
    section.querySelector("tbody").replaceChildren(...rows);
  }

  function startCopy() {
    for (const button of document.querySelectorAll("button.copy")) {
      button.addEventListener("click", async () => {
        const text = button.closest("section").copied || "";
        try {
          await navigator.clipboard.writeText(text);
        } catch {
          const area = make("textarea", null, text);
          document.body.append(area);
          area.select();
          document.execCommand("copy");
          area.remove();
        }
        const label = button.dataset.label || (button.dataset.label = button.textContent);
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = label; }, 1500);
      });
    }
  }

  // --- numbers ---

  const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
  const count = (value) => (typeof value === "number" ? whole.format(value) : String(value));

  function brief(value) {
    if (typeof value !== "number") return String(value);
    if (Number.isInteger(value) && Math.abs(value) < 1e7) return String(value);
    return String(Number(value.toPrecision(5)));
  }

  function plusMinus(value, error) {  // like text.plus_minus, without separators
    if (error === 0) return brief(value);
    if (typeof value !== "number" || !(error >= 1e-6)) return `${brief(value)} ± ${brief(error)}`;
    const decimals = Math.max(1 - Math.floor(Math.log10(Number(error.toPrecision(2)))), 0);
    return `${value.toFixed(decimals)} ± ${error.toFixed(decimals)}`;
  }

  // --- pictures, drawn when they come into sight ---

  function plotly() {
    if (window.Plotly) return Promise.resolve(window.Plotly);
    return new Promise((resolve, reject) => {
      const script = byId("plotly");
      const done = () => (window.Plotly ? resolve(window.Plotly) : reject(new Error("no plotly")));
      if (script && script.src) {
        script.addEventListener("load", done);
        script.addEventListener("error", done);
      } else document.addEventListener("DOMContentLoaded", done);
    });
  }

  class Charts {
    constructor(container, trials) {
      this.container = container;
      this.trials = trials;  // which a chart with sliders tells of
      this.cards = new Map();
      this.sight = new IntersectionObserver((entries) => {
        for (const entry of entries) {
          const card = entry.target.card;
          card.seen = entry.isIntersecting;
          if (card.seen) this.draw(card);
        }
      }, { rootMargin: "300px" });
      redrawn.add(() => this.again());
      addEventListener("beforeprint", () => this.print(true));
      addEventListener("afterprint", () => this.print(false));
    }

    show(charts) {
      const names = new Set(charts.map((chart) => chart.name));
      for (const [name, card] of this.cards) {
        if (!names.has(name)) {
          this.sight.unobserve(card.element);
          if (card.drawn) window.Plotly.purge(card.plot);
          card.element.remove();
          this.cards.delete(name);
        }
      }
      charts.forEach((chart, place) => {
        const card = this.cards.get(chart.name) || this.card(chart);
        card.chart = chart;
        card.stale = true;
        card.title.textContent = chart.title;
        card.caption.textContent = chart.caption;
        card.explorer?.show(chart.moves);
        if (this.container.children[place] !== card.element) {
          this.container.insertBefore(card.element, this.container.children[place] || null);
        }
        if (card.seen) this.draw(card);
      });
      this.arrange(charts);
    }

    arrange(charts) {  // small ones in pairs, all others across
      let pair = null;
      for (const chart of charts) {
        const element = this.cards.get(chart.name).element, small = columns(chart.layout) === 1;
        element.classList.toggle("wide", !small || pair === null);
        if (small && pair !== null) pair.classList.remove("wide");
        pair = small && pair === null ? element : null;
      }
    }

    card(chart) {
      const heading = `chart-${chart.name}`;
      const card = {
        title: make("h3", { id: heading }), caption: make("figcaption"), plot: make("div", { class: "plot" }),
        seen: false, stale: true, drawn: false,
      };
      card.plot.style.minHeight = `${chart.layout.height || 400}px`;
      if (chart.moves) card.explorer = this.explorer(card);
      card.element = make("figure", { class: "card", "aria-labelledby": heading, "data-chart": chart.name },
        card.title, card.caption, card.explorer?.element, make("div", { class: "stage" }, card.plot, card.explorer?.over));
      card.element.card = card;
      this.cards.set(chart.name, card);
      this.sight.observe(card.element);
      return card;
    }

    explorer(card) {
      const link = (number) => this.trials.link(number, `trial ${count(number)}`);
      return new Explorer({ make, brief, link, params: (number) => this.trials.params(number) },
        () => { if (card.drawn) card.explorer.place(card.plot); });
    }

    async draw(card) {
      if (!card.stale) return;
      card.stale = false;
      let Plotly;
      try { Plotly = await plotly(); } catch { card.plot.textContent = "This picture needs plotly."; return; }
      this.drawWith(Plotly, card);
    }

    drawWith(Plotly, card, paper) {
      const wide = card.plot.clientWidth;
      const layout = { ...card.chart.layout };
      if (wide && wide < 560 && columns(layout) > 1) stack(layout);
      layout.font = { ...layout.font, family: getComputedStyle(document.body).fontFamily, size: 12,
        color: paper ? "#1b1f24" : getComputedStyle(card.caption).color };
      layout.hoverlabel = { ...layout.hoverlabel, font: { family: layout.font.family } };
      layout.modebar = { bgcolor: "rgba(0,0,0,0)", color: "rgba(128,128,128,0.7)", activecolor: layout.font.color };
      if (matchMedia("(pointer: coarse)").matches) layout.dragmode = false;  // a finger scrolls the page
      card.plot.style.minHeight = `${layout.height || 400}px`;
      if (paper) layout.width = Math.min(wide || 680, 680);
      card.element.setAttribute("aria-busy", "true");
      Plotly.react(card.plot, card.chart.data, layout, {
        responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
      }).then(() => card.element.setAttribute("aria-busy", "false"));
      if (card.explorer && !card.drawn) card.plot.on("plotly_afterplot", () => card.explorer.place(card.plot));
      card.explorer?.place(card.plot);
      card.drawn = true;
    }

    again() {
      for (const card of this.cards.values()) {
        card.stale = true;
        if (card.seen) this.draw(card);
      }
    }

    print(paper) {
      if (!window.Plotly) return;
      for (const card of this.cards.values()) this.drawWith(window.Plotly, card, paper);
    }
  }

  function panels(layout) {
    return Object.keys(layout).filter((key) => /^xaxis\d*$/.test(key))
      .map((key) => key.slice(5)).sort((a, b) => (a || 1) - (b || 1));
  }
  function columns(layout) {
    return new Set(panels(layout).map((key) => layout[`xaxis${key}`].domain?.[0] ?? 0)).size;
  }
  function stack(layout) {  // on a phone, panels stand below each other
    const all = panels(layout);
    layout.height = 250 * all.length + 60;
    const gap = 60 / layout.height, depth = (1 - gap * (all.length - 1)) / all.length;
    all.forEach((key, row) => {
      const top = 1 - row * (depth + gap);
      layout[`xaxis${key}`] = { ...layout[`xaxis${key}`], domain: [0, 1] };
      layout[`yaxis${key}`] = { ...layout[`yaxis${key}`], domain: [Math.max(top - depth, 0), top] };
    });
  }

  // --- the table of trials ---

  const STATUS = ["running", "completed", "stopped", "failed"];
  const STRATA = ["not evaluated", "feasible", "infeasible"];
  const STRATUM_ORDER = [2, 0, 1];  // feasible, infeasible, not evaluated
  const letters = new Intl.Collator("en", { numeric: true });

  class Trials {
    constructor(section, columns, { open, href, newest }) {
      this.columns = columns;
      this.open = open;
      this.href = href;
      this.rows = [];
      this.haystacks = new Map();
      this.best = null;
      this.certified = null;
      this.page = 0;
      this.fresh = new Set();
      this.objective = columns.findIndex((column) => column.kind === "objective");
      this.sign = columns[this.objective].best === "descending" ? -1 : 1;
      const limits = columns.findIndex((column) => column.kind === "limits");
      const constrained = columns[this.objective + 1].kind === "number";
      this.sort = newest ? { column: 0, down: true }
        : constrained ? { column: limits, down: false } : { column: this.objective, down: this.sign < 0 };
      this.table = section.querySelector("table");
      this.find = section.querySelector("[name=find]");
      this.status = section.querySelector("[name=status]");
      this.limits = section.querySelector("[name=limits]");
      this.size = section.querySelector("[name=size]");
      this.told = section.querySelector("[role=status]");
      this.where = section.querySelector(".where");
      [this.back, this.forth] = section.querySelectorAll(".pager button");
      this.limits.closest("label").hidden = !constrained;
      for (const input of [this.find, this.status, this.limits, this.size]) {
        input.addEventListener(input === this.find ? "input" : "change", () => { this.page = 0; this.render(); });
      }
      this.back.addEventListener("click", () => { this.page -= 1; this.render(); });
      this.forth.addEventListener("click", () => { this.page += 1; this.render(); });
      this.headings();
    }

    distinguish(study) {
      this.best = study.feasible && study.best ? study.best.number : null;
      this.certified = study.certificate?.certified ? study.certificate.number : null;
    }

    headings() {
      const cells = this.columns.map((column, i) => make("th", { scope: "col", class: this.align(column), "data-label": column.label },
        make("button", { type: "button", title: column.label, onclick: () => this.order(i) }, column.label)));
      this.table.tHead.replaceChildren(make("tr", null, ...cells));
      this.table.style.setProperty("--columns", cells.length);  // by which the print chooses its letters
    }

    align(column) {
      return ["status", "limits", "text"].includes(column.kind) ? "left" : null;
    }

    order(column) {
      const kind = this.columns[column].kind;
      const first = kind === "objective" ? this.sign < 0 : false;  // the best comes first
      this.sort = this.sort.column === column ? { column, down: !this.sort.down } : { column, down: first };
      this.page = 0;
      this.render();
    }

    merge(rows, arriving) {
      for (const row of rows) {
        if (arriving && !this.rows[row[0]]) this.fresh.add(row[0]);
        this.rows[row[0]] = row;
        this.haystacks.delete(row[0]);
      }
      this.render();
    }

    compare(a, b) {
      const { column, down } = this.sort;
      let x = a[column], y = b[column];
      if (x === null || y === null) {
        if (x !== y) return x === null ? 1 : -1;
      } else if (x !== y) {
        if (this.columns[column].kind === "limits") { x = STRATUM_ORDER[x]; y = STRATUM_ORDER[y]; }
        const way = typeof x === "number" && typeof y === "number" ? x - y
          : typeof x === "number" ? -1 : typeof y === "number" ? 1 : letters.compare(x, y);
        if (way) return down ? -way : way;
      }
      x = a[this.objective]; y = b[this.objective];
      if (typeof x === "number" && typeof y === "number" && x !== y) return this.sign * (x - y);
      return a[0] - b[0];
    }

    haystack(row) {
      let text = this.haystacks.get(row[0]);
      if (text === undefined) {
        text = row.map((value, i) => (value === null ? "" : this.text(value, this.columns[i]))).join("\n").toLowerCase();
        this.haystacks.set(row[0], text);
      }
      return text;
    }

    chosen() {
      const words = this.find.value.toLowerCase().split(/\s+/).filter(Boolean);
      const status = this.status.value, limits = this.limits.value;
      return this.rows.filter((row) => row
        && (status === "" || row[1] === Number(status))
        && (limits === "" || row[2] === Number(limits))
        && words.every((word) => this.haystack(row).includes(word)));
    }

    text(value, column) {
      if (column.kind === "status") return STATUS[value];
      if (column.kind === "limits") return STRATA[value];
      if (column.kind === "count" || column.kind === "trial") return count(value);
      return brief(value);
    }

    link(number, text) {
      return this.href ? make("a", { href: this.href(number) }, text)
        : make("button", { type: "button", "aria-label": `trial ${count(number)}, in full`, onclick: () => this.open(this.rows[number]) }, text);
    }

    params(number) {
      const row = this.rows[number] || [];
      return this.columns.flatMap((column, i) =>
        column.kind !== "param" || (row[i] ?? null) === null ? [] : [[column.label, this.text(row[i], column)]]);
    }

    cell(row, i) {
      const column = this.columns[i], value = row[i];
      const cell = make("td", { class: column.kind === "text" ? "text" : this.align(column) });
      if (value === null || value === undefined) return cell;
      const error = this.columns[i + 1]?.kind === "error" ? row[i + 1] : null;
      const text = error === null ? this.text(value, column) : plusMinus(value, error);
      if (column.kind === "trial") {
        cell.append(this.link(value, text));
      } else if (column.kind === "limits") {
        cell.append(make("span", { class: "mark", "data-role": text }, text));
      } else {
        cell.append(text);
        if (text.length > 24) cell.title = text;
      }
      return cell;
    }

    render() {
      const chosen = this.chosen().sort((a, b) => this.compare(a, b));
      const size = Number(this.size.value), pages = Math.max(Math.ceil(chosen.length / size), 1);
      this.page = Math.min(Math.max(this.page, 0), pages - 1);
      const start = this.page * size, page = chosen.slice(start, start + size);
      const focused = document.activeElement?.closest?.("tbody tr")?.dataset.trial;
      const used = this.columns.map((column, i) => i < 2
        || column.kind !== "error" && this.rows.some((row) => row && row[i] !== null));
      [...this.table.tHead.rows[0].cells].forEach((heading, i) => {
        heading.hidden = !used[i];
        const sorted = this.sort.column === i ? (this.sort.down ? "descending" : "ascending") : "none";
        heading.setAttribute("aria-sort", sorted);
      });
      const rows = page.map((row) => {
        const marks = { best: row[0] === this.best, certified: row[0] === this.certified, new: this.fresh.has(row[0]) };
        const mark = Object.keys(marks).filter((name) => marks[name]).join(" ");
        const cells = this.columns.map((_, i) => (used[i] ? this.cell(row, i) : null));
        return make("tr", { "data-trial": String(row[0]), class: mark || null }, ...cells);
      });
      this.fresh.clear();
      this.table.tBodies[0].replaceChildren(...rows);
      if (focused !== undefined) {
        this.table.tBodies[0].querySelector(`tr[data-trial="${focused}"] :is(a, button)`)?.focus();
      }
      const total = this.rows.reduce((sum) => sum + 1, 0);
      const told = chosen.length === total ? `${count(total)} trial${total === 1 ? "" : "s"}`
        : `${count(chosen.length)} of ${count(total)} trials`;
      if (this.told.textContent !== told) this.told.textContent = told;
      this.where.textContent = chosen.length
        ? `${count(start + 1)} to ${count(start + page.length)} of ${count(chosen.length)}` : "none";
      this.back.disabled = this.page === 0;
      this.forth.disabled = this.page >= pages - 1;
    }
  }

  function openTrial(columns) {
    const dialog = byId("trial");
    dialog.querySelector(".close").addEventListener("click", () => dialog.close());
    return (row) => {
      dialog.querySelector("h2").textContent = `Trial ${count(row[0])}`;
      const lines = columns.flatMap((column, i) => {
        if (i === 0 || row[i] === null || column.kind === "error" && row[i - 1] === null) return [];
        const value = column.kind === "status" ? STATUS[row[i]] : column.kind === "limits" ? STRATA[row[i]] : String(row[i]);
        return [make("tr", null, make("th", { scope: "row" }, column.label), make("td", { class: "value" }, value))];
      });
      dialog.querySelector("tbody").replaceChildren(...lines);
      dialog.showModal();
    };
  }

  function data() {
    return JSON.parse(byId("data").textContent);
  }

  // The report: everything is in the page.
  function report() {
    const study = data();
    showSummary(study);
    const trials = new Trials(byId("trials"), study.columns, { open: openTrial(study.columns) });
    trials.distinguish(study);
    trials.merge(study.rows);
    new Charts(byId("charts"), trials).show(study.charts);
  }

  startTheme();
  startCopy();
  return { byId, make, data, report, count, showState, showSummary, showConfiguration, Charts, Trials };
})();

if (document.body.dataset.page === "report") fairway.report();
