#include "deploy/cluster/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/clock.h"
#include "base/file.h"
#include "base/unique_fd.h"

namespace longhaul {
namespace {

constexpr absl::Duration kToolLimit = absl::Seconds(30);
constexpr std::string_view kMarker = "LONGHAUL_CLUSTER_DAEMON=";

std::vector<char*> ArgumentVector(const Command& command) {
  std::vector<char*> arguments;
  for (const std::string& argument : command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  return arguments;
}

std::string Trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

// Reads both pipes until both are closed or the deadline has passed.
bool Drain(int out_fd, std::string* out, int err_fd, std::string* err, Deadline deadline) {
  pollfd polls[2] = {{out_fd, POLLIN, 0}, {err_fd, POLLIN, 0}};
  std::string* texts[2] = {out, err};
  int open = 2;
  char buffer[4096];
  while (open > 0) {
    const int left = static_cast<int>(absl::ToInt64Milliseconds(deadline.Remaining()));
    if (left == 0) return false;
    if (poll(polls, 2, left) < 0 && errno != EINTR) return false;
    for (int i = 0; i < 2; ++i) {
      if (polls[i].fd < 0 || polls[i].revents == 0) continue;
      const ssize_t got = read(polls[i].fd, buffer, sizeof buffer);
      if (got > 0) {
        texts[i]->append(buffer, static_cast<size_t>(got));
      } else if (got == 0 || errno != EINTR) {
        polls[i].fd = -1;
        --open;
      }
    }
  }
  return true;
}

struct StatLine {
  char state = 0;
  pid_t parent = 0;
  uint64_t start_ticks = 0;
};

// /proc/<pid>/stat; the command name in it may hold spaces and brackets.
std::optional<StatLine> ReadStat(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos) return std::nullopt;
  std::istringstream rest(text.substr(end_of_name + 1));
  StatLine line;
  rest >> line.state >> line.parent;
  std::string skipped;
  for (int field = 5; field < 22; ++field) rest >> skipped;
  rest >> line.start_ticks;
  if (!rest) return std::nullopt;
  return line;
}

// What the child does between fork and exec. Only async-signal-safe calls.
[[noreturn]] void ExecDaemon(char* const* arguments, char* const* environment, int log_fd,
                             int error_fd) {
  setsid();
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  const int null_fd = open("/dev/null", O_RDONLY);
  if (null_fd >= 0) dup2(null_fd, STDIN_FILENO);
  dup2(log_fd, STDOUT_FILENO);
  dup2(log_fd, STDERR_FILENO);
  execve(arguments[0], arguments, environment);
  const int error = errno;
  (void)!write(error_fd, &error, sizeof error);
  _exit(127);
}

}  // namespace

std::string ToString(const Command& command) {
  std::string text;
  for (const std::string& argument : command) {
    if (!text.empty()) text += ' ';
    const bool plain =
        !argument.empty() && argument.find_first_not_of(
                                 "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "0123456789-_./:=,+@%") == std::string::npos;
    text += plain ? argument : fmt::format("'{}'", argument);
  }
  return text;
}

std::string FindTool(std::string_view name) {
  const char* path = std::getenv("PATH");
  std::error_code ignored;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  // Last, what a portable bundle carries.
  const std::string folders =
      fmt::format("{}:/usr/sbin:/sbin:/usr/local/sbin:{}", path ? path : "",
                  (self.parent_path().parent_path() / "libexec" / "tools").string());
  std::istringstream list(folders);
  std::string folder;
  while (std::getline(list, folder, ':')) {
    if (folder.empty()) continue;
    std::string candidate = fmt::format("{}/{}", folder, name);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

StatusOr<std::string> RunTool(const Command& command) {
  Command resolved = command;
  if (resolved.at(0).find('/') == std::string::npos) {
    resolved[0] = FindTool(resolved[0]);
    if (resolved[0].empty()) {
      return NotFound("'{}' is not installed; it was needed for: {}", command[0],
                      ToString(command));
    }
  }
  int out_pipe[2], err_pipe[2];
  if (pipe2(out_pipe, O_CLOEXEC) != 0) return FromErrno("pipe", errno);
  UniqueFd out_read(out_pipe[0]), out_write(out_pipe[1]);
  if (pipe2(err_pipe, O_CLOEXEC) != 0) return FromErrno("pipe", errno);
  UniqueFd err_read(err_pipe[0]), err_write(err_pipe[1]);
  std::vector<char*> arguments = ArgumentVector(resolved);
  const pid_t pid = fork();
  if (pid < 0) return FromErrno("fork", errno);
  if (pid == 0) {
    // A Ctrl-C of the user is for this program, which then cleans up; not for the tools it runs.
    setpgid(0, 0);
    dup2(out_write.get(), STDOUT_FILENO);
    dup2(err_write.get(), STDERR_FILENO);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  out_write.Reset();
  err_write.Reset();
  std::string out, err;
  const bool finished =
      Drain(out_read.get(), &out, err_read.get(), &err, Deadline::After(kToolLimit));
  if (!finished) kill(pid, SIGKILL);
  int wait_status = 0;
  while (waitpid(pid, &wait_status, 0) < 0 && errno == EINTR) {
  }
  if (!finished) {
    return DeadlineExceeded("'{}' did not end within 30 s and was killed", ToString(command));
  }
  if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) return out;
  return Internal("'{}' failed ({} {}): {}", ToString(command),
                  WIFEXITED(wait_status) ? "exit code" : "signal",
                  WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : WTERMSIG(wait_status),
                  err.empty() ? "it printed no reason" : Trimmed(err));
}

StatusOr<ProcessIdentity> StartDaemon(const Command& command, std::string_view cluster,
                                      const std::string& log_path) {
  UniqueFd log(open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (log.get() < 0) return FromErrno(fmt::format("cannot write {}", log_path), errno);
  int error_pipe[2];
  if (pipe2(error_pipe, O_CLOEXEC) != 0) return FromErrno("pipe", errno);
  UniqueFd error_read(error_pipe[0]), error_write(error_pipe[1]);

  std::string marker = fmt::format("{}{}", kMarker, cluster);
  std::vector<char*> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!std::string_view(*variable).starts_with(kMarker)) environment.push_back(*variable);
  }
  environment.push_back(marker.data());
  environment.push_back(nullptr);
  std::vector<char*> arguments = ArgumentVector(command);

  const pid_t pid = fork();
  if (pid < 0) return FromErrno("fork", errno);
  if (pid == 0) {
    ExecDaemon(arguments.data(), environment.data(), log.get(), error_write.get());
  }
  error_write.Reset();
  int error = 0;
  ssize_t got = 0;
  while ((got = read(error_read.get(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (got == sizeof error) {
    waitpid(pid, nullptr, 0);
    return FromErrno(fmt::format("cannot start '{}'", ToString(command)), error);
  }
  // Dead already: the caller will find out by IsAlive.
  const std::optional<StatLine> stat = ReadStat(pid);
  return ProcessIdentity{pid, stat ? stat->start_ticks : 0};
}

bool IsAlive(const ProcessIdentity& process) {
  if (process.pid <= 0) return false;
  std::optional<StatLine> stat = ReadStat(process.pid);
  if (!stat || stat->start_ticks != process.start_ticks) return false;
  if (stat->state != 'Z' && stat->state != 'X') return true;
  if (stat->parent == getpid()) waitpid(process.pid, nullptr, WNOHANG);
  return false;
}

std::vector<ProcessIdentity> FindDaemons(std::string_view cluster) {
  const std::string marker = fmt::format("{}{}", kMarker, cluster);
  std::vector<ProcessIdentity> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    pid_t pid = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (parsed.ec != std::errc() || parsed.ptr != name.data() + name.size()) continue;
    if (pid == getpid()) continue;
    std::ifstream file(entry.path() / "environ");
    std::string variable;
    bool marked = false;
    while (!marked && std::getline(file, variable, '\0')) marked = variable == marker;
    if (!marked) continue;
    const std::optional<StatLine> stat = ReadStat(pid);
    if (stat && stat->state != 'Z') found.push_back({pid, stat->start_ticks});
  }
  return found;
}

namespace {

// Waits for the end of all, at most until the deadline; those still there.
std::vector<ProcessIdentity> WaitForEnd(std::vector<ProcessIdentity> processes, Deadline deadline) {
  while (true) {
    std::erase_if(processes, [](const ProcessIdentity& process) { return !IsAlive(process); });
    if (processes.empty() || deadline.Expired()) return processes;
    // A pidfd becomes readable when its process ends. IsAlive above already made sure that the id
    // means the process we know.
    UniqueFd ended(static_cast<int>(syscall(SYS_pidfd_open, processes.front().pid, 0)));
    pollfd wait{ended.get(), POLLIN, 0};
    const auto left = absl::ToInt64Milliseconds(deadline.Remaining());
    poll(&wait, ended.get() < 0 ? 0 : 1, static_cast<int>(std::min<int64_t>(left, 100)));
  }
}

Status KillAll(const std::vector<ProcessIdentity>& processes) {
  for (const ProcessIdentity& process : processes) {
    if (IsAlive(process)) kill(process.pid, SIGKILL);
  }
  const auto left = WaitForEnd(processes, Deadline::After(absl::Seconds(5)));
  if (left.empty()) return absl::OkStatus();
  std::string ids;
  for (const ProcessIdentity& process : left) ids += fmt::format(" {}", process.pid);
  return DeadlineExceeded(
      "processes{} are still there 5 s after SIGKILL; look at them with ps and try again", ids);
}

}  // namespace

Status StopProcesses(const std::vector<ProcessIdentity>& processes, absl::Duration patience) {
  for (const ProcessIdentity& process : processes) {
    if (IsAlive(process)) kill(process.pid, SIGTERM);
  }
  return KillAll(WaitForEnd(processes, Deadline::After(patience)));
}

Status KillProcess(const ProcessIdentity& process) {
  return KillAll({process});
}

std::string LogTail(const std::string& path, int lines) {
  StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return {};
  size_t begin = text->size();
  if (begin > 0 && text->back() == '\n') --begin;
  for (int line = 0; line < lines && begin != 0 && begin != std::string::npos; ++line) {
    const size_t newline = text->rfind('\n', begin - 1);
    begin = newline == std::string::npos ? 0 : newline;
  }
  if (begin < text->size() && (*text)[begin] == '\n') ++begin;
  return text->substr(begin);
}

}  // namespace longhaul
