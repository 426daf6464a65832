"""The official Python library as a client: the steps that come on standard input, a line each; their results, a line each.

client.py '{"era": "auto" | "legacy", "answer": "accept" | "decline" | null, "command": [PROGRAM, ARGUMENT…]}'
"""
import json
import os
import sys

import anyio
import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters


def tell(value):
    print(json.dumps(value), flush=True)


def shown(result):
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)


async def cancelled_at(path, call):
    """Goes away from the call when the file is there."""
    done = None
    async with anyio.create_task_group() as group:

        async def carry_out():
            nonlocal done
            done = await call()
            group.cancel_scope.cancel()

        group.start_soon(carry_out)
        while not os.path.exists(path):
            await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    return done


async def step(client, asked):
    match asked["do"]:
        case "tools":
            return shown(await client.list_tools())
        case "call":
            arguments = {"name": asked["name"], "arguments": asked["arguments"]}
            if "cancel_at" not in asked:
                return shown(await client.call_tool(**arguments))
            done = await cancelled_at(asked["cancel_at"], lambda: client.call_tool(**arguments))
            return shown(done) if done else {"cancelled": True}


async def main():
    how = json.loads(sys.argv[1])
    questions = []

    async def answer(_context, params):
        questions.append(params.message)
        is_yes = how["answer"] == "accept"
        return types.ElicitResult(action=how["answer"], content=agreed(params.requested_schema) if is_yes else None)

    command = how["command"]
    server = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    info = types.Implementation(name="python-client", version="7.8.9")
    elicitation = answer if how["answer"] else None
    async with Client(server, mode=how["era"], client_info=info, elicitation_callback=elicitation) as client:
        tell({"protocol": client.protocol_version, "server": client.server_info.name})
        while line := await anyio.to_thread.run_sync(sys.stdin.readline):
            questions.clear()
            try:
                told = {"result": await step(client, json.loads(line))}
            except MCPError as error:
                told = {"error": {"code": error.code, "message": error.message}}
            tell({**told, "questions": list(questions)})


def agreed(schema):
    """What a person who agrees puts into the form: yes to all that can be ticked, the first of what can be chosen."""
    filled = {}
    for name, field in schema.get("properties", {}).items():
        if "enum" in field:
            filled[name] = field["enum"][0]
        elif field.get("type") == "boolean":
            filled[name] = True
    return filled


anyio.run(main)
