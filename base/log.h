// Logging, for all programs: time, level, message on standard error, and a copy to a callback.
// Lines are made printable (base/printable.h) and cut at 16 KiB. Lines that a peer can cause go
// through base/peer_log.h.
//
//   LogInfo("worker {} of {} has joined", name, count);
//
// spdlog does it, in log.cc alone: its headers and templates cost each file that includes them
// three seconds to compile.
#ifndef LONGHAUL_BASE_LOG_H_
#define LONGHAUL_BASE_LOG_H_

#include <fmt/core.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace longhaul {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarn, kError };

// `level`: trace, debug, info, warn, error or off. Call once, first in main(). Lines from before it
// go to standard output.
Status InitLogging(const std::string& level);
// Whether lines of this level are written.
bool LogsAt(LogLevel level);
// Thread-safe.
void WriteLog(LogLevel level, std::string_view line);
// What was written is out, and nothing is written any more.
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

// `sink` gets every line from now on ("info", "message"), on the thread that logs; it must not log.
// An empty function takes it away again.
void SetLogTap(std::function<void(std::string_view level, std::string_view message)> sink);

}  // namespace longhaul

#endif  // LONGHAUL_BASE_LOG_H_
