// The life of the page: reads its ledgers, proves them, draws what it proved, and filters its lines.

const ledgers = [], lines = [], blobs = new Map(), byId = new Map(), broken = [];

class Line {
  constructor(ledger, index, raw) {
    const seq = Number(START_OF_LINE.exec(raw)?.[1] ?? index);
    Object.assign(this, { ledger, seq, raw, id: `l${ledger.id}-${seq}`, entry: null, tone: "" });
    try { this.entry = Line.entry(raw); } catch { /* shown as bytes */ }
    if (this.entry) this.tone = toneOf(this.entry);
    this.group = this.entry ? groupOf(this.entry.event) : "other";
  }
  // The members that the page reads. An event that is no text is none.
  static entry(raw, reviver) {
    const read = JSON.parse(raw, reviver);
    if (!isObject(read)) throw new Error("no entry");
    return { ...read, ts: String(read.ts), event: typeof read.event === "string" ? read.event : "entry" };
  }
  get time() { return Date.parse(this.entry?.ts.slice(0, 23) + "Z"); }
  link(text = `line ${this.seq}`) { return linkTo(this.id, text); }
  show() {
    const { raw, entry, tone, isChanged } = this, links = [];
    if (this.answers) links.push(["of", this.answers.link()]);
    if (this.answered) links.push(["then", this.answered.link()]);
    if (this.card) links.push(["approval", linkTo(this.card, "the whole approval")]);
    const title = entry ? titleOf(entry) : "These bytes are not a line of a ledger";
    const bytes = fold(`line ${this.seq}`);
    bytes.addEventListener("toggle", () => bytes.append(element("pre", {}, raw)), { once: true });
    const parts = entry ? shownOf(Line.entry(raw, exact), links) : [];
    const head = element("p", { class: "title" }, element("strong", {}, title), tone && element("em", {}, ` ${tone}`),
      isChanged && element("em", {}, " changed"), element("time", {}, ` ${entry?.ts.slice(11, 23) ?? ""}`));
    const names = `entry ${this.group} ${tone}${isChanged ? " changed" : ""}`;
    return element("article", { class: names, id: this.id }, head, ...parts, bytes);
  }
}

// Reads the files: each checkpoint before its ledger, the oldest segment first. A file that cannot be read is a fault.
const SEGMENT = /\.\d{20}(?=\.jsonl$)/, VALUE = /^(.*)\.blobs\/([0-9a-f]{64})$/, NOTE = /\.checkpoint$/;
function read() {
  let files = [];
  try { files = JSON.parse(find("records").textContent); } catch { broken.push(["lines", "the lines cannot be read"]); }
  const notes = new Map();
  for (const { path, lines: some = [], base64 } of files) {
    const [, of, hash] = VALUE.exec(path) ?? [], file = of ?? path.replace(SEGMENT, "");
    let ledger = ledgers.find((other) => other.file === file);
    if (NOTE.test(path)) notes.set(path.replace(NOTE, ".jsonl"), `${some.join("\n")}\n`);
    else if (of && ledger) {
      let bytes = null;
      try { bytes = fromBase64(base64); } catch { /* then it is none */ }
      blobs.set(`${ledger.id} sha256:${hash}`, bytes);
      ledger.proof.blob({ hash, bytes });
    } else if (of) broken.push(["lines", `${path} belongs to no ledger`]);
    else {
      ledger ??= begin(file, some[0], notes.get(file));
      notes.delete(file);
      for (const raw of some) {
        const line = new Line(ledger, ledger.lines.length, raw);
        for (const list of [ledger.lines, lines]) list.push(line);
        ledger.bySeq.set(line.seq, line);
        byId.set(line.id, line);
        ledger.proof.line(line);
      }
    }
  }
  for (const file of notes.keys()) broken.push(["lines", `${file} is signed, and not here`]);
  for (const { proof } of ledgers) proof.close();
}
function begin(file, first, note) {
  let origin = file;
  try { origin = String(Line.entry(first).data.origin); } catch { /* reported with its line */ }
  const id = hex(sha256(utf8.encode(origin))).slice(0, 8), isTwice = ledgers.some((other) => other.id === id);
  const ledger = { file, origin, note, id: isTwice ? `${id}x${ledgers.length}` : id, lines: [], bySeq: new Map() };
  ledgers.push(ledger);
  ledger.proof = new Proof(ledger);
  return ledger;
}

