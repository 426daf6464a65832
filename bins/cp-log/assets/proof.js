// Proves ledgers as cp-ledger(5) says: hashes, chain, tree, checkpoints and large values.

const utf8 = new TextEncoder();

// SHA-256 (FIPS 180-4), because a tree has many small values, and a call of WebCrypto for each takes longer.
const CONSTANTS = new Int32Array(64), START = new Uint32Array(8), W = new Int32Array(64);
{
  const fraction = (x) => Math.floor((x - Math.floor(x)) * 4294967296);
  for (let n = 2, count = 0; count < 64; n++) {
    let isPrime = true;
    for (let d = 2; d * d <= n; d++) if (n % d === 0) isPrime = false;
    if (!isPrime) continue;
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
  // Without destructuring in the loops, because that is slower.
  const h = START.slice();
  for (let at = 0; at < size; at += 64) {
    for (let i = 0; i < 16; i++) W[i] = view.getInt32(at + 4 * i);
    for (let i = 16; i < 64; i++) {
      const x = W[i - 15], y = W[i - 2];
      const before = turn(x, 7) ^ turn(x, 18) ^ (x >>> 3), after = turn(y, 17) ^ turn(y, 19) ^ (y >>> 10);
      W[i] = W[i - 16] + before + W[i - 7] + after;
    }
    let a = h[0] | 0, b = h[1] | 0, c = h[2] | 0, d = h[3] | 0, e = h[4] | 0, f = h[5] | 0, g = h[6] | 0, k = h[7] | 0;
    for (let i = 0; i < 64; i++) {
      const sum = turn(e, 6) ^ turn(e, 11) ^ turn(e, 25);
      const one = (k + sum + ((e & f) ^ (~e & g)) + CONSTANTS[i] + W[i]) | 0;
      const two = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      k = g; g = f; f = e; e = (d + one) | 0; d = c; c = b; b = a; a = (one + two) | 0;
    }
    h[0] += a; h[1] += b; h[2] += c; h[3] += d; h[4] += e; h[5] += f; h[6] += g; h[7] += k;
  }
  const sum = new Uint8Array(32), out = new DataView(sum.buffer);
  h.forEach((word, i) => out.setUint32(4 * i, word));
  return sum;
}

const PAIRS = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));
const hex = (bytes) => bytes.reduce((text, byte) => text + PAIRS[byte], "");
const fromBase64 = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const isEqual = (a, b) => Boolean(a && b) && a.length === b.length && a.every((byte, i) => byte === b[i]);
function joined(parts) {
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  parts.reduce((at, part) => (bytes.set(part, at), at + part.length), 0);
  return bytes;
}

// The tree of RFC 6962.
const NODE = new Uint8Array(65), LEAF = new Uint8Array(33);
const leaf = (hash) => { LEAF.set(hash, 1); return sha256(LEAF); };
const parent = (left, right) => { NODE[0] = 1; NODE.set(left, 1); NODE.set(right, 33); return sha256(NODE); };
class Tree {
  constructor() { this.size = 0; this.peaks = []; }
  push(node) {
    for (let n = this.size++; n & 1; n = Math.floor(n / 2)) node = parent(this.peaks.pop(), node);
    this.peaks.push(node);
  }
  root() {
    return this.peaks.length ? this.peaks.reduceRight((right, left) => parent(left, right)) : sha256(new Uint8Array());
  }
}
// A signed note: its text, and a line for each signature.
function readNote(note) {
  const cut = note.indexOf("\n\n"), lines = note.slice(0, cut).split("\n");
  const signatures = note.slice(cut + 2).split("\n").filter(Boolean).map((line) => {
    const [dash, name, value] = line.split(" "), bytes = fromBase64(value);
    if (dash !== "\u2014") throw new Error("no signature");
    return { name, id: hex(bytes.slice(0, 4)), bytes: bytes.slice(4) };
  });
  if (cut < 0 || lines.length < 3 || !/^(0|[1-9]\d*)$/.test(lines[1])) throw new Error("no checkpoint");
  const text = utf8.encode(note.slice(0, cut + 1)), root = fromBase64(lines[2]);
  return { text, origin: lines[0], size: Number(lines[1]), root, signatures };
}
function readKey(text, isGiven) {
  const parts = /^([^\s+]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/=]+)$/.exec(text.trim());
  if (!parts) return null;
  let value;
  try { value = fromBase64(parts[3]); } catch { return null; }
  const id = hex(sha256(joined([utf8.encode(`${parts[1]}\n`), value])).slice(0, 4));
  if (value.length !== 33 || value[0] !== 1 || id !== parts[2]) return null;
  return { name: parts[1], id, bytes: value.slice(1), isGiven };
}
// True or false; null where this browser has no Ed25519.
async function isSigned(note, key, signature) {
  try {
    const imported = await crypto.subtle.importKey("raw", key.bytes, { name: "Ed25519" }, false, ["verify"]);
    return await crypto.subtle.verify({ name: "Ed25519" }, imported, signature, note.text);
  } catch { return null; }
}

