// A worker's way out after SIGTERM: it says that it is leaving, and goes on with its stage until
// the coordinator says that no run needs it, or its time is over.
//
//   leave.Begin(limit, why);  session->Send(leave.Word());
//   while (!leave.IsOver()) ...
//
// Thread-safe.
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/clock.h"
#include "longhaul/v1/worker.pb.h"

namespace longhaul::worker {

class Leave {
 public:
  // `why`: a sentence for people without its full stop. Later calls change nothing.
  void Begin(absl::Duration limit, std::string why);
  bool HasBegun() const;
  // The coordinator has said that the worker may go.
  void Allow();
  bool IsAllowed() const;
  // Returns whether the worker may go or its time is over. False before Begin.
  bool IsOver() const;
  // The message to the coordinator, with the time that is left. Begin must have been called.
  v1::WorkerMessage Word() const;
  // Says in a hello that the worker is leaving, if it is.
  void FillHello(v1::Hello* hello) const;

 private:
  v1::Leaving LeavingLocked() const;

  mutable std::mutex mutex_;
  std::optional<MonoTime> until_;
  std::string why_;
  bool allowed_ = false;
};

}  // namespace longhaul::worker