// What the lines are about, gathered from the ledgers that hold.
const facts = { calls: [], effects: [], answers: [], spans: [], failed: 0, refused: 0 };
Object.assign(facts, { cards: new Map(), files: new Set() });
const waiting = new Map();
function pair(line, isStart, name) {
  const key = `${line.ledger.id} ${line.entry.run} ${name}`, list = waiting.get(key) ?? [];
  if (isStart) { waiting.set(key, list); list.push(line); return undefined; }
  const first = list.shift();
  if (first) [line.answers, first.answered] = [first, line];
  return first;
}
function span(lane, line, start = line.time - (numberOf(line.entry.data, "duration_ms") ?? 0)) {
  if (start <= line.time) facts.spans.push({ lane, start, end: line.time, line });
}
// The rows of a file in a difference, which has a head for each file.
function rowsOfFile(text, path) {
  const parts = text.split(/^--- (.*)\n\+\+\+ (.*)\n(?=@@)/m);
  for (let n = 1; n + 2 < parts.length; n += 3) {
    if (parts[n] === path || parts[n + 1] === path) return unified(parts[n + 2]);
  }
  return [];
}
function change(line, file, call) {
  const path = textOf(file, "path"), [before, after] = [get(file, "before"), get(file, "after")];
  const was = get(before, "sha256"), is = get(after, "sha256");
  if (!path || was === is && was !== undefined) return;
  facts.files.add(path);
  const kind = before === undefined ? "created" : after === undefined && is === undefined ? "removed" : "changed";
  facts.effects.push({ line, path, was, is, call, kind: textOf(file, "change") || kind });
}
function approve(line, id) {
  const { event, data, run } = line.entry, all = [...facts.cards.values()];
  const known = facts.cards.get(`${run} ${id}`) ?? all.findLast((one) => one.id === id);
  const card = known ?? { id, run, place: `approval-${facts.cards.size}`, answers: [], spent: [], ran: [] };
  if (!known) facts.cards.set(`${run} ${id}`, card);
  card.call ||= textOf(data, "call");
  line.card = card.place;
  if (event === "approval.asked") { card.asked ??= line; pair(line, true, `approval ${id}`); }
  else if (event === "approval.spent") { card.spent.push(line); line.ledger.spent = card; }
  else {
    card.answers.push(line);
    const asked = pair(line, false, `approval ${id}`);
    if (asked) span("people", line, asked.time);
  }
}
// What starts after an approval was used, by its call where it has one, is what was approved.
function ran(line, call) {
  const of = [...facts.cards.values()].find((card) => call && card.call === call && card.run === line.entry.run);
  const { spent } = line.ledger, card = of ?? (spent?.call ? undefined : spent);
  card?.ran.push(line);
  if (card === spent) line.ledger.spent = null;
}
function gatherLine(line) {
  const { entry, ledger } = line, { event, data, run } = entry, id = textOf(data, "id"), call = textOf(data, "call");
  if (line.tone === "failed") facts.failed++;
  if (line.tone === "refused") facts.refused++;
  if (/refused$/.test(event)) facts.effects.push({ line, call, what: get(data, "asked") });
  if (/^approval\./.test(event)) approve(line, id);
  else if (event === "run_start") { ledger.start ??= line; facts.start ??= line; }
  else if (event === "run_end" || event === "run_paused") facts.end = line;
  else if (event === "llm.request" || event === "llm.response") {
    const name = ["request_hash", "attempt", "batch"].map((path) => textOf(data, path)).join(" ");
    pair(line, event === "llm.request", `model ${name}`);
    if (event === "llm.response") { facts.answers.push(line); span("model", line); }
  } else if (/^(tool_call|mcp\.call|host\.intent)$/.test(event)) {
    facts.calls.push(line);
    pair(line, true, `tool ${id || call || textOf(data, "host_call")}`);
  } else if (/^(tool_result|mcp\.result|host\.result)$/.test(event)) {
    pair(line, false, `tool ${id || call || textOf(data, "host_call")}`);
    span("tools", line);
  } else if (event === "exec.intent") {
    pair(line, true, `exec ${line.seq}`);
    facts.effects.push({ line, call, what: get(data, "line") ?? get(data, "argv") });
    ran(line, call);
  } else if (event === "exec.result") {
    pair(line, false, `exec ${textOf(data, "intent")}`);
    span("commands", line);
  } else if (event === "exec.changes") {
    for (const file of listOf(data, "files")) change(line, file, call);
    if (textOf(data, "operation")) ran(line, call);
  }
}

