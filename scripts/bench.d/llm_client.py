"""What a careful asyncio program does with the same requests: llm_client.py URL REQUESTS CONNECTIONS prints requests a second.

With nothing but the standard library, kept-alive connections and no model of the answer beyond its JSON: libraries are slower."""
import asyncio
import json
import sys
import time
from urllib.parse import urlsplit

url, requests, connections = urlsplit(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])


async def worker(rows):
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    for row in rows:
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": f"row {row}"}]}).encode()
        head = f"POST {url.path} HTTP/1.1\r\nhost: {url.netloc}\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        length = 0
        while (line := await reader.readline()) != b"\r\n":
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        answer = json.loads(await reader.readexactly(length))
        assert answer["choices"][0]["message"]["content"]
    writer.close()


async def main():
    rows = iter(range(requests))
    await asyncio.gather(*(worker(rows) for _ in range(connections)))


start = time.monotonic()
asyncio.run(main())
print(requests / (time.monotonic() - start))
