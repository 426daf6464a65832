/* Runs a program on a machine that lacks something: without LAYER[,LAYER] PROGRAM ARG...
   landlock: the kernel has none. namespaces: nobody gets any. ordinary: whoever runs it is not root. */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NEW (CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)
#define LOAD(what) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, what))
#define IS(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)
#define ANSWER(value) BPF_STMT(BPF_RET | BPF_K, value)
#define ERROR(number) ANSWER(SECCOMP_RET_ERRNO | (number))

static int install(struct sock_filter *filter, unsigned short length) {
    struct sock_fprog program = {length, filter};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(int argc, char **argv) {
    struct sock_filter landlock[] = {LOAD(nr), IS(444, 0, 1), ERROR(ENOSYS), ANSWER(SECCOMP_RET_ALLOW)};
    struct sock_filter namespaces[] = {
        LOAD(nr), IS(SYS_unshare, 4, 0), IS(SYS_clone3, 4, 0), IS(SYS_clone, 0, 4),
        LOAD(args[0]), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, NEW, 0, 2),
        ERROR(EPERM), ERROR(ENOSYS), ANSWER(SECCOMP_RET_ALLOW),
    };
    if (argc < 3) return 125;
    if (strstr(argv[1], "ordinary") && (setgroups(0, NULL) || setgid(1000) || setuid(1000))) return 125;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 125;
    if (strstr(argv[1], "landlock") && install(landlock, sizeof landlock / sizeof *landlock)) return 125;
    if (strstr(argv[1], "namespaces") && install(namespaces, sizeof namespaces / sizeof *namespaces)) return 125;
    execv(argv[2], argv + 2);
    perror(argv[2]);
    return 127;
}
