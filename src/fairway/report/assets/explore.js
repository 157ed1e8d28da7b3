// The sliders of the price of a limit: which model would be best under other limits, found here from what was measured.
"use strict";

class Explorer {
  // `tools`: make an element, a number in short, a link to a trial and its parameters; `moved` is called after a move.
  constructor(tools, moved) {
    this.tools = tools;
    this.moved = moved;
    this.limits = [];
    const { make } = tools;
    this.sliders = make("div", { class: "sliders" });
    this.answer = make("p", { class: "found", role: "status" });
    this.params = make("ul", { class: "params", "aria-label": "Its parameters" });
    this.back = make("button", { type: "button", class: "button", onclick: () => this.reset() }, "Back to the study's limits");
    this.over = make("div", { class: "over", "aria-hidden": "true" });
    this.element = make("div", { class: "explore" }, this.sliders, this.answer, this.params, this.back);
  }

  // New data; a limit that was moved stays there unless the study's own changed.
  show(moves) {
    const known = this.limits, same = known.length === moves.limits.length && moves.limits.every((limit, i) =>
      limit.metric === known[i].metric && limit.threshold === known[i].threshold && !limit.span === !known[i].slider);
    this.moves = moves;
    this.limits = moves.limits.map((limit, i) =>
      ({ ...limit, at: same ? known[i].at : limit.threshold, slider: same ? known[i].slider : this.slider(limit, i) }));
    if (!same) this.sliders.replaceChildren(...this.limits.filter((limit) => limit.slider).map((limit) => limit.slider.label));
    this.say();
  }

  slider({ metric, sign, span }, i) {
    if (!span) return null;
    const { make } = this.tools, value = make("output");
    const input = make("input", { type: "range", min: "0", max: "1000", step: "1", "aria-label": `limit of ${metric}` });
    input.addEventListener("input", () => {
      this.limits[i].at = this.at(this.limits[i], Number(input.value) / 1000);
      this.say();
      this.moved();
    });
    return { input, value, label: make("label", null, make("span", null, `${metric} ${sign > 0 ? "≤" : "≥"} `, value), input) };
  }

  at(limit, share) {
    const [low, high] = limit.span;
    if (limit.log) return Number((low * (high / low) ** share).toPrecision(4));
    const decimals = Math.min(Math.max(3 - Math.floor(Math.log10(high - low)), 0), 20);
    return Number((low + (high - low) * share).toFixed(decimals));
  }

  share(limit) {
    const [low, high] = limit.span;
    return limit.log ? Math.log(limit.at / low) / Math.log(high / low) : (limit.at - low) / (high - low);
  }

  reset() {
    for (const limit of this.limits) limit.at = limit.threshold;
    this.say();
    this.moved();
    this.limits.find((limit) => limit.slider)?.slider.input.focus();
  }

  get isMoved() {
    return this.limits.some((limit) => limit.at !== limit.threshold);
  }

  // The first that keeps all limits is the best; one that was not measured counts as kept.
  find(rows, limits) {
    return rows.find((row) => limits.every((limit, i) => row[3 + i] === null || limit.sign * row[3 + i] <= limit.sign * limit.at));
  }

  best() {
    return this.find(this.moves.known, this.limits);
  }

  say() {
    const { make, brief, link, params } = this.tools, { metric } = this.moves;
    for (const limit of this.limits.filter((one) => one.slider)) {
      limit.slider.input.value = String(Math.round(1000 * Math.min(Math.max(this.share(limit), 0), 1)));
      limit.slider.value.textContent = brief(limit.at);
      limit.slider.input.setAttribute("aria-valuetext", brief(limit.at));
    }
    const best = this.best(), unknown = this.find(this.moves.unknown, this.limits);
    const now = this.find(this.moves.known, this.limits.map((limit) => ({ ...limit, at: limit.threshold })));
    const where = this.limits.map((limit) => `${limit.metric} ${limit.sign > 0 ? "≤" : "≥"} ${brief(limit.at)}`).join(" and ");
    const said = [`With ${where} `];
    if (best) {
      const values = this.limits.map((limit, i) => [limit.metric, best[3 + this.limits.length + i]])
        .filter(([, value]) => value !== null).map(([name, value]) => `${name} ${brief(value)}`);
      said.push("the best model is ", link(best[0]), `, step ${best[1]}: ${[`${metric} ${brief(best[2])}`, ...values].join(", ")}.`);
      if (now && this.isMoved) said.push(` ${this.compared(best[2] - now[2])}`);
    } else said.push("no model is known to be feasible.");
    if (unknown && (!best || this.gain(unknown[2] - best[2]) > 0)) {
      said.push(" Not certain: ", link(unknown[0]), `, step ${unknown[1]}, reached ${metric} ${brief(unknown[2])}, but a limit was not measured there.`);
    }
    this.answer.replaceChildren(...said);
    this.params.replaceChildren(...(best ? params(best[0]) : []).map(([name, value]) => make("li", null, `${name} `, make("b", null, value))));
    this.back.disabled = !this.isMoved;
  }

  gain(change) {
    return this.moves.better === "more" ? change : -change;
  }

  compared(change) {
    if (!change) return "That is as good as the study's best.";
    const amount = String(Number(Math.abs(change).toPrecision(3)));
    return `That is ${amount} ${this.gain(change) > 0 ? "better" : "worse"} than the study's best.`;
  }

  // Draw over the picture where the limits were moved to, and the model that is best there. Plotly would take longer.
  place(plot) {
    const { make } = this.tools, axes = plot._fullLayout, marks = [];
    const at = (axis, value) => {  // in pixels; null outside of the axis
      const [from, to] = axis.range, here = axis.type === "log" ? Math.log10(value) : value, share = (here - from) / (to - from);
      if (!(share >= 0 && share <= 1)) return null;
      return axis._offset + axis._length * (axis._id.startsWith("y") ? 1 - share : share);
    };
    const mark = (kind, left, top, size) => {
      if (left === null || top === null) return;
      const element = make("i", { class: kind });
      Object.assign(element.style, { left: `${left}px`, top: `${top}px`, ...size });
      marks.push(element);
    };
    const upright = (x, y, value) => mark("upright", at(x, value), y._offset, { height: `${y._length}px` });
    const best = this.best(), [first, second] = this.limits;
    for (const [i, limit] of this.isMoved ? this.limits.entries() : []) {
      if (limit.panel === null) continue;
      const x = axes[`xaxis${limit.panel}`], y = axes[`yaxis${limit.panel}`];
      upright(x, y, limit.at);
      if (best && best[3 + i] !== null) mark("here", at(x, best[3 + i]), at(y, best[2]));
    }
    if (this.isMoved && this.moves.map !== null) {
      const x = axes[`xaxis${this.moves.map}`], y = axes[`yaxis${this.moves.map}`];
      upright(x, y, first.at);
      mark("level", x._offset, at(y, second.at), { width: `${x._length}px` });
    }
    this.over.replaceChildren(...marks);
  }
}
