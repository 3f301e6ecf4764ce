// The interface through which the dashboard reads the coordinator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "longhaul/v1/control.pb.h"

namespace longhaul::coordinator {

// Thread-safe. Functions without a deadline return at once.
class Source {
 public:
  virtual ~Source() = default;
  // Runs, newest first, without plans: all that have not ended, and the newest of the others.
  virtual std::vector<v1::RunStatus> Runs() const = 0;
  // One run with its plan. kNotFound: there is no such run.
  virtual StatusOr<v1::RunStatus> Run(std::string_view id_or_name) const = 0;
  virtual std::vector<v1::WorkerStatus> Workers() const = 0;
  // The links between workers that were measured.
  virtual std::vector<v1::MeasuredLink> Links() const = 0;
  // Returns the newest events whose sequence number is above `after`, at most `limit`, oldest
  // first. `run` is a run's id; empty: events of all runs.
  virtual StatusOr<std::vector<v1::Event>> NewestEvents(std::string_view run, uint64_t after,
                                                        size_t limit) const = 0;
  // Returns the run's step records from `step` on, at most `limit`, in ascending order.
  virtual StatusOr<std::vector<v1::StepRecord>> Steps(const RunId& run, uint64_t step,
                                                      size_t limit) const = 0;
  // Checkpoints and Trace wait for the state machine; Trace waits for workers as well. `run`: a
  // run's id or name. kNotFound: there is no such run. kDeadlineExceeded: no answer came in time.
  virtual StatusOr<v1::CheckpointsReply> Checkpoints(const std::string& run, Deadline deadline) = 0;
  virtual StatusOr<v1::TraceReply> Trace(const std::string& run, Deadline deadline) = 0;
};

}  // namespace longhaul::coordinator
