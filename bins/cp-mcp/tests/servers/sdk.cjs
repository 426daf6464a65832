// A server of the official TypeScript SDK over HTTP. Arguments: port, mode (stream, json or login).
const { randomUUID } = require("node:crypto");
const express = require("express");
const z = require("zod");
const { McpServer } = require("@modelcontextprotocol/sdk/server/mcp.js");
const { StreamableHTTPServerTransport } = require("@modelcontextprotocol/sdk/server/streamableHttp.js");
const { DemoInMemoryAuthProvider } = require("@modelcontextprotocol/sdk/examples/server/demoInMemoryOAuthProvider.js");
const { mcpAuthRouter, getOAuthProtectedResourceMetadataUrl } = require("@modelcontextprotocol/sdk/server/auth/router.js");
const { requireBearerAuth } = require("@modelcontextprotocol/sdk/server/auth/middleware/bearerAuth.js");

const [port, mode] = [Number(process.argv[2]), process.argv[3]];
const url = new URL(`http://127.0.0.1:${port}/mcp`);
const sessions = new Map();

function server() {
    const server = new McpServer({ name: "typescript", version: "1" });
    const text = (text) => ({ content: [{ type: "text", text }] });
    server.registerTool("echo", { inputSchema: { message: z.string() } }, ({ message }) => text(message));
    return server;
}

const app = express();
app.use(express.json());
const checks = [];
if (mode === "login") {
    const provider = new DemoInMemoryAuthProvider();
    app.use(mcpAuthRouter({ provider, issuerUrl: new URL(url.origin), resourceServerUrl: url, scopesSupported: ["mcp:tools"] }));
    checks.push(requireBearerAuth({ verifier: provider, resourceMetadataUrl: getOAuthProtectedResourceMetadataUrl(url) }));
}
app.all("/mcp", ...checks, async (request, response) => {
    const id = request.headers["mcp-session-id"];
    let transport = sessions.get(id);
    if (!transport && id) {
        response.status(404).json({ jsonrpc: "2.0", error: { code: -32001, message: "Session not found" }, id: null });
        return;
    }
    if (!transport) {
        transport = new StreamableHTTPServerTransport({
            sessionIdGenerator: randomUUID,
            onsessioninitialized: (id) => sessions.set(id, transport),
            enableJsonResponse: mode === "json",
        });
        await server().connect(transport);
    }
    await transport.handleRequest(request, response, request.body);
});
app.listen(port, "127.0.0.1");
