// Puts a server on standard streams behind HTTP, message by message, because the conformance suite speaks nothing else.
// bridge.mjs PROGRAM ARGUMENT…: prints its address.
import { spawn } from 'node:child_process';
import http from 'node:http';
import readline from 'node:readline';
import { randomUUID } from 'node:crypto';

const [program, ...args] = process.argv.slice(2);

// One server; whoever waits for the answer under an id has a stream.
class Behind {
  waiting = new Map();
  last = 0;

  constructor() {
    this.child = spawn(program, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    readline.createInterface({ input: this.child.stdout }).on('line', (line) => this.heard(JSON.parse(line)));
  }

  heard(message) {
    const waits = this.waiting.get(message.id);
    if (message.method || !waits) {
      // It belongs to a call that is not over; the suite has one at a time.
      [...this.waiting.values()].at(-1)?.tell(message);
      return;
    }
    this.waiting.delete(message.id);
    waits.tell({ ...message, id: waits.id });
    waits.end();
  }

  // Ids of several clients meet here.
  ask(message, tell, end) {
    const id = ++this.last;
    this.waiting.set(id, { id: message.id, tell, end });
    this.write({ ...message, id });
  }

  write(message) {
    this.child.stdin.write(`${JSON.stringify(message)}\n`);
  }
}

const sessions = new Map();
const stateless = new Behind();

const server = http.createServer(async (request, response) => {
  let body = '';
  for await (const piece of request) body += piece;
  const session = request.headers['mcp-session-id'];
  if (request.method === 'DELETE') {
    sessions.get(session)?.child.stdin.end();
    sessions.delete(session);
    return response.writeHead(200).end();
  }
  if (request.method !== 'POST') return response.writeHead(405).end();
  if (session && !sessions.has(session)) return response.writeHead(404).end();
  const message = JSON.parse(body);
  const headers = { 'Content-Type': 'text/event-stream' };
  let behind = sessions.get(session) ?? stateless;
  if (message.method === 'initialize') {
    headers['Mcp-Session-Id'] = randomUUID();
    behind = new Behind();
    sessions.set(headers['Mcp-Session-Id'], behind);
  }
  if (message.id === undefined || !message.method) {
    behind.write(message);
    return response.writeHead(202).end();
  }
  response.writeHead(200, headers);
  behind.ask(message, (told) => response.write(`data: ${JSON.stringify(told)}\n\n`), () => response.end());
});
server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}/mcp`));