const START_OF_LINE = /^\{"seq":(0|[1-9]\d{0,15}),"ts":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"/;
const PREV = /^,"prev":"sha256:([0-9a-f]{64})"$/, TAIL = /^,"hash":"sha256:([0-9a-f]{64})"\}$/;
const REFERENCE = /\{"blob":"sha256:([0-9a-f]{64})"/g;

// The proof of one ledger. `faults` are pairs of a place in the page and a sentence.
class Proof {
  constructor(ledger) {
    Object.assign(this, { ledger, tree: new Tree(), uncovered: 0 });
    Object.assign(this, { wanted: new Set(), found: new Set(), keys: [], faults: [], said: [], open: [] });
    try { this.note = ledger.note === undefined ? null : readNote(ledger.note); }
    catch { this.fault("its checkpoint cannot be read"); }
  }
  fault(message, place = `l${this.ledger.id}`) { this.faults.push([place, `${this.ledger.file}: ${message}`]); }
  line(line) {
    const fault = (message) => { line.isChanged = true; this.fault(`line ${line.seq}: ${message}`, line.id); };
    const { raw, seq } = line, before = this.last;
    const start = START_OF_LINE.exec(raw), prev = PREV.exec(raw.slice(-163, -82)), tail = TAIL.exec(raw.slice(-82));
    this.last = null;
    if (!start || !prev || !tail) return fault("these bytes are not a line of a ledger");
    const hash = sha256(utf8.encode(raw.slice(0, -82)));
    this.last = { seq, hash: tail[1] };
    if (hex(hash) !== tail[1]) fault("its bytes are not those that were hashed");
    if (!line.entry) fault("it is not JSON");
    for (const [, name] of raw.matchAll(REFERENCE)) this.wanted.add(name);
    if (line.entry?.event === "ledger.open" || line.entry?.event === "ledger.checkpoint") {
      this.keys.push(readKey(String(line.entry.data?.verifier ?? ""), false));
    }
    const beginning = hex(sha256(utf8.encode(`cp-ledger/1\n${this.ledger.origin}\n`)));
    // The fault of a line before that cannot be read was reported already.
    const expected = before ?? (this.tree.size ? null : { seq: -1, hash: beginning });
    if (expected && (seq !== expected.seq + 1 || prev[1] !== expected.hash)) {
      fault("it does not follow from the line before it");
    }
    // The line of the checkpoint itself comes after what it signs.
    if (this.note && seq >= this.note.size && line.entry?.event !== "ledger.checkpoint") this.uncovered++;
    this.tree.push(leaf(hash));
    if (this.note && this.tree.size === this.note.size) this.signedRoot = this.tree.root();
    return undefined;
  }
  blob({ hash, bytes }) {
    this.found.add(hash);
    if (!bytes || hex(sha256(bytes)) !== hash) {
      this.fault(`the bytes of the value sha256:${hash} are not those that it is named for`);
    }
  }
  // What holds without a key.
  close() {
    const { note, ledger } = this, what = `${ledger.file}: `;
    for (const name of this.wanted) if (!this.found.has(name)) this.fault(`the value sha256:${name} is missing`);
    this.said.push(`${what}all ${ledger.lines.length} lines hold: their hashes, their chain and their tree.`);
    if (!note) {
      this.open.push(`${what}not signed, so a writer of the ledger could have written all of it anew.`);
      return;
    }
    if (note.origin !== ledger.origin) this.fault("the checkpoint is about another ledger");
    if (note.size !== 0 && !isEqual(this.signedRoot, note.root)) this.fault("its lines are not those that were signed");
    if (this.uncovered) this.open.push(`${what}no signature covers the last ${this.uncovered} lines.`);
  }
  // The signature: "reader", "file", "unknown" or "none", with sentences and, if one is wrong, a fault.
  async signed(given) {
    const { note, ledger } = this, signature = { by: "none", said: [], open: [], faults: [] };
    for (const one of note?.signatures ?? []) {
      const key = [given, ...this.keys].find((each) => each && each.name === one.name && each.id === one.id);
      const holds = key ? await isSigned(note, key, one.bytes) : null, name = `${one.name}+${one.id}`;
      if (signature.by === "none") signature.by = "unknown";
      if (!key) signature.open.push(`${ledger.file}: signed by ${name}, whose public key is not here. Paste it above.`);
      else if (holds === null) signature.open.push(`${ledger.file}: ${name} cannot be checked here: cp-log verify`);
      else if (!holds) signature.faults.push([`l${ledger.id}`, `${ledger.file}: the signature of ${name} is wrong`]);
      else {
        const whose = key.isGiven ? "the key that you gave" : "a key that only the ledger itself names";
        signature.said.push(`${ledger.file}: ${note.size} lines are signed by ${name}, ${whose}.`);
        if (signature.by !== "reader") signature.by = key.isGiven ? "reader" : "file";
      }
    }
    return signature;
  }
}
