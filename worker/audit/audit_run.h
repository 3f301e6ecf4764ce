// Carries out an audit: computes again what a cell (a stage of one replica) has computed between
// two states of a run, on another worker. The executor is that of training. Its links play what the
// cell has received (recorded_transport.h), and its reports are the answer: what the cell should
// have reported. Where both have the same numerics (worker/epoch/numerics.h), reports have to agree
// bit for bit.
//
// Threads: Run on one thread; Cancel on any thread.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "longhaul/v1/worker.pb.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"
#include "worker/epoch/epoch_run.h"
#include "worker/epoch/resources.h"
#include "worker/pipeline/input_recorder.h"

namespace longhaul::worker {

// Checks that a recording has all messages that `cell` receives in the steps after `from`, up to
// and with `to`, and no others. The recording may be hostile. kInvalidArgument: the message says
// what is missing.
Status CheckRecording(const std::vector<RecordedMessage>& recording, const Assignment& assignment,
                      const CellId& cell, const RunSpec& spec, Step from, Step to);

class AuditRun {
 public:
  // `command`: has audit. `resources` must outlive this object.
  AuditRun(const Resources& resources, v1::WorkerCommand command);
  ~AuditRun();

  // Computes, and returns the answer, an AuditReport. Blocks. The files of the first state and the
  // recording are read from this worker's store, or else fetched from the coordinator.
  v1::WorkerMessage Run();
  // Makes Run end soon, with a problem as its answer.
  void Cancel(const std::string& reason);

  uint64_t number() const { return command_.audit().audit(); }

 private:
  Status Compute(v1::AuditReport* report);
  StatusOr<std::string> FetchRecording() const;
  bool Cancelled() const;

  const Resources& resources_;
  const v1::WorkerCommand command_;
  bool recording_faulty_ = false;

  mutable std::mutex mutex_;
  std::optional<std::string> cancelled_;
  EpochRun* run_ = nullptr;  // under way
};

}  // namespace longhaul::worker
