// The interface through which the dashboard changes runs, each time for the owner of a key.
#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "longhaul/v1/control.pb.h"

namespace longhaul::coordinator {

// What somebody who looks at the dashboard may see.
struct Viewer {
  bool all = true;        // runs of all owners, and changes of all of them with a key
  std::string name = {};  // owner of the runs that the viewer sees; empty: nobody is known by name
  std::string role = {};
};

// Who asks for a change.
struct Asker {
  std::string key;      // of `longhaul dashboard-key`
  std::string address;  // for the audit log
};

// Thread-safe. Every function may wait for the state machine, and returns kUnauthenticated if the
// key is wrong, has expired, or is a revoked member's; kPermissionDenied: the key's owner has no
// right to do this; kNotFound: the owner has no such run; kDeadlineExceeded: no answer came in
// time, so the change may happen or not. `run`: a run's id or name.
class Changes {
 public:
  virtual ~Changes() = default;
  // Returns the key's owner.
  virtual StatusOr<Viewer> Identify(const Asker& asker) = 0;
  // What would submit this run again: its run file with every key, and its data files.
  virtual StatusOr<v1::SubmitRequest> Submission(const Asker& asker, const std::string& run) = 0;
  // Submits a run file. `run`: its data files are those of this run; empty: the file needs none.
  // With `resume` that very run goes on. Other errors: those of a submission (docs/design/limits.md
  // has its limits).
  struct Wanted {
    std::string run, yaml;
    bool resume = false;
  };
  virtual StatusOr<v1::SubmitReply> Submit(const Asker& asker, const Wanted& wanted,
                                           Deadline deadline) = 0;
  // Ends a run: after its current step, or at once with `now`.
  virtual StatusOr<v1::StopReply> Stop(const Asker& asker, const std::string& run, bool now,
                                       Deadline deadline) = 0;
};

}  // namespace longhaul::coordinator
