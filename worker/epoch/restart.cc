#include "worker/epoch/restart.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/status.h"

namespace longhaul::worker {
namespace {

// "<fault>:<text>"
constexpr char kVariable[] = "LONGHAUL_WORKER_RESTARTED_FOR";

// Libraries open some files without that, and threads may open more until the last moment.
void CloseFilesOnExec() {
  if (::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) == 0) return;
  std::error_code error;  // a kernel before 5.11
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string name = entry.path().filename().string();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    if (fd > 2) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
}

}  // namespace

RestartCause TakeRestartCause() {
  const char* const value = std::getenv(kVariable);  // NOLINT(concurrency-mt-unsafe)
  if (value == nullptr) return {};
  const std::string_view said = value;
  RestartCause cause;
  int fault = 0;
  const auto [end, error] = std::from_chars(said.data(), said.data() + said.size(), fault);
  if (error == std::errc() && v1::WorkerFault_IsValid(fault)) {
    cause.fault = static_cast<v1::WorkerFault>(fault);
    const size_t colon = said.find(':');
    if (colon != std::string_view::npos) cause.text = said.substr(colon + 1);
  }
  ::unsetenv(kVariable);  // NOLINT(concurrency-mt-unsafe)
  return cause;
}

Restart::Restart(char** arguments, std::function<void()> say_last_words)
    : arguments_(arguments), say_last_words_(std::move(say_last_words)) {}

void Restart::operator()(const RestartCause& cause) {
  const std::lock_guard lock(mutex_);
  if (disarmed_) return;
  LogError("this worker {}; it restarts itself", cause.text);
  say_last_words_();
  // Not setenv: other threads may read the environment.
  std::string variable =
      fmt::format("{}={}:{}", kVariable, static_cast<int>(cause.fault), cause.text);
  std::vector<char*> environment;
  for (char** one = environ; *one != nullptr; ++one) environment.push_back(*one);
  environment.push_back(variable.data());
  environment.push_back(nullptr);
  // The program's own path, by which people find the process; the link where the file was replaced.
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error).string();
  CloseFilesOnExec();
  ::execve(program.c_str(), arguments_, environment.data());
  ::execve("/proc/self/exe", arguments_, environment.data());
  LogError("cannot begin anew: {}", Message(FromErrno(program, errno)));
  FlushLog();
  std::_Exit(1);
}

void Restart::Disarm() {
  const std::lock_guard lock(mutex_);
  disarmed_ = true;
}

}  // namespace longhaul::worker
