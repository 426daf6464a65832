//! Recall and precision over texts that no rule was written for: generated secrets in their public formats and in
//! typical contexts, and ordinary texts without secrets. The placeholders are those of [`Draw::fill`].

use crate::Redactor;
use crate::corpus::Draw;

/// Values that are recognized in any context: prefix, alphabet and length as documented by their providers.
const VALUES: &[&str] = &[
    "AKIA«U16»",
    "ghp_«A36»",
    "github_pat_«A22»_«A59»",
    "glpat-«T20»",
    "xoxb-«D12»-«D12»-«A24»",
    "sk-ant-api03-«T93»AA",
    "sk-proj-«T60»",
    "AIza«T35»",
    "ya29.«T80»",
    "hf_«A34»",
    "npm_«A36»",
    "pypi-AgEIcHlwaS5vcmc«T120»",
    "sk_live_«A24»",
    "rk_live_«A24»",
    "whsec_«A32»",
    "SG.«T22».«T43»",
    "dop_v1_«H64»",
    "shpat_«H32»",
    "lin_api_«A40»",
    "ntn_«A46»",
    "hvs.«T90»",
    "dckr_pat_«T27»",
    "ATATT3«T180»",
    "glsa_«A32»_«H8»",
    "tskey-auth-«A12»CNTRL-«A32»",
    "eyJhbGciOiJIUzI1NiJ9.eyJ«T60».«T43»",
    "«D10»:AA«T33»",
    "SK«H32»",
    "«H32»-us14",
    "«A3»8Q~«A34»",
    "AGE-SECRET-KEY-1«U58»",
    "pat«A14».«H64»",
    "pat-na1-«u»",
    "vcp_«A56»",
    "v4.public.«T86»",
    "v2.local.«T90».«T20»",
    "sk.eyJ1Ijoi«A60».«T22»",
    "access_token$production$«a16»$«H32»",
    "AAAAAAAAAAAAAAAAAAAAA«A30»%3D«A50»",
    "cio«A32»",
    "5K«W49»",
    "L1«W50»",
    "xprv9s21ZrQH143K«W95»",
    "$2b$12$«A53»",
    "$6$«A16»$«A86»",
    "$argon2id$v=19$m=65536,t=3,p=4$«A22»$«A43»",
    "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCk1J«B120»",
    "https://«H32»@o«D6».ingest.sentry.io/«D7»",
    "postgres://app:«A20»@db.internal:5432/shop",
    "mongodb+srv://app:«A20»@cluster0.mongodb.net/shop",
    "jdbc:oracle:thin:scott/«A14»@//db.internal:1521/ORCL",
    "https://hooks.slack.com/services/T«U8»/B«U10»/«A24»",
    "figd_«T40»",
    "rnd_«A32»",
    "apify_api_«A36»",
    "sbp_«H40»",
    "gsk_«A52»",
    "xai-«A80»",
    "r8_«A37»",
    "pplx-«A48»",
    "nvapi-«T64»",
    "tvly-«A32»",
    "dapi«H32»",
    "rubygems_«H48»",
    "oy2«a43»",
    "PMAK-«H24»-«H34»",
    "NRAK-«U27»",
    "fo1_«T43»",
    "pscale_tkn_«T43»",
    "pul-«H40»",
    "squ_«H40»",
    "waka_«u»",
    "access-production-«u»",
    "sdk-«u»",
    "1/1199«D12»:«H32»",
    "«A14».atlasv1.«A64»",
];

/// Contexts of such values.
pub(crate) const PLACES: [&str; 8] = [
    "2026-03-01T10:00:00Z INFO upstream answered with {} after 3 ms",
    r#"{"id":7,"note":"{}","ok":true}"#,
    "service:\n  image: web:2\n  extra: {}\n  port: 80\n",
    "PORT=80\nEXTRA={}\nDEBUG=1\n",
    "https://api.example.org/v1/things?page=2&extra={}&sort=asc",
    "    let extra = \"{}\";\n    send(extra, 3);",
    "deploy --region eu --extra {} --now",
    "I used {} yesterday, and it worked.",
];

