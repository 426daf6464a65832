//! Compilers, build tools and toolchains.

use super::{Family, Levels, Role, Then};
use crate::arguments::grammar::{Also, Form, Grammar, OPEN, leading, permuted};

pub(super) const FAMILIES: &[Family] = &[
    Family {
        names: &["cargo"],
        grammar: Grammar {
            also: Also::Toolchain,
            ..leading("C:hqVvZ:", "color= config= explain= frozen help list locked offline quiet verbose version")
        },
        role: Role::Levels(Levels {
            aliases: &[("b", "build"), ("c", "check"), ("d", "doc"), ("t", "test"), ("r", "run"), ("rm", "remove")],
            commands: &[],
            abbreviates: false,
            then: Then::All(permuted(CARGO_LETTERS, CARGO_LONG)),
        }),
    },
    Family {
        names: &["go"],
        grammar: Grammar { form: Form::OneDash, ..leading("", "C= help") },
        role: Role::Levels(Levels {
            aliases: &[],
            commands: &[],
            abbreviates: false,
            then: Then::All(Grammar { form: Form::OneDash, ..OPEN }),
        }),
    },
    Family {
        names: &["gcc", "g++", "cc", "c++", "clang", "clang++", "cpp", "gcc-*", "g++-*", "clang-*"],
        grammar: Grammar { form: Form::OneDash, ..OPEN },
        role: Role::Plain,
    },
    Family {
        names: &["make", "gmake"],
        grammar: permuted(
            "bBC:dE:ef:hiI:j::kl::LmnO::o:pqrRsStvW:wx",
            "always-make assume-new= assume-old= check-symlink-times debug[=] directory= dry-run environment-overrides eval= \
             file= help ignore-errors include-dir= jobs[=] jobserver-style= just-print keep-going load-average[=] makefile= \
             max-load[=] new-file= no-builtin-rules no-builtin-variables no-keep-going no-print-directory no-silent old-file= \
             output-sync[=] print-data-base print-directory question quiet recon shuffle[=] silent stop touch trace version \
             warn-undefined-variables what-if=",
        ),
        role: Role::Plain,
    },
];

const CARGO_LETTERS: &str = "C:F:hj:p:qvVZ:nde";

const CARGO_LONG: &str = "aggressive all all-features all-targets allow-dirty allow-no-vcs allow-staged artifact-dir= bench= \
     benches bin= bins branch= broken-code build build-plan color= config= debug default-features depth= dev doc \
     document-private-items dry-run edges= edition= edition-idioms example= examples exclude= features= filter-platform= fix \
     force format= format-version= frozen future-incompat-report git= ignore-rust-version include-ignored index= interactive \
     invert= jobs= keep-going lib limit= list locked lockfile-path= manifest-path= message-format= name= no-default-features \
     no-deps no-fail-fast no-metadata no-optional no-run no-self-update no-track no-verify offline open optional package= path= \
     precise= prefix= profile= public quiet recursive registry= release rename= rev= root= tag= target= target-dir= test= \
     tests timings[=] token= undo unit-graph vcs= verbose version= vers= workspace";