// The outcome of an approval: a tone and a sentence. The action that ran is linked, and not compared here.
function outcomeOf({ answers, spent, ran: done }) {
  const last = answers.at(-1), isGranted = answers.some((line) => line.entry.event === "approval.granted");
  if (last?.entry.event === "approval.denied") return ["refused", "Denied."];
  if (!isGranted && spent.length) return ["failed", "Used, although no line here grants it."];
  if (!isGranted) return ["waiting", "Waiting for an answer."];
  if (!spent.length && !done.length) return ["waiting", "Approved, and not used."];
  return ["fine", done.length ? "Approved, and used for what ran." : "Approved and used; what ran is not here."];
}
function cardOf(card) {
  const [tone, outcome] = outcomeOf(card), shown = get(card.asked?.entry.data, "approval.shown");
  const last = card.answers.at(-1)?.entry.data, all = { ...shown, ...last }, parts = [];
  const list = [["who", textOf(last, "by") || "nobody yet"]];
  const add = (name, value) => { if (value) list.push([name, value]); };
  for (const name of ["how", "scope", "path", "cwd", "rule", "risk"]) add(name, textOf(all, name));
  add("asked", card.asked?.link() ?? "not in this page");
  for (const [name, all] of [["answered", card.answers], ["used", card.spent], ["ran", card.ran]]) {
    for (const line of all) add(name, line.link());
  }
  for (const name of ["argv", "line", "input", "diff"]) {
    if (get(shown, name) !== undefined) parts.push(...[FORMS[name](get(shown, name))].flat());
  }
  const why = textOf(card.asked?.entry, "message") || card.id;
  return element("article", { class: `card ${tone}`, id: card.place }, element("h3", {}, why),
    element("p", { class: "outcome" }, outcome), factList(list), ...parts);
}

// What may be wider than the window scrolls in a frame of its own.
const frame = { class: "wide", tabindex: "0", role: "group" };
const wide = (label, inner) => element("div", { ...frame, "aria-label": label }, inner);
// A table whose further rows are made when they are asked for, or printed.
const MOST_ROWS = 100;
function table(names, rows, fill) {
  if (!rows.length) return [];
  const body = element("tbody"), rest = rows.slice(MOST_ROWS);
  const add = (some) => body.append(...some.map((one) => {
    const { cells, tone } = fill(one);
    const cell = (value, n) => (n ? element("td", {}, value) : element("th", { scope: "row" }, value));
    return element("tr", { class: tone }, ...cells.map(cell));
  }));
  add(rows.slice(0, MOST_ROWS));
  const head = element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name)));
  const made = wide(`Table by ${names[0]}`, element("table", {}, element("thead", {}, head), body));
  if (!rest.length) return [made];
  const more = element("button", { type: "button" }, `Show ${rest.length} more`);
  more.addEventListener("click", () => { add(rest.splice(0)); more.remove(); });
  globalThis.addEventListener("beforeprint", () => more.click(), { once: true });
  return [made, more];
}
function effectRow({ line, what, path, was, is, kind, call }) {
  const { data, run } = line.entry, now = kind === "removed" ? undefined : is;
  const own = (one) => one.ran.includes(line) || call && one.call === call && one.run === run;
  const card = [...facts.cards.values()].find(own);
  const last = [card ? linkTo(card.place, "an approval") : textOf(data, "rule"), line.link()];
  if (path === undefined) {
    const isTool = get(what, "input") !== undefined, result = line.answered;
    const asked = isTool ? `${textOf(what, "name")} ${JSON.stringify(what.input)}` : commandOf(what);
    const end = result ? endOf(result.entry.data) : line.tone || "no result", tone = line.tone || result?.tone;
    return { cells: [element("code", {}, asked || titleOf(line.entry)), end, ...last], tone };
  }
  const rows = rowsOfFile(textOf(data, "difference"), path);
  const sum = (sign) => rows.filter(([one]) => one === sign).length;
  const hashes = element("span", { class: "soft" }, ` ${short(was)} \u2192 ${short(now)}`);
  const lead = rows.length ? difference(rows, `${sum("+")} added, ${sum("-")} removed`, true) : "";
  return { cells: [element("span", {}, path, lead), element("span", {}, kind, hashes), ...last] };
}
function callRow(line) {
  const { entry: { data }, answered } = line, given = get(data, "input");
  const ms = numberOf(answered?.entry.data, "duration_ms");
  const says = given === undefined ? "" : element("code", {}, ` ${JSON.stringify(given).slice(0, 200)}`);
  const call = element("span", {}, textOf(data, "name") || textOf(data, "tool"), says);
  const result = answered ? linkTo(answered.id, answered.tone || "succeeded") : "no result";
  return { cells: [call, result, ms === undefined ? "" : durationOf(ms), line.link()], tone: answered?.tone };
}

