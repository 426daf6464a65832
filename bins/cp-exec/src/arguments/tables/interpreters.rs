//! Programs whose first operand is a script.

use super::{Family, Role};
use crate::arguments::grammar::{Also, Form, Grammar, leading};

const SCRIPT: Role = Role::Interpreter { file: &[] };

pub(super) const FAMILIES: &[Family] = &[
    Family {
        names: &["sh", "bash", "dash", "zsh", "ksh", "ash", "rbash", "mksh"],
        grammar: Grammar {
            also: Also::Plus,
            ..leading(
                "abBcCDeEfghHiIklmnpPrstTuvVxX0123456789o:O:",
                "debug debugger dump-po-strings dump-strings emulate= help init-file= login no-rcs noediting noprofile norc \
                 posix pretty-print rcfile= restricted verbose version wordexp",
            )
        },
        role: SCRIPT,
    },
    Family {
        names: &["fish"],
        grammar: leading(
            "c:C:d:D:f:hiln:Npo:P:v",
            "command= debug= debug-output= features= help init-command= interactive login no-config no-execute private \
             print-debug-categories print-rusage-self profile= profile-startup= version",
        ),
        role: SCRIPT,
    },
    Family {
        names: &["python", "python2", "python2.*", "python3", "python3.*", "pypy", "pypy3", "ipython"],
        grammar: Grammar {
            last: "cm",
            ..leading(
                "3bBc:dEhiIJm:OPqQ:RsStuUvVW:xX:?",
                "check-hash-based-pycs= help help-all help-env help-xoptions version",
            )
        },
        role: SCRIPT,
    },
    Family {
        names: &["perl", "perl5*"],
        // `-C` may hold letters; each is looked at, which only refuses more.
        grammar: leading("0#acCd::D::e:E:fF::ghi::I:l#m::M::nopPsStTuUvV::wWxX", "help version"),
        role: SCRIPT,
    },
    Family {
        names: &["ruby", "irb"],
        grammar: leading(
            "0#aC:cde:E:F::hi::I:K::lnpr:sST#UvVwW::x::yX:",
            "copyright debug disable= dump= enable= encoding= external-encoding= help internal-encoding= jit[=] parser= \
             rjit[=] verbose version yjit[=] yydebug",
        ),
        role: SCRIPT,
    },
    Family { names: &["node", "nodejs"], grammar: leading("ce:C:hip:r:v", NODE), role: SCRIPT },
    Family {
        names: &["php", "php7*", "php8*"],
        grammar: leading(
            "aB:b:c:Cd:eE:f:F:g:hHilmnqr:R:sS:t:vwz:T:",
            "bindpath= define= docroot= file= help info ini interactive modules no-chdir no-header no-php-ini php-ini= \
             process-begin= process-code= process-end= process-file= profile-info rc= rclass= re= rextension= rextinfo= rf= \
             rfunction= ri= run= rz= rzendextension= server= strip syntax-check syntax-highlight timing= version \
             zend-extension=",
        ),
        role: Role::Interpreter { file: &["-f", "--file"] },
    },
    Family { names: &["lua", "lua5*", "luajit"], grammar: leading("b:e:Eij:l:O::vW", ""), role: SCRIPT },
    Family {
        names: &["tclsh", "expect", "Rscript"],
        grammar: Grammar { form: Form::Gnu, closed: false, ..leading("c:e:f:bdDinNv", "") },
        role: SCRIPT,
    },
];

/// The options of node, of several of its versions.
const NODE: &str = "abort-on-uncaught-exception allow-addons allow-child-process allow-fs-read= allow-fs-write= allow-wasi \
         allow-worker build-snapshot build-snapshot-config= check completion-bash conditions= cpu-prof \
         cpu-prof-dir= cpu-prof-interval= cpu-prof-name= cpu-prof debug-port= diagnostic-dir= disable-proto= \
         disable-warning= disable-wasm-trap-handler disallow-code-generation-from-strings dns-result-order= \
         enable-etw-stack-walking enable-fips enable-network-family-autoselection enable-source-maps env-file= \
         env-file-if-exists= eval= experimental-default-type= experimental-eventsource \
         experimental-import-meta-resolve experimental-loader= experimental-network-imports \
         experimental-network-inspection experimental-permission experimental-policy= \
         experimental-print-required-tla experimental-require-module experimental-sea-config= \
         experimental-strip-types experimental-test-coverage experimental-test-module-mocks \
         experimental-transform-types experimental-vm-modules experimental-wasm-modules experimental-websocket \
         expose-gc force-context-aware force-fips force-node-api-uncaught-exceptions-policy frozen-intrinsics \
         harmony heap-prof heap-prof-dir= heap-prof-interval= heap-prof-name= heap-prof \
         heapsnapshot-near-heap-limit= heapsnapshot-signal= help huge-max-old-generation-size icu-data-dir= \
         import= input-type= insecure-http-parser inspect[=] inspect-brk[=] inspect-port= inspect-publish-uid= \
         inspect-wait[=] interactive interpreted-frames-native-stack jitless loader= max-http-header-size= \
         max-old-space-size= network-family-autoselection-attempt-timeout= no-addons no-deprecation \
         no-experimental-detect-module no-experimental-fetch no-experimental-global-customevent \
         no-experimental-global-webcrypto no-experimental-repl-await no-experimental-require-module \
         no-experimental-strip-types no-extra-info-on-fatal-exception no-force-async-hooks-checks \
         no-global-search-paths no-network-family-autoselection no-warnings node-memory-debug openssl-config= \
         openssl-legacy-provider openssl-shared-config pending-deprecation policy-integrity= preserve-symlinks \
         preserve-symlinks-main print[=] prof prof-process prof redirect-warnings= report-compact report-dir= \
         report-directory= report-exclude-network report-filename= report-on-fatalerror report-on-signal \
         report-signal= report-uncaught-exception require= run= secure-heap= secure-heap-min= snapshot-blob= \
         stack-size= stack-trace-limit= test test-concurrency= test-force-exit test-name-pattern= test-only \
         test-reporter= test-reporter-destination= test-shard= test-timeout= throw-deprecation title= \
         tls-cipher-list= tls-keylog= tls-max-v1.2 tls-max-v1.3 tls-min-v1.0 tls-min-v1.1 tls-min-v1.2 \
         tls-min-v1.3 trace-atomics-wait trace-deprecation trace-event-categories= trace-event-file-pattern= \
         trace-exit trace-promises trace-require-module= trace-sigint trace-sync-io trace-tls trace-uncaught \
         trace-warnings track-heap-objects unhandled-rejections= use-bundled-ca use-largepages= use-openssl-ca \
         v8-options v8-pool-size= version watch watch-path= watch-preserve-output zero-fill-buffers";
