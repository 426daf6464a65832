//! Small servers of both eras, and of no era.

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use cp_servers::Launcher;

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
    Spec { name: "s".into(), argv: vec![path.display().to_string()], ..Spec::default() }
}

/// Servers whose policy lets them run outside: what is tested here is the conversation.
fn servers(directory: &tempfile::TempDir) -> Servers {
    Servers::with(Launcher::outside("s", directory.path()))
}

fn names(servers: &mut Servers, spec: &Spec) -> Vec<String> {
    servers.offers(spec, None).unwrap().tools.into_iter().map(|offer| offer.name).collect()
}

/// A call, and what it came to within the limit.
fn called(servers: &mut Servers, spec: &Spec, tool: &str, input: &str, limit: Duration) -> cp_common::Result<Outcome> {
    let asked = servers.call(spec, tool, &raw(input), Some(limit))?;
    servers.answer(&asked).map(|(outcome, _)| outcome)
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
    assert_eq!(names(&mut servers, &spec), ["one", "two"]);
    let input = r#"{"n":12345678901234567890123,"s":"a\n\"b\""}"#;
    let answer = called(&mut servers, &spec, "one", input, Duration::from_secs(5)).unwrap();
    let text = r#"{"n": 12345678901234567890123, "s": "a\n\"b\""}"#.to_owned();
    assert_eq!(answer, Outcome::Answer { text, is_error: false });
    let asked = called(&mut servers, &spec, "two", "{}", Duration::from_secs(5)).unwrap();
    assert!(matches!(asked, Outcome::InputRequired(_)));
}

#[test]
fn a_server_with_a_handshake_is_given_one_and_its_chatter_passes_by() {
    let directory = tempfile::tempdir().unwrap();
    let spec = server(&directory, LEGACY);
    let mut servers = servers(&directory);
    assert_eq!(names(&mut servers, &spec), ["echo"]);
    let call = |servers: &mut Servers, input: &str, limit| called(servers, &spec, "echo", input, limit);
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
    let spec = |program: &str| Spec { name: "s".into(), argv: vec![program.into()], ..Spec::default() };
    assert!(servers.offers(&spec("/bin/true"), None).is_err());
    assert!(servers.offers(&spec("/nowhere/at/all"), None).is_err());
}

#[test]
fn a_program_without_a_slash_is_the_one_on_the_path() {
    let launcher = Launcher::outside("s", std::path::Path::new("/"));
    let argv = |program: &str| launcher.argv("s", Some(vec![program.to_owned(), "-x".to_owned()]));
    let found = argv("sh").unwrap();
    assert!(found[0].starts_with('/') && found[0].ends_with("/sh") && found[1] == "-x", "{found:?}");
    assert_eq!(argv("/bin/sh").unwrap()[0], "/bin/sh");
    assert!(argv("no-such-program").unwrap_err().hint_text().unwrap().contains("write its path"));
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
    assert_eq!(names(&mut servers, &spec), ["one"]);
    let began = Instant::now();
    assert_eq!(called(&mut servers, &spec, "one", "{}", Duration::from_millis(300)).unwrap(), Outcome::TimedOut);
    assert!(began.elapsed() < Duration::from_secs(5));
}

/// A server with the tool `one` and, in Python, what it does when that is called.
fn with_one(calls: &str) -> String {
    format!(
        "
    if method == 'server/discover': return {{'supportedVersions': ['2026-07-28'], 'capabilities': {{}}}}
    if method == 'tools/list': return {{'tools': [{{'name': 'one', 'inputSchema': {{'type': 'object'}}}}]}}
{calls}"
    )
}

#[test]
fn a_server_that_reads_nothing_or_writes_without_end_is_waited_for_as_long_as_a_call_may_take() {
    let limit = Duration::from_millis(500);
    let long = format!(r#"{{"text":"{}"}}"#, "x".repeat(1 << 20));
    let stops = "    if method == 'tools/call': time.sleep(60)";
    let floods = "
    while True: say({'jsonrpc': '2.0', 'method': 'notifications/message', 'params': {'data': 'x' * 1000}})";
    let asks = "
    while True: say({'jsonrpc': '2.0', 'id': 'q', 'method': 'ping'})";
    for calls in [stops, floods, asks] {
        let directory = tempfile::tempdir().unwrap();
        let spec = server(&directory, &with_one(calls));
        let mut servers = servers(&directory);
        assert_eq!(names(&mut servers, &spec), ["one"]);
        for input in ["{}", &long, &long] {
            let began = Instant::now();
            assert_eq!(called(&mut servers, &spec, "one", input, limit).unwrap(), Outcome::TimedOut, "{calls}");
            // The limit, and the start of the next one where this one is stuck.
            assert!(began.elapsed() < Duration::from_secs(5), "{calls}: {:?}", began.elapsed());
        }
    }
}

#[test]
fn calls_of_one_server_are_under_way_at_the_same_time_and_each_has_its_own_time() {
    let directory = tempfile::tempdir().unwrap();
    let calls = "
    import threading
    def later(id, wait):
        time.sleep(wait); say({'jsonrpc': '2.0', 'id': id, 'result': {'content': [{'type': 'text', 'text': str(wait)}]}})
    threading.Thread(target=later, args=(m['id'], params['arguments']['wait'])).start()
    time.sleep(0.01); raise EOFError";
    let spec = server(&directory, &with_one(calls));
    // A call that is answered later is not answered now.
    let path = &spec.argv[0];
    let text = std::fs::read_to_string(path).unwrap();
    std::fs::write(path, text.replace("    except KeyError", "    except EOFError: pass\n    except KeyError"))
        .unwrap();
    let mut servers = servers(&directory);
    assert_eq!(names(&mut servers, &spec), ["one"]);
    let began = Instant::now();
    let waits = ["1.5", "0.5", "1.0"];
    let asked =
        waits.map(|wait| servers.call(&spec, "one", &raw(&format!(r#"{{"wait":{wait}}}"#)), None).ok().unwrap());
    let answers = asked.map(|asked| servers.answer(&asked).unwrap());
    assert!(began.elapsed() < Duration::from_millis(2500), "{:?}", began.elapsed());
    for (wait, (outcome, took)) in waits.iter().zip(answers) {
        assert_eq!(outcome, Outcome::Answer { text: (*wait).to_owned(), is_error: false });
        let expected = Duration::from_secs_f64(wait.parse().unwrap());
        assert!(took >= expected && took < expected + Duration::from_millis(900), "{wait}: {took:?}");
    }
}
