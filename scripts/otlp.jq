# Entries as OpenTelemetry JSON, a request a line, as a collector reads them from a file:
#
#   cp-log query --format raw | jq -cn -f otlp.jq
#
# An entry with a duration is a span, any other a log record. The entries of a run, else of a session, are one trace, and a run is the span of an
# agent in which the others are. The names are those of the conventions for generative AI, which may change; names of ours begin with "cp.".
def any: if type == "string" then {stringValue: .} elif type == "boolean" then {boolValue: .}
    elif type == "array" then {arrayValue: {values: map(any)}}
    elif . == floor then {intValue: tostring} else {doubleValue: .} end;
def attributes: to_entries | map(select(.value != null) | {key, value: (.value | any)});

# Microseconds: nanoseconds are more than a number of jq holds.
def micros: if . == null then 0 else (.[0:19] + "Z" | fromdate) * 1000000 + (.[20:26] | tonumber) end;
def nanos: tostring + if . > 0 then "000" else "" end;

def tool: .data.tool // .data.name;
def operation: if .began then "invoke_agent" elif .data.model then "chat"
    elif (.event | . == "tool_call" or . == "tool_result") or .data.tool then "execute_tool" else null end;
def failure: .data.code // if .data.is_error == true or (.data.tally and .data.status != "completed") then "_OTHER" else null end;
def named: (.data.usage // .data.tally.usage // {}) as $usage | operation as $operation
    | (if $operation == "chat" then .data else {} end) as $chat
    | {
        "gen_ai.operation.name": $operation,
        "gen_ai.provider.name": $chat.backend,
        "gen_ai.request.model": $chat.model,
        "gen_ai.request.stream": $chat.stream,
        "gen_ai.response.model": $chat.answered_by,
        "gen_ai.response.id": $chat.id,
        "gen_ai.response.finish_reasons": (.data.stop_reason | if type == "string" then [.] else null end),
        "gen_ai.usage.input_tokens": $usage.input_tokens,
        "gen_ai.usage.output_tokens": $usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": $usage.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": $usage.cache_write_tokens,
        "gen_ai.tool.name": (if $operation == "execute_tool" then tool else null end),
        "gen_ai.tool.call.id": (.data.call_id // if $operation == "execute_tool" then .data.id else null end),
        "gen_ai.conversation.id": .session,
        "gen_ai.agent.name": .agent,
        "process.exit.code": (.data.exit_code // .data.return_code),
        "error.type": failure,
        "cp.duration_ms": .data.duration_ms,
        "cp.run": .run,
        "cp.ledger.seq": .seq,
        "cp.ledger.hash": .hash
    };

def span: {
    traceId: .trace, spanId: (if .began then .parent else .hash[7:23] end),
    parentSpanId: (if .began then "" else .parent end),
    name: ([operation // .event, if .began then .agent elif operation == "chat" then .data.model
        elif operation then tool else null end] | map(strings) | join(" ")),
    kind: (if operation == "chat" then 3 else 1 end),
    startTimeUnixNano: (.from | nanos), endTimeUnixNano: (.to | nanos), attributes: (named | attributes),
    status: (if failure then {code: 2, message} else {} end)
};
def record: {
    timeUnixNano: (.to | nanos), severityNumber: (if failure then 17 else 9 end), eventName: .event,
    attributes: (named | attributes), traceId: .trace, spanId: .parent
} + ((.message // .content) | if type == "string" then {body: any} else {} end);

def request($origin; $resources; $scopes; $items): {($resources): [{
    resource: {attributes: ({"service.name": "cp-tools", "service.instance.id": $origin} | attributes)},
    ($scopes): [{scope: {name: "cp-log"}, schemaUrl: "https://opentelemetry.io/schemas/gen-ai/1.42.0", ($items): [.]}]
}]};

foreach inputs as $entry ({traces: {}, runs: {}};
    ($entry.ts | micros) as $time
    | ($entry.run // $entry.session // $entry.hash) as $group
    # The hash of the first entry of a group names its trace and the span of its run.
    | .traces[$group] //= $entry.hash[7:]
    | if $entry.data.origin and ($entry.event | . == "ledger.open" or . == "segment.open") then .origin = $entry.data.origin else . end
    | if $entry.event == "run_start" and $entry.run then .runs[$entry.run] = $time else . end
    | (if $entry.event == "run_end" and $entry.run then .runs[$entry.run] else null end) as $began
    | ($entry.data.duration_ms // $entry.data.latency_ms) as $took
    | .entry = $entry + {
        data: ($entry.data // {}), to: $time, began: $began, trace: .traces[$group][0:32],
        parent: (if $entry.run then .traces[$group][32:48] else "" end),
        from: ($began // if ($took | type) == "number" and $took >= 0 then $time - ($took * 1000 | floor) else null end)
    };
    .origin as $origin | .entry
    | if .from then span | request($origin; "resourceSpans"; "scopeSpans"; "spans")
      else record | request($origin; "resourceLogs"; "scopeLogs"; "logRecords") end)
