import copy, json, sys
from pydantic import TypeAdapter
from anthropic.lib._parse._transform import transform_schema
from openai.lib._pydantic import _ensure_strict_json_schema
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming as anthropic
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming as openai
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming as responses
from anthropic.types import Message
from openai.types.chat import ChatCompletion
from openai.types.responses import Response
from google.genai.types import Content, FunctionDeclaration, GenerateContentResponse, GenerationConfig, SafetySetting, Tool, ToolConfig
types = {'anthropic': anthropic, 'openai': openai, 'openai-responses': responses}
answers = {'anthropic': Message, 'openai': ChatCompletion, 'openai-responses': Response, 'gemini': GenerateContentResponse}
for line in sys.stdin:
    case = json.loads(line)
    if 'answer' in case:
        answers[case['backend']].model_validate(case['answer'])
    if case['backend'] == 'gemini':
        for content in case['request']['contents']:
            Content.model_validate(content)
        for function in case['request']['tools'][0]['functionDeclarations']:
            FunctionDeclaration.model_validate(function)
        for tool in case['request']['tools']:
            Tool.model_validate(tool)
        for setting in case['request'].get('safetySettings', []):
            SafetySetting.model_validate(setting)
        ToolConfig.model_validate(case['request'].get('toolConfig', {}))
        GenerationConfig.model_validate(case['request'].get('generationConfig', {}))
        assert set(case['request']) <= {'contents', 'systemInstruction', 'tools', 'safetySettings', 'toolConfig', 'generationConfig'}
        continue
    # What their own functions make of a schema that they take is that schema.
    format = case['request'].get('output_config', {}).get('format')
    if format and case['closed']:
        assert transform_schema(format['schema']) == format['schema'], format
    format = case['request'].get('response_format', {}).get('json_schema') or case['request'].get('text', {}).get('format')
    if format and format.get('strict'):
        assert _ensure_strict_json_schema(copy.deepcopy(format['schema']), path=(), root=format['schema']) == format['schema'], format
    if format:
        assert format.get('strict', False) == case['closed'], case
    TypeAdapter(types[case['backend']]).validate_python(case['request'])
    unknown = set(case['request']) - set(types[case['backend']].__annotations__) - set().union(
        *(set(getattr(base, '__annotations__', {})) for base in types[case['backend']].__orig_bases__))
    # Newer Anthropic types have no temperature; servers of older models do.
    assert unknown <= {'temperature'}, unknown
