//! Archives.

use super::{Family, Role};
use crate::arguments::grammar::{Also, Grammar, permuted};

pub(super) const FAMILIES: &[Family] = &[Family {
    names: &["tar", "gtar", "bsdtar"],
    grammar: Grammar { also: Also::Bundle, ..permuted(LETTERS, LONG) },
    role: Role::Plain,
}];

const LETTERS: &str = "Aab:BcC:dEf:F:g:GhH:iI:jJK:klL:mMN:noOpPrRsStT:uUvV:wWxX:zZ0123456789?";

const LONG: &str = "absolute-names acls add-file= after-date= anchored append atime-preserve[=] auto-compress backup[=] \
         block-number blocking-factor= bzip2 catenate check-device check-links checkpoint[=] checkpoint-action= \
         clamp-mtime compare compress concatenate confirmation create delay-directory-restore delete dereference \
         diff directory= exclude= exclude-backups exclude-caches exclude-caches-all exclude-caches-under \
         exclude-from= exclude-ignore= exclude-ignore-recursive= exclude-tag= exclude-tag-all= exclude-tag-under= \
         exclude-vcs exclude-vcs-ignores extract file= files-from= force-local format= full-time get group= \
         group-map= gunzip gzip hard-dereference help hole-detection= ignore-case ignore-command-error \
         ignore-failed-read ignore-zeros incremental index-file= info-script= interactive keep-directory-symlink \
         keep-newer-files keep-old-files label= level= list listed-incremental= lzip lzma lzop mode= mtime= \
         multi-volume new-volume-script= newer= newer-mtime= no-acls no-anchored no-auto-compress no-check-device \
         no-delay-directory-restore no-ignore-case no-ignore-command-error no-null no-overwrite-dir \
         no-quote-chars= no-recursion no-same-owner no-same-permissions no-seek no-selinux no-unquote \
         no-verbatim-files-from no-wildcards no-wildcards-match-slash no-xattrs null numeric-owner occurrence[=] \
         old-archive one-file-system one-top-level[=] overwrite overwrite-dir owner= owner-map= pax-option= \
         portability posix preserve-order preserve-permissions quote-chars= quoting-style= read-full-records \
         record-size= recursion recursive-unlink remove-files restrict rmt-command= rsh-command= same-order \
         same-owner same-permissions seek selinux show-defaults show-omitted-dirs show-snapshot-field-ranges \
         show-stored-names show-transformed-names skip-old-files sort= sparse sparse-version= starting-file= \
         strip-components= suffix= tape-length= test-label to-command= to-stdout totals[=] touch transform= \
         uncompress ungzip unlink-first unquote update usage use-compress-program= utc verbatim-files-from verbose \
         verify version volno-file= warning= wildcards wildcards-match-slash xattrs xattrs-exclude= \
         xattrs-include= xform= xz zstd";