// A picture of what took time, in lanes. What lies closer than a point is one.
const LANES = ["model", "tools", "commands", "people"], WIDTH = 1000, LEFT = 90, LANE = 26;
function timeline() {
  const { spans } = facts;
  if (spans.length < 2) return [];
  const from = spans.reduce((least, { start }) => Math.min(least, start), Infinity);
  const took = spans.reduce((most, { end }) => Math.max(most, end - from), 1), right = WIDTH - LEFT;
  const rect = (kind, x, y, width) => element("svg:rect", { class: kind, x, y: y * LANE + 3, width, height: LANE - 6 });
  const shapes = LANES.flatMap((name, n) => [element("svg:text", { x: 0, y: n * LANE + 18 }, name),
    rect("lane", LEFT, n, right)]), last = new Map();
  for (const { lane, start, end, line } of spans.sort((one, other) => one.start - other.start)) {
    const key = `${lane} ${line.tone}`, before = last.get(key);
    const x = LEFT + Math.min((start - from) * right / took, right - 3);
    const until = Math.max(LEFT + (end - from) * right / took, x + 3);
    if (before && x <= before.until + 1) {
      before.until = Math.max(before.until, until);
      before.box.setAttribute("width", before.until - before.x);
      continue;
    }
    const box = rect(key, x, LANES.indexOf(lane), until - x);
    last.set(key, { box, x, until });
    const says = `${lane}${line.tone && `, ${line.tone}`}, ${durationOf(end - start)}, line ${line.seq}`;
    shapes.push(element("svg:a", { href: `#${line.id}`, "aria-label": says }, element("svg:title", {}, says), box));
  }
  ["start", "middle", "end"].forEach((anchor, n) => {
    const at = { class: "tick", x: LEFT + right * n / 2, y: LANE * 4 + 16, "text-anchor": anchor };
    shapes.push(element("svg:text", at, durationOf(took * n / 2)));
  });
  const svg = { viewBox: `0 0 ${WIDTH} ${LANE * 4 + 22}`, role: "group", "aria-label": "Timeline" };
  return [wide("Timeline, a picture", element("svg:svg", svg, ...shapes))];
}
// Tokens and cost of each model. A price that is not known is none.
function costs() {
  const models = new Map(), all = [0, 0, 0, 0, 0];
  for (const { entry: { data } } of facts.answers) {
    const name = textOf(data, "answered_by") || textOf(data, "model");
    const of = (name) => numberOf(data, `usage.${name}`), usd = of("cost_usd");
    if (!models.has(name)) models.set(name, [0, 0, 0, 0, 0]);
    const used = [1, of("input_tokens") ?? 0, of("output_tokens") ?? 0, usd ?? 0, usd === undefined ? 1 : 0];
    for (const sums of [models.get(name), all]) used.forEach((one, n) => { sums[n] += one; });
  }
  const cost = ([count, , , usd, unpriced]) => (unpriced === count ? "unknown"
    : `${money(usd)}${unpriced ? `, and ${counted(unpriced, "answer")} without a price` : ""}`);
  const row = ([name, one]) => ({ cells: [name, ...one.slice(0, 3), cost(one)].map(String) });
  facts.cost = all[0] ? cost(all) : "no model was asked";
  const rows = models.size > 1 ? [...models, ["all", all]] : [...models];
  return table(["model", "answers", "tokens read", "tokens written", "cost"], rows, row);
}

