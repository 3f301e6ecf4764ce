// Logging for all programs. A line has the time, the level and the message. It goes to standard
// error, and a copy to a callback (SetLogTap). Lines are made printable (base/printable.h) and cut
// at 16 KiB. Use base/peer_log.h for lines that a peer can cause. All functions except InitLogging
// are thread-safe.
//
//   LogInfo("worker {} of {} has joined", name, count);
//
// Only log.cc includes spdlog, whose headers take three seconds to compile in every file.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace longhaul {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarn, kError };

// Begins to log lines of `level` and above: trace, debug, info, warn, error or off. Call
// InitLogging once, first in main(): earlier lines go to standard output. kInvalidArgument: another
// word.
Status InitLogging(const std::string& level);
// Whether lines of this level are written.
bool LogsAt(LogLevel level);
// Logs a line that is formatted already. Drops the line if its level is not logged.
void WriteLog(LogLevel level, std::string_view line);
// Writes out all lines so far, for a process that ends by std::_Exit.
void FlushLog();

template <class... Args>
void Log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (LogsAt(level)) WriteLog(level, fmt::vformat(format, fmt::make_format_args(args...)));
}
template <class... Args>
void LogDebug(fmt::format_string<Args...> format, Args&&... args) {
  Log(LogLevel::kDebug, format, std::forward<Args>(args)...);
}
template <class... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  Log(LogLevel::kInfo, format, std::forward<Args>(args)...);
}
template <class... Args>
void LogWarning(fmt::format_string<Args...> format, Args&&... args) {
  Log(LogLevel::kWarn, format, std::forward<Args>(args)...);
}
template <class... Args>
void LogError(fmt::format_string<Args...> format, Args&&... args) {
  Log(LogLevel::kError, format, std::forward<Args>(args)...);
}

// From now on, calls `sink` with the level ("info") and the message of every line, one line at a
// time, on the thread that logs the line. `sink` must not log. Replaces the earlier sink, which
// does not run any more when SetLogTap returns. An empty function only removes the earlier sink.
void SetLogTap(std::function<void(std::string_view level, std::string_view message)> sink);

}  // namespace longhaul
