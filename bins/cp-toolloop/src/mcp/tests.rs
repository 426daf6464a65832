//! Small servers of both eras, and of no era.

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use super::launch::Launcher;
use super::{Outcome, Servers, Spec, is_name};

/// A server in Python: `answer` is the body of a function of a request, which returns a result or raises a code.
fn server(directory: &tempfile::TempDir, answer: &str) -> Spec {
    let path = directory.path().join("server");
    let text = format!(
        "#!/usr/bin/python3\nimport json, sys, time, os\n\ndef say(x):\n    print(json.dumps(x), flush=True)\n\n\
         def answer(method, params):\n{answer}\n\nfor line in sys.stdin:\n    m = json.loads(line)\n    if 'id' not in m or 'method' not in m: continue\n    \
         try: say({{'jsonrpc': '2.0', 'id': m['id'], 'result': answer(m['method'], m['params'])}})\n    \
         except KeyError as e: say({{'jsonrpc': '2.0', 'id': m['id'], 'error': {{'code': e.args[0], 'message': 'no'}}}})\n"
    );
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    Spec { name: "s".into(), argv: vec![path.display().to_string()] }
}

/// Servers whose policy lets them run outside: what is tested here is the conversation.
fn servers(directory: &tempfile::TempDir) -> Servers {
    Servers::with(Launcher::outside("s", directory.path()))
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

const MODERN: &str = "
    meta = params['_meta']
    assert meta['io.modelcontextprotocol/protocolVersion'] == '2026-07-28'
    assert meta['io.modelcontextprotocol/clientCapabilities'] == {}
    if method == 'server/discover': return {'supportedVersions': ['2026-07-28'], 'capabilities': {}, 'resultType': 'complete'}
    if method == 'tools/list':
        if 'cursor' in params: return {'tools': [{'name': 'two', 'inputSchema': {'type': 'object'}}]}
        return {'tools': [{'name': 'one', 'description': 'd', 'inputSchema': {'type': 'object'}}], 'nextCursor': 'x'}
    if params['name'] == 'two': return {'resultType': 'input_required', 'inputRequests': {'q': {'method': 'elicitation/create'}}}
    return {'resultType': 'complete', 'content': [{'type': 'text', 'text': json.dumps(params['arguments'])}]}";

const LEGACY: &str = "
    if method == 'initialize': return {'protocolVersion': '2025-11-25', 'capabilities': {'tools': {}}, 'serverInfo': {'name': 's', 'version': '1'}}
    if method == 'tools/list': return {'tools': [{'name': 'echo', 'inputSchema': {'type': 'object'}}]}
    if method != 'tools/call': raise KeyError(-32601)
    print('a banner, no JSON')
    say({'jsonrpc': '2.0', 'method': 'notifications/progress', 'params': {}})
    say({'jsonrpc': '2.0', 'id': 'q1', 'method': 'ping'})
    say({'jsonrpc': '2.0', 'id': 99999, 'result': {'content': [{'type': 'text', 'text': 'not yours'}]}})
    if params['arguments'].get('crash'): os._exit(3)
    time.sleep(params['arguments'].get('sleep', 0))
    return {'content': [{'type': 'text', 'text': 'hi'}, {'type': 'image', 'mimeType': 'image/png', 'data': ''}], 'isError': params['arguments'].get('fail', False)}";

#[test]
fn a_name_is_letters_digits_underscores_and_hyphens() {
    for good in ["a", "word_count", "mcp-files_read", &"x".repeat(64)] {
        assert!(is_name(good), "{good}");
    }
    for bad in ["", "../x", "a.b", "a b", "ä", "a/b", "a\n", &"x".repeat(65)] {
        assert!(!is_name(bad), "{bad}");
    }
}

#[test]
fn a_server_without_sessions_is_told_the_version_each_time() {
    let directory = tempfile::tempdir().unwrap();
    let spec = server(&directory, MODERN);
    let mut servers = servers(&directory);
    let names: Vec<String> = servers.offers(&spec).unwrap().into_iter().map(|offer| offer.name).collect();
    assert_eq!(names, ["one", "two"]);
    let input = raw(r#"{"n":12345678901234567890123,"s":"a\n\"b\""}"#);
    let answer = servers.call(&spec, "one", &input, Duration::from_secs(5)).unwrap();
    let text = r#"{"n": 12345678901234567890123, "s": "a\n\"b\""}"#.to_owned();
    assert_eq!(answer, Outcome::Answer { text, is_error: false });
    let asked = servers.call(&spec, "two", &raw("{}"), Duration::from_secs(5)).unwrap();
    assert!(matches!(asked, Outcome::InputRequired(_)));
}

#[test]
fn a_server_with_a_handshake_is_given_one_and_its_chatter_passes_by() {
    let directory = tempfile::tempdir().unwrap();
    let spec = server(&directory, LEGACY);
    let mut servers = servers(&directory);
    assert_eq!(servers.offers(&spec).unwrap()[0].name, "echo");
    let call = |servers: &mut Servers, input: &str, limit| servers.call(&spec, "echo", &raw(input), limit);
    let long = Duration::from_secs(5);
    let text = "hi\n[image, image/png: not shown]".to_owned();
    assert_eq!(call(&mut servers, "{}", long).unwrap(), Outcome::Answer { text: text.clone(), is_error: false });
    assert_eq!(call(&mut servers, r#"{"fail":true}"#, long).unwrap(), Outcome::Answer { text, is_error: true });
    let began = Instant::now();
    assert_eq!(call(&mut servers, r#"{"sleep":3}"#, Duration::from_millis(300)).unwrap(), Outcome::TimedOut);
    assert!(began.elapsed() < Duration::from_secs(2));
    assert!(call(&mut servers, r#"{"crash":true}"#, long).unwrap_err().message().contains("ended"));
    assert!(call(&mut servers, "{}", long).is_ok(), "it is started anew");
}

#[test]
fn what_is_no_server_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let mut servers = servers(&directory);
    let spec = |program: &str| Spec { name: "s".into(), argv: vec![program.into()] };
    assert!(servers.offers(&spec("/bin/true")).is_err());
    assert!(servers.offers(&spec("/nowhere/at/all")).is_err());
}

#[test]
fn a_slow_start_is_waited_for_and_half_a_line_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let slow = "
    if method == 'server/discover': time.sleep(2); return {'supportedVersions': ['2026-07-28'], 'capabilities': {}}
    if method == 'tools/list': return {'tools': [{'name': 'one', 'inputSchema': {'type': 'object'}}]}
    sys.stdout.write('{\"jsonrpc\":'); sys.stdout.flush(); time.sleep(30)";
    let spec = server(&directory, slow);
    let mut servers = servers(&directory);
    assert_eq!(servers.offers(&spec).unwrap()[0].name, "one");
    let began = Instant::now();
    let called = servers.call(&spec, "one", &raw("{}"), Duration::from_millis(300));
    assert_eq!(called.unwrap(), Outcome::TimedOut);
    assert!(began.elapsed() < Duration::from_secs(5));
}
