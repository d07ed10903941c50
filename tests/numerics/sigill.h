/* What emulators of instructions share: a handler of SIGILL, which no thread masks. Included once, after _GNU_SOURCE is defined. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>

static int catch_sigill(void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action = {0};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  return sigaction(SIGILL, &action, NULL);
}

/* Kernels' threads take no signals, but this one. */
int pthread_sigmask(int how, const sigset_t* set, sigset_t* old) {
  static int (*original)(int, const sigset_t*, sigset_t*);
  if (original == NULL) original = (int (*)(int, const sigset_t*, sigset_t*))dlsym(RTLD_NEXT, "pthread_sigmask");
  sigset_t kept;
  if (set != NULL && how != SIG_UNBLOCK) {
    kept = *set;
    sigdelset(&kept, SIGILL);
    set = &kept;
  }
  return original(how, set, old);
}
