// Logging for all programs: time, level and message on standard error, and a copy to a callback.
// Lines are made printable (base/printable.h) and cut at 16 KiB. Use base/peer_log.h for lines that
// a peer can cause.
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

// `level`: trace, debug, info, warn, error or off. Call it once, first in main(). Earlier lines go
// to standard output.
Status InitLogging(const std::string& level);
// Whether lines of this level are written.
bool LogsAt(LogLevel level);
// Thread-safe.
void WriteLog(LogLevel level, std::string_view line);
// Flushes, and drops later lines.
void EndLogging();

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

// Calls `sink` for every line from now on ("info", "message"), on the logging thread; it must not
// log. An empty function removes it.
void SetLogTap(std::function<void(std::string_view level, std::string_view message)> sink);

}  // namespace longhaul
