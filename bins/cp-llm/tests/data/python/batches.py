import json, sys
from pydantic import TypeAdapter
from anthropic.types.messages import MessageBatch, MessageBatchIndividualResponse
from anthropic.types.messages.batch_create_params import Request
from openai.types import Batch, BatchCreateParams
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming as chat
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming as responses
from openai.types.chat import ChatCompletion
from openai.types.responses import Response
types = {'/v1/chat/completions': (chat, ChatCompletion), '/v1/responses': (responses, Response)}
for line in sys.stdin:
    case = json.loads(line)
    if case['backend'] == 'anthropic':
        for row in case['rows']:
            TypeAdapter(Request).validate_python(row)
        MessageBatch.model_validate(case['batch'])
        for result in case['results']:
            MessageBatchIndividualResponse.model_validate(result)
        continue
    TypeAdapter(BatchCreateParams).validate_python(case['made'])
    Batch.model_validate(case['batch'])
    request, answer = types[case['made']['endpoint']]
    for row in case['rows']:
        assert set(row) == {'custom_id', 'method', 'url', 'body'} and row['url'] == case['made']['endpoint'], row
        TypeAdapter(request).validate_python(row['body'])
    for result in case['results']:
        if result['response'] and result['response']['status_code'] == 200:
            answer.model_validate(result['response']['body'])
