/* Runs a program on a machine that lacks something: without LAYER[,LAYER] PROGRAM ARG...
   landlock: the kernel has none. namespaces, or one of mount, user, pid, network, ipc, uts: nobody gets any, or none of that kind.
   seccomp: a filter cannot be installed. rlimits: a limit cannot be set. cgroup: the file system of groups is not there.
   outer: the rights of root, and shutdown(2) and sendto(2), as in the sandbox of a coding agent.
   call=N: the kernel has no system call N. refuse=N: nobody may make it.
   ordinary: whoever runs it is not root. none: nothing is lacking. */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NEW (CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)
#define LOAD(what) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, what))
#define IS(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)
#define ANSWER(value) BPF_STMT(BPF_RET | BPF_K, value)
#define ERROR(number) ANSWER(SECCOMP_RET_ERRNO | (number))
#define INSTALL(filter) install(filter, sizeof(filter) / sizeof *(filter))

static int install(struct sock_filter *filter, unsigned short length) {
    struct sock_fprog program = {length, filter};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static unsigned kinds(const char *layers) {
    static const struct { const char *name; unsigned flag; } all[] = {
        {"namespaces", NEW}, {"mount", CLONE_NEWNS}, {"user", CLONE_NEWUSER}, {"pid", CLONE_NEWPID},
        {"network", CLONE_NEWNET}, {"ipc", CLONE_NEWIPC}, {"uts", CLONE_NEWUTS},
    };
    unsigned flags = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strstr(layers, all[i].name)) flags |= all[i].flag;
    return flags;
}

/* Takes one system call away. */
static int take(const char *layers, const char *word, unsigned answer) {
    const char *at = strstr(layers, word);
    if (!at) return 0;
    struct sock_filter call[] = {
        LOAD(nr), IS(strtoul(at + strlen(word), NULL, 10), 0, 1), ERROR(answer), ANSWER(SECCOMP_RET_ALLOW),
    };
    return INSTALL(call);
}

int main(int argc, char **argv) {
    if (argc < 3) return 125;
    unsigned flags = kinds(argv[1]);
    struct sock_filter landlock[] = {LOAD(nr), IS(444, 0, 1), ERROR(ENOSYS), ANSWER(SECCOMP_RET_ALLOW)};
    struct sock_filter namespaces[] = {
        LOAD(nr), IS(SYS_unshare, 2, 0), IS(SYS_clone3, 4, 0), IS(SYS_clone, 0, 4),
        LOAD(args[0]), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, flags, 0, 2),
        ERROR(EPERM), ERROR(ENOSYS), ANSWER(SECCOMP_RET_ALLOW),
    };
    struct sock_filter limits[] = {
        LOAD(nr), IS(SYS_setrlimit, 3, 0), IS(SYS_prlimit64, 0, 3),
        LOAD(args[2]), IS(0, 1, 0), ERROR(EPERM), ANSWER(SECCOMP_RET_ALLOW),
    };
    struct sock_filter filters[] = {
        LOAD(nr), IS(SYS_seccomp, 3, 0), IS(SYS_prctl, 0, 3),
        LOAD(args[0]), IS(PR_SET_SECCOMP, 0, 1), ERROR(EINVAL), ANSWER(SECCOMP_RET_ALLOW),
    };
    struct sock_filter sockets[] = {
        LOAD(nr), IS(SYS_shutdown, 1, 0), IS(SYS_sendto, 0, 1), ERROR(EPERM), ANSWER(SECCOMP_RET_ALLOW),
    };
    if (strstr(argv[1], "cgroup")
        && (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)
            || mount("none", "/sys/fs/cgroup", "tmpfs", MS_RDONLY, NULL))) return 125;
    int outer = strstr(argv[1], "outer") != NULL;
    for (int right = 0; outer && prctl(PR_CAPBSET_DROP, right, 0, 0, 0) == 0; right++) {}
    if (strstr(argv[1], "ordinary") && (setgroups(0, NULL) || setgid(1000) || setuid(1000))) return 125;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 125;
    if (strstr(argv[1], "landlock") && INSTALL(landlock)) return 125;
    if (flags && INSTALL(namespaces)) return 125;
    if (outer && INSTALL(sockets)) return 125;
    if (strstr(argv[1], "rlimits") && INSTALL(limits)) return 125;
    if (take(argv[1], "call=", ENOSYS) || take(argv[1], "refuse=", EPERM)) return 125;
    /* The last: after it there are no more. */
    if (strstr(argv[1], "seccomp") && INSTALL(filters)) return 125;
    execv(argv[2], argv + 2);
    perror(argv[2]);
    return 127;
}
