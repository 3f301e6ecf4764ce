// Logging is spdlog, called directly (spdlog::info("...")), set up here for all programs: time,
// level, message on standard error, and a copy to a callback. Lines are made printable
// (base/printable.h) and cut at 16 KiB. Lines that a peer can cause go through base/peer_log.h.
#ifndef LONGHAUL_BASE_LOG_H_
#define LONGHAUL_BASE_LOG_H_

#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace longhaul {

// `level`: trace, debug, info, warn or error. Call once, first in main().
Status InitLogging(const std::string& level);

// `sink` gets every line from now on ("info", "message"), on the thread that logs; it must not log.
// An empty function takes it away again.
void SetLogTap(std::function<void(std::string_view level, std::string_view message)> sink);

}  // namespace longhaul

#endif  // LONGHAUL_BASE_LOG_H_
