import json, sys
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import RawMessageStreamEvent
from pydantic import TypeAdapter
snapshot, buffers = None, {}
for line in sys.stdin:
    event = TypeAdapter(RawMessageStreamEvent).validate_python(json.loads(line))
    snapshot = accumulate_event(event=event, current_snapshot=snapshot, json_bufs=buffers)
print(json.dumps({'content': [block.to_dict() for block in snapshot.content], 'usage': snapshot.usage.to_dict()}))