/// Names that announce a secret, and a secret for each.
const NAMED: &[(&str, &str)] = &[
    ("password", "«P»"),
    ("db_password", "«A16»"),
    ("secret_key", "«A32»"),
    ("client_secret", "«T40»"),
    ("api_key", "«A32»"),
    ("access_token", "«A40»"),
    ("auth_token", "«H32»"),
    ("passwd", "«P»"),
    ("admin_pass", "«P»"),
    ("private_token", "«T24»"),
    ("encryption_key", "«H64»"),
    ("aws_secret_access_key", "«B40»"),
];

/// Texts in which a value follows its name.
const ASSIGNED: [&str; 8] = [
    "2026-03-01T10:00:00Z WARN retry with NAME={} failed",
    r#"{"user":"ada","NAME":"{}","ok":true}"#,
    "service:\n  NAME: {}\n  port: 80\n",
    "PORT=80\nUPPER={}\nDEBUG=1\n",
    "https://api.example.org/v1/things?page=2&NAME={}&sort=asc",
    "    NAME = \"{}\"\n    connect(3)",
    "export UPPER={}; ./run --fast",
    "The NAME is {} until Monday.",
];

/// Commands, code and files.
const TEXTS: &[&str] = &[
    "nmcli dev wifi connect Home password «P»",
    "curl -H 'Authorization: Bearer «A40»' https://example.org/api",
    "curl -H 'X-Api-Key: «A32»' https://example.org/api",
    "echo «P» | docker login -u ada --password-stdin",
    "PGPASSWORD=«P» psql -h db -U app shop",
    "openssl pkcs12 -in a.p12 -nodes -passin pass:«P»",
    "aws configure set aws_secret_access_key «B40»",
    "git clone https://ada:«A24»@git.example.org/a.git",
    "requests.get(url, auth=('ada', '«P»'))",
    "session.auth = HTTPBasicAuth('ada', '«P»')",
    "smtp.login('ada@example.org', '«P»')",
    "client.basic_auth('ada', Some('«P»'))",
    "new NetworkCredential('ada', '«P»')",
    "mysqli_connect('localhost', 'ada', '«P»', 'shop')",
    "os.environ['DB_PASSWORD'] = '«P»'",
    "ALTER USER ada IDENTIFIED BY '«P»';",
    "CREATE ROLE ada LOGIN PASSWORD '«P»';",
    "machine api.example.org login ada password «P»",
    "root:$6$«A8»$«A86»:19700:0:99999:7:::",
    "ada:$apr1$«A8»$«A22»",
    "userPassword: {SSHA}«B32»",
    "AKIA«U16»,«B40»",
    "the password for the server is «P».",
    "use the password «P» to log in",
    "log in as ada with pass «P»",
    "user ada, pass «P»",
    "«P» is the root password",
    "«P» is the password for the database.",
    "`«P»` was my old password",
    "The root password is:\n«P»",
    "Here is the password for the server:\n\n«P»\n\nKeep it safe.",
    "el token es «A32»",
    "das Token ist «A32»",
    "vault login -method=userpass username=ada password=«P»",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE«B60»\n«B64»\n-----END RSA PRIVATE KEY-----",
];

/// Contexts of a line. `LINE` is the line itself, `JSON` its encoding as a string.
const LINES: [&str; 8] = [
    "LINE",
    "2026-03-01 10:00:00 sh[311]: LINE",
    r#"{"n":1,"text":"JSON","ok":true}"#,
    "first line\nLINE\nlast line",
    "```\nLINE\n```\nThat is what I ran.",
    "  - run: LINE\n",
    r#"{"arguments":"NESTED","n":1}"#,
    "> LINE\n> and so on",
];

