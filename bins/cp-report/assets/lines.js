  // Reads the bundle in this page and renders its lines. A line is rendered when it comes into view, from the bytes that are checked.

  const element = (name, properties = {}, ...children) => {
    const made = page.createElement(name);
    for (const [key, value] of Object.entries(properties)) {
      if (value === undefined || value === false) continue;
      if (key === "class") made.className = value;
      else if (key in made && key !== "list") made[key] = value;
      else made.setAttribute(key, value);
    }
    made.append(...children.filter((child) => child || child === 0).map((child) => (typeof child === "object" ? child : visible(String(child)))));
    return made;
  };
  const HIDDEN = /[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e0fff}]/gu;
  // Controls and characters that cannot be seen are shown by their names.
  const visible = (text) => text.replace(HIDDEN, (c) => {
    const code = c.codePointAt(0);
    if (code < 32 || code === 127) return String.fromCharCode(code === 127 ? 0x2421 : 0x2400 + code);
    return `[U+${code.toString(16).toUpperCase().padStart(4, "0")}]`;
  });

  // Numbers keep their spelling, because a large one has more digits than a number of this language.
  const reviver = (_, value, context) => (typeof value === "number" && context && context.source !== String(value) && JSON.rawJSON
    ? JSON.rawJSON(context.source) : value);
  const isRaw = (value) => Boolean(JSON.isRawJSON && JSON.isRawJSON(value));
  const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value) && !isRaw(value);
  const at = (value, path) => path.split(".").reduce((found, name) => (isObject(found) && Object.hasOwn(found, name) ? found[name] : undefined), value);
  const get = (value, path) => { const found = at(value, path); return found === null ? undefined : found; };
  const numberOf = (value) => (typeof value === "number" ? value : isRaw(value) ? Number(value.rawJSON) : undefined);
  function spelled(value) {
    if (typeof value === "string") return value;
    return isRaw(value) ? value.rawJSON : JSON.stringify(value, null, 2);
  }
  const textOf = (value, path) => { const found = get(value, path); return found === undefined ? "" : spelled(found); };

  function durationOf(ms) {
    const seconds = ms / 1000;
    if (seconds < 1) return `${ms.toFixed(0)} ms`;
    if (seconds < 120) return `${seconds.toFixed(1)} s`;
    return seconds < 7200 ? `${(seconds / 60).toFixed(1)} min` : `${(seconds / 3600).toFixed(1)} h`;
  }
  const money = (usd) => `$${usd.toFixed(usd < 1 ? 4 : 2)}`;
  function withUnit(path, value) {
    const number = numberOf(value);
    if (number === undefined) return spelled(value);
    if (path.endsWith("_ms")) return durationOf(number);
    if (path.endsWith("deadline")) return durationOf(number * 1000);
    if (path.endsWith("usd")) return money(number);
    return path.endsWith("bytes") ? `${number} bytes` : spelled(value);
  }
  function nameOf(path) {
    if (/^std(out|err)\./.test(path)) return path.split(".")[0];
    return path.split(".").pop().replace(/(_ms|_usd)+$/, "").replaceAll("_", " ");
  }
  const word = (text) => (/^[A-Za-z0-9\-_./:=,@%+]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
  const commandOf = (argv) => (Array.isArray(argv) ? argv.map((one) => word(spelled(one))).join(" ") : spelled(argv));

  // The lines of a text, as a difference counts them.
  const rowsOf = (text) => { const rows = text.split("\n"); if (rows.at(-1) === "") rows.pop(); return rows.map((row) => row.replace(/\r$/, "")); };
  // The shortest difference between two lists of lines; of very long ones, everything between their equal ends.
  function differenceOf(old, now) {
    let start = 0, end = 0;
    while (start < old.length && start < now.length && old[start] === now[start]) start++;
    while (end < old.length - start && end < now.length - start && old[old.length - 1 - end] === now[now.length - 1 - end]) end++;
    const a = old.slice(start, old.length - end), b = now.slice(start, now.length - end), rows = [];
    const same = (list) => list.map((row) => [" ", row]);
    if (a.length * b.length > 4e6) rows.push(...a.map((row) => ["-", row]), ...b.map((row) => ["+", row]));
    else {
      const width = b.length + 1, common = new Uint32Array((a.length + 1) * width);
      for (let i = a.length - 1; i >= 0; i--) {
        for (let j = b.length - 1; j >= 0; j--) {
          common[i * width + j] = a[i] === b[j] ? common[(i + 1) * width + j + 1] + 1
            : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
        }
      }
      let i = 0, j = 0;
      while (i < a.length || j < b.length) {
        if (i < a.length && j < b.length && a[i] === b[j]) { rows.push([" ", a[i++]]); j++; }
        else if (i < a.length && (j === b.length || common[(i + 1) * width + j] >= common[i * width + j + 1])) rows.push(["-", a[i++]]);
        else rows.push(["+", b[j++]]);
      }
    }
    return [...same(old.slice(0, start)), ...rows, ...same(old.slice(old.length - end))];
  }
  function unified(text) {
    const rows = rowsOf(text), first = rows.findIndex((row) => row.startsWith("@"));
    const isName = (row, n) => n < first && /^(---|\+\+\+) /.test(row);
    return rows.map((row, n) => (/^[+\-@]/.test(row) && !isName(row, n) ? [row[0], row.slice(1)] : [" ", row.replace(/^ /, "")]));
  }

  // The parts of an entry: values that are shown whole.
  const part = (label, form, text, folded = text.length > 4096 || text.split("\n").length > 25) => ({ label, form, text, folded });
  const differencePart = (rows) => ({ label: "", form: "difference", rows, text: "", folded: rows.length > 48 });
  function contentParts(value, label, parts) {
    if (typeof value === "string") { if (value) parts.push(part(label, "text", value)); return; }
    if (!Array.isArray(value)) {
      const blob = textOf(value, "blob");
      if (blob) parts.push(part("a large value, below", "code", blob));
      else parts.push(part(label, "code", spelled(value)));
      return;
    }
    for (const block of value) {
      const kind = textOf(block, "type");
      if (kind === "text") parts.push(part("", "text", textOf(block, "text")));
      else if (kind === "thinking") parts.push(part("thinking", "text", textOf(block, "thinking"), true));
      else if (kind === "tool_use") {
        parts.push(part("", "text", `\u2192 ${textOf(block, "name")}`));
        if (at(block, "input") !== undefined) inputParts(at(block, "input"), parts);
      } else if (kind === "tool_result") {
        if (at(block, "content") !== undefined) contentParts(at(block, "content"), `result of ${textOf(block, "tool_use_id")}`, parts);
      } else if (!kind && at(block, "role") !== undefined) {
        if (at(block, "content") !== undefined) contentParts(at(block, "content"), textOf(block, "role"), parts);
      } else parts.push(part(kind, "code", spelled(block), true));
    }
  }
  // The arguments of a tool: names and values, and changes of a file as a difference.
  function inputParts(value, parts) {
    if (!isObject(value)) { parts.push(part("", "code", spelled(value))); return; }
    const first = parts.length, plain = [];
    let removed, added;
    for (const [name, one] of Object.entries(value)) {
      const isText = typeof one === "string";
      if (isText && name === "old") removed = one;
      else if (isText && (name === "new" || name === "content" && value.operation === "write_file")) added = one;
      else if (isText && (name === "patch" || name === "diff")) parts.push(differencePart(unified(one)));
      else if (!isText && name === "argv") parts.push(part("", "command", commandOf(one)));
      else if (isText && one.includes("\n")) parts.push(part(name, "code", one));
      else plain.push(`${name}: ${spelled(one)}`);
    }
    if (plain.length) parts.splice(first, 0, part("", "code", plain.join("\n")));
    if (removed !== undefined || added !== undefined) parts.push(differencePart(differenceOf(rowsOf(removed ?? ""), rowsOf(added ?? ""))));
  }
  const FORMS = {
    content: contentParts,
    output(value, label, parts) {
      const made = [];
      contentParts(value, label, made);
      parts.push(...made.map((one) => (one.form === "text" ? { ...one, form: "code" } : one)));
    },
    command: (value, _, parts) => parts.push(part("", "command", commandOf(value))),
    input: (value, _, parts) => inputParts(value, parts),
    asked(value, _, parts) {
      if (at(value, "input") === undefined || !textOf(value, "name")) { parts.push(part("", "command", commandOf(value))); return; }
      parts.push(part("", "text", textOf(value, "name")));
      inputParts(at(value, "input"), parts);
    },
    difference: (value, _, parts) => parts.push(differencePart(unified(spelled(value)))),
    value: (value, label, parts) => parts.push(part(label, "code", spelled(value), true)),
  };

  const rowOf = (event) => EVENTS[NAMED.get(event) ?? 0];
  const NAMED = new Map(EVENTS.map((row, index) => [row.event, index]));
  // An entry as it is shown; the records of `cp-report --format json` have the same members.
  function shownOf(entry, tone) {
    const row = rowOf(entry.event), data = entry.data;
    const own = { event: entry.event, role: entry.role, agent: entry.agent, turn: entry.turn };
    const title = row.title.replace(/\{([^}]*)\}/g, (_, name) => {
      if (name === "part" && Number.isSafeInteger(get(data, name))) return data.part + 1;
      const value = Object.hasOwn(own, name) ? own[name] : get(data, name);
      return value === undefined || value === null ? "" : spelled(value);
    }).replace(/[ :]+$/, "");
    const facts = row.facts.split(" ").filter((path) => path && get(data, path) !== undefined)
      .map((path) => ({ name: nameOf(path), value: withUnit(path, get(data, path)) }));
    const parts = [];
    for (const [path, form] of row.parts) {
      const isData = path === "data", value = isData ? (isObject(data) && !Object.keys(data).length ? undefined : data)
        : path === "content" || path === "message" ? entry[path] : get(data, path.replace(/^data\./, ""));
      if (value !== undefined) FORMS[form](value, path === "content" || path === "message" ? "" : nameOf(path), parts);
    }
    // In a run the next entries repeat the answer, and the calls their arguments.
    if (entry.run && tone !== "failed" && !(tone === "refused" && isFailed(entry))) {
      parts.forEach((one) => { if (entry.event === "llm.response" || entry.event === "message" && one.form !== "text") one.folded = true; });
    }
    return { event: entry.event, group: row.group, title, tone, facts, parts };
  }
  const isNot0 = (value) => numberOf(value) !== undefined && numberOf(value) !== 0;
  function isFailed({ event, data }) {
    switch (event) {
      case "exec.result": case "exec.part":
        return isNot0(get(data, "return_code")) || get(data, "signal") !== undefined || get(data, "ended") !== undefined;
      case "exec.refused": return get(data, "rule") === undefined;
      case "tool_result": return get(data, "is_error") === true;
      case "run_end": return typeof get(data, "status") === "string" && data.status !== "completed";
      case "error": case "run_paused": return true;
      case "llm.response": return get(data, "code") !== undefined;
      case "command": return isNot0(get(data, "exit"));
      default: return false;
    }
  }
  function toneOf(entry) {
    const { event, data } = entry, isDenied = ["exec.step", "exec.connection"].includes(event) && get(data, "decision") === "deny";
    if (isDenied || event === "approval.denied" || event === "exec.refused" && get(data, "rule") !== undefined) return "refused";
    return isFailed(entry) ? "failed" : "";
  }
  // The members of a line; those of another type than expected are left out.
  function entryOf(raw, revive) {
    const read = JSON.parse(raw, revive), text = (value) => (typeof value === "string" ? value : undefined);
    return { event: read.event === undefined ? "entry" : text(read.event) ?? "", run: text(read.run), agent: text(read.agent), role: text(read.role), session: text(read.session),
      turn: Number.isSafeInteger(read.turn) ? read.turn : undefined, content: read.content, message: read.message, data: read.data ?? {} };
  }

  const MINOR = new Set(["iteration", "llm.request", "exec.step", "exec.evidence", "session_turn", "approval.asked", "approval.granted", "approval.spent", "command"]);
  const FOLDED = new Set(["iteration", "llm.request", "command", "exec.evidence"]);

  function shownPart(one) {
    const label = one.label || (one.form === "text" ? "text" : "more");
    const signs = { "+": "ins", "-": "del", "@": "b", " ": "span" };
    const body = one.form === "difference" ? element("div", { class: "difference" }, ...one.rows.map(([sign, row]) => element(signs[sign], {}, `${sign}${row}`)))
      : one.form === "text" ? element("div", { class: "said" }, one.text) : element("pre", { class: one.form }, element("code", {}, one.text));
    if (one.folded) return [element("details", { class: "part" }, element("summary", {}, label), body)];
    return [one.label && element("p", { class: "label" }, one.label), body].filter(Boolean);
  }
  const factList = (facts) => element("dl", { class: "facts" }, ...facts.map(({ name, value }) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  const linkTo = (id, text) => element("a", { href: `#${id}` }, text);

  // A line of a ledger in this page.
  class Line {
    constructor(ledger, data) {
      Object.assign(this, { ledger, seq: data.seq, raw: data.raw, proof: data.proof, next: data.next, id: `l${ledger.id}-${data.seq}` });
      let entry = { event: "", data: {} };
      try { entry = entryOf(this.raw); this.isJson = true; } catch { /* shown as bytes */ }
      this.entry = entry;
      this.tone = this.isJson ? toneOf(entry) : "failed";
      this.group = this.isJson ? rowOf(entry.event).group : "other";
      if (/^ledger\./.test(entry.event) && typeof get(entry.data, "verifier") === "string") this.verifier = entry.data.verifier;
    }
    get isFolded() { return !this.tone && FOLDED.has(this.entry.event); }
    matches(words, quoted) { const text = this.raw.toLowerCase(); return text.includes(words) || text.includes(quoted); }
    render() {
      const { id, seq, raw, entry, tone } = this, ts = /"ts":"([^"]{27})"/.exec(raw.slice(0, 80))?.[1];
      let shown = { group: "other", title: "These bytes are not a line of a ledger", facts: [], parts: [] };
      if (this.isJson) shown = shownOf(entryOf(raw, reviver), tone);
      const isMinor = !tone && (this.group === "ledger" || MINOR.has(entry.event) || entry.event === "llm.response" && entry.run);
      const link = (of, text) => ({ name: of, value: linkTo(`l${this.ledger.id}-${text}`, `line ${text}`) });
      const facts = [...(this.answers === undefined ? [] : [link("of", this.answers)]), ...shown.facts, ...(this.answered === undefined ? [] : [link("then", this.answered)])];
      const sum = tone && find(`sum-${tone === "refused" ? "refusals" : "failures"}`);
      const bytes = element("details", { class: "line" }, element("summary", {}, `line ${seq}`));
      bytes.addEventListener("toggle", () => { if (bytes.childElementCount === 1) bytes.append(element("pre", {}, raw)); });
      const made = element("article", { class: `entry ${this.group} ${tone}${isMinor ? " minor" : ""}${entry.role === "user" ? " user" : ""}${this.isChanged ? " changed" : ""}`, id },
        element("p", { class: "title" }, element("strong", {}, shown.title), tone && " ", tone && element("em", {}, sum ? linkTo(sum.id, tone) : tone), " ",
          ts && element("time", { dateTime: ts }, ts.slice(11, 23)), find(`t${id}`) && " ", find(`t${id}`) && element("a", { class: "back", href: `#t${id}` }, "in the timeline"),
          this.card && " ", this.card && element("a", { class: "back", href: `#${this.card}` }, "the whole approval")),
        facts.length ? factList(facts) : "", ...shown.parts.flatMap(shownPart), bytes);
      made.dataset.group = this.group;
      return made;
    }
  }
  // A large value, which comes in parts.
  class Large {
    constructor(ledger, data) {
      Object.assign(this, { ledger, hash: data.hash, parts: [data], group: "other", tone: "", id: `b${ledger.id}-${data.hash}` });
    }
    get isFolded() { return true; }
    matches() { return false; }
    text(most = Infinity) {
      const [{ media_type: type, missing }] = this.parts;
      if (missing || type === "application/octet-stream") return undefined;
      try { return new TextDecoder().decode(joined(this.parts).slice(0, most)); } catch { return undefined; }
    }
    render() {
      const [{ size, media_type: type, missing }] = this.parts, text = this.text(65536);
      const made = element("section", { class: "blob", id: this.id }, element("p", { class: "title" }, element("strong", {}, "A large value")),
        element("p", { class: "made" }, `${this.hash}, ${type}, ${size} bytes${missing ? "; it was missing when the bundle was made" : ""}`),
        text && element("details", { class: "part" }, element("summary", {}, size > 65536 ? "its beginning" : "its text"), element("pre", {}, element("code", {}, text))));
      made.dataset.group = "other";
      return made;
    }
  }

  const TOGETHER = 40;
  const watcher = new IntersectionObserver((seen) => seen.forEach(({ isIntersecting, target }) => { if (isIntersecting) target.chunk.render(); }), { rootMargin: "1500px" });
  // Lines that are rendered together when they come near the window.
  class Chunk {
    constructor(items, isTurn) {
      Object.assign(this, { items, isTurn });
      this.place = element("div", { class: "chunk" });
      this.place.chunk = this;
      this.place.style.setProperty("--lines", items.length);
      items.forEach((item) => { item.chunk = this; });
      watcher.observe(this.place);
    }
    render() {
      if (this.isRendered) return;
      this.isRendered = true;
      watcher.unobserve(this.place);
      let into = this.place, folded = null;
      const close = () => {
        if (folded) folded.firstChild.textContent = visible(folded.titles.length > 3 ? `${folded.titles.slice(0, 3).join(", ")} and ${folded.titles.length - 3} more` : folded.titles.join(", "));
        folded = null;
      };
      const turns = this.isTurn ? [this.place.appendChild(element("section", { class: "turn" }))] : [];
      if (turns[0]) into = turns[0];
      for (const item of this.items) {
        if (item.entry?.event === "iteration") {
          close();
          into = this.place.appendChild(element("section", { class: "turn" }));
          const bar = find(`c${item.id}`);
          into.append(element("h4", {}, `Turn ${item.entry.turn ?? ""}`, bar && " ", bar && element("a", { class: "back", href: `#${bar.id}` }, "in the chart")));
        } else if (item.entry?.event === "run_end") { close(); into = this.place; }
        const made = item.render();
        item.place = made;
        if (!item.isFolded) { close(); into.append(made); continue; }
        if (!folded) {
          folded = into.appendChild(element("details", { class: "part folded" }, element("summary", {})));
          folded.titles = [];
        }
        folded.titles.push(made.querySelector("strong").textContent);
        folded.append(made);
      }
      close();
      if (turns[0] && !turns[0].childElementCount) turns[0].remove();
      if (filtered) this.filter();
    }
    filter() {
      for (const { place, isHidden } of this.items) if (place) place.hidden = Boolean(isHidden);
      this.place.querySelectorAll(".turn, .folded").forEach((one) => {
        one.hidden = !one.querySelector("[data-group]:not([hidden])");
        if (one.matches(".folded") && filtered === "text") one.open = true;
      });
      this.place.hidden = this.items.every((item) => item.isHidden);
    }
  }
