/* Preloaded into a job's processes: in the rank that REFUSED_RANK names (as in --rank N; none: in a
 * process that is no rank) the call of pthread_create() with number REFUSED_THREAD, from 1, and all
 * later ones fail as under a limit of processes, which does not bind root. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether `--rank` and `wanted` are arguments of this process; or, with none wanted, no `--rank`. */
static int concerned(const char* wanted) {
  static char words[1 << 16];
  FILE* const file = fopen("/proc/self/cmdline", "rb");
  if (file == NULL) abort();
  const size_t size = fread(words, 1, sizeof words - 1, file);
  fclose(file);
  for (const char* word = words; word < words + size; word += strlen(word) + 1) {
    if (strcmp(word, "--rank") == 0) return strcmp(word + sizeof "--rank", wanted) == 0;
  }
  return strcmp(wanted, "none") == 0;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) {
  static atomic_int calls;
  const char* const rank = getenv("REFUSED_RANK");
  const char* const number = getenv("REFUSED_THREAD");
  if (rank == NULL || number == NULL) abort();
  if (concerned(rank) && atomic_fetch_add(&calls, 1) + 1 >= atoi(number)) return EAGAIN;
  int (*next)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) =
      dlsym(RTLD_NEXT, "pthread_create");
  return next(thread, attributes, body, argument);
}
