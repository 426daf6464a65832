// Shows the entries of a ledger: a title, facts, and values that are shown whole. All text becomes text nodes.

const page = document, find = (id) => page.getElementById(id);
function element(name, properties = {}, ...children) {
  const isShape = name.startsWith("svg:");
  const made = isShape ? page.createElementNS("http://www.w3.org/2000/svg", name.slice(4)) : page.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value !== undefined && value !== false) made.setAttribute(key, value);
  }
  const isThere = (child) => child !== undefined && child !== null && child !== false && child !== "";
  made.append(...children.filter(isThere).map((child) => (child instanceof Node ? child : visible(String(child)))));
  return made;
}
const linkTo = (id, text) => element("a", { href: `#${id}` }, text);
// Controls and characters that cannot be seen are shown by their names.
const HIDDEN = new RegExp("[\\0-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u061c\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e"
  + "\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb\\u{e0000}-\\u{e0fff}]", "gu");
const visible = (text) => text.replace(HIDDEN, (c) => {
  const code = c.codePointAt(0);
  if (code < 32 || code === 127) return String.fromCharCode(code === 127 ? 0x2421 : 0x2400 + code);
  return `[U+${code.toString(16).toUpperCase().padStart(4, "0")}]`;
});

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const step = (value, name) => (isObject(value) && Object.hasOwn(value, name) ? value[name] ?? undefined : undefined);
const get = (value, path) => path.split(".").reduce(step, value);
const spelled = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "");
const textOf = (value, path) => spelled(get(value, path) ?? "");
const numberOf = (value, path) => [get(value, path)].find((found) => typeof found === "number");
const listOf = (value, path) => [get(value, path)].find(Array.isArray) ?? [];
// A number that this language cannot hold keeps its spelling.
const exact = (_, value, context) => (typeof value === "number" && context && String(value) !== context.source
  ? context.source : value);

