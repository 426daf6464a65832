//! The official Rust library as a client: the steps that come on standard input, a line each; their results, a line
//! each.
//!
//! `rmcp-client '{"era": "auto" | "legacy", "answer": "accept" | "decline" | null, "command": [PROGRAM, ARGUMENT…]}'`

use std::error::Error;
use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientCapabilities, ClientConfig, ClientRequest, ElicitRequestParams,
    ElicitResult, ElicitationAction, ElicitationCapability, Implementation, ProtocolVersion,
};
use rmcp::service::{
    ClientLifecycleMode, ClientServiceExt as _, PeerRequestOptions, RequestContext, RunningService, ServiceError,
};
use rmcp::transport::TokioChildProcess;
use rmcp::{ClientHandler, ErrorData, RoleClient};
use serde_json::{Map, Value, json};

struct Person {
    /// How it answers; a client without elicitation does not.
    answer: Option<String>,
    questions: Mutex<Vec<String>>,
}

impl ClientHandler for Person {
    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let request = serde_json::to_value(&request).unwrap_or_default();
        self.questions.lock().unwrap().push(request["message"].as_str().unwrap_or_default().to_owned());
        Ok(if self.answer.as_deref() == Some("accept") {
            ElicitResult::new(ElicitationAction::Accept).with_content(agreed(&request["requestedSchema"]))
        } else {
            ElicitResult::new(ElicitationAction::Decline)
        })
    }

    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = self.answer.is_some().then(ElicitationCapability::default);
        ClientConfig::new(capabilities, Implementation::new("rust-client", "7.8.9"))
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }
}

/// What a person who agrees puts into the form: yes to all that can be ticked, the first of what can be chosen.
fn agreed(schema: &Value) -> Value {
    let mut filled = Map::new();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(choice) = field["enum"].get(0) {
            filled.insert(name.clone(), choice.clone());
        } else if field["type"] == "boolean" {
            filled.insert(name.clone(), true.into());
        }
    }
    filled.into()
}

type Client = RunningService<RoleClient, Person>;

async fn step(client: &Client, asked: &Value) -> Result<Value, ServiceError> {
    let name = || asked["name"].as_str().unwrap_or_default().to_owned();
    let arguments = || asked["arguments"].as_object().cloned().unwrap_or_default();
    let value = match asked["do"].as_str().unwrap_or_default() {
        "tools" => serde_json::to_value(client.list_tools(None).await?),
        "call" => {
            let call = CallToolRequestParams::new(name()).with_arguments(arguments());
            let Some(path) = asked["cancel_at"].as_str() else {
                return Ok(serde_json::to_value(client.call_tool(call).await?).unwrap());
            };
            let request = ClientRequest::CallToolRequest(CallToolRequest::new(call));
            let options = PeerRequestOptions::no_options();
            let request = client.peer().send_cancellable_request(request, options).await?;
            while !Path::new(path).exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            request.cancel(None).await?;
            Ok(json!({"cancelled": true}))
        }
        other => panic!("{other} is not a step"),
    };
    Ok(value.unwrap())
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let how: Value = serde_json::from_str(&std::env::args().nth(1).ok_or("how?")?)?;
    let words: Vec<&str> = how["command"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let (program, arguments) = words.split_first().ok_or("which server?")?;
    let mut command = tokio::process::Command::new(program);
    command.args(arguments);
    let person = Person { answer: how["answer"].as_str().map(ToOwned::to_owned), questions: Mutex::default() };
    let lifecycle = if how["era"] == "auto" {
        ClientLifecycleMode::Auto { preferred_versions: vec![ProtocolVersion::V_2026_07_28], legacy_version: None }
    } else {
        ClientLifecycleMode::Initialize
    };
    let client = person.serve_with_lifecycle(TokioChildProcess::new(command)?, lifecycle).await?;
    let server = client.peer().peer_info().ok_or("it has not said who it is")?;
    let name = server.server_info.as_ref().map(|server| &server.name);
    tell(&json!({"protocol": server.protocol_version, "server": name}))?;
    let mut lines = std::io::stdin().lock().lines();
    // The client's own work goes on in other threads only if this one waits for the next step elsewhere.
    while let Some(line) = tokio::task::block_in_place(|| lines.next()) {
        let asked = serde_json::from_str(&line?)?;
        let mut told = match step(&client, &asked).await {
            Ok(result) => json!({"result": result}),
            Err(ServiceError::McpError(error)) => json!({"error": {"code": error.code.0, "message": error.message}}),
            Err(error) => json!({"error": {"code": null, "message": error.to_string()}}),
        };
        told["questions"] = std::mem::take(&mut *client.service().questions.lock().unwrap()).into();
        tell(&told)?;
    }
    client.cancel().await?;
    Ok(())
}

fn tell(value: &Value) -> std::io::Result<()> {
    writeln!(std::io::stdout(), "{value}")
}
