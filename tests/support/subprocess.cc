#include "tests/support/subprocess.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>

namespace longhaul::testing {
namespace {

// After fork: only calls that are safe there.
[[noreturn]] void Become(char* const* argv, const int output[2], const char* folder) {
  ::setpgid(0, 0);
  const int input = ::open("/dev/null", O_RDONLY);
  ::dup2(input, STDIN_FILENO);
  ::dup2(output[0], STDOUT_FILENO);
  ::dup2(output[1], STDERR_FILENO);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (folder == nullptr || ::chdir(folder) == 0) ::execvp(argv[0], argv);
  constexpr char kMessage[] = "cannot start the program\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  ::_exit(127);
}

int CodeOf(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

}  // namespace

StatusOr<std::unique_ptr<Subprocess>> Subprocess::Start(const std::vector<std::string>& argv,
                                                        const SubprocessOptions& options) {
  if (argv.empty()) return absl::InvalidArgumentError("no program to start");
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);

  int out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) {
    return FromErrno("pipe", errno);
  }
  const int write_ends[2] = {out[1], err[1]};
  for (const auto& [name, value] : options.environment) ::setenv(name.c_str(), value.c_str(), 1);
  const pid_t pid = ::fork();
  const int fork_error = errno;
  if (pid == 0) {
    Become(arguments.data(), write_ends, options.folder.empty() ? nullptr : options.folder.c_str());
  }
  for (const auto& [name, value] : options.environment) ::unsetenv(name.c_str());
  ::close(out[1]);
  ::close(err[1]);
  std::unique_ptr<Subprocess> process(new Subprocess());
  process->pid_ = pid;
  process->pipes_[0] = out[0];
  process->pipes_[1] = err[0];
  if (pid < 0) return FromErrno("fork", fork_error);
  ::setpgid(pid, pid);  // In both processes: whoever comes first.
  return process;
}

Subprocess::~Subprocess() {
  if (pid_ > 0) {
    ::kill(-pid_, SIGKILL);
    int status = 0;
    if (!exit_code_.has_value()) ::waitpid(pid_, &status, 0);
  }
  for (const int pipe : pipes_) {
    if (pipe >= 0) ::close(pipe);
  }
}

void Subprocess::Signal(int signal) {
  if (!exit_code_.has_value()) ::kill(pid_, signal);
}

bool Subprocess::ReadUntil(const std::function<bool()>& done, Deadline deadline) {
  while (!done()) {
    pollfd polls[2] = {{pipes_[0], POLLIN, 0}, {pipes_[1], POLLIN, 0}};
    if (polls[0].fd < 0 && polls[1].fd < 0) return true;
    const auto wait_ms = absl::ToInt64Milliseconds(deadline.Remaining());
    const int ready = ::poll(polls, 2, static_cast<int>(std::min<int64_t>(wait_ms, 60'000)));
    if (ready == 0 && deadline.Expired()) return false;
    for (int i = 0; i < 2; ++i) {
      if ((polls[i].revents & (POLLIN | POLLHUP)) == 0) continue;
      char buffer[4096];
      const ssize_t bytes = ::read(pipes_[i], buffer, sizeof(buffer));
      if (bytes > 0) {
        output_[i].append(buffer, static_cast<size_t>(bytes));
      } else if (bytes == 0 || errno != EINTR) {
        ::close(pipes_[i]);
        pipes_[i] = -1;
      }
    }
  }
  return true;
}

bool Subprocess::WaitForOutput(const std::string& text, Deadline deadline) {
  const auto found = [&] {
    return output_[0].find(text) != std::string::npos || output_[1].find(text) != std::string::npos;
  };
  return ReadUntil(found, deadline) && found();
}

std::optional<int> Subprocess::WaitForExit(Deadline deadline) {
  if (exit_code_.has_value()) return exit_code_;
  // A descriptor that is readable when the process has ended: its pipes may outlive it in children.
  const int end = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
  const auto ended = [&] {
    pollfd poll_end{end, POLLIN, 0};
    return ::poll(&poll_end, 1, 0) > 0;
  };
  // The streams end with the process as a rule; then only its exit is left to wait for.
  const bool read = ReadUntil(ended, deadline);
  pollfd poll_end{end, POLLIN, 0};
  const auto wait_ms = static_cast<int>(absl::ToInt64Milliseconds(deadline.Remaining()));
  if (read && ::poll(&poll_end, 1, wait_ms) > 0) {
    int status = 0;
    if (::waitpid(pid_, &status, 0) == pid_) exit_code_ = CodeOf(status);
    // Output that it had written before it ended.
    ReadUntil([] { return false; }, Deadline::After(absl::ZeroDuration()));
  }
  ::close(end);
  return exit_code_;
}

}  // namespace longhaul::testing
