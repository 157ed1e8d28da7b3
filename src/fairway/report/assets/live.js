// The live page: what changed comes by server-sent events; nobody asks while nobody looks.
"use strict";

(() => {
  const { byId, make, data, count, showState, showSummary, showConfiguration, Charts, Trials } = fairway;
  function problem(text) {
    const place = byId("problem");
    place.hidden = !text;
    if (place.textContent !== text) place.textContent = text || "";
  }

  async function load(address) {
    const answer = await fetch(address);
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error || answer.statusText);
    return found;
  }

  // One stream while the page is in sight; a hidden tab holds none, and resumes where it was.
  function follow(address, heard) {
    let stream = null;
    const start = () => {
      if (stream || document.hidden) return;
      stream = new EventSource(address());
      stream.addEventListener("error", () => {
        problem("The live page does not answer. It resumes by itself once `fairway dashboard` runs again.");
        if (stream && stream.readyState === EventSource.CLOSED) {  // refused, so the browser gave up
          stream = null;
          setTimeout(start, 3000);
        }
      });
      stream.addEventListener("open", () => problem(""));
      stream.addEventListener("problem", (event) => problem(JSON.parse(event.data)));
      stream.addEventListener("reset", () => location.reload());
      for (const [name, hear] of Object.entries(heard)) {
        stream.addEventListener(name, (event) => { problem(""); hear(JSON.parse(event.data), event); });
      }
    };
    document.addEventListener("visibilitychange", () => {
      if (document.hidden && stream) { stream.close(); stream = null; } else start();
    });
    start();
  }

  async function study() {
    const page = data();
    const query = `name=${encodeURIComponent(page.key)}`;
    showSummary(page.study);
    const trials = new Trials(byId("trials"), page.columns,
      { href: (number) => `/trial?${query}&number=${number}`, newest: true });
    const charts = new Charts(byId("charts"), trials);
    let last = page.last, badge = JSON.stringify(page.study.badge);

    // Pictures are asked for one answer at a time, while somebody looks; some take longer and come less often.
    const drawn = { quick: [], slow: [] };
    function drawer(kind, pause, then) {
      let wanted = false, busy = false, timer = null;
      async function draw() {
        timer = null;
        if (busy || !wanted || document.hidden) return;
        busy = true;
        wanted = false;
        try {
          const found = await load(`/charts.json?${query}${kind === "slow" ? "&slow" : ""}`);
          drawn[kind] = found.charts;
          byId("charts-wait").hidden = drawn.quick.length > 0;
          if (!drawn.quick.length) byId("charts-wait").textContent = "There is nothing to draw yet.";
          charts.show([...drawn.quick, ...drawn.slow]);
          busy = false;
          if (found.again || wanted) want(1000 * (found.again || pause));
          if (then) then(true);
          then = null;
        } catch (error) {
          byId("charts-wait").textContent = error.message;
          busy = false;
        }
      }
      function want(wait) {
        wanted = true;
        if (!busy && timer === null) timer = setTimeout(draw, wait);
      }
      document.addEventListener("visibilitychange", () => { if (!document.hidden && wanted) want(0); });
      return (now) => want(now ? 0 : 1000 * pause);
    }
    const slow = drawer("slow", 20), quick = drawer("quick", 2, slow);

    trials.distinguish(page.study);
    try {
      const found = await load(`/trials.json?${query}`);
      trials.merge(found.rows);
      last = found.last;
    } catch (error) { problem(error.message); }
    quick(true);
    follow(() => `/events?${query}&last=${encodeURIComponent(last)}`, {
      change: (changed, event) => {
        last = event.lastEventId || last;
        trials.distinguish(changed.study);
        showSummary(changed.study);
        const certified = JSON.stringify(changed.study.badge), news = changed.rows.length || certified !== badge;
        badge = certified;
        if (!news) return;
        trials.merge(changed.rows, true);
        quick(false);
        slow(false);
      },
    });
  }

  async function trial() {
    const page = data();
    const query = `name=${encodeURIComponent(page.key)}&number=${page.number}`;
    const charts = new Charts(byId("charts"));
    let running = true, busy = false, again = false;

    function show(found) {
      running = found.trial.status === "running";
      byId("facts").replaceChildren(...found.trial.facts.map(([label, value]) => make("tr", null,
        make("th", { scope: "row" }, label),
        make("td", { class: "value" }, value.time ? when(value.time)
          : Number.isInteger(value) ? count(value) : String(value)))));
      showState(byId("state"), running ? "running" : "ended");
      byId("state").textContent = found.trial.status;
      showConfiguration(byId("configuration"), found.trial.configuration);
      byId("notes").hidden = !found.trial.notes;
      byId("notes").querySelector("pre").textContent = found.trial.notes;
      if (byId("next")) byId("next").hidden = found.trial.last;
      if (found.charts) {
        byId("charts-wait").hidden = found.charts.length > 0;
        byId("charts-wait").textContent = "It has reported nothing yet.";
        charts.show(found.charts);
      }
    }
    async function refresh() {
      again = busy;
      if (busy || !running) return;
      busy = true;
      try { show(await load(`/trial.json?${query}`)); } catch (error) { problem(error.message); }
      setTimeout(() => { busy = false; if (again) refresh(); }, 1500);
    }
    show({ trial: page.trial });
    running = true;
    await refresh();
    follow(() => `/events?name=${encodeURIComponent(page.key)}&last=`, { change: refresh });
  }

  function when(seconds) {
    return new Date(seconds * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
  }
  function ago(seconds) {
    if (!seconds) return "";
    const passed = Date.now() / 1000 - seconds;
    if (passed < 5) return "now";
    for (const [size, unit] of [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]]) {
      if (passed >= size) {
        const n = Math.floor(passed / size);
        return `${n} ${unit}${n === 1 ? "" : "s"} ago`;
      }
    }
    return "now";
  }

  function studies() {
    let known = data().studies;
    function show() {
      byId("none").hidden = known.length > 0;
      byId("list").hidden = known.length === 0;
      const focused = document.activeElement?.closest?.("tbody tr")?.rowIndex;
      const rows = known.map((one) => {
        const state = make("span", { class: "state" });
        if (one.state) showState(state, one.state); else state.hidden = true;
        return make("tr", null,
          make("td", null, make("a", { href: `/study?name=${encodeURIComponent(one.key)}` }, one.name.trim() || "(no name)")),
          make("td", null, one.problem || one.goal || "…"),
          make("td", { class: "count", "data-label": "trials" }, one.trials === undefined ? "" : count(one.trials)),
          make("td", { class: "count", "data-label": "best" }, one.best || ""),
          make("td", null, state),
          make("td", { "data-label": "updated" }, ago(one.updated)));
      });
      byId("list").querySelector("tbody").replaceChildren(...rows);
      if (focused > 0) byId("list").querySelector("table").rows[focused]?.querySelector("a")?.focus();
    }
    show();
    setInterval(() => { if (!document.hidden) show(); }, 10000);
    follow(() => "/events", { studies: (found) => { known = found; show(); } });
  }

  ({ study, trial, studies })[document.body.dataset.page]?.();
})();
