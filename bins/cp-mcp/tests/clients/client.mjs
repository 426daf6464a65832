// The official TypeScript library as a client: the steps that come on standard input, a line each; their results, a line each.
// client.mjs '{"era": "auto" | "legacy", "answer": "accept" | "decline" | null, "command": [PROGRAM, ARGUMENT…]}'
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import readline from 'node:readline';

const packages = createRequire(path.join(process.env.PACKAGES, 'x.js'));
const { Client } = packages('@modelcontextprotocol/client');
const { StdioClientTransport } = packages('@modelcontextprotocol/client/stdio');

const how = JSON.parse(process.argv[2]);
const tell = (value) => fs.writeSync(1, `${JSON.stringify(value)}\n`);
let questions = [];

// What a person who agrees puts into the form: yes to all that can be ticked, the first of what can be chosen.
const agreed = (schema) => {
  const filled = {};
  for (const [name, field] of Object.entries(schema?.properties ?? {})) {
    if (field.enum) filled[name] = field.enum[0];
    else if (field.type === 'boolean') filled[name] = true;
  }
  return filled;
};

const steps = {
  tools: (client) => client.listTools(),
  call: async (client, { name, arguments: given, cancel_at }) => {
    if (!cancel_at) return client.callTool({ name, arguments: given });
    const abort = new AbortController();
    const watch = setInterval(() => fs.existsSync(cancel_at) && abort.abort(), 10);
    try {
      return await client.callTool({ name, arguments: given }, { signal: abort.signal });
    } catch (error) {
      if (abort.signal.aborted) return { cancelled: true };
      throw error;
    } finally {
      clearInterval(watch);
    }
  },
};

const capabilities = how.answer ? { elicitation: { form: {} } } : {};
const client = new Client({ name: 'typescript-client', version: '7.8.9' }, { capabilities, versionNegotiation: { mode: how.era } });
if (how.answer) {
  client.setRequestHandler('elicitation/create', async ({ params }) => {
    questions.push(params.message);
    return how.answer === 'accept' ? { action: 'accept', content: agreed(params.requestedSchema) } : { action: how.answer };
  });
}
const [command, ...args] = how.command;
await client.connect(new StdioClientTransport({ command, args, env: process.env }));
tell({ protocol: client.getNegotiatedProtocolVersion(), server: client.getServerVersion()?.name });
for await (const line of readline.createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  questions = [];
  try {
    tell({ result: await steps[asked.do](client, asked), questions });
  } catch (error) {
    tell({ error: { code: error.code ?? null, message: error.message }, questions });
  }
}
await client.close();
