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
  // Restores the bytes that would end a block or be changed by the parser of HTML.
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

  // The first bytes of the hash of a key, as people compare them.
  const fingerprint = (key) => hex(sha256(key.bytes)).slice(0, 16).replace(/(....)(?=.)/g, "$1 ");
  // The bytes of a large value.
  function joined(parts) {
    const all = parts.map((part) => fromBase64(part.base64));
    const bytes = new Uint8Array(all.reduce((sum, part) => sum + part.length, 0));
    all.reduce((at, part) => (bytes.set(part, at), at + part.length), 0);
    return bytes;
  }

  // The proof of one ledger: its chain, its tree or its proofs, its checkpoint, its large values.
  class Proof {
    constructor(ledger, report) {
      Object.assign(this, { ledger, report, head: ledger.head, place: `l${ledger.id}` });
      this.tree = new Tree();
      Object.assign(this, { lines: 0, blobs: 0, missing: 0, uncovered: 0, faults: 0, wanted: new Set(), found: new Set(), keys: [], gaps: [] });
      try { this.root = fromBase64(this.head.root); } catch { this.fault(this.place, "its root cannot be read"); }
      try { this.note = this.head.checkpoint ? readNote(this.head.checkpoint) : null; }
      catch { this.fault(this.place, "its checkpoint cannot be read"); }
    }
    fault(place, message) {
      this.faults++;
      this.report.fault(place, `${this.head.file}: ${message}`);
    }
    line(line, hash) {
      this.lines++;
      const text = line.raw, fault = (message) => this.fault(line.id, `line ${line.seq}: ${message}`);
      const start = START_OF_LINE.exec(text), prev = PREV.exec(text.slice(-163, -82)), tail = TAIL.exec(text.slice(-82));
      const before = this.last, next = this.next;
      this.last = null;
      this.next = null;
      if (!start || !prev || !tail) return fault("these bytes are not a line of a ledger");
      const seq = Number(start[1]);
      this.last = { seq, hash: tail[1] };
      if (hex(hash) !== tail[1]) return fault("its bytes are not those that were hashed");
      for (const [, hash] of text.matchAll(REFERENCE)) this.wanted.add(hash);
      if (line.verifier) this.keys.push(readKey(line.verifier, "named only by the ledger itself"));
      if (!line.isJson) fault("it is not JSON");
      if (seq !== line.seq || seq >= this.head.size) fault("it cannot be here");
      const first = before ? before.seq + 1 : 0;
      if (first < seq && (before || this.lines === 1)) this.gaps.push([first, seq - 1]);
      let follows = this.head.whole !== true;
      if (seq === 0) follows = prev[1] === hex(sha256(utf8.encode(`cp-ledger/1\n${this.head.origin}\n`)));
      else if (before && before.seq + 1 === seq) follows = prev[1] === before.hash;
      else if (before) follows = follows && before.seq < seq && Boolean(next);
      else if (this.lines > 1) follows = true; // the fault of the line before was reported already
      if (!follows) fault("it does not follow from the line before it");
      // The line of the checkpoint itself comes after what it signs.
      if (this.note && seq >= this.note.size && line.entry.event !== "ledger.checkpoint") this.uncovered++;
      if (this.head.whole) {
        this.tree.push(leaf(hash));
        if (this.note && this.tree.size === this.note.size) this.signedRoot = this.tree.root();
        return;
      }
      try {
        const holds = (hash, seq, proof) => equal(rootOf(leaf(hash), seq, this.head.size, proof.map(fromBase64)), this.root);
        if (!holds(hash, seq, line.proof)) fault("its proof is wrong");
        if (line.next) {
          this.next = line.next.hash;
          if (!holds(fromHex(line.next.hash.slice(7)), seq + 1, line.next.proof)) fault("the proof of the line behind it is wrong");
        }
      } catch { fault("it has no proof"); }
    }
    async blob({ hash, parts, id }) {
      const name = hash.replace(/^sha256:/, "");
      this.blobs++;
      this.found.add(name);
      if (parts[0].missing) { this.missing++; return; }
      try { if (hex(await digest(joined(parts))) === name) return; } catch { /* not base 64: the same fault */ }
      this.fault(id, `the bytes of the value ${hash} are not those that it is named for`);
    }
    // Resolves to the signature: "reader", "file", "none" or "unknown".
    async finish(keys) {
      const { head, note, report, place } = this, text = (message) => `${head.file}: ${message}`, said = [];
      if (this.lines !== head.lines) this.fault(place, "lines are missing, or there are too many");
      for (const hash of this.wanted) if (!this.found.has(hash)) this.fault(place, `the value sha256:${hash} is missing`);
      if (head.whole) {
        if (this.tree.size !== head.size || !equal(this.tree.root(), this.root)) this.fault(place, "its lines are not those that the root is of");
      } else if (!(this.next || this.last && this.last.seq + 1 === head.size)) this.fault(place, "the line behind the last one is not shown to exist");
      if (this.last && this.last.seq + 1 < head.size) this.gaps.push([this.last.seq + 1, head.size - 1]);
      said.push(`${head.whole ? "all" : `${this.lines} of ${head.size}`} lines, their hashes, their chain and their ${head.whole ? "tree" : "proofs"} were computed again.`);
      if (this.gaps.length) {
        const range = ([from, to]) => (from === to ? `${from}` : `${from} to ${to}`), shown = this.gaps.slice(0, 20).map(range).join(", ");
        report.open(text(`lines that were left out of the bundle: ${shown}${this.gaps.length > 20 ? " and others" : ""}. They exist; their content is not here.`));
      }
      if (this.blobs) said.push(`large values that have the bytes they are named for: ${this.blobs - this.missing}.`);
      if (this.missing) report.open(text(`large values that were missing when the bundle was made: ${this.missing}.`));
      let signature = "none";
      if (!note) report.open(text("not signed: a writer of the ledger could have written all of it anew."));
      else {
        if (note.origin !== head.origin) this.fault(place, "the checkpoint is about another ledger");
        let holds = false;
        try {
          holds = head.whole ? note.size === 0 || equal(this.signedRoot, note.root)
            : note.size <= head.size && goesOn(note.size, note.root, head.size, this.root, (head.consistency || []).map(fromBase64));
        } catch { /* a proof that cannot be read proves nothing */ }
        if (!holds) this.fault(place, "its lines are not those that were signed");
        if (this.uncovered) report.open(text(`written after the checkpoint, so that no signature covers them: ${this.uncovered} of the lines.`));
        for (const one of note.signatures) {
          const key = [...keys, ...this.keys].find((key) => key && key.name === one.name && key.id === one.id);
          if (!key) {
            report.open(text(`signed by ${one.name}+${one.id}, whose public key is not here. Paste it above.`));
            if (signature === "none") signature = "unknown";
            continue;
          }
          try {
            if (!(await isSigned(note, key, one.bytes))) { this.fault(place, `the signature of ${key.name} is wrong`); continue; }
            said.push(`${note.size} lines are signed by ${key.name} (${key.from}), key ${fingerprint(key)}.`);
            if (signature !== "reader") signature = key.from === "given by you" ? "reader" : "file";
          } catch {
            report.open(text(`this browser cannot check signatures (Ed25519 in WebCrypto), so that of ${key.name} was not checked.`));
            signature = "unknown";
          }
        }
      }
      // A ledger with a fault has proved nothing.
      if (!this.faults) said.forEach((message) => report.say(text(message)));
      return signature;
    }
  }