// Lines are rendered together when they come near the window.
const TOGETHER = 50, chunks = [];
const watcher = new IntersectionObserver((seen) => {
  for (const { isIntersecting, target } of seen) if (isIntersecting) target.chunk.render();
}, { rootMargin: "1200px" });
class Chunk {
  constructor(items) {
    Object.assign(this, { items, place: element("div", { class: "chunk" }) });
    this.place.chunk = this;
    items.forEach((line) => { line.chunk = this; });
    watcher.observe(this.place);
  }
  render() {
    if (this.isRendered) return;
    this.isRendered = true;
    this.place.append(...this.items.map((line) => (line.place = line.show())));
    this.filter();
  }
  filter() {
    for (const line of this.items) if (line.place) line.place.hidden = Boolean(line.isHidden);
    this.place.hidden = this.items.every((line) => line.isHidden);
  }
}
function lay() {
  for (const { file, origin, id, lines: all, start } of ledgers) {
    const name = start ? `Run ${textOf(start.entry, "run")}` : file;
    const about = element("p", { class: "soft" }, `${file}, ${counted(all.length, "line")}, ${origin}`);
    const section = element("section", { id: `l${id}`, "aria-label": visible(name) }, element("h3", {}, name), about);
    for (let at = 0; at < all.length; at += TOGETHER) {
      chunks.push(new Chunk(all.slice(at, at + TOGETHER)));
      section.append(chunks.at(-1).place);
    }
    find("lines").append(section);
  }
}
function go() {
  const line = byId.get(location.hash.slice(1)), at = chunks.indexOf(line?.chunk);
  // With what is around it, so that nothing moves it afterward.
  if (line) chunks.slice(Math.max(0, at - 1), at + 2).forEach((chunk) => chunk.render());
  line?.place.scrollIntoView();
}
function filter() {
  const words = find("search").value.toLowerCase(), quoted = JSON.stringify(words).slice(1, -1);
  const groups = new Set([...page.querySelectorAll("#filters :checked")].map((box) => box.value));
  const has = (text) => text.includes(words) || text.includes(quoted);
  for (const line of lines) line.isHidden = !groups.has(line.group) || Boolean(words) && !has(line.raw.toLowerCase());
  chunks.forEach((chunk) => chunk.filter());
  find("found").textContent = `${lines.filter((line) => !line.isHidden).length} shown`;
}

// Fills a section, which is hidden where there is nothing to say.
const fill = (id, made) => { find(id).hidden = !made.length; find(id).append(...made); };
function draw() {
  for (const ledger of ledgers) if (!ledger.proof.faults.length) ledger.lines.forEach(gatherLine);
  const { start, end } = facts, first = lines[0]?.entry, list = [];
  const of = start?.entry.run ?? lines.find((line) => line.entry?.session)?.entry.session;
  page.title = visible(spelled(of ?? ledgers[0]?.file ?? "nothing"));
  find("name").textContent = page.title;
  find("task").append(...(start ? content(start.entry.content ?? "") : []));
  if (end) list.push(["outcome", textOf(end.entry.data, "status") || titleOf(end.entry)]);
  if (start) list.push(["in", textOf(start.entry.data, "base")], ["took", end && durationOf(end.time - start.time)]);
  if (first) list.push(["from", `${first.ts.slice(0, 19).replace("T", " ")} UTC`]);
  find("facts").append(factList([...list.filter(([, value]) => value), ["lines", lines.length]]));
  fill("approvals", [...facts.cards.values()].map(cardOf));
  fill("effects", table(["what", "result", "decided by", "recorded in"], facts.effects, effectRow));
  fill("calls", table(["call", "result", "took", "recorded in"], facts.calls, callRow));
  fill("time", timeline());
  fill("cost", costs());
  lay();
}

