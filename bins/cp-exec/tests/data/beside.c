/* Says "ran" without an argument; with the path of another program, maps and executes that one, and writes to its own file. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 2) return puts("ran") < 0;
    int other = open(argv[1], O_RDONLY), own = open(argv[0], O_WRONLY | O_TRUNC);
    void *mapped = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, other, 0);
    printf("read %s, map %s, write %s\n", other < 0 ? "refused" : "done", mapped == MAP_FAILED ? "refused" : "done",
           own < 0 ? "refused" : "done");
    fflush(stdout);
    char *words[] = {argv[1], NULL};
    execv(argv[1], words);
    puts("execute refused");
    return 0;
}
