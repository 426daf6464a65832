//! Programs that look at, sort, divide, copy and change files.

use super::{Family, Role};
use crate::arguments::grammar::{Form, Grammar, OPEN, permuted};

const fn plain(names: &'static [&'static str], letters: &'static str, long: &'static str) -> Family {
    Family { names, grammar: permuted(letters, long), role: Role::Plain }
}

pub(super) const FAMILIES: &[Family] = &[
    Family {
        names: &["sed"],
        grammar: Grammar {
            closed: true,
            ..permuted(
                "bEe:f:hi::l:nrsuz",
                "binary debug expression= file= follow-symlinks help in-place[=] line-length= null-data posix quiet \
                 regexp-extended sandbox separate silent unbuffered version zero-terminated",
            )
        },
        role: Role::Sed,
    },
    plain(
        &["sort"],
        "bcCdfghik:mMno:rRsS:t:T:uVy::z",
        "batch-size= buffer-size= check[=] compress-program= debug dictionary-order field-separator= files0-from= \
         general-numeric-sort help human-numeric-sort ignore-case ignore-leading-blanks ignore-nonprinting key= merge \
         month-sort numeric-sort output= parallel= random-sort random-source= reverse sort= stable temporary-directory= \
         unique version version-sort zero-terminated",
    ),
    plain(
        &["split"],
        "a:b:C:del:n:t:ux0123456789",
        "additional-suffix= bytes= elide-empty-files filter= help hex-suffixes[=] line-bytes= lines= number= \
         numeric-suffixes[=] separator= suffix-length= unbuffered verbose version",
    ),
    plain(
        &["install", "ginstall"],
        "bcCdDg:m:o:psS:t:TvZ",
        "backup[=] compare context[=] debug directory group= help mode= no-target-directory owner= preserve-context \
         preserve-timestamps strip strip-program= suffix= target-directory= verbose version",
    ),
    plain(
        &["cp"],
        "abdfHilLnPpRrsS:t:TuvxZ",
        "archive attributes-only backup[=] context[=] copy-contents debug dereference exchange force help interactive \
         keep-directory-symlink link no-clobber no-dereference no-preserve= no-target-directory one-file-system parents \
         path preserve[=] recursive reflink[=] remove-destination sparse= strip-trailing-slashes suffix= symbolic-link \
         target-directory= update[=] verbose version",
    ),
    plain(
        &["mv"],
        "bfinS:t:TuvZ",
        "backup[=] context debug exchange force help interactive no-clobber no-copy no-target-directory \
         strip-trailing-slashes suffix= target-directory= update[=] verbose version",
    ),
    plain(
        &["ln"],
        "bdfFiLnPrsS:t:Tv",
        "backup[=] directory force help interactive logical no-dereference no-target-directory physical relative suffix= \
         symbolic symbolic-link target-directory= verbose version",
    ),
    plain(&["tee"], "aip", "append help ignore-interrupts output-error[=] version"),
    plain(
        &["chmod", "chown", "chgrp"],
        "cfhHLPRv",
        "changes dereference from= help no-dereference no-preserve-root preserve-root quiet recursive reference= silent \
         verbose version",
    ),
    plain(
        &["setfacl"],
        "bkndm:M:Rx:X:LPhv",
        "modify= modify-file= recursive remove= remove-file= restore= set= set-file=",
    ),
    plain(
        &["awk", "gawk", "mawk", "nawk", "original-awk"],
        "bcCd::D::e:E:f:F:ghIi:kl:L::Mnm:No::OPp::rsStv:VW:Y",
        "assign= bignum characters-as-bytes copyright csv debug[=] dump-variables[=] exec= field-separator= file= gen-pot \
         help include= lint[=] lint-old load= no-optimize non-decimal-data optimize posix pretty-print[=] profile[=] \
         re-interval sandbox source= traditional use-lc-numeric version",
    ),
    Family { names: &["find"], grammar: Grammar { form: Form::OneDash, ..OPEN }, role: Role::Plain },
    plain(&["rsync"], "aAbB:cCdDe:Ef:FghHiIklLmM:noOpPqRrsSt@:T:uUvVWxXyz046", "rsh= rsync-path="),
    plain(&["man"], "adfhH::iIklKtT::VwWZ?C:e:E:L:m:M:p:P:r:R:s:S:X::", "pager= preprocessor= config-file= html[=]"),
    plain(&["zip"], "", ""),
    plain(&["ssh", "scp", "sftp"], "46AaCfGgKkMNnqsTtVvXxYyrpb:B:c:D:e:E:F:I:i:J:L:l:m:O:o:P:Q:R:S:W:w:", ""),
    plain(
        &["curl"],
        "#012346aA:b:Bc:C:d:D:e:E:fF:gGh::H:iIjJkK:lLm:MnNo:OpP:qQ:r:RsSt:T:u:U:vVw:x:X:y:Y:z:Z",
        "output=",
    ),
    plain(
        &["wget"],
        "46a:A:bB:cdD:e:EFhHi:I:kKl:LmnNo:O:pP:qQ:rR:St:T:U:vVw:xX:",
        "output-document= output-file= append-output= execute= input-file=",
    ),
    plain(&["shuf"], "ei:n:o:rz", "echo input-range= head-count= output= random-source= repeat zero-terminated"),
    plain(&["iconv"], "clf:t:o:s", "from-code= list output= silent to-code= verbose"),
    plain(
        &["uniq"],
        "cdDf:iuw:s:z",
        "all-repeated[=] check-chars= count group[=] ignore-case repeated skip-chars= skip-fields= unique zero-terminated",
    ),
    Family { names: &["openssl", "java"], grammar: Grammar { form: Form::OneDash, ..OPEN }, role: Role::Plain },
    Family {
        names: &["sqlite3"],
        grammar: Grammar {
            form: Form::OneDash,
            closed: true,
            ..permuted(
                "",
                "A ascii append bail batch box cmd= column csv deserialize echo escape= header heap= help html init= interactive \
                 json line list markdown maxsize= memtrace mmap= newline= nofollow noheader no-rowid-in-view nonce= \
                 noinit nullvalue= pcachetrace quote readonly safe separator= stats table tabs unsafe-testing \
                 version vfs= vfstrace zip",
            )
        },
        role: Role::Plain,
    },
];