const SIGNED = { reader: "by the key you gave", file: "by a key that only this file names", unknown: "not checked",
  none: "none" };
function strip(weakest, isBroken, isGreen) {
  const differ = [...facts.cards.values()].filter((card) => outcomeOf(card)[0] === "failed").length;
  const commands = facts.effects.filter(({ line }) => line.entry.event === "exec.intent").length;
  const tone = isBroken ? "failed" : isGreen ? "fine" : "unsure";
  const verdicts = [[tone, "Signature", isBroken ? "counts for nothing" : SIGNED[weakest], "proof"],
    ["", "Cost", facts.cost, "cost"], ["", "Answers", facts.answers.length, "cost"],
    ["", "Calls", facts.calls.length, "calls"], ["", "Commands", commands, "effects"],
    ["", "Files changed", facts.files.size, "effects"],
    [differ ? "failed" : "", "Approvals", facts.cards.size, "approvals"],
    [facts.refused ? "refused" : "", "Refusals", facts.refused, "effects"],
    [facts.failed ? "failed" : "", "Failures", facts.failed, "lines"]];
  find("strip").replaceChildren(...verdicts.map(([kind, name, says, to]) => {
    const value = find(to).hidden ? String(says) : linkTo(to, String(says));
    return element("div", { class: kind }, element("dt", {}, name), element("dd", {}, value));
  }));
}
async function check() {
  const given = find("key").value.trim(), key = given ? readKey(given, true) : null, signatures = [];
  for (const { proof } of ledgers) signatures.push(await proof.signed(key));
  const all = (name) => [...ledgers.flatMap(({ proof }) => proof[name]), ...signatures.flatMap((one) => one[name])];
  const faults = [...broken, ...all("faults")], open = all("open"), said = faults.length ? [] : all("said");
  if (given && !key) open.unshift("The text in the field is not a public key: name+id+key, as K.pub has it.");
  const weakest = ["none", "unknown", "file", "reader"].find((by) => signatures.some((one) => one.by === by)) ?? "none";
  const isGreen = !faults.length && weakest === "reader" && ledgers.every(({ proof }) => !proof.uncovered);
  const verdict = find("verdict"), unsure = weakest === "none"
    ? "hold among themselves. Nobody signed all of them, so the maker of this file could have written them."
    : "hold as far as can be known here: no key that you gave has signed all of them.";
  const sound = isGreen ? "hold, and the key that you gave has signed them." : unsure;
  verdict.className = faults.length ? "broken" : isGreen ? "holds" : "unsure";
  verdict.textContent = faults.length
    ? `It does not hold: ${counted(faults.length, "fault")}. Nothing is counted from a ledger with a fault.`
    : `All ${counted(lines.length, "line")} ${sound}`;
  const item = (mark) => (text) => element("li", {}, mark + text);
  find("proved").replaceChildren(...said.map(item("\u2713 ")), ...open.map(item("? ")));
  const fault = ([place, message]) => element("li", {}, linkTo(place, message));
  find("faults").replaceChildren(...faults.slice(0, 100).map(fault));
  strip(weakest, faults.length > 0, isGreen);
}
page.addEventListener("DOMContentLoaded", () => requestAnimationFrame(() => setTimeout(() => {
  page.documentElement.classList.add("live");
  read();
  draw();
  const box = (value) => element("input", { type: "checkbox", checked: "", value });
  find("groups").append(...GROUPS.map((group) => element("label", {}, box(group), ` ${group}`)));
  find("key").addEventListener("change", check);
  find("filters").addEventListener("input", filter);
  globalThis.addEventListener("hashchange", go);
  globalThis.addEventListener("beforeprint", () => chunks.forEach((chunk) => chunk.render()));
  go();
  check();
})));
