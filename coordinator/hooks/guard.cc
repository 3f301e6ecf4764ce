#include "coordinator/hooks/guard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <ctime>

namespace longhaul::coordinator {
namespace {

static_assert(kGuardEnds == SIGTERM);

// File descriptors that are closed one by one where the kernel (before 5.9) cannot close a range.
constexpr int kMostFiles = 65'536;
// How long the end of killed processes is waited for: 2 s. One that waits for a disk ends later.
constexpr int kMostLooks = 400;
constexpr timespec kLook = {.tv_sec = 0, .tv_nsec = 5'000'000};

void Say(int words, GuardWord::Kind kind, int value) {
  const GuardWord word{.kind = kind, .value = value};
  (void)!::write(words, &word, sizeof word);
}

// Gives standard input, output and error to the program, and keeps `words` as the only other file.
void KeepFiles(const Guarded& guarded) {
  constexpr int kWords = STDERR_FILENO + 1;
  if (const int null_fd = ::open("/dev/null", O_RDONLY); null_fd >= 0) {
    ::dup2(null_fd, STDIN_FILENO);
  } else {
    ::close(STDIN_FILENO);
  }
  ::dup2(guarded.output, STDOUT_FILENO);
  ::dup2(guarded.output, STDERR_FILENO);
  ::dup2(guarded.words, kWords);
  ::fcntl(kWords, F_SETFD, FD_CLOEXEC);
  if (::syscall(SYS_close_range, kWords + 1, ~0U, 0U) == 0) return;
  for (int fd = kWords + 1; fd < kMostFiles; ++fd) ::close(fd);
}

[[noreturn]] void BecomeProgram(const Guarded& guarded, int words, pid_t guard) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != guard) ::_exit(127);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (::chdir(guarded.folder) != 0) {
    Say(words, GuardWord::Kind::kNoFolder, errno);
    ::_exit(127);
  }
  int error = ENOENT;
  for (char* path : guarded.paths) {
    if (path == nullptr) break;
    ::execve(path, guarded.arguments.data(), guarded.environment.data());
    if (errno != ENOENT && errno != ENOTDIR) error = errno;
  }
  Say(words, GuardWord::Kind::kNoProgram, error);
  ::_exit(127);
}

// Kills all children of this process, which has no threads.
void KillChildren() {
  const int fd = ::open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  char text[4096];
  pid_t pid = 0;
  ssize_t got = 0;
  while ((got = ::read(fd, text, sizeof text)) > 0) {
    for (ssize_t i = 0; i < got; ++i) {
      if (text[i] >= '0' && text[i] <= '9') {
        pid = 10 * pid + (text[i] - '0');
      } else if (pid > 0) {
        ::kill(pid, SIGKILL);
        pid = 0;
      }
    }
  }
  ::close(fd);
}

// Descendants whose parents die become children of the guard, so this goes on until it has none.
void EndAll(pid_t program, int words, bool is_reaped) {
  for (int look = 0; look < kMostLooks; ++look) {
    ::kill(-program, SIGKILL);
    KillChildren();
    while (true) {
      int status = 0;
      const pid_t pid = ::waitpid(-1, &status, WNOHANG);
      if (pid < 0 && errno == EINTR) continue;
      if (pid < 0) return;  // there is none left
      if (pid == 0) break;
      if (pid == program && !is_reaped) Say(words, GuardWord::Kind::kEnded, status);
    }
    ::nanosleep(&kLook, nullptr);
  }
}

}  // namespace

void BecomeGuard(const Guarded& guarded) {
  // No signal of the terminal is for the guard.
  ::setpgid(0, 0);
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::prctl(PR_SET_PDEATHSIG, kGuardEnds);
  if (::getppid() != guarded.parent) ::_exit(127);  // it has died already
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  KeepFiles(guarded);
  constexpr int kWords = STDERR_FILENO + 1;
  const pid_t guard = ::getpid();
  // Not fork, which calls what libraries have registered for it.
  const pid_t program = ::_Fork();
  if (program == 0) BecomeProgram(guarded, kWords, guard);
  if (program < 0) {
    Say(kWords, GuardWord::Kind::kNoProgram, errno);
    ::_exit(127);
  }
  ::setpgid(program, program);  // here, too: it may not have come to it yet
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, kGuardEnds);
  sigaddset(&wanted, SIGCHLD);
  bool is_reaped = false;
  while (!is_reaped) {
    int number = 0;
    ::sigwait(&wanted, &number);
    if (number == kGuardEnds) break;
    int status = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (pid != program) continue;
      Say(kWords, GuardWord::Kind::kEnded, status);
      is_reaped = true;
      break;
    }
  }
  EndAll(program, kWords, is_reaped);
  ::_exit(0);
}

}  // namespace longhaul::coordinator
