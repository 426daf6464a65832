// Opens a page in Chromium and says what was seen. Arguments: the browser, the page, and what to do as JSON.
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [browser, page, asked] = process.argv.slice(2);
const { width = 1280, dark = false, scripts = true, evaluate = [], limit = 300, axe, pdf, picture, whole = false } = JSON.parse(asked);
const profile = mkdtempSync(join(tmpdir(), "browser-"));
const options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe"];
const child = spawn(browser, [...options, `--user-data-dir=${profile}`, "about:blank"], { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });

let number = 0, rest = Buffer.alloc(0);
const waiting = new Map(), events = [];
child.stdio[4].on("data", (bytes) => {
  rest = Buffer.concat([rest, bytes]);
  for (let end = rest.indexOf(0); end >= 0; end = rest.indexOf(0)) {
    const message = JSON.parse(rest.subarray(0, end));
    rest = rest.subarray(end + 1);
    if (message.id) waiting.get(message.id)(message);
    else events.push(message);
  }
});
const send = (method, params = {}, sessionId = undefined) => new Promise((done, failed) => {
  waiting.set(++number, (answer) => (answer.error ? failed(new Error(`${method}: ${answer.error.message}`)) : done(answer.result)));
  child.stdio[3].write(`${JSON.stringify({ id: number, method, params, sessionId })}\0`);
});

const noise = ["Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Page.javascriptDialogOpening"];
const said = () => events.filter((event) => noise.includes(event.method)).map((event) => JSON.stringify(event.params));
let stage = "it starts";
// Far longer than any page takes: what is waited for will not come.
setTimeout(() => {
  process.stderr.write(`no verdict after ${limit} s, while ${stage}. The console said: ${said().join("\n") || "nothing"}\n`);
  child.kill("SIGKILL");
  try { rmSync(profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 }); } catch { /* remaining files are in the temporary directory */ }
  process.exit(1);
}, limit * 1000).unref();
const { targetId } = await send("Target.createTarget", { url: "about:blank" });
const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
const tab = (method, params) => send(method, params, sessionId);
for (const domain of ["Page", "Runtime", "Log", "Network"]) await tab(`${domain}.enable`);
await tab("Emulation.setDeviceMetricsOverride", { width, height: 900, deviceScaleFactor: 1, mobile: false });
await tab("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: dark ? "dark" : "light" }] });
await tab("Emulation.setScriptExecutionDisabled", { value: !scripts });
stage = "the page loads";
await tab("Page.navigate", { url: pathToFileURL(page).href });
const value = async (expression) => {
  const { result, exceptionDetails } = await tab("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
  if (exceptionDetails) throw new Error(`${expression}: ${JSON.stringify(exceptionDetails)}`);
  return result.value;
};
const seen = { values: [] };
while (!events.some((event) => event.method === "Page.loadEventFired")) await new Promise((done) => setTimeout(done, 20));
stage = "its script runs";
if (scripts) {
  while (!(await value("document.getElementById('verdict')?.className"))) await new Promise((done) => setTimeout(done, 50));
  for (const expression of evaluate) seen.values.push(await value(expression));
  const text = (id) => value(`document.getElementById('${id}').innerText`);
  [seen.verdict, seen.proved, seen.faults] = [await text("verdict"), await text("proved"), await text("faults")];
  if (axe) {
    await value(`${readFileSync(axe, "utf8")}; 0`);
    seen.violations = await value("axe.run().then(({ violations }) => violations.map(({ id, nodes }) => `${id}: ${nodes[0].html}`))");
  }
}
if (pdf) writeFileSync(pdf, Buffer.from((await tab("Page.printToPDF", {})).data, "base64"));
if (picture) {
  const { cssContentSize } = await tab("Page.getLayoutMetrics");
  const clip = { x: 0, y: 0, width, height: whole ? cssContentSize.height : Math.min(cssContentSize.height, 1500), scale: 1 };
  writeFileSync(picture, Buffer.from((await tab("Page.captureScreenshot", { captureBeyondViewport: true, clip })).data, "base64"));
}
seen.noise = said();
seen.requests = events.filter((event) => event.method === "Network.requestWillBeSent").map((event) => event.params.request.url);
const ended = new Promise((done) => child.on("exit", done));
await send("Browser.close").catch(() => child.kill());
await ended;
// Its other processes may still write there for a moment.
rmSync(profile, { recursive: true, force: true, maxRetries: 50, retryDelay: 100 });
process.stdout.write(JSON.stringify(seen));
