  // Answers what an auditor asks first, from the lines: which approvals, which effects, and whether they belong together.

  const spelledSame = (one, other) => JSON.stringify(one) === JSON.stringify(other);
  const short = (hash) => (typeof hash === "string" ? hash.replace(/^sha256:/, "").slice(0, 8) : "nothing");

  // The lines of one ledger by what they are about.
  class Index {
    constructor() {
      Object.assign(this, { cards: new Map(), effects: [], refusals: [], files: new Set(), calls: new Map(), intents: new Map(), blobs: new Map() });
      Object.assign(this, { cost: 0, priced: 0, unpriced: 0, said: [0, 0, 0], waiting: new Map() });
    }
    // What was asked for leads to what came of it.
    pair(line, begins, name) {
      const key = `${line.ledger.id} ${line.entry.run} ${name}`;
      if (begins) { if (!this.waiting.has(key)) this.waiting.set(key, []); this.waiting.get(key).push(line); return; }
      const first = this.waiting.get(key)?.shift();
      if (first) [line.answers, first.answered] = [first.seq, line.seq];
    }
    spend(usage, sums) {
      const cost = numberOf(get(usage, "cost_usd"));
      sums[cost === undefined ? 2 : 1]++;
      sums[0] += cost ?? 0;
    }
    add(line) {
      const { entry: { event, data, run, turn }, ledger } = line, id = textOf(data, "id"), call = textOf(data, "call");
      const key = (name) => `${run} ${name}`;
      switch (event) {
        case "run_start": ledger.run = run; ledger.isSpoken = true; break;
        case "message":
          ledger.isSpoken = true;
          if (isObject(get(data, "usage"))) this.spend(data.usage, this.said);
          break;
        case "llm.request": case "llm.response":
          this.pair(line, event === "llm.request", `model ${textOf(data, "request_hash")} ${textOf(data, "attempt")} ${textOf(data, "batch")}`);
          if (event === "llm.response" && !line.tone) { const sums = [0, 0, 0]; this.spend(get(data, "usage"), sums); this.cost += sums[0]; this.priced += sums[1]; this.unpriced += sums[2]; }
          break;
        case "tool_call": case "tool_result":
          this.pair(line, event === "tool_call", `tool ${id}`);
          if (event === "tool_call") this.calls.set(key(id), line);
          break;
        case "exec.intent": case "exec.result": {
          const isIntent = event === "exec.intent";
          this.pair(line, isIntent, `exec ${isIntent ? line.seq : textOf(data, "intent")}`);
          if (isIntent) {
            this.intents.set(key(call || `${ledger.id} ${line.seq}`), line);
            this.effects.push({ line, what: commandOf(get(data, "line") ?? get(data, "argv") ?? ""), call });
            this.ran(line, call);
          }
          break;
        }
        case "exec.operation": {
          const writes = get(data, "what.writes") ?? get(data, "what.files"), of = textOf(data, "what.call");
          for (const write of Array.isArray(writes) ? writes : []) this.change(line, write, of);
          if (Array.isArray(writes)) this.ran(line, of);
          break;
        }
        case "exec.changes":
          for (const file of Array.isArray(get(data, "files")) ? data.files : []) this.change(line, file, "");
          break;
        case "approval.asked": case "approval.granted": case "approval.denied": case "approval.spent": this.approval(line, id, call); break;
        default:
      }
      if (line.tone === "refused" && event !== "approval.denied") this.refusals.push(line);
    }
    change(line, file, call) {
      const path = textOf(file, "path"), before = get(file, "before"), after = get(file, "after");
      const hash = (state) => get(state, "blob") ?? get(state, "sha256");
      const was = hash(before), is = hash(after) ?? get(file, "sha256");
      if (!path || was === is && was !== undefined) return;
      this.files.add(path);
      const kind = textOf(file, "after.kind") || textOf(file, "before.kind");
      this.effects.push({ line, file: path, was, is, kind, call, change: textOf(file, "change") || (before === undefined ? "created" : after === undefined && is === undefined ? "removed" : "changed") });
    }
    approval(line, id, call) {
      const { run, event } = line.entry, known = this.cards.get(`${run} ${id}`) ?? [...this.cards.values()].findLast((card) => card.id === id);
      const card = known ?? { id, call, asked: null, answers: [], spent: [], ran: [], at: this.cards.size, run };
      if (!known) this.cards.set(`${run} ${id}`, card);
      line.card = `approval-${card.at}`;
      card.call ||= call;
      if (event === "approval.asked") card.asked = card.asked && card.spent.length ? card.asked : line;
      else (event === "approval.spent" ? card.spent : card.answers).push(line);
      if (event === "approval.granted" || event === "approval.denied") this.pair(line, false, `approval ${id}`);
      if (event === "approval.asked") this.pair(line, true, `approval ${id}`);
      if (event === "approval.spent") line.ledger.spent = { card, call };
    }
    // What starts after an approval was spent, by its call where it has one, is what was approved.
    ran(line, call) {
      for (const card of this.cards.values()) if (call && card.call === call && card.run === line.entry.run) { card.ran.push(line); return; }
      const spent = line.ledger.spent;
      if (spent && !spent.call) { spent.card.ran.push(line); line.ledger.spent = null; }
    }
  }

  // The text before, with a unified difference applied; nothing if the difference does not fit.
  function applied(before, difference) {
    const old = before.split("\n"), made = [];
    let at = 0;
    for (const row of difference.split("\n").filter((row) => !/^(--- |\+\+\+ |\\)/.test(row))) {
      const hunk = /^@@ -(\d+)(?:,(\d+))? /.exec(row);
      if (hunk) { const to = Number(hunk[1]) - (hunk[2] === "0" ? 0 : 1); while (at < to) made.push(old[at++]); continue; }
      if (row.startsWith("+")) made.push(row.slice(1));
      else if (row.startsWith("-") || row.startsWith(" ")) { if (old[at] !== row.slice(1)) return undefined; if (row[0] === " ") made.push(old[at]); at++; }
    }
    return [...made, ...old.slice(at)].join("\n");
  }
  const blobOf = (index, ledger, hash) => index.blobs.get(`${ledger.id} ${hash}`)?.text();

  // Compares the shown action with the one that ran: a tone and a sentence.
  function compared(index, card) {
    const shown = get(card.asked?.entry.data, "approval.shown"), binds = get(card.asked?.entry.data, "approval.binds");
    const granted = card.answers.findLast((line) => line.entry.event === "approval.granted"), last = card.answers.at(-1);
    const isDenied = last?.entry.event === "approval.denied";
    if (isDenied && card.ran.some((line) => line.seq > last.seq && line.ledger === last.ledger)) return ["failed", "Denied, and it ran all the same."];
    if (isDenied) return ["refused", "Denied; nothing ran."];
    if (card.spent.length && !granted) return ["failed", "Used, although no line of this page grants it."];
    if (!granted) return ["waiting", "Waiting for an answer."];
    if (!card.spent.length) return card.ran.length ? ["failed", "It ran, and no line uses the approval."] : ["waiting", "Approved; it was not used."];
    if (!card.asked || !isObject(shown)) return ["waiting", "Used; its request is not in this page, so nothing can be compared."];
    const wrong = [], known = [];
    const compare = (what, isSame) => (isSame === undefined ? undefined : (isSame ? known : wrong).push(what));
    const intent = card.ran.find((line) => line.entry.event === "exec.intent"), operation = card.ran.find((line) => line.entry.event === "exec.operation");
    const call = index.calls.get(`${card.run} ${card.call}`);
    if (shown.argv !== undefined && intent) compare("the command", spelledSame(shown.argv, get(intent.entry.data, "argv")));
    if (shown.line !== undefined && intent) compare("the line", spelledSame(shown.line, get(intent.entry.data, "line")));
    if (shown.input !== undefined && call) compare("the arguments", spelledSame(shown.input, get(call.entry.data, "input")));
    if (intent && get(binds, "program") && get(intent.entry.data, "exe.sha256")) compare("the program", binds.program === intent.entry.data.exe.sha256);
    if (shown.path !== undefined && operation) {
      const writes = get(operation.entry.data, "what.writes"), write = Array.isArray(writes) ? writes.find((one) => get(one, "path") === shown.path) : undefined;
      compare("the file", Boolean(write));
      const was = get(write, "before.blob"), is = get(write, "after.blob") ?? get(write, "sha256");
      if (write && get(binds, "target")) compare("the file as it was", was === binds.target);
      const before = was === undefined ? "" : blobOf(index, operation.ledger, was);
      if (write && before !== undefined && is !== undefined && typeof shown.diff === "string") {
        const after = applied(before, shown.diff);
        compare("what was written", after !== undefined && `sha256:${hex(sha256(utf8.encode(after)))}` === is);
      }
    }
    if (wrong.length) return ["failed", `Not the same as shown: ${wrong.join(", ")}.`];
    return known.length ? ["fine", `Ran as shown. The same: ${known.join(", ")}.`] : ["waiting", "Used; the action that ran is not in this page, so nothing can be compared."];
  }

  const FACTS_OF_CARD = /^(id|call|by|how|receipt|path|diff_hash|command)$/;
  function cardOf(index, card) {
    const [tone, verdict] = compared(index, card), asked = card.asked?.entry, approval = get(asked?.data, "approval"), shown = get(approval, "shown");
    const last = card.answers.at(-1), who = get(last?.entry.data, "by"), how = textOf(last?.entry.data, "how"), parts = [];
    for (const [name, form] of [["argv", "command"], ["line", "command"], ["input", "input"], ["diff", "difference"]]) {
      if (get(shown, name) !== undefined) FORMS[form](shown[name], "", parts);
    }
    const named = (line, text) => (line ? linkTo(line.id, `line ${line.seq}`) : text), facts = [];
    const fact = (name, value) => { if (value !== "" && value !== undefined) facts.push({ name, value }); };
    fact("who", who === undefined ? "nobody yet" : spelled(who));
    fact("how", how);
    if (isObject(last?.entry.data)) for (const [name, value] of Object.entries(last.entry.data)) if (!FACTS_OF_CARD.test(name) && value !== null && !isObject(value)) fact(name.replaceAll("_", " "), spelled(value));
    for (const name of ["path", "cwd", "rule", "risk"]) fact(name, textOf(shown, name));
    fact("asked", named(card.asked, "not in this page"));
    if (last) fact(last.entry.event === "approval.denied" ? "denied" : "granted", named(last));
    if (card.spent.length) fact("used", named(card.spent.at(-1)));
    for (const line of card.ran) fact("ran", named(line));
    const why = typeof asked?.message === "string" ? asked.message : textOf(shown, "why") || card.id;
    return element("article", { class: `card ${tone}`, id: `approval-${card.at}` },
      element("h3", {}, why), element("p", { class: "outcome" }, verdict), factList(facts), ...parts.flatMap(shownPart));
  }

  function effectRow(index, { line, what, file, was, is, kind, change, call }) {
    const { data } = line.entry, card = [...index.cards.values()].find((card) => card.ran.includes(line) || call && card.call === call && card.run === line.entry.run);
    const decided = card ? linkTo(`approval-${card.at}`, "an approval") : textOf(data, "rule");
    if (file === undefined) {
      const result = line.ledger.bySeq.get(line.answered), status = result ? `exit ${textOf(result.entry.data, "return_code") || textOf(result.entry.data, "signal") || "unknown"}` : "no result";
      return [element("code", {}, what), status, decided, linkTo(line.id, `line ${line.seq}`), result?.tone];
    }
    const [before, after] = [was === undefined ? "" : blobOf(index, line.ledger, was), is === undefined || change === "removed" ? "" : blobOf(index, line.ledger, is)];
    const rows = before === undefined || after === undefined ? [] : differenceOf(rowsOf(before), rowsOf(after));
    const near = rows.map((row, n) => rows.slice(Math.max(0, n - 3), n + 4).some(([sign]) => sign !== " "));
    const [difference] = shownPart({ ...differencePart(rows.filter((_, n) => near[n])), folded: true, label: `${rows.filter(([sign]) => sign === "+").length} added, ${rows.filter(([sign]) => sign === "-").length} removed` });
    // A directory or a link has no content.
    const content = was ?? is ? `${short(was)} \u2192 ${change === "removed" ? "nothing" : short(is)}` : kind;
    const hashes = element("span", { class: "made", title: `${was ?? "nothing"} \u2192 ${is ?? "nothing"}` }, ` ${content}`);
    return [element("span", {}, file, rows.length ? difference : ""), element("span", {}, change, hashes), decided, linkTo(line.id, `line ${line.seq}`), ""];
  }
  const refusedRow = (line) => {
    const { parts, title } = shownOf(line.entry, line.tone), command = parts.find((one) => one.form === "command") ?? parts.at(-1);
    return [element("code", {}, command?.text || title), "refused", textOf(line.entry.data, "rule"), linkTo(line.id, `line ${line.seq}`), "refused"];
  };
  const MOST_ROWS = 100;
  function effectTable(index) {
    const all = [...index.effects.map((effect) => [effect.line, () => effectRow(index, effect)]), ...index.refusals.map((line) => [line, () => refusedRow(line)])];
    const place = new Map(ledgers.map((ledger, n) => [ledger, n]));
    all.sort(([one], [other]) => place.get(one.ledger) - place.get(other.ledger) || one.seq - other.seq);
    const body = element("tbody"), fill = (rows) => body.append(...rows.map(([, row]) => {
      const [what, result, decided, line, tone] = row();
      return element("tr", { class: tone || "" }, element("th", { scope: "row" }, what), ...[result, decided, line].map((cell) => element("td", { class: "words" }, cell)));
    }));
    fill(all.slice(0, MOST_ROWS));
    const names = ["what", "result", "decided by", "recorded in"].map((name) => element("th", { scope: "col", class: "words" }, name));
    const wide = element("div", { class: "wide", tabIndex: 0, role: "group", "aria-label": "Effects, as a table" }, element("table", { class: "effects" }, element("thead", {}, element("tr", {}, ...names)), body));
    const rest = all.slice(MOST_ROWS), more = rest.length && element("button", { type: "button" }, `Show the other ${rest.length}`);
    const show = () => { fill(rest.splice(0)); more.remove(); };
    if (more) { more.addEventListener("click", show); globalThis.addEventListener("beforeprint", show, { once: true }); }
    return all.length ? [wide, more].filter(Boolean) : [];
  }

  const counted = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;
  const SIGNED = { reader: ["fine", "Signed by a key you gave"], file: ["unsure", "Signed by a key inside this file"], unknown: ["unsure", "Signed by a key that is not here"], none: ["unsure", "Not signed"] };
  const WEAKEST = ["none", "unknown", "file", "reader"];

  // The verdicts above everything, each a tone, words and where they lead.
  function strip(index, audit, signatures, uncovered, isBroken) {
    const cards = [...index.cards.values()], outcomes = cards.map((card) => compared(index, card)), has = (tone) => outcomes.filter(([one]) => one === tone).length;
    const weakest = WEAKEST.find((one) => signatures.includes(one)) ?? "none", [tone, words] = SIGNED[weakest], signed = signatures.filter((one) => one !== "none").length;
    const part = weakest === "none" && signed ? `${signed} of ${signatures.length} ledgers signed` : words;
    const [usd, priced, unpriced] = index.priced + index.unpriced ? [index.cost, index.priced, index.unpriced] : index.said;
    const cost = priced ? `${money(usd)}${unpriced ? `, and ${counted(unpriced, "answer")} without a price` : ""}` : unpriced ? "unknown, because no answer has a price" : "no model was asked";
    const differs = has("failed"), waits = has("waiting");
    return [
      isBroken ? ["failed", "Signature", "counts for nothing: lines were changed", "proof"]
        : [uncovered ? "unsure" : tone, "Signature", uncovered && signed ? `${part}, except ${counted(uncovered, "later line")}` : part, "proof"],
      audit.failure ? ["unsure", "Audit", "not possible", "audit"]
        : [audit.broken ? "failed" : audit.unknown || isBroken ? "unsure" : "fine", "Audit", `${counted(audit.held, "claim holds", "claims hold")}, ${audit.unknown} unknown, ${audit.broken} false`, "audit"],
      ["", "Files changed", String(index.files.size), "effects"],
      [differs ? "failed" : waits ? "unsure" : "", "Approvals", !cards.length ? "none"
        : `${cards.length}${differs ? `, ${differs} not as shown` : ""}${waits ? `, ${waits} open` : ""}${!differs && !waits && !isBroken && has("fine") ? ", as shown" : ""}`, "approvals"],
      [index.refusals.length ? "refused" : "", "Refusals", String(index.refusals.length), "effects"],
      ["", "Cost", cost, find("tokens-heading") ? "tokens-heading" : ""],
    ];
  }
  function showStrip(verdicts) {
    find("strip").replaceChildren(...verdicts.map(([tone, name, words, to]) => {
      const target = to && find(to), value = target && !target.hidden ? linkTo(to, words) : words;
      return element("div", { class: tone }, element("dt", {}, name), element("dd", {}, value));
    }));
  }
  function showAudit(audit) {
    const mark = { true: "", false: "false", null: "unknown" };
    if (!audit.failure && !audit.claims.length) return;
    find("audit").hidden = false;
    const claim = ({ ledger, seq, claim, holds, why }) => element("li", { class: holds === false ? "failed" : "" },
      `${mark[holds]}: ${claim}${why ? `: ${why}` : ""} `, linkOf(ledger, seq));
    find("audit").append(...(audit.failure ? [element("p", {}, `cp-log audit could not judge this bundle: ${audit.failure}`)]
      : [element("p", { class: "made" }, "Claims that cp-log audit did not confirm when this page was made:"), element("ul", {}, ...audit.claims.map(claim))]));
  }
  function linkOf(file, seq) {
    const ledger = ledgers.find(({ head }) => file === head.file || file.endsWith(`/${head.file}`));
    return ledger?.bySeq.has(seq) ? linkTo(`l${ledger.id}-${seq}`, `line ${seq}`) : `${file}${seq === null ? "" : `, line ${seq}`}`;
  }
