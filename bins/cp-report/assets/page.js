"use strict";
// Checks the lines of this page as cp-ledger(5) says, using only the page itself, and filters the visible lines.
(() => {
  const page = document;
  const find = (id) => page.getElementById(id);
  const utf8 = new TextEncoder();

  // SHA-256 (FIPS 180-4), here because a tree has many small values, and a call of WebCrypto for each takes longer than they do.
  const CONSTANTS = new Uint32Array(64), START = new Uint32Array(8), W = new Uint32Array(64);
  {
    const fraction = (x) => Math.floor((x - Math.floor(x)) * 4294967296);
    for (let n = 2, count = 0; count < 64; n++) {
      let prime = true;
      for (let d = 2; d * d <= n; d++) if (n % d === 0) prime = false;
      if (!prime) continue;
      if (count < 8) START[count] = fraction(Math.sqrt(n));
      CONSTANTS[count++] = fraction(Math.cbrt(n));
    }
  }
  const turn = (x, n) => (x >>> n) | (x << (32 - n));
  function sha256(bytes) {
    const length = bytes.length, size = (length + 72) & ~63;
    const padded = new Uint8Array(size);
    padded.set(bytes);
    padded[length] = 128;
    const view = new DataView(padded.buffer);
    view.setUint32(size - 8, Math.floor(length / 536870912));
    view.setUint32(size - 4, length << 3);
    const h = START.slice();
    for (let at = 0; at < size; at += 64) {
      for (let i = 0; i < 16; i++) W[i] = view.getUint32(at + 4 * i);
      for (let i = 16; i < 64; i++) {
        const x = W[i - 15], y = W[i - 2];
        W[i] = W[i - 16] + (turn(x, 7) ^ turn(x, 18) ^ (x >>> 3)) + W[i - 7] + (turn(y, 17) ^ turn(y, 19) ^ (y >>> 10));
      }
      let [a, b, c, d, e, f, g, k] = h;
      for (let i = 0; i < 64; i++) {
        const one = (k + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + CONSTANTS[i] + W[i]) | 0;
        const two = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
        k = g; g = f; f = e; e = (d + one) | 0; d = c; c = b; b = a; a = (one + two) | 0;
      }
      h[0] += a; h[1] += b; h[2] += c; h[3] += d; h[4] += e; h[5] += f; h[6] += g; h[7] += k;
    }
    const sum = new Uint8Array(32), out = new DataView(sum.buffer);
    h.forEach((word, i) => out.setUint32(4 * i, word));
    return sum;
  }
  const crypt = globalThis.crypto && globalThis.crypto.subtle;
  const digest = async (bytes) => (crypt ? new Uint8Array(await crypt.digest("SHA-256", bytes)) : sha256(bytes));

  const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  const fromHex = (text) => Uint8Array.from(text.match(/../g) || [], (pair) => parseInt(pair, 16));
  const fromBase64 = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const equal = (a, b) => a && b && a.length === b.length && a.every((byte, i) => byte === b[i]);
  // What the page had to write otherwise is as it was again.
  const exact = (element) => element.textContent.replace(/&(amp|lt|#(\d+));/g, (_, name, code) =>
    code ? String.fromCharCode(+code) : name === "amp" ? "&" : "<");

  // The tree of RFC 6962.
  function leaf(hash) { const value = new Uint8Array(33); value.set(hash, 1); return sha256(value); }
  function parent(left, right) {
    const value = new Uint8Array(65);
    value[0] = 1; value.set(left, 1); value.set(right, 33);
    return sha256(value);
  }
  class Tree {
    constructor() { this.size = 0; this.peaks = []; }
    push(node) {
      for (let n = this.size++; n & 1; n = Math.floor(n / 2)) node = parent(this.peaks.pop(), node);
      this.peaks.push(node);
    }
    root() { return this.peaks.length ? this.peaks.reduceRight((right, left) => parent(left, right)) : sha256(new Uint8Array()); }
  }
  // The root that a leaf has with this proof, as RFC 9162, 2.1.3.2 says.
  function rootOf(node, index, size, proof) {
    if (index >= size) return null;
    let last = size - 1;
    for (const other of proof) {
      if (last === 0) return null;
      if (index % 2 === 1 || index === last) {
        node = parent(other, node);
        while (index % 2 === 0 && index !== 0) { index /= 2; last = Math.floor(last / 2); }
      } else node = parent(node, other);
      index = Math.floor(index / 2);
      last = Math.floor(last / 2);
    }
    return last === 0 ? node : null;
  }
  // Whether the tree of the second root goes on where that of the first ended, as RFC 9162, 2.1.4.2 says.
  function goesOn(first, one, second, two, proof) {
    if (first === 0) return true;
    if (first > second) return false;
    if (first === second) return proof.length === 0 && equal(one, two);
    let index = first - 1, last = second - 1;
    while (index % 2 === 1) { index = Math.floor(index / 2); last = Math.floor(last / 2); }
    const nodes = index === 0 ? [one, ...proof] : [...proof];
    if (!nodes.length) return false;
    let old = nodes[0], now = nodes[0];
    for (const node of nodes.slice(1)) {
      if (last === 0) return false;
      if (index % 2 === 1 || index === last) {
        old = parent(node, old);
        now = parent(node, now);
        while (index % 2 === 0 && index !== 0) { index /= 2; last = Math.floor(last / 2); }
      } else now = parent(now, node);
      index = Math.floor(index / 2);
      last = Math.floor(last / 2);
    }
    return last === 0 && equal(old, one) && equal(now, two);
  }

  // Signed notes: the text, and a line for each signature.
  function readNote(note) {
    const cut = note.indexOf("\n\n");
    const lines = note.slice(0, cut).split("\n");
    const signatures = note.slice(cut + 2).split("\n").filter(Boolean).map((line) => {
      const [dash, name, value] = line.split(" ");
      const bytes = fromBase64(value);
      if (dash !== "\u2014") throw new Error("no signature");
      return { name, id: hex(bytes.slice(0, 4)), bytes: bytes.slice(4) };
    });
    if (cut < 0 || lines.length < 3 || !/^(0|[1-9]\d*)$/.test(lines[1])) throw new Error("no checkpoint");
    return { text: utf8.encode(note.slice(0, cut + 1)), origin: lines[0], size: Number(lines[1]), root: fromBase64(lines[2]), signatures };
  }
  function readKey(text, from) {
    const parts = /^([^\s+]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/=]+)$/.exec(text.trim());
    if (!parts) return null;
    const value = fromBase64(parts[3]), name = utf8.encode(parts[1] + "\n");
    const both = new Uint8Array(name.length + value.length);
    both.set(name); both.set(value, name.length);
    if (value.length !== 33 || value[0] !== 1 || hex(sha256(both).slice(0, 4)) !== parts[2]) return null;
    return { text: text.trim(), name: parts[1], id: parts[2], bytes: value.slice(1), from };
  }
  async function isSigned(note, key, signature) {
    const imported = await crypt.importKey("raw", key.bytes, { name: "Ed25519" }, false, ["verify"]);
    return crypt.verify({ name: "Ed25519" }, imported, signature, note.text);
  }

  const START_OF_LINE = /^\{"seq":(0|[1-9]\d{0,15}),"ts":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"/;
  const PREV = /^,"prev":"sha256:([0-9a-f]{64})"$/, TAIL = /^,"hash":"sha256:([0-9a-f]{64})"\}$/;
  const REFERENCE = /\{"blob":"sha256:([0-9a-f]{64})"/g;

  class Ledger {
    constructor(index, element, report) {
      this.index = index;
      this.report = report;
      this.tree = new Tree();
      this.lines = 0;
      this.wanted = new Set();
      this.found = new Set();
      this.blobs = 0;
      this.keys = [];
      try {
        this.head = JSON.parse(exact(element));
        this.root = fromBase64(this.head.root);
      } catch { this.head = { file: `ledger ${index}`, lines: -1 }; }
      this.place = `l${index}`;
      try { this.note = this.head.checkpoint ? readNote(this.head.checkpoint) : null; }
      catch { this.fault(this.place, "its checkpoint cannot be read"); }
    }
    fault(place, message) { this.report.fault(place, `${this.head.file}: ${message}`); }

    // Computes the hashes of a line; what follows from them is looked at in order.
    async prepare(element) {
      const text = exact(element);
      return { element, text, hash: await digest(utf8.encode(text.slice(0, -82))) };
    }
    line({ element, text, hash }) {
      this.lines++;
      const place = element.closest("article")?.id || this.place;
      const fault = (message) => this.fault(place, `line ${element.dataset.seq}: ${message}`);
      const start = START_OF_LINE.exec(text), prev = PREV.exec(text.slice(-163, -82)), tail = TAIL.exec(text.slice(-82));
      const before = this.last, next = this.next;
      this.last = null;
      this.next = null;
      if (!start || !prev || !tail) return fault("these bytes are no line of a ledger");
      const seq = Number(start[1]);
      this.last = { seq, hash: tail[1] };
      if (hex(hash) !== tail[1]) return fault("its bytes are not those that were hashed");
      try { this.entry(JSON.parse(text), text); } catch { fault("it is not JSON"); }
      if (String(seq) !== element.dataset.seq || seq >= this.head.size) fault("it cannot be here");
      let follows = this.head.whole !== true;
      if (seq === 0) follows = prev[1] === hex(sha256(utf8.encode(`cp-ledger/1\n${this.head.origin}\n`)));
      else if (before && before.seq + 1 === seq) follows = prev[1] === before.hash;
      else if (before) follows = follows && before.seq < seq && Boolean(next);
      else if (this.lines > 1) follows = true; // the fault of the line before was reported already
      if (!follows) fault("it does not follow from the line before it");
      if (this.note && seq >= this.note.size) this.uncovered = (this.uncovered || 0) + 1;
      if (this.head.whole) {
        this.tree.push(leaf(hash));
        if (this.note && this.tree.size === this.note.size) this.signedRoot = this.tree.root();
        return;
      }
      try {
        const proved = JSON.parse(element.dataset.proof);
        const holds = (hash, seq, proof) => equal(rootOf(leaf(hash), seq, this.head.size, proof.map(fromBase64)), this.root);
        if (!holds(hash, seq, proved.proof)) fault("its proof is wrong");
        if (proved.next) {
          this.next = proved.next.hash;
          if (!holds(fromHex(proved.next.hash.slice(7)), seq + 1, proved.next.proof)) fault("the proof of the line behind it is wrong");
        }
      } catch { fault("it has no proof"); }
    }
    entry(entry, text) {
      for (const [, hash] of text.matchAll(REFERENCE)) this.wanted.add(hash);
      const verifier = entry.data && entry.data.verifier;
      if (typeof verifier === "string" && /^ledger\./.test(entry.event)) this.keys.push(readKey(verifier, "named only by the ledger itself"));
    }
    async blob(elements) {
      const place = elements[0].closest("section").id, { blob } = elements[0].dataset;
      const name = blob.replace(/^sha256:/, "");
      this.blobs++;
      this.found.add(name);
      if (elements[0].dataset.missing === "true") {
        this.missing = (this.missing || 0) + 1;
        return;
      }
      try {
        const parts = elements.map((element) => fromBase64(exact(element)));
        const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
        parts.reduce((at, part) => (bytes.set(part, at), at + part.length), 0);
        if (hex(await digest(bytes)) === name) return;
      } catch { /* not base 64: the same fault */ }
      this.fault(place, `the bytes of the value ${blob} are not those that it is named for`);
    }
    async finish(keys) {
      const { head, note, report, place } = this;
      const part = head.whole ? "all" : `${this.lines} of ${head.size}`;
      if (this.lines !== head.lines) this.fault(place, "lines are missing, or there are too many");
      for (const hash of this.wanted) if (!this.found.has(hash)) this.fault(place, `the value sha256:${hash} is missing`);
      if (head.whole) {
        if (this.tree.size !== head.size || !equal(this.tree.root(), this.root)) this.fault(place, "its lines are not those that the root is of");
      } else if (!(this.next || this.last && this.last.seq + 1 === head.size)) this.fault(place, "the line behind the last one is not shown to exist");
      const faultsBefore = report.count;
      report.say(`${head.file}: ${part} lines, their hashes, their chain and their ${head.whole ? "tree" : "proofs"} were computed again.`);
      if (this.blobs) report.say(`${head.file}: large values that have the bytes they are named for: ${this.blobs - (this.missing || 0)}.`);
      if (this.missing) report.open(`${head.file}: large values that were missing when the bundle was made: ${this.missing}.`);
      if (!note) return report.open(`${head.file}: no checkpoint was signed, so the whole ledger could have been written anew.`);
      if (note.origin !== head.origin) this.fault(place, "the checkpoint is about another ledger");
      const holds = head.whole ? note.size === 0 || equal(this.signedRoot, note.root)
        : note.size <= head.size && goesOn(note.size, note.root, head.size, this.root, (head.consistency || []).map(fromBase64));
      if (!holds) this.fault(place, "its lines are not those that were signed");
      if (this.uncovered) report.open(`${head.file}: written after the checkpoint, so that no signature covers them: ${this.uncovered} of the lines.`);
      for (const signature of note.signatures) {
        const known = [...keys, ...this.keys].filter((key) => key && key.name === signature.name && key.id === signature.id);
        const key = known[0];
        if (!key) {
          report.open(`${head.file}: signed by ${signature.name}+${signature.id}, whose public key is not here. Give it above.`);
          continue;
        }
        try {
          if (!(await isSigned(note, key, signature.bytes))) this.fault(place, `the signature of ${key.name} is wrong`);
          else if (report.count === faultsBefore) {
            report.say(`${head.file}: ${note.size} lines are signed by the key ${key.text} (${key.from}), fingerprint SHA-256 ${hex(sha256(key.bytes))}. Compare it with your copy.`);
          }
        } catch {
          report.open(`${head.file}: this browser cannot check signatures (Ed25519 in WebCrypto), so that of ${key.name} was not checked.`);
        }
      }
    }
  }

  class Report {
    constructor() { this.count = 0; this.faults = []; this.said = []; this.unknown = []; }
    say(text) { this.said.push(text); }
    open(text) { this.unknown.push(text); }
    fault(place, message) {
      this.count++;
      page.getElementById(place)?.classList.add("changed");
      if (this.faults.length < 100) this.faults.push([place, message]);
    }
    show(lines, took) {
      const verdict = find("verdict");
      verdict.className = this.count ? "broken" : "holds";
      verdict.textContent = this.count
        ? `It does not hold: ${this.count} ${this.count === 1 ? "fault" : "faults"} in ${lines} lines.`
        : `All ${lines} lines hold${this.unknown.length ? ", as far as can be known here" : ""}. Checked in ${Math.round(took)} ms.`;
      const item = (text, mark) => Object.assign(page.createElement("li"), { textContent: mark + text });
      find("proved").replaceChildren(...this.said.map((text) => item(text, "\u2713 ")), ...this.unknown.map((text) => item(text, "? ")));
      find("faults").replaceChildren(...this.faults.map(([place, message]) => {
        const entry = page.createElement("li");
        entry.append(Object.assign(page.createElement("a"), { href: `#${place}`, textContent: message }));
        return entry;
      }));
    }
  }

  async function check() {
    const started = performance.now();
    find("verdict").textContent = "Checking\u2026";
    page.querySelectorAll(".changed").forEach((element) => element.classList.remove("changed"));
    const report = new Report(), ledgers = new Map(), blobs = new Map();
    for (const element of page.querySelectorAll("script[data-ledger]")) {
      ledgers.set(element.dataset.ledger, new Ledger(element.dataset.ledger, element, report));
    }
    const keys = [...page.querySelectorAll("script.key")].map((element) => readKey(exact(element), "given when the page was made"));
    const given = find("key").value.trim();
    if (given && !keys.unshift(readKey(given, "given by you")) || given && !keys[0]) report.open("What you gave is not a public key: name+id+key, as K.pub has it.");
    const lines = [...page.querySelectorAll("script[data-seq]")];
    for (let at = 0; at < lines.length; at += 500) {
      const ready = await Promise.all(lines.slice(at, at + 500).map((element) => {
        const ledger = ledgers.get(element.dataset.of);
        return ledger ? ledger.prepare(element).then((line) => [ledger, line]) : null;
      }));
      for (const one of ready) {
        if (one) one[0].line(one[1]);
        else report.fault("lines", "a line belongs to no ledger");
      }
    }
    for (const element of page.querySelectorAll("script[data-blob]")) {
      const name = `${element.dataset.of} ${element.dataset.blob}`;
      if (!blobs.has(name)) blobs.set(name, []);
      blobs.get(name).push(element);
    }
    for (const parts of blobs.values()) await ledgers.get(parts[0].dataset.of)?.blob(parts);
    for (const ledger of ledgers.values()) await ledger.finish(keys.filter(Boolean));
    report.show(lines.length, performance.now() - started);
  }

  function filter() {
    const words = find("search").value.toLowerCase();
    const groups = new Set([...page.querySelectorAll("#filters [type=checkbox]:checked")].map((box) => box.value));
    let shown = 0;
    for (const element of page.querySelectorAll("[data-group]")) {
      const fits = groups.has(element.dataset.group) && (!words || element.textContent.toLowerCase().includes(words));
      element.hidden = !fits;
      if (fits) shown++;
    }
    for (const turn of page.querySelectorAll(".turn")) turn.hidden = !turn.querySelector("[data-group]:not([hidden])");
    find("found").textContent = `${shown} shown`;
  }

  let waiting = 0;
  find("proof-tools").hidden = false;
  find("filters").hidden = false;
  find("again").addEventListener("click", check);
  find("key").addEventListener("change", check);
  find("filters").addEventListener("submit", (event) => event.preventDefault());
  find("filters").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(filter, 150); });
  globalThis.addEventListener("beforeprint", () => page.querySelectorAll(".part").forEach((part) => { part.open = true; }));
  check();
})();
