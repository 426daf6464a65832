if .type == "tool_call" then {call: .data.name, input: .data.input}
elif .type == "tool_result" then {result: (.data.content | rtrimstr("\n")), is_error: .data.is_error}
elif .type == "message" then {message: .data.content, stop_reason: .data.stop_reason}
else {type, ok} end
