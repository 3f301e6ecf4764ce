// Shows the progress of slow work on standard error. For two seconds it shows nothing. Then it
// shows one line that changes in place on a terminal, or writes a line every ten seconds elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "cli/terminal.h"

namespace longhaul::cli {

// Threads: one. `what` names the work: "uploading the data". `terminal` must outlive this object.
// Tests pass `now`. Call Bytes or Say often; only some calls write. The destructor clears the line.
class Progress {
 public:
  Progress(const Terminal& terminal, std::string what, std::function<MonoTime()> now = Now);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // "uploading the data: 1.2 GB of 4 GB, 30%, 2m05s left". In bytes. `total` 0: unknown.
  void Bytes(uint64_t done, uint64_t total);
  // "<what>: <text>", or `what` alone if the text is empty.
  void Say(std::string_view text);

 private:
  const Terminal& terminal_;
  const std::string what_;
  const std::function<MonoTime()> now_;
  const MonoTime start_;
  MonoTime next_;
  bool shown_ = false;
};

}  // namespace longhaul::cli
