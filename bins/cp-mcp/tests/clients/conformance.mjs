// What the protocol's conformance suite tests as a client: the official library over `cp-mcp connect`.
// conformance.mjs URL
import { createRequire } from 'node:module';
import path from 'node:path';

const packages = createRequire(path.join(process.env.PACKAGES, 'x.js'));
const { Client } = packages('@modelcontextprotocol/client');
const { StdioClientTransport } = packages('@modelcontextprotocol/client/stdio');

const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}');
const capabilities = { elicitation: { form: { applyDefaults: true } } };
const client = new Client({ name: 'conformance', version: '1.0.0' }, { capabilities, versionNegotiation: { mode: 'legacy' } });
client.setRequestHandler('elicitation/create', async () => ({ action: 'accept', content: {} }));
await client.connect(new StdioClientTransport({ command: process.env.CP_MCP, args: ['connect', process.argv[2]], env: process.env }));

// The least that a schema asks for.
const least = (schema) => {
  const made = {};
  for (const [name, field] of Object.entries(schema?.properties ?? {})) {
    made[name] = { number: 2, integer: 2, boolean: true, array: [], object: {} }[field.type] ?? 'text';
  }
  return made;
};
const attempt = async (work) => {
  try {
    return await work();
  } catch (error) {
    console.error(`${error.code ?? ''} ${error.message}`);
    return undefined;
  }
};

const { tools = [] } = (await attempt(() => client.listTools())) ?? {};
const calls = context.toolCalls ?? tools.map((tool) => ({ name: tool.name, arguments: least(tool.inputSchema) }));
for (const call of calls) await attempt(() => client.callTool(call));
const has = client.getServerCapabilities() ?? {};
if (has.resources) {
  const { resources = [] } = (await attempt(() => client.listResources())) ?? {};
  for (const { uri } of resources) await attempt(() => client.readResource({ uri }));
}
if (has.prompts) {
  const { prompts = [] } = (await attempt(() => client.listPrompts())) ?? {};
  for (const { name } of prompts) await attempt(() => client.getPrompt({ name }));
}
await client.close();