/// Ordinary lines.
const INNOCENT: &[&str] = &[
    "commit «H40»",
    "Merge «H7» into main, reviewed by ada",
    "request «u» took «D3» ms",
    "sha256:«H64»  dist/app-1.2.«D2».tar.gz",
    "integrity sha512-«B86»==",
    "![logo](data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAA«B120»)",
    "/usr/lib/python3.«D2»/site-packages/urllib3/util/retry.py:«D3»",
    "node_modules/@babel/core/lib/index.js",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI«A43» ada@host",
    "npm install left-pad@1.«D2».0 --save-dev",
    "serde_json = { version = \"1.0.«D2»\", features = [\"raw_value\"] }",
    "fn token_count(text: &str) -> usize { text.len() / 4 }",
    "let password = read_password(\"Password: \")?;",
    "if (!user.password) throw new Error('password is required');",
    "auth = (user, password)",
    "requests.get(url, auth=(USER, PASSWORD))",
    "session.login(user, getpass())",
    "The password must have at least «D2» characters.",
    "Forgot your password? Ask ada for a new one.",
    "Set API_KEY in the environment before you start.",
    "export PASSWORD=$(pass show db/«a6»)",
    "password: ${DB_PASSWORD}",
    "kubectl get secret db-«a6» -o yaml",
    "kubectl create secret generic db --from-literal=value=$VALUE",
    "htpasswd -c /etc/nginx/.htpasswd «a6»",
    "echo done | tee out.«D3».log",
    "sudo systemctl restart nginx-«D2»",
    "ssh-keygen -t ed25519 -f id_«a6»",
    "mysql -u root -p shop_«a6»",
    "docker run -u 1000:1000 -p 80:80 web:«D2»",
    "net use Z: /delete",
    "curl -u ada https://example.org/«a8»",
    "mc alias list s«D2»",
    "das Passwort ist zu kurz, es braucht «D2» Zeichen",
    "Das Passwort wurde geändert.",
    "le mot de passe est obligatoire pour le compte «D4»",
    "Mot de passe oublié ?",
    "la contraseña es demasiado corta",
    "la clave es la paciencia",
    "a senha é obrigatória",
    "esqueceu a senha?",
    "パスワードは8文字以上で入力してください",
    "パスワードを忘れた場合",
    "пароль слишком короткий, нужно «D2» символов",
    "Пароль: обязателен",
    "ключ к успеху — терпение",
    "密码是必填项",
    "비밀번호를 입력하세요",
    "key «D3» of «D4» was pressed",
    "cache key user:«D5»:profile",
    "the primary key of table «a6» is id",
    "next_page_token: null, max_tokens: «D4»",
    "$1 to $2 per «D3» units",
    "awk '{print $1, $2}' f«D2».txt",
    "PATH=/usr/local/bin:/usr/bin:/bin:/opt/«a6»/bin",
    "https://example.org/a/b/«a12»?page=«D2»#top",
    "https://ada@example.org:8080/«a8»",
    "2026-03-01T10:00:«D2»Z INFO started worker «D3» in «D2» ms",
    "error: cannot find type `Token«D2»` in this scope",
    "std::collections::HashMap<String, Secret«D2»>",
    "test auth::tokens_are_checked_«D3» ... ok",
    "color: #«H6»; margin: 0 «D2»px",
    "MAC «H2»:«H2»:«H2»:«H2»:«H2»:«H2»",
    "2001:db8:«H4»::«H4»",
    "0x«H40»",
    "Qm«A44» is a block of IPFS",
    "ami-0«H16» in eu-west-«D1»",
    "arn:aws:iam::«D12»:role/deploy-«a5»",
    "projects/«a8»/locations/eu/keyRings/main",
    "TICKET-«D4»: rotate the keys of the gateway",
    "-----BEGIN CERTIFICATE-----\nMIID«B60»\n-----END CERTIFICATE-----",
    "{\"kty\":\"RSA\",\"n\":\"«T86»\",\"e\":\"AQAB\"}",
    "pk.eyJ1Ijoi«A40».«T22»",
    "pk_live_«A24»",
    "v4.public is the version of PASETO that we use since «D4»",
    "etag: \"«H32»\"",
    "trace_id=«H32» span_id=«H16»",
    "h1:«B43»=",
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1J«B60»",
    "uint64_t h = 0x«H16»ULL;",
    "let it pass 8080 to the server«D2»",
    "all tests pass on run «D4»",
    "pass --retries=«D2» to curl",
    "the first pass took «D3»ms, the second pass v2-«D2»",
    "Wireless2024 is the name of the network, ask ada for the password",
    "at least 12 characters is the password policy",
    "RFC«D4» is the token format",
    "sha256 is the password hash we use",
    "The password:\n- has at least «D2» characters\n- is changed each year",
    "Password:\nLogin incorrect",
    "Passwort:\nErneut versuchen",
    "das Passwort ist in vault-«D2» gespeichert",
    "der Schlüssel ist unter /etc/ssl/key«D2».pem",
    "el token es de tipo JWT«D3»",
    "le jeton est expiré depuis «D4»",
    "la clé est dans config-«D2».yml",
    "vault login -method=oidc role=dev«D2»",
    "vault login $VAULT_TOKEN",
    "sudo -S <<< \"$PASSWORD\"",
    "mysql -P 3306 -u root",
    "トークンは60分で期限切れになります",
    "APIキーは設定画面で発行できます",
    "argon2 is the password hash since «D4»",
    "PBKDF2 ist das Verfahren für das Passwort",
    "+old_password\n+new_password«D2»",
    "the password:\nada«D2»@example.org",
    "pass --user=ada«D2» to it, pass x=y«D3» as well",
    "toolu_01«A22» was called by msg_01«A22»",
    "call_«A24» and chatcmpl-«A29» have results",
    "cus_«A14» paid in pi_«A24»",
    "RUN-202611«D2»-«H8» in SES-202611«D2»-«H8» asked APR-«H16»",
    "user_01h455vb4pex5vsknk084s«a3» and 01ARZ3NDEKTSV4RRFFQ69G5«U3»",
    "sdk_«u» is the id of a request",
    "dist/assets/index-«A8».js and main.«H20».chunk.css",
    "frontend-api-5f«a8»-«a5» is the pod",
    "app.py,sha256=k«T42»,1042",
    "node-«H40».tar.gz and layer_«H64»",
    "github.com/acme/lib v0.0.0-2026«D10»-«H12»",
    "registry.example.org/acme/app@sha256:«H64»",
    "class=\"css-«a7» MuiBox-root-«D3» sc-«A6»-0\"",
    "const CODECAPI_AVEncMP12MuxRate«D2»: u32 = 3;",
    "rust_openssl.hpke.MLKEM768X«D5»PublicKey",
    "_ZN4core3fmt9Formatter9write_str17h«H16»E",
    "https://cdn.example.org/a/acme_live_«A24»/logo.png",
    "git_«H40» is the commit, etag-«A32» the tag",
];

