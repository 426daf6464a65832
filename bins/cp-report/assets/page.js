  // The life of the page: it reads its bundle, shows it, proves it, and filters the visible lines.

  class Report {
    constructor() { this.count = 0; this.faults = []; this.said = []; this.unknown = []; }
    say(text) { this.said.push(text); }
    open(text) { this.unknown.push(text); }
    fault(place, message) {
      this.count++;
      const line = byId.get(place);
      if (line) line.isChanged = true;
      find(place)?.classList.add("changed");
      if (this.faults.length < 100) this.faults.push([place, message]);
    }
    show(lines, took, signatures) {
      const verdict = find("verdict"), all = `All ${lines} lines hold`, checked = `Checked by this page itself in ${Math.round(took)} ms.`;
      const isBy = (signer) => signatures.length && signatures.every((one) => one === signer);
      const isSigned = isBy("reader") && !this.unknown.some((text) => text.includes("no signature covers"));
      verdict.className = this.count ? "broken" : isSigned ? "holds" : "unsure";
      page.documentElement.classList.toggle("broken", this.count > 0);
      const hold = isSigned ? "and a key you gave has signed them." : isBy("none") ? "among themselves. Nobody signed them: the maker of this file could have written all of them."
        : "as far as can be known here: no key that you gave has signed all of them.";
      verdict.textContent = this.count ? `It does not hold: ${counted(this.count, "fault")} in ${lines} lines. ${checked}` : `${all}${isBy("none") && !isSigned ? " " : ", "}${hold} ${checked}`;
      const item = (text, mark) => element("li", {}, mark + text);
      find("proved").replaceChildren(...this.said.map((text) => item(text, "\u2713 ")), ...this.unknown.map((text) => item(text, "? ")));
      find("faults").replaceChildren(...this.faults.map(([place, message]) => element("li", {}, element("a", { href: `#${place}` }, message))));
    }
  }

  const byId = new Map(), ledgers = [], lines = [], chunks = [];
  let filtered = "";

  // Reads the records of the bundle. A record that cannot be read is a fault of the page.
  function read(report, index) {
    let ledger = null, number = 0;
    ledgers.length = 0;
    for (const block of page.querySelectorAll("script.bundle")) {
      for (const text of exact(block).split("\n")) {
        if (!text.trim()) continue;
        number++;
        let type, data;
        try { ({ type, data } = JSON.parse(text)); } catch { report.fault("lines", `record ${number} of the bundle cannot be read`); continue; }
        if (type === "bundle_ledger") {
          const id = hex(sha256(utf8.encode(data.origin))).slice(0, 8);
          ledger = { head: data, id: ledgers.some((other) => other.id === id) ? `${id}x${ledgers.length}` : id, items: [], bySeq: new Map() };
          ledgers.push(ledger);
        } else if (type === "bundle_line" && ledger) {
          const line = new Line(ledger, data);
          ledger.items.push(line);
          ledger.bySeq.set(line.seq, line);
          lines.push(line);
          byId.set(line.id, line);
        } else if (type === "bundle_blob" && ledger) {
          const large = data.offset ? index.blobs.get(`${ledger.id} ${data.hash}`) : null;
          if (large) { large.parts.push(data); continue; }
          const made = new Large(ledger, data);
          ledger.items.push(made);
          byId.set(made.id, made);
          index.blobs.set(`${ledger.id} ${data.hash}`, made);
        } else if (type !== "bundle" && type !== "summary") report.fault("lines", `record ${number} of the bundle is not known`);
      }
    }
    lines.forEach((line) => index.add(line));
  }

  // Makes the places of the lines: conversations first.
  function lay() {
    const into = find("lines-all") ?? find("lines"), rank = (ledger) => (ledger.isSpoken ? 0 : 1);
    for (const { head, run, id, items: all } of [...ledgers].sort((one, other) => rank(one) - rank(other))) {
      const name = run ? `Run ${run}` : head.file;
      const section = into.appendChild(element("section", { class: "ledger", id: `l${id}`, "aria-label": name },
        element("h3", {}, name), element("p", { class: "made" }, `${head.file}, ${head.lines} of ${head.size} lines. ${head.origin}`)));
      let items = [], isTurn = false, begins = false;
      const end = () => {
        if (!items.length) return;
        chunks.push(new Chunk(items, begins));
        section.append(chunks.at(-1).place);
        [items, begins] = [[], isTurn];
      };
      for (const item of all) {
        const event = item.entry?.event;
        if (items.length >= TOGETHER && event === "iteration" || items.length >= 4 * TOGETHER) end();
        items.push(item);
        if (event === "iteration") isTurn = true;
        if (event === "run_end") isTurn = false;
      }
      end();
    }
    // A page of one screen or two is there at once.
    if (lines.length <= 400) chunks.forEach((chunk) => chunk.render());
    else find("lines").classList.add("long");
  }

  // Renders the line with this id, so that a link can lead to it.
  function reach(id) {
    const item = byId.get(id);
    if (!item) return;
    item.chunk.render();
    for (let fold = item.place.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  }
  function go() {
    const id = decodeURIComponent(location.hash.slice(1));
    if (!byId.has(id)) return;
    reach(id);
    location.replace(`#${id}`);
    find(id).scrollIntoView();
  }

  function filter() {
    const words = find("search").value.toLowerCase(), quoted = JSON.stringify(words).slice(1, -1);
    const boxes = [...page.querySelectorAll("#filters [type=checkbox]")], groups = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    filtered = words ? "text" : groups.size < boxes.length ? "groups" : "";
    let shown = 0;
    for (const { items } of chunks) {
      for (const item of items) {
        item.isHidden = Boolean(filtered) && !(groups.has(item.group) && (!words || item.matches(words, quoted)));
        if (!item.isHidden) shown++;
      }
    }
    chunks.forEach((chunk) => chunk.filter());
    find("found").textContent = `${shown} shown`;
  }

  // The words of the summary are those that it was made with. This finds a careless edit; `cp-log check-bundle` finds any.
  const wordsOf = () => [...page.querySelectorAll("[data-said]")].map((element) => element.textContent).join("");

  async function check(words) {
    const started = performance.now(), report = new Report(), proofs = new Map(ledgers.map((ledger) => [ledger, new Proof(ledger, report)]));
    find("verdict").textContent = "Checking\u2026";
    page.querySelectorAll(".changed").forEach((element) => element.classList.remove("changed"));
    lines.forEach((line) => { line.isChanged = false; });
    if (words !== find("summary").dataset.words) report.fault("summary", "the words of the summary were changed after this page was made");
    for (const fault of early.faults) report.fault(...fault);
    const keys = [...page.querySelectorAll("script.key")].map((element) => readKey(exact(element), "given when the page was made"));
    const given = find("key").value.trim();
    if (given && !keys.unshift(readKey(given, "given by you")) || given && !keys[0]) report.open("The text in the field is not a public key: name+id+key, as K.pub has it.");
    for (let at = 0; at < lines.length; at += 500) {
      const some = lines.slice(at, at + 500), hashes = await Promise.all(some.map((line) => digest(utf8.encode(line.raw.slice(0, -82)))));
      some.forEach((line, n) => proofs.get(line.ledger).line(line, hashes[n]));
      if (at % 10_000 === 0) await new Promise((done) => { setTimeout(done); });
    }
    for (const large of index.blobs.values()) await proofs.get(large.ledger).blob(large);
    const signatures = [];
    for (const proof of proofs.values()) signatures.push(await proof.finish(keys.filter(Boolean)));
    const uncovered = [...proofs.values()].reduce((sum, proof) => sum + proof.uncovered, 0);
    report.show(lines.length, performance.now() - started, signatures);
    showStrip(strip(index, audit, signatures, uncovered, report.count > 0));
  }

  const index = new Index(), early = new Report();
  let audit = { failure: "the audit in this page cannot be read" };
  page.documentElement.classList.add("live");
  page.addEventListener("DOMContentLoaded", () => {
    const words = hex(sha256(utf8.encode(wordsOf())));
    try { audit = JSON.parse(exact(find("audit-result"))); } catch { /* said in the strip */ }
    read(early, index);
    for (const [id, made] of [["approvals", [...index.cards.values()].map((card) => cardOf(index, card))], ["effects", effectTable(index)]]) {
      find(id).hidden = !made.length;
      find(id).append(...made);
    }
    showAudit(audit);
    lay();
    find("proof-tools").hidden = false;
    find("filters").hidden = false;
    let waiting = 0;
    find("again").addEventListener("click", () => check(words));
    find("key").addEventListener("change", () => check(words));
    find("filters").addEventListener("submit", (event) => event.preventDefault());
    find("filters").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(filter, 150); });
    page.addEventListener("click", ({ target }) => { const link = target.closest("a[href^='#']"); if (link) reach(decodeURIComponent(link.hash.slice(1))); });
    globalThis.addEventListener("hashchange", () => { if (!find(decodeURIComponent(location.hash.slice(1)))) go(); });
    globalThis.addEventListener("beforeprint", () => {
      chunks.forEach((chunk) => chunk.render());
      page.querySelectorAll(".part:not(.folded)").forEach((part) => { part.open = true; });
    });
    if (location.hash) go();
    requestAnimationFrame(() => setTimeout(() => check(words)));
  });
