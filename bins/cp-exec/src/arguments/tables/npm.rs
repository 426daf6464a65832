//! npm and its like. npm takes any unambiguous beginning of a command, and its options anywhere.

use super::{Family, Levels, Role, Then};
use crate::arguments::grammar::{Form, Grammar, OPEN, permuted};

pub(super) const FAMILIES: &[Family] = &[
    Family {
        names: &["npm"],
        grammar: Grammar { form: Form::Npm, ..permuted("c:C:L:m:w:adfghilnpqsvyBDEHOPS?", OPTIONS) },
        role: Role::Levels(Levels { aliases: ALIASES, commands: COMMANDS, abbreviates: true, then: Then::Same }),
    },
    Family {
        names: &["pnpm", "yarn", "bun"],
        grammar: Grammar { form: Form::Npm, ..OPEN },
        role: Role::Levels(Levels { aliases: ALIASES, commands: &[], abbreviates: false, then: Then::Same }),
    },
];

/// What `npm config` knows, and its shorthands. Those that may or may not take the next word are left out.
const OPTIONS: &str = "_auth= access= all allow-directory= allow-file= allow-git= allow-remote= allow-same-version \
         allow-scripts-pending allow-scripts-pin allow-scripts= also= audit audit-level= auth-type= before= \
         bin-links bypass-2fa ca= cache-max= cache-min= cache= cafile= call= cert= cidr= commit-hooks cpu= \
         dangerously-allow-all-scripts dd ddd depth= desc description dev diff-dst-prefix= diff-ignore-all-space \
         diff-name-only diff-no-prefix diff-src-prefix= diff-text diff-unified= diff= dry-run editor= \
         engine-strict enjoy-by= expect-result-count= expect-results expires= fetch-retries= fetch-retry-factor= \
         fetch-retry-maxtimeout= fetch-retry-mintimeout= fetch-timeout= force foreground-scripts \
         format-package-lock fund git-tag-version git= global global-style globalconfig= heading= help \
         https-proxy= if-present ignore-scripts include-attestations include-staged include-workspace-root \
         include= init-author-email= init-author-name= init-author-url= init-license= init-module= init-private \
         init-type= init-version= init.author.email= init.author.name= init.author.url= init.license= init.module= \
         init.version= install-links install-strategy= iwr json key= legacy-bundling legacy-peer-deps libc= link \
         local local-address= location= lockfile-version= loglevel= logs-dir= logs-max= long maxsockets= message= \
         min-release-age-exclude= min-release-age= name= no node-gyp= node-options= noproxy= offline \
         omit-lockfile-registry-resolved omit= only= optional orgs-permission= orgs= os= otp= pack-destination= \
         package-lock package-lock-only package= packages-all packages-and-scopes-permission= packages= parseable \
         password= porcelain prefer-dedupe prefer-offline prefer-online prefix= preid= production progress \
         provenance provenance-file= proxy= quiet read-only readonly rebuild-bundle reg= registry= \
         replace-registry-host= save save-bundle save-dev save-exact save-optional save-peer save-prefix= \
         save-prod sbom-format= sbom-type= scope= scopes= script-shell= searchexclude= searchlimit= searchopts= \
         searchstaleness= shell= shrinkwrap sign-git-commit sign-git-tag silent strict-allow-scripts \
         strict-peer-deps strict-ssl tag-version-prefix= tag= timing token-description= umask= unicode \
         update-notifier usage user-agent= userconfig= verbose version versions viewer= which= workspace= \
         workspaces workspaces-update ws yes";

const COMMANDS: &[&str] = &[
    "access",
    "adduser",
    "approve-scripts",
    "audit",
    "bugs",
    "cache",
    "ci",
    "completion",
    "config",
    "dedupe",
    "deny-scripts",
    "deprecate",
    "diff",
    "dist-tag",
    "docs",
    "doctor",
    "edit",
    "exec",
    "explain",
    "explore",
    "find-dupes",
    "fund",
    "get",
    "help",
    "help-search",
    "init",
    "install",
    "install-ci-test",
    "install-scripts",
    "install-test",
    "link",
    "ll",
    "login",
    "logout",
    "ls",
    "org",
    "outdated",
    "owner",
    "pack",
    "ping",
    "pkg",
    "prefix",
    "profile",
    "prune",
    "publish",
    "query",
    "rebuild",
    "repo",
    "restart",
    "root",
    "run",
    "sbom",
    "search",
    "set",
    "shrinkwrap",
    "stage",
    "star",
    "stars",
    "start",
    "stop",
    "team",
    "test",
    "token",
    "trust",
    "undeprecate",
    "uninstall",
    "unpublish",
    "unstar",
    "update",
    "version",
    "view",
    "whoami",
];

#[rustfmt::skip]
const ALIASES: &[(&str, &str)] = &[
    ("author", "owner"), ("home", "docs"), ("issues", "bugs"), ("info", "view"), ("show", "view"),
    ("find", "search"), ("add", "install"), ("unlink", "uninstall"), ("remove", "uninstall"),
    ("rm", "uninstall"), ("r", "uninstall"), ("un", "uninstall"), ("rb", "rebuild"), ("list", "ls"),
    ("ln", "link"), ("create", "init"), ("i", "install"), ("it", "install-test"), ("cit", "install-ci-test"),
    ("u", "update"), ("up", "update"), ("c", "config"), ("s", "search"), ("se", "search"), ("tst", "test"),
    ("t", "test"), ("ddp", "dedupe"), ("v", "view"), ("run-script", "run"), ("clean-install", "ci"),
    ("clean-install-test", "install-ci-test"), ("x", "exec"), ("why", "explain"), ("la", "ll"),
    ("verison", "version"), ("ic", "ci"), ("innit", "init"), ("in", "install"), ("ins", "install"),
    ("inst", "install"), ("insta", "install"), ("instal", "install"), ("isnt", "install"),
    ("isnta", "install"), ("isntal", "install"), ("isntall", "install"), ("install-clean", "ci"),
    ("isntall-clean", "ci"), ("hlep", "help"), ("dist-tags", "dist-tag"), ("upgrade", "update"),
    ("udpate", "update"), ("rum", "run"), ("sit", "install-ci-test"), ("urn", "run"), ("ogr", "org"),
    ("add-user", "adduser"),
];