fn redacted(text: &str) -> String {
    Redactor::default().redact_text(text).0
}

fn spelt(text: &str) -> String {
    let quoted = serde_json::to_string(text).unwrap();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Returns each text with the piece that must be redacted, and the template that it was made from.
fn planted() -> Vec<(String, String, String)> {
    let mut draw = Draw::new(0x5eed);
    let mut all = Vec::new();
    for _ in 0..2 {
        for template in VALUES {
            for place in PLACES {
                let (value, drawn) = draw.fill(template);
                let longest = drawn.iter().max_by_key(|piece| piece.len()).unwrap().clone();
                all.push((place.replace("{}", &value), longest, format!("{template} in {place}")));
            }
        }
    }
    for _ in 0..4 {
        for (name, template) in NAMED {
            for place in ASSIGNED {
                let (value, _) = draw.fill(template);
                let text = place.replace("NAME", name).replace("UPPER", &name.to_uppercase()).replace("{}", &value);
                all.push((text, value, format!("{name} in {place}")));
            }
        }
    }
    for _ in 0..2 {
        for template in TEXTS {
            for line in LINES {
                let (text, drawn) = draw.fill(template);
                let piece = drawn.last().unwrap().clone();
                let nested = spelt(&serde_json::json!({ "cmd": text }).to_string());
                let placed = line.replace("LINE", &text).replace("JSON", &spelt(&text)).replace("NESTED", &nested);
                all.push((placed, piece, format!("{template} in {line}")));
            }
        }
    }
    all
}

#[test]
fn planted_secrets_have_high_recall() {
    let planted = planted();
    assert!(planted.len() >= 2000, "{}", planted.len());
    let missed: Vec<_> = planted.iter().filter(|(text, secret, _)| redacted(text).contains(secret)).collect();
    let kinds: std::collections::BTreeSet<_> = missed.iter().map(|(text, _, kind)| (kind, text)).collect();
    let found = planted.len() - missed.len();
    assert!(found * 100 >= planted.len() * 97, "{found} of {}: {kinds:#?}", planted.len());
}

#[test]
fn innocent_lines_are_kept() {
    let mut draw = Draw::new(0x1ace);
    let mut lines = 0;
    let mut taken = Vec::new();
    for _ in 0..25 {
        for template in INNOCENT {
            let (text, _) = draw.fill(template);
            let clean = redacted(&text);
            lines += 1;
            if clean != text {
                taken.push((text, clean));
            }
        }
    }
    assert!(lines >= 2000, "{lines}");
    assert!(taken.is_empty(), "{} of {lines}: {:#?}", taken.len(), &taken[..taken.len().min(20)]);
}