const counted = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;
const money = (usd) => `$${usd.toFixed(usd < 1 ? 4 : 2)}`;
function durationOf(ms) {
  const seconds = ms / 1000;
  if (seconds < 1) return `${ms.toFixed(0)} ms`;
  if (seconds < 120) return `${seconds.toFixed(1)} s`;
  return seconds < 7200 ? `${(seconds / 60).toFixed(1)} min` : `${(seconds / 3600).toFixed(1)} h`;
}
const wordOf = (text) => (/^[\w\-./:=,@%+]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
function commandOf(argv) {
  return Array.isArray(argv) ? argv.map((one) => wordOf(spelled(one))).join(" ") : spelled(argv ?? "");
}
const short = (hash) => (typeof hash === "string" ? hash.replace(/^sha256:/, "").slice(0, 8) : "nothing");
function endOf(data) {
  const signal = get(data, "signal"), code = get(data, "return_code") ?? get(data, "exit_code");
  const exit = code === undefined ? "no exit status" : `exit ${spelled(code)}`;
  const end = signal === undefined ? exit : `killed by signal ${spelled(signal)}`;
  return textOf(data, "ended") ? `${end} (${textOf(data, "ended")})` : end;
}

// The lines of a text, as a difference counts them.
function rowsOf(text) {
  const rows = text.split("\n");
  if (rows.at(-1) === "") rows.pop();
  return rows.map((row) => row.replace(/\r$/, ""));
}
// The shortest difference between two lists of lines; of very long ones, everything between their equal ends.
function differenceOf(old, now) {
  let start = 0, end = 0;
  while (start < old.length && start < now.length && old[start] === now[start]) start++;
  while (end < Math.min(old.length, now.length) - start && old.at(-1 - end) === now.at(-1 - end)) end++;
  const a = old.slice(start, old.length - end), b = now.slice(start, now.length - end), rows = [];
  // How many lines two ends have in common; of very long ones nobody knows, so that all of the old is removed first.
  const isLong = a.length * b.length > 4e6, common = isLong ? [] : Array.from(a, () => new Uint32Array(b.length + 1));
  const at = (i, j) => common[i]?.[j] ?? 0, isSame = (i, j) => !isLong && i < a.length && j < b.length && a[i] === b[j];
  for (let i = common.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      common[i][j] = isSame(i, j) ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  for (let i = 0, j = 0; i < a.length || j < b.length;) {
    const isRemoved = i < a.length && (j === b.length || at(i + 1, j) >= at(i, j + 1));
    if (isSame(i, j)) { rows.push([" ", a[i++]]); j++; } else rows.push(isRemoved ? ["-", a[i++]] : ["+", b[j++]]);
  }
  const same = (list) => list.map((row) => [" ", row]);
  return [...same(old.slice(0, start)), ...rows, ...same(old.slice(old.length - end))];
}
// The rows of a difference in the unified form.
function unified(text) {
  const rows = rowsOf(text), first = rows.findIndex((row) => row.startsWith("@"));
  const isSigned = (row, n) => /^[+\-@]/.test(row) && !(n < first && /^(---|\+\+\+) /.test(row));
  return rows.map((row, n) => (isSigned(row, n) ? [row[0], row.slice(1)] : [" ", row.replace(/^ /, "")]));
}

// Values that are shown whole, each as elements.
const fold = (label, ...body) => element("details", { class: "part" }, element("summary", {}, label), ...body);
const isLong = (text) => text.length > 4096 || text.split("\n").length > 25;
function block(text, label = "", { isCode = false, isFolded = isLong(text) } = {}) {
  const body = isCode ? element("pre", {}, element("code", {}, text)) : element("div", { class: "said" }, text);
  if (isFolded) return [fold(label || (isCode ? "more" : "text"), body)];
  return [label && element("p", { class: "label" }, label), body].filter(Boolean);
}
const command = (argv) => element("pre", { class: "command" }, element("code", {}, commandOf(argv)));
function difference(rows, label = "difference", isFolded = rows.length > 48) {
  const names = { "+": "ins", "-": "del", "@": "b", " ": "span" };
  const lines = rows.map(([sign, row]) => element(names[sign], {}, sign + row));
  const body = element("div", { class: "difference" }, ...lines);
  return isFolded ? fold(label, body) : body;
}
// A text, or a list of blocks of a model.
function content(value, label = "", isCode = false) {
  if (typeof value === "string") return value ? block(value, label, { isCode }) : [];
  if (!Array.isArray(value)) {
    const blob = textOf(value, "blob");
    return block(blob || spelled(value), blob ? "a large value, below" : label, { isCode: true });
  }
  return value.flatMap((one) => {
    const kind = textOf(one, "type");
    if (kind === "text") return block(textOf(one, "text"));
    if (kind === "thinking") return block(textOf(one, "thinking"), kind, { isFolded: true });
    if (kind === "tool_use") return [...block(`\u2192 ${textOf(one, "name")}`), ...input(get(one, "input") ?? {})];
    const inner = get(one, "content") ?? "";
    if (kind === "tool_result") return content(inner, `result of ${textOf(one, "tool_use_id")}`, true);
    if (!kind && get(one, "role") !== undefined) return content(inner, textOf(one, "role"));
    return block(spelled(one), kind, { isCode: true, isFolded: true });
  });
}
// The arguments of a tool: names and values, and changes of a file as a difference.
function input(value) {
  if (!isObject(value)) return block(spelled(value), "", { isCode: true });
  const plain = [], parts = [];
  let removed, added;
  for (const [name, one] of Object.entries(value)) {
    const isText = typeof one === "string";
    if (isText && name === "old") removed = one;
    else if (isText && (name === "new" || name === "content" && value.operation === "write_file")) added = one;
    else if (isText && (name === "patch" || name === "diff")) parts.push(difference(unified(one)));
    else if (!isText && name === "argv") parts.push(command(one));
    else if (isText && one.includes("\n")) parts.push(...block(one, name, { isCode: true }));
    else plain.push(`${name}: ${spelled(one)}`);
  }
  if (removed !== undefined || added !== undefined) {
    parts.push(difference(differenceOf(rowsOf(removed ?? ""), rowsOf(added ?? ""))));
  }
  return [...(plain.length ? block(plain.join("\n"), "", { isCode: true }) : []), ...parts];
}

// What events are called. `{x}` is a member of the entry or of its data, `{end}` how a program ended.
const TITLES = {
  run_start: "The run begins", run_resumed: "The run goes on", run_paused: "The run pauses: {code}",
  run_end: "The run ends: {status}", message: "{role}", tool_call: "Call of {name}",
  tool_result: "Result of {name}", "llm.request": "The model is asked: {model}", log: "A note",
  "llm.response": "The model answers: {model}", "mcp.call": "The client calls {tool}", "mcp.result": "Result of {tool}",
  "mcp.refused": "Refused: {rule}", "exec.intent": "A command starts", "exec.step": "Starts a program: {decision}",
  "exec.connection": "Connection to {name}: {decision}",
  "exec.result": "The command ends: {end}", "exec.refused": "Refused: {rule}", "exec.operation": "{operation}",
  "exec.changes": "Files created: {created}, changed: {changed}, removed: {removed}",
  "host.intent": "{host} asks about {tool}: {decision}", "host.result": "{host} has the result of {tool}",
  "approval.asked": "Approval is asked for", "approval.granted": "Approved by {by}",
  "approval.denied": "Denied by {by}", "approval.spent": "The approval of {by} is used",
  command: "{program} {verb}: exit {exit}", error: "{program} {verb} fails: exit {exit}",
};
const GROUP_OF = [[/^(message|session_question|memory)$/, "message"], [/^(llm\.|agent_turn)/, "model"],
  [/^(tool_|mcp\.|host\.)/, "tool"], [/^exec\./, "command"], [/^approval\./, "person"],
  [/^(run_|session_)/, "session"], [/^(command|error)$/, "program"], [/^(ledger|segment)\./, "ledger"]];
const GROUPS = [...GROUP_OF.map(([, group]) => group), "other"];
const groupOf = (event) => GROUP_OF.find(([pattern]) => pattern.test(event))?.[1] ?? "other";
const titleOf = (entry) => {
  const title = Object.hasOwn(TITLES, entry.event) ? TITLES[entry.event] : entry.event.replace(/[._]/g, " ");
  const member = (_, name) => (name === "end" ? endOf(entry.data) : textOf(entry, name) || textOf(entry.data, name));
  return title.replace(/\{(\w+)\}/g, member).replace(/[ :]+$/, "") || "An entry";
};
function toneOf({ event, data }) {
  const isDenied = /^exec\.(step|connection)$/.test(event) && get(data, "decision") === "deny";
  if (isDenied || event === "approval.denied" || /\.refused$/.test(event)) return "refused";
  if (/^(error|run_paused)$/.test(event)) return "failed";
  if (event === "llm.response" && get(data, "code") !== undefined) return "failed";
  if (event === "run_end" && get(data, "status") !== "completed" || get(data, "is_error") === true) return "failed";
  const isBad = get(data, "return_code") !== 0 || get(data, "signal") !== undefined || get(data, "ended") !== undefined;
  return event === "exec.result" && isBad ? "failed" : "";
}

// The facts of an entry: its short values, but hashes and what the title says; all others are parts.
const FORMS = { argv: command, line: command, argv_as_asked: command, command, input, content, message: content };
for (const name of ["output", "stdout", "stderr"]) FORMS[name] = (value) => content(value, name, true);
for (const name of ["diff", "patch"]) FORMS[name] = (text) => difference(unified(spelled(text)));
const IS_HASH = /^(hmac-)?sha256:|^[0-9a-f]{32,}$/, HASHED = /hash$|^(nonce|receipt|exe|env|tools|model_command)$/;
function gather(value, prefix, facts, parts, rest) {
  for (const [name, one] of Object.entries(value)) {
    const path = prefix + name, isText = typeof one === "string";
    if (one === null || isText && (IS_HASH.test(one) || one === "")) continue;
    const isValue = (isText || typeof one === "object") && get(one, "bytes") === undefined;
    if (isValue && Object.hasOwn(FORMS, name)) parts.push(...[FORMS[name](one)].flat());
    else if (HASHED.test(name)) rest[path] = one;
    else if (isObject(one) && path.split(".").length < 4) gather(one, `${path}.`, facts, parts, rest);
    else if (typeof one === "object" || isText && (one.length > 120 || one.includes("\n"))) rest[path] = one;
    else if (/_ms$/.test(name) && typeof one === "number") facts.push([path.slice(0, -3), durationOf(one)]);
    else facts.push([path, /usd$/.test(name) && typeof one === "number" ? money(one) : spelled(one)]);
  }
}
function factList(facts) {
  const name = (path) => element("dt", {}, path.replaceAll("_", " "));
  const one = ([path, value]) => element("div", {}, name(path), element("dd", {}, value));
  return element("dl", { class: "facts" }, ...facts.map(one));
}
function shownOf(entry, links) {
  const facts = [...links], parts = [], rest = Object.create(null), isOutput = /result/.test(entry.event);
  if (entry.message !== undefined) parts.push(...content(entry.message));
  if (entry.content !== undefined) {
    const made = content(entry.content, "", isOutput);
    // The words of a request were shown where they were first said.
    parts.push(...(entry.event === "llm.request" ? [fold("the new messages", ...made)] : made));
  }
  const { data } = entry;
  if (isObject(data)) gather(data, "", facts, parts, rest);
  else if (data !== undefined && data !== null) parts.push(...block(spelled(data), "data", { isCode: true }));
  if (Object.keys(rest).length) parts.push(...block(spelled(rest), "more", { isCode: true, isFolded: true }));
  return [facts.length ? factList(facts) : "", ...parts];
}
